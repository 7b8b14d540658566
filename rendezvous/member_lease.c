/* SPDX-License-Identifier: Apache-2.0 */
/* The lease, and what its end means: alone, for good or until another view. */
#include <config.h>

#include "rendezvous/member_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/restart.h"

#include <stdio.h>

/* When the lease runs out; MEMBER_NEVER without one. */
uint64_t member_lease_end(const struct member *m)
{
    uint64_t lease_ms = m->config.lease_ms;

    if (!lease_ms || m->fenced || m->lapsed || MUTANT(7)) {
        return MEMBER_NEVER;
    }
    if (MUTANT(13)) {
        lease_ms /= 4;
    }
    if (!m->had_word && m->config.join_ms > lease_ms) {
        lease_ms = m->config.join_ms;
    }
    return member_later(m->word_ms, lease_ms);
}

void member_settle(struct member *m, uint8_t status, const char *reason,
                   struct member_actions *ret)
{
    if (m->has_verdict) {
        return;
    }
    m->has_verdict = true;
    m->status = status;
    str_copy(m->reason, sizeof(m->reason), reason);
    ret->has_verdict = true;
}

/* From here on this member is on its own, and only has to go. */
void member_fence(struct member *m, const char *why, struct member_actions *ret)
{
    if (m->fenced) {
        return;
    }
    m->fenced = true;
    member_settle(m, RUN_RESUMABLE, why, ret);
    m->leave_ms = member_later(m->now_ms, m->config.margin_ms);
}

void member_check_lease(struct member *m, struct member_actions *ret)
{
    char why[128];

    if (m->now_ms < member_lease_end(m)) {
        return;
    }
    if (m->config.waits) {
        m->lapsed = true;
        if (m->workers.alive) {
            m->report.fenced = m->workers.generation;
            m->changed = true;
        }
        return;
    }
    snprintf(why, sizeof(why), "no word from the lead for %llu s",
             (unsigned long long)(m->now_ms - m->word_ms) / 1000);
    member_fence(m, why, ret);
}

void member_hear(struct member *m, uint64_t age_ms)
{
    uint64_t at_ms;

    if (MUTANT(14)) {
        age_ms = 0;
    }
    /* A first word that is as old as a lease starts none. */
    if (!m->had_word && age_ms >= m->config.lease_ms && age_ms) {
        return;
    }
    at_ms = m->now_ms > age_ms ? m->now_ms - age_ms : 0;
    m->had_word = true;
    if (at_ms > m->word_ms) {
        m->word_ms = at_ms;
    }
    if (age_ms < m->config.lease_ms) {
        m->lapsed = false;
        m->is_strange = false;
    }
}

/* What the others must not take for a lead's that counts. */
void member_promise(struct member *m, uint32_t floor, uint64_t heard_ms)
{
    struct report *r = &m->report;

    m->is_strange = m->is_strange || floor > r->floor;
    m->changed = m->changed || floor > r->floor;
    r->floor = floor > r->floor ? floor : r->floor;
    if (heard_ms != MEMBER_NEVER) {
        m->heard_ms = m->has_heard && m->heard_ms > heard_ms ? m->heard_ms
                                                             : heard_ms;
        m->has_heard = true;
    }
}
