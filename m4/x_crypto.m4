# SPDX-License-Identifier: Apache-2.0
# X_CRYPTO: headers of libcrypto, which seals large frames several times as fast as
# libsodium. It is loaded where it is there (base/aead_lib.h): nothing is linked with it.
AC_DEFUN([X_CRYPTO], [
  AC_ARG_WITH([libcrypto], [AS_HELP_STRING([--with-libcrypto=auto|yes|no],
    [seal what goes between nodes by libcrypto, where that is there])], [],
    [with_libcrypto=auto])
  have_crypto=no
  AS_IF([test "$with_libcrypto" != no],
    [PKG_CHECK_MODULES([CRYPTO], [libcrypto >= 3.0], [have_crypto=yes], [have_crypto=no])])
  AS_IF([test "$have_crypto$with_libcrypto" = noyes],
    [AC_MSG_ERROR([--with-libcrypto was asked for, but libcrypto >= 3.0 was not found])])
  AS_IF([test "$have_crypto" = yes],
    [AC_DEFINE([HAVE_LIBCRYPTO], [1], [Define to 1 if there are headers of libcrypto.])])
])

# X_IPSEC_MB: the header of libIPSec_MB, which does the same twice as fast as libcrypto of
# OpenSSL 3.0 on processors with VAES; it is loaded likewise. It has no file for pkg-config.
AC_DEFUN([X_IPSEC_MB], [
  AC_ARG_WITH([ipsec-mb], [AS_HELP_STRING([--with-ipsec-mb=auto|yes|no],
    [seal what goes between nodes by libIPSec_MB, where that is there])], [],
    [with_ipsec_mb=auto])
  have_ipsec_mb=no
  AS_IF([test "$with_ipsec_mb" != no],
    [AC_CHECK_HEADER([intel-ipsec-mb.h], [have_ipsec_mb=yes])])
  AS_IF([test "$have_ipsec_mb$with_ipsec_mb" = noyes],
    [AC_MSG_ERROR([--with-ipsec-mb was asked for, but intel-ipsec-mb.h was not found])])
  AS_IF([test "$have_ipsec_mb" = yes],
    [AC_DEFINE([HAVE_IPSEC_MB], [1], [Define to 1 if there is the header of libIPSec_MB.])])
])
