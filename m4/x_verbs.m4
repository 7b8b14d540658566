# SPDX-License-Identifier: Apache-2.0
# X_VERBS: libibverbs headers; the library itself is opened at run time.
AC_DEFUN([X_VERBS], [
  AC_ARG_WITH([verbs], [AS_HELP_STRING([--with-verbs=auto|yes|no],
    [use libibverbs headers])], [], [with_verbs=auto])
  have_verbs=no
  AS_IF([test "$with_verbs" != no],
    [AC_CHECK_HEADERS([infiniband/verbs.h], [have_verbs=yes])])
  AS_IF([test "$have_verbs$with_verbs" = noyes],
    [AC_MSG_ERROR([--with-verbs was asked for, but infiniband/verbs.h was not found])])
])
