/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

/* As deep as before a push: those of muster have digests, which whoever loads them
 * looks at; others are read now or never. */
int store_newest_here(int dir, struct found *ret, struct error *e)
{
    _free_ struct found *all = NULL;
    size_t n = 0;
    int rc = found_list(io_system(), dir, &all, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct found_facts facts;

        if (found_check(io_system(), dir, &all[i], all[i].kind != FOUND_MUSTER,
                        &facts, NULL) == 0) {
            *ret = all[i];
            return 0;
        }
    }
    return rc < 0 ? rc : -ENOENT;
}

bool store_is_newer(const struct store_entry *entry, const struct found *here)
{
    return entry->found.has_step &&
           (!here->has_step || entry->found.step > here->step);
}
