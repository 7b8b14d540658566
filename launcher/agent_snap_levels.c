/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves that need not go to the partner, or to the disk, each time
 * (checkpoint.partnerEvery and diskEvery). Whoever saves says that memory is enough, as
 * nobody has asked for that save; then it waits here for the lead, who sees all ranks
 * and knows what was taken where, and says which levels it goes to. What stays in memory
 * gives it to a later one, and goes to the disk all the same where somebody waits for
 * it, or nothing later will come.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a request workers hear one after the other, and one may have begun a save before
 * that is handed over later: the next but one is meant as well. */
enum { N_ASKED = 2 };

static const unsigned disk = 1u << INTERVAL_DISK, partner = 1u << INTERVAL_PARTNER;
static const unsigned untold = 1u << INTERVAL_MEMORY; /* in saved.waits: by the lead */

/* --- what a worker says --- */

static struct may_stay *of_rank(struct agent_snap *p, uint32_t rank, bool make)
{
    struct may_stay *m = p->may_stay;

    while (m && m->rank != rank) {
        m = m->next;
    }
    if (!m && make && (m = calloc(1, sizeof(*m)))) {
        m->rank = rank;
        m->next = p->may_stay;
        p->may_stay = m;
    }
    return m;
}

void agent_snap_forget_ranks(struct agent_snap *p)
{
    while (p->may_stay) {
        struct may_stay *m = p->may_stay;

        p->may_stay = m->next;
        free(m);
    }
}

void agent_snap_want(struct crew *c, uint32_t local_rank, const struct worker_snap_want *w)
{
    struct agent_snap *p = c->agent->snap;
    uint32_t rank = c->layout.first_rank + local_rank;
    struct may_stay *m;
    struct saved *s;

    if (!p) {
        return;
    }
    if (w->level == WORKER_SNAP_HELD) {
        m = of_rank(p, rank, true);
        if (m) { /* else it goes everywhere */
            str_copy(m->uuid, sizeof(m->uuid), w->uuid);
            m->is_chosen = w->is_chosen;
        }
        return;
    }
    s = agent_snap_saved(p, rank, w->uuid);
    if (s && (s->waits & (disk | partner)) && !s->is_wanted) {
        s->is_wanted = true;
        agent_snap_tell_lead(c->agent, s);
    }
}

static bool is_asked(const struct crew *c, struct may_stay *m)
{
    if (m->n_asked != c->n_checkpoints) {
        m->n_asked = c->n_checkpoints;
        m->n_left = N_ASKED;
    }
    if (m->n_left > 0) {
        m->n_left--;
        return true;
    }
    return false;
}

/* Memory is for two saves of a rank. Of who saves to several directories what is in one
 * would take the place of what is in another, and is nowhere else. */
static bool saves_to_several(struct may_stay *m, const struct snap *s)
{
    if (s && !m->root[0]) {
        str_copy(m->root, sizeof(m->root), s->head.root);
    }
    m->has_several = m->has_several || (s && strcmp(m->root, s->head.root) != 0);
    return m->has_several;
}

static bool is_seldom(uint64_t every_ms, bool is_chosen)
{
    return every_ms == JOB_AUTO ? is_chosen : every_ms > 0;
}

bool agent_snap_is_for_disk(const struct crew *c, const struct worker_snap_fill *fill)
{
    const struct job_checkpoint *k = &c->agent->config.job->checkpoint;

    return !fill->may_stay || !is_seldom(k->disk_every_ms, fill->is_chosen);
}

