# SPDX-License-Identifier: Apache-2.0
# X_WARNINGS: the warnings that every file compiles under, in WARN_CFLAGS.
AC_DEFUN([X_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror],
    [turn warnings into errors])], [], [enable_werror=no])
  WARN_CFLAGS="-std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wformat=2 -Wvla -Wundef"
  AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])
