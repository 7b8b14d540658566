/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/ckpt_progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(int dir, const struct found *f, struct error *e)
{
    struct ckpt_progress p;
    struct found_facts facts;
    int rc = found_check(io_system(), dir, f, false, &facts, e);

    if (ckpt_is_unknown(dir, f->name, rc, &facts)) {
        return -ENOENT; /* of something else, of which nobody is to be told */
    }
    if (rc == 0) {
        rc = found_check(ckpt_progress_start(&p, "reading", f->name, facts.bytes), dir, f,
                         true, &facts, e);
        ckpt_progress_end(&p);
    }
    if (rc == 0 && found_lacks_parts(io_system(), dir, f)) {
        rc = error_text(e, ENOENT, "%s: it was never finished: an older one has files that it "
                        "lacks", f->name);
    }
    return rc;
}

/* Every byte is read: workers who find later that it is damaged go back to an older
 * one, and nobody asks the store any more. */
int store_newest_here(int dir, struct found *ret, struct strlist *damaged,
                      struct error *e)
{
    _free_ struct found *all = NULL;
    size_t n = 0;
    int rc = found_list(io_system(), dir, &all, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct error why = {0};
        int one = all[i].is_part ? -ENOENT : check(dir, &all[i], &why);

        if (one == 0) {
            *ret = all[i];
            return 0;
        }
        if (one == -ERR_FORMAT) {
            strlist_add(damaged, all[i].name);
            ckpt_tell("passed over here", "damaged", &why);
        }
    }
    return rc < 0 ? rc : -ENOENT;
}

/* Of those of a directory, which come newest first; NULL: it is not there. */
static const struct found *find(const struct found *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return &all[i];
        }
    }
    return NULL;
}

/* Of muster's own that are of one step the one with the higher token. */
static bool is_later(const struct found *f, const struct found *than)
{
    return f->step != than->step ? f->step > than->step
                                 : f->kind == FOUND_MUSTER && than->kind == FOUND_MUSTER &&
                                   f->token > than->token;
}

static bool is_newer(const struct found *f, const struct found *than)
{
    return f->has_step && !f->is_part &&
           (!than || (f->kind == than->kind && than->has_step && is_later(f, than)));
}

int store_newer_beside(int dir, char name[FOUND_NAME_BYTES], struct error *e)
{
    _free_ struct found *all = NULL;
    const struct found *given;
    struct found_facts facts;
    size_t n = 0;
    int rc = found_list(io_system(), dir, &all, &n, e);

    given = rc < 0 ? NULL : find(all, n, name);
    for (size_t i = 0; i < n; i++) {
        if (is_newer(&all[i], given) &&
            found_check(io_system(), dir, &all[i], false, &facts, NULL) == 0 &&
            !found_lacks_parts(io_system(), dir, &all[i])) {
            str_copy(name, FOUND_NAME_BYTES, all[i].name);
            return 0;
        }
    }
    return rc < 0 ? error_wrap(e, "look for a newer one") : 0;
}

bool store_is_newer(const struct store_entry *entry, const struct found *here)
{
    return entry->found.has_step &&
           (!here->has_step || is_later(&entry->found, here));
}
