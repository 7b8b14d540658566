/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/symbol.h"

#include <dlfcn.h>
#include <string.h>

bool symbol_find(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name); /* POSIX promises that these hold functions, too */

    memcpy(to, &found, sizeof(found));
    return found != NULL;
}
