# SPDX-License-Identifier: Apache-2.0
# X_STATIC: whether small helpers can be linked statically, which halves what
# they cost at every start of a worker. Not with sanitizers, which cannot be.
AC_DEFUN([X_STATIC], [
  STATIC_LDFLAGS=
  AS_IF([test "x$enable_sanitizer" = xno], [
    save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -static"
    AC_MSG_CHECKING([whether programs can be linked statically])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]], [[puts("");]])],
      [STATIC_LDFLAGS=-all-static; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
    LDFLAGS=$save_LDFLAGS
  ])
  AC_SUBST([STATIC_LDFLAGS])
])
