/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/keep.h"

#include "base/cleanup.h"
#include "ckpt/avoided.h"
#include "ckpt/step.h"

#include <string.h>

int keep_newest(struct io *io, int root, size_t keep, const char *saved,
                const char *avoided, struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0, n_kept = saved ? 1 : 0;
    int rc = step_list(io, root, &entries, &n, e), first = rc;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct step s = {0};
        int removed;

        if ((saved && strcmp(entries[i].name, saved) == 0) ||
            avoided_has_name(avoided, entries[i].name) ||
            step_open(io, root, entries[i].name, &s, NULL) < 0) {
            continue;
        }
        step_close(&s);
        if (n_kept < keep) {
            n_kept++;
            continue;
        }
        removed = step_remove(io, root, entries[i].name, first ? NULL : e);
        first = first ? first : removed;
    }
    return first;
}
