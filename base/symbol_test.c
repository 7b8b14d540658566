/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/symbol.h"
#include "tests/lib/tap.h"

#include <dlfcn.h>
#include <string.h>

int main(void)
{
    void *all = dlopen(NULL, RTLD_NOW); /* what this program has */
    size_t (*length)(const char *text) = NULL;

    ok(symbol_find(all, "strlen", &length), "a function is found");
    ok(length && length("four") == 4, "and is that one");
    ok(!symbol_find(all, "muster_has_none_of_that_name", &length), "another one is not");
    ok(!length, "which the pointer says, too");
    dlclose(all);
    return tap_done();
}
