/* SPDX-License-Identifier: Apache-2.0 */
/* What a later world of a run tells of its agents. */
#include <config.h>

#include "rendezvous/roster.h"

/* 1: an agent is known now that was not; 0: it was, or is not here either. */
static int renew_entry(struct roster *r, const struct roster_entry *fresh)
{
    bool is_absent = roster_is_absent(fresh), is_news = fresh->rank >= r->n;
    struct roster_entry *known;
    int rc = is_news ? roster_add(r, fresh) : 0;

    if (rc < 0) {
        return rc;
    }
    known = &r->entries[fresh->rank];
    if (roster_is_absent(known) && !is_absent) {
        *known = *fresh;
        is_news = true;
    }
    known->origin = is_absent ? ROSTER_NO_RANK : fresh->origin;
    return is_news;
}

int roster_renew(struct roster *r, const struct roster *fresh, bool *ret_is_news)
{
    *ret_is_news = false;
    for (uint32_t i = 0; i < fresh->n; i++) {
        int rc = renew_entry(r, &fresh->entries[i]);

        if (rc < 0) {
            return rc;
        }
        *ret_is_news = *ret_is_news || rc > 0;
    }
    return 0;
}
