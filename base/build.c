/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/build.h"

#include <stddef.h>

const char *build_name(void)
{
    const char *name = build_linked_name;

    return name ? name : PACKAGE_VERSION;
}

const char *build_id(void)
{
    const char *id = build_linked_id;

    return id ? id : "";
}
