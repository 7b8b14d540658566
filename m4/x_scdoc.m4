# SPDX-License-Identifier: Apache-2.0
# X_SCDOC: man pages are built where scdoc is there; tarballs carry them built.
AC_DEFUN([X_SCDOC], [
  AC_PATH_PROG([SCDOC], [scdoc], [no])
  AM_CONDITIONAL([HAVE_SCDOC], [test "x$SCDOC" != xno])
])