unsigned agent_snap_waiting(struct crew *c, uint32_t rank, const char *uuid)
{
    const struct job_checkpoint *k = &c->agent->config.job->checkpoint;
    struct agent_snap *p = c->agent->snap;
    struct may_stay *m = of_rank(p, rank, c->n_checkpoints > 0);
    bool was_asked = m && is_asked(c, m);
    bool has_several = m && saves_to_several(m, snap_hold_fill(p->hold, rank, uuid));
    unsigned waits = 0;

    if (!m || strcmp(m->uuid, uuid) != 0 || was_asked || has_several || c->stopping) {
        return 0;
    }
    m->uuid[0] = '\0';
    waits |= is_seldom(k->disk_every_ms, m->is_chosen) ? disk : 0;
    waits |= p->copy && is_seldom(k->partner_every_ms, m->is_chosen) ? partner : 0;
    return waits ? waits | untold : 0;
}

void agent_snap_stay(struct saved *s)
{
    s->waits = disk | untold;
}

/* --- what becomes of it --- */

void agent_snap_unpin(struct agent_snap *p, struct saved *s)
{
    if (s->is_pinned) {
        s->is_pinned = false;
        snap_hold_unpin(p->hold, s->head.rank, s->head.uuid);
    }
}

static void fail(struct saved *s, const struct error *e)
{
    s->stage = SNAP_STAGE_FAILED;
    s->error = e->code;
    str_copy(s->why, sizeof(s->why), e->text);
}

/* False: the lead has to hear of it. */
static bool go(struct agent *a, struct saved *s, unsigned levels)
{
    struct agent_snap *p = a->snap;
    unsigned to = s->waits & levels;
    struct error e = {0};

    s->waits &= ~(levels | untold);
    if ((to & partner) && a->crew && a->crew->generation == s->head.generation) {
        agent_partner_send(a->crew, s);
    }
    if (to & disk) {
        agent_snap_unpin(p, s);
        if (snap_hold_write(p->hold, s->head.rank, s->head.uuid, &e) < 0) {
            fail(s, &e);
            return false;
        }
    }
    if (s->waits & disk) {
        agent_snap_tell_own(a, s);
    }
    return true;
}

/* As the lead hears of one it may be settled at once, and gone: so one after the other,
 * from the first again. */
void agent_snap_go(struct agent *a, const char *uuid, unsigned levels)
{
    struct agent_snap *p = a->snap;
    struct saved *s = p ? p->saved : NULL;

    while (s) {
        bool is_meant = !s->is_copy && (s->waits & (levels | untold)) &&
                        s->stage == SNAP_STAGE_HELD && strcmp(s->head.uuid, uuid) == 0;

        if (is_meant && !go(a, s, levels)) {
            agent_snap_tell_lead(a, s);
            s = a->snap ? a->snap->saved : NULL;
        } else {
            s = s->next;
        }
    }
}

void agent_snap_taken(struct agent_snap *p, uint32_t rank)
{
    struct saved *s = p->saved;
    struct error e = {0};

    error_text(&e, ESTALE, "a later one has its place in memory");
    while (s) {
        if (!s->is_copy && s->head.rank == rank && (s->waits & disk) &&
            s->stage == SNAP_STAGE_HELD && !snap_hold_get(p->hold, rank, s->head.uuid)) {
            fail(s, &e);
            agent_snap_tell_lead(p->agent, s);
            s = p->saved;
        } else {
            s = s->next;
        }
    }
}

/* In that directory. */
static const struct saved *newest(const struct agent_snap *p, const char *root)
{
    const struct saved *best = NULL;

    for (const struct saved *s = p->saved; s; s = s->next) {
        if (!s->is_copy && s->stage != SNAP_STAGE_FAILED &&
            strcmp(s->head.root, root) == 0 &&
            (!best || snap_hold_is_newer(&s->head, &best->head))) {
            best = s;
        }
    }
    return best;
}

void agent_snap_flush(struct agent_snap *p)
{
    struct saved *s = p->saved;

    while (s) {
        const struct saved *last = newest(p, s->head.root);

        if (!s->is_copy && (s->waits & disk) && !s->is_wanted && last &&
            strcmp(s->head.uuid, last->head.uuid) == 0) {
            s->is_wanted = true;
            agent_snap_tell_lead(p->agent, s);
            s = p->saved;
        } else {
            s = s->next;
        }
    }
}
