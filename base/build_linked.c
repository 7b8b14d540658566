/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/build-id.h"
#include "base/build.h"

const char build_linked_name[] = PACKAGE_VERSION " (build " BUILD_ID ")";
const char build_linked_id[] = BUILD_ID;

_Static_assert(sizeof(build_linked_name) <= 64, "as build.h says");
