/* SPDX-License-Identifier: Apache-2.0 */
/* What tests/lib/other_muster and other_muster_mpi are linked with in place of
 * base/build_linked.c: the same version, and another build. */
#include <config.h>

#include "base/build.h"

const char build_linked_name[] = PACKAGE_VERSION " (build 0123456789ab)";
const char build_linked_id[] = "0123456789ab";
