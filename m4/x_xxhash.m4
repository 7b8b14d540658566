# SPDX-License-Identifier: Apache-2.0
# X_XXHASH: digests. A build of libxxhash for x86 may choose the processor's widest
# instructions as it runs, where it is asked by its other names: three times as fast.
AC_DEFUN([X_XXHASH], [
  PKG_CHECK_MODULES([XXHASH], [libxxhash >= 0.8])
  x_libs=$LIBS x_cppflags=$CPPFLAGS
  LIBS="$XXHASH_LIBS $LIBS" CPPFLAGS="$CPPFLAGS $XXHASH_CFLAGS"
  AC_MSG_CHECKING([whether libxxhash chooses instructions as it runs])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#include <xxh_x86dispatch.h>]], [[XXH3_state_t state;
    return (int)XXH3_64bits("", 0) + XXH3_64bits_update(&state, "", 0);]])],
    [AC_MSG_RESULT([yes])
     AC_DEFINE([HAVE_XXH_DISPATCH], [1],
       [Define to 1 if libxxhash has functions that choose instructions as they run.])],
    [AC_MSG_RESULT([no])])
  LIBS=$x_libs CPPFLAGS=$x_cppflags
])
