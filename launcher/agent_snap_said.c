/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead says of saves: settled, or to be written for a node that is lost. */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "ckpt/step.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool agent_snap_has_own(const struct agent_snap *p)
{
    const struct saved *s = p->saved;

    while (s && s->is_copy) {
        s = s->next;
    }
    return s != NULL;
}

/* The lead knows; but whoever leads next hears it from members alone. */
static void remember(struct agent *a, const struct snap_head *head)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];
    struct member_event event = {.type = MEMBER_SAVED, .text = path,
                                 .step = (int64_t)head->step,
                                 .generation = head->generation};

    step_name(head->step, head->uuid, name);
    snprintf(path, sizeof(path), "%s/%s", head->root, name);
    if (strlen(path) < ORDER_PATH_BYTES) {
        agent_member_soon(a, &event);
    }
}

static void tell_worker(struct agent *a, const struct saved *s, const struct snap_verdict *v)
{
    enum worker_snap_level level = !v->error             ? WORKER_SNAP_DURABLE
                                   : v->error == ESTALE ? s->level
                                                         : WORKER_SNAP_NONE;

    if (!s->is_copy) {
        agent_snap_tell_worker(a, s->head.rank, v->uuid, level, v->error, v->why);
    }
}

/* A later try of it is on here, of which that is no word. */
static bool is_past(const struct agent_snap *p, const struct snap_verdict *v)
{
    for (const struct saved *s = p->saved; s; s = s->next) {
        if (v->error && strcmp(s->head.uuid, v->uuid) == 0 && s->again > v->again) {
            return true;
        }
    }
    return false;
}

/* One of its ranks is taken off the list; NULL: none is left. */
static struct saved *take(struct agent_snap *p, const char *uuid)
{
    struct saved **at = &p->saved, *s;

    while (*at && strcmp((*at)->head.uuid, uuid) != 0) {
        at = &(*at)->next;
    }
    s = *at;
    if (s) {
        *at = s->next;
    }
    return s;
}

/* Workers that are there still tell of it as they end. An agent that was started anew
 * does not know how many have ended. */
static void put_off(struct agent_snap *p, const struct snap_verdict *v, uint32_t generation,
                    uint32_t again)
{
    const struct crew *c = p->agent->crew;

    if (generation && v->on > p->offered && !(c && c->generation <= generation)) {
        p->offered = v->on;
    }
    snap_hold_put_off(p->hold, v->uuid);
    agent_snap_offer_late(p, generation, again);
}

void agent_snap_settled(struct agent *a, const struct snap_verdict *v)
{
    struct agent_snap *p = a->snap;
    struct snap_head head = {0};
    uint32_t again = 0;
    struct saved *s;

    if (!p || is_past(p, v)) {
        return;
    }
    while ((s = take(p, v->uuid))) {
        head = s->head;
        again = s->again;
        agent_snap_unpin(p, s);
        tell_worker(a, s, v);
        free(s);
    }
    if (v->error && v->stays) {
        put_off(p, v, head.generation, again);
    } else {
        snap_hold_settle(p->hold, v->uuid, !v->error);
    }
    agent_partner_settled(p, v->uuid, head.step, !v->error);
    if (head.uuid[0] && !v->error) {
        remember(a, &head);
    }
    agent_snap_keep_telling(p);
    if (!agent_snap_has_own(p) && p->waits) {
        struct crew *c = p->waits;

        p->waits = NULL;
        crew_finish(c);
    }
}

void agent_snap_stored(struct agent *a, const char *uuid, int error, const char *why)
{
    const struct crew *c = a->crew;

    for (uint32_t i = 0; c && i < c->layout.n_local; i++) {
        agent_snap_tell_worker(a, c->layout.first_rank + i, uuid,
                               error ? WORKER_SNAP_DURABLE : WORKER_SNAP_REMOTE,
                               error, why);
    }
}

static void write_copy(struct agent_snap *p, struct saved *s)
{
    struct error e = {0};

    if (s->stage != SNAP_STAGE_HELD ||
        snap_hold_write(p->copies, s->head.rank, s->head.uuid, &e) == 0) {
        return; /* or it is on its way */
    }
    s->stage = SNAP_STAGE_FAILED;
    s->error = e.code;
    str_copy(s->why, sizeof(s->why), e.text); /* the lead hears of it in time */
}

void agent_snap_write(struct agent *a, const char *uuid, uint32_t rank)
{
    struct saved *s = a->snap ? agent_snap_saved(a->snap, rank, uuid) : NULL;

    if (s && s->is_copy) {
        write_copy(a->snap, s);
    }
}
