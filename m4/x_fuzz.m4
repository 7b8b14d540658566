# SPDX-License-Identifier: Apache-2.0
# X_FUZZ: --enable-fuzz builds the libFuzzer targets (clang only). Without it
# the same targets are built as plain programs that replay a corpus.
AC_DEFUN([X_FUZZ], [
  AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz],
    [build libFuzzer targets (needs clang)])], [], [enable_fuzz=no])
  AS_IF([test "x$enable_fuzz" = xyes], [
    FUZZ_CFLAGS="-fsanitize=fuzzer-no-link"
    FUZZ_LDFLAGS="-fsanitize=fuzzer"
  ])
  AM_CONDITIONAL([FUZZ], [test "x$enable_fuzz" = xyes])
  AC_SUBST([FUZZ_CFLAGS])
  AC_SUBST([FUZZ_LDFLAGS])
])
