# SPDX-License-Identifier: Apache-2.0
# X_COVERAGE: --enable-coverage builds for gcov.
AC_DEFUN([X_COVERAGE], [
  AC_ARG_ENABLE([coverage], [AS_HELP_STRING([--enable-coverage],
    [build for gcov])], [], [enable_coverage=no])
  AS_IF([test "x$enable_coverage" = xyes], [COV_CFLAGS="--coverage -O0"])
  AC_SUBST([COV_CFLAGS])
])
