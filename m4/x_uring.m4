# SPDX-License-Identifier: Apache-2.0
# X_URING: liburing, by which agents write checkpoints; without it they write one
# block at a time.
AC_DEFUN([X_URING], [
  AC_ARG_WITH([liburing], [AS_HELP_STRING([--with-liburing=auto|yes|no],
    [write checkpoints through io_uring])], [], [with_liburing=auto])
  have_uring=no
  AS_IF([test "$with_liburing" != no],
    [PKG_CHECK_MODULES([URING], [liburing >= 2.0], [have_uring=yes], [have_uring=no])])
  AS_IF([test "$have_uring$with_liburing" = noyes],
    [AC_MSG_ERROR([--with-liburing was asked for, but liburing was not found])])
  AS_IF([test "$have_uring" = yes],
    [AC_DEFINE([HAVE_LIBURING], [1], [Define to 1 if there is liburing.])])
])
