# SPDX-License-Identifier: Apache-2.0
# X_GPU: CUDA and NCCL headers. The libraries are opened at run time, so a binary
# built with the headers runs where there is no GPU.
AC_DEFUN([X_GPU], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|yes|no|DIR],
    [use CUDA headers])], [], [with_cuda=auto])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=auto|yes|no|DIR],
    [use NCCL headers])], [], [with_nccl=auto])
  have_cuda=no have_nccl=no GPU_CFLAGS=
  X_HEADER_DIR([cuda], [cuda.h], [/usr/local/cuda/include])
  X_HEADER_DIR([nccl], [nccl.h], [/usr/local/cuda/include])
  AC_SUBST([GPU_CFLAGS])
])

# X_HEADER_DIR(NAME, HEADER, USUAL-DIR): sets have_NAME; yes in --with-NAME makes
# a missing header an error.
AC_DEFUN([X_HEADER_DIR], [
  AS_CASE([$with_$1], [no], [x_dirs=], [auto|yes], [x_dirs="/usr/include $3"],
    [x_dirs="$with_$1 $with_$1/include"])
  for x_dir in $x_dirs; do
    AS_IF([test "$have_$1" = no && test -f "$x_dir/$2"], [
      have_$1=$x_dir
      AS_IF([test "$x_dir" != /usr/include], [GPU_CFLAGS="$GPU_CFLAGS -isystem $x_dir"])
      AC_DEFINE(AS_TR_CPP([HAVE_$1_H]), [1], [$2 is there])
    ])
  done
  AS_IF([test "$have_$1" = no && test "$with_$1" != no && test "$with_$1" != auto],
    [AC_MSG_ERROR([--with-$1 was asked for, but $2 was not found])])
])
