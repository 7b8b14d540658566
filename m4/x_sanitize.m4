# SPDX-License-Identifier: Apache-2.0
# X_SANITIZE: --enable-sanitizer=address,undefined | thread.
AC_DEFUN([X_SANITIZE], [
  AC_ARG_ENABLE([sanitizer], [AS_HELP_STRING([--enable-sanitizer=LIST],
    [build everything with -fsanitize=LIST])], [], [enable_sanitizer=no])
  AS_IF([test "x$enable_sanitizer" != xno], [
    SAN_CFLAGS="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer -fno-sanitize-recover=all"
    AC_DEFINE_UNQUOTED([SANITIZER], ["$enable_sanitizer"], [sanitizers built in])
  ])
  AM_CONDITIONAL([SANITIZER], [test "x$enable_sanitizer" != xno])
  AC_SUBST([SAN_CFLAGS])
])
