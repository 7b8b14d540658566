# SPDX-License-Identifier: Apache-2.0
# X_CURL: what object stores are spoken to with: libcurl, expat for
# their answers, libcrypto for their checksums. Only muster-store is linked with them.
AC_DEFUN([X_CURL], [
  AC_ARG_WITH([curl], [AS_HELP_STRING([--with-curl=auto|yes|no],
    [copy checkpoints to and from object stores (libcurl, expat, libcrypto)])], [],
    [with_curl=auto])
  have_curl=no
  AS_IF([test "$with_curl" != no],
    [PKG_CHECK_MODULES([CURL], [libcurl >= 7.85 expat libcrypto],
      [have_curl=yes], [have_curl=no])])
  AS_IF([test "$have_curl$with_curl" = noyes],
    [AC_MSG_ERROR([--with-curl was asked for, but libcurl >= 7.85, expat or libcrypto was not found])])
  AM_CONDITIONAL([HAVE_CURL], [test "$have_curl" = yes])
])
