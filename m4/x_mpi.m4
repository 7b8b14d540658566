# SPDX-License-Identifier: Apache-2.0
# X_MPI: finds MPI through its compiler wrapper. The flags go to comm/mpi alone:
# nothing else in the tree may see mpi.h. MPICC=PATH chooses another MPI.
AC_DEFUN([X_MPI], [
  AC_ARG_VAR([MPICC], [MPI compiler wrapper])
  AC_PATH_PROGS([MPICC], [mpicc mpicc.openmpi], [no])
  AS_IF([test "x$MPICC" = xno],
    [AC_MSG_ERROR([no mpicc found: install Open MPI (libopenmpi-dev) or set MPICC])])
  MPI_CFLAGS=`$MPICC --showme:compile 2>/dev/null`
  MPI_LIBS=`$MPICC --showme:link 2>/dev/null`
  save_CPPFLAGS=$CPPFLAGS save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$LIBS $MPI_LIBS"
  AC_MSG_CHECKING([whether $MPICC works])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])],
    [AC_MSG_RESULT([yes])], [AC_MSG_ERROR([cannot link an MPI program with $MPICC])])
  CPPFLAGS=$save_CPPFLAGS LIBS=$save_LIBS
  mpi_version=`$MPICC --showme:version 2>/dev/null | head -n 1`
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
])
