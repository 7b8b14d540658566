# SPDX-License-Identifier: Apache-2.0
# X_PYTHON_DIR: where the module goes, after AM_PATH_PYTHON. That assumes
# site-packages; Debian's Python looks into other directories of its prefixes.
AC_DEFUN([X_PYTHON_DIR], [
  x_prefix=$prefix
  AS_IF([test "$x_prefix" = NONE], [x_prefix=$ac_default_prefix])
  x_dir=
  AS_IF([test "$PYTHON" != :], [
    x_dir=`"$PYTHON" "$srcdir/build-aux/python-dir" "$x_prefix" 2>/dev/null`
  ])
  AS_IF([test -n "$x_dir"], [pythondir='${prefix}'$x_dir])
])
