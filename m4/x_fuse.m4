# SPDX-License-Identifier: Apache-2.0
# X_FUSE: libfuse, by which tests have a filesystem whose server answers nobody.
AC_DEFUN([X_FUSE], [
  AC_ARG_WITH([fuse], [AS_HELP_STRING([--with-fuse=auto|yes|no],
    [test with a filesystem that hangs])], [], [with_fuse=auto])
  have_fuse=no
  AS_IF([test "$with_fuse" != no],
    [PKG_CHECK_MODULES([FUSE], [fuse3 >= 3.2], [have_fuse=yes], [have_fuse=no])])
  AS_IF([test "$have_fuse$with_fuse" = noyes],
    [AC_MSG_ERROR([--with-fuse was asked for, but fuse3 was not found])])
  AM_CONDITIONAL([HAVE_FUSE], [test "$have_fuse" = yes])
])
