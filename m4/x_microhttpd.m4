# SPDX-License-Identifier: Apache-2.0
# X_MICROHTTPD: libmicrohttpd's header; the library itself is opened at run time,
# by agents that serve Horovod's rendezvous.
AC_DEFUN([X_MICROHTTPD], [
  AC_ARG_WITH([microhttpd], [AS_HELP_STRING([--with-microhttpd=auto|yes|no],
    [serve the rendezvous of Horovod])], [], [with_microhttpd=auto])
  have_microhttpd=no
  AS_IF([test "$with_microhttpd" != no],
    [AC_CHECK_HEADERS([microhttpd.h], [have_microhttpd=yes])])
  AS_IF([test "$have_microhttpd$with_microhttpd" = noyes],
    [AC_MSG_ERROR([--with-microhttpd was asked for, but microhttpd.h was not found])])
])
