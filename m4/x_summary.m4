# SPDX-License-Identifier: Apache-2.0
# X_SUMMARY: what configure found, as the last thing that it prints.
AC_DEFUN([X_SUMMARY], [
  AC_MSG_NOTICE([
  muster $PACKAGE_VERSION
    prefix          $prefix
    compiler        $CC $CFLAGS
    MPI             $mpi_version ($MPICC)
    CUDA headers    $have_cuda
    NCCL headers    $have_nccl
    verbs headers   $have_verbs
    libmicrohttpd   $have_microhttpd
    liburing        $have_uring
    object stores   $have_curl
    libcrypto       $have_crypto
    libIPSec_MB     $have_ipsec_mb
    man pages       $SCDOC
    Python          $PYTHON ($pythondir)
    sanitizers      $enable_sanitizer])
])
