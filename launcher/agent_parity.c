/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity of what workers save, in memory of a group of nodes (launcher/snap_parity.h),
 * instead of copies. Each agent finds its group by itself, tells the lead of the
 * parity that it keeps, and where a node is lost makes what that had saved again: a
 * copy from then on, which is written, and handed to who loads it, as any other.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"
#include "launcher/partner_groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STUCK_MS = 10000 };

/* --- who --- */

/* As of that order. */
static void find_group(struct agent_snap *p, const struct order *run)
{
    const struct job_checkpoint *k = &p->agent->config.job->checkpoint;
    _free_ struct partners_node *nodes = NULL;
    _free_ uint32_t *groups = calloc((size_t)run->n_nodes + 1, sizeof(*groups));
    int n = agent_partner_nodes(p->agent, run, &nodes);
    uint32_t mine = PARTNERS_NONE;
    unsigned *n_members = &p->group.shape.n;

    p->group = (struct parity_group){0};
    if (n < 0 || !groups ||
        partner_groups(nodes, (uint32_t)n, k->partner_group, groups) < 0) {
        return;
    }
    for (int i = 0; i < n; i++) {
        mine = nodes[i].place == p->agent->rank ? groups[i] : mine;
    }
    /* It has room for all of them: see partner_groups.h. */
    for (int i = 0; i < n && *n_members < PARITY_MAX_MEMBERS; i++) {
        if (groups[i] == mine) {
            p->group.agents[(*n_members)++] = nodes[i].place;
        }
    }
    p->group.shape.m = k->partner == JOB_PARTNER_RS ? k->partner_parities : 1;
    p->grouped = run->generation;
}

static bool group_now(struct agent_snap *p, uint32_t generation)
{
    const struct order *order = member_order(p->agent->member);

    if (order->step != ORDER_RUN || order->generation != generation) {
        return false;
    }
    if (p->grouped != generation) {
        find_group(p, order);
    }
    return p->grouped == generation;
}

/* The set of which that is a rank. */
static void find_set(const struct agent_snap *p, uint32_t index, struct parity_group *ret)
{
    const struct order *order = member_order(p->agent->member);

    *ret = p->group;
    ret->index = index;
    for (unsigned i = 0; i < ret->shape.n; i++) {
        struct layout l = layout_of(order->n_procs, order->n_nodes, ret->agents[i]);

        ret->ranks[i] = index < l.n_local ? l.first_rank + index : PARITY_NO_RANK;
    }
}

static bool find(void *arg, uint32_t agent, struct strlist *addrs, uint16_t *port)
{
    const struct agent_snap *p = arg;
    const struct roster *r = &p->agent->roster;

    if (agent >= r->n) {
        return false;
    }
    for (size_t i = 0; i < r->entries[agent].n_addrs; i++) {
        strlist_add(addrs, r->entries[agent].addrs[i]);
    }
    *port = r->entries[agent].port;
    return true;
}

/* --- of what is saved here --- */

static void tell_none(struct agent_snap *p, const struct error *e)
{
    struct error why = {0};

    error_text(&why, e->code, "there is no parity of what node %u saves: %s",
               p->agent->rank, e->text);
    agent_partner_tell_none(p, &why);
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, const struct error *e)
{
    struct agent_snap *p = arg;
    struct saved *s = agent_snap_saved(p, rank, uuid);

    if (e->code) {
        tell_none(p, e);
        if (s) {
            agent_snap_unpin(p, s);
        }
    } else if (s) { /* not on the disk yet */
        s->level = WORKER_SNAP_PARTNER;
        agent_snap_tell_own(p->agent, s);
    }
}

void agent_parity_send(struct crew *c, struct saved *s)
{
    struct agent_snap *p = c->agent->snap;
    const struct parity *shape = &p->group.shape;
    struct parity_group set;
    struct error e = {0};

    if (!group_now(p, c->generation) || shape->n < 2) {
        return; /* all on one host, say */
    }
    if (!parity_makes_sense(shape)) {
        error_text(&e, EINVAL, "its group has %u nodes, and each has %u parities",
                   shape->n, shape->m);
    } else {
        find_set(p, s->head.rank - c->layout.first_rank, &set);
        snap_parity_send(p->parity, s->head.rank, s->head.uuid, &set, &e);
    }
    if (e.code) {
        tell_none(p, &e);
    } else {
        agent_partner_pin(p, s);
    }
}

/* --- of others --- */

static void on_whole(void *arg, const struct snap_head *head,
                     const struct parity_group *g)
{
    struct agent_snap *p = arg;
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "snap_parity");

    jsonw_str(&w, "uuid", head->uuid);
    jsonw_str(&w, "root", head->root);
    jsonw_int(&w, "step", (int64_t)head->step);
    jsonw_int(&w, "generation", head->generation);
    jsonw_int(&w, "token", (int64_t)head->token);
    jsonw_int(&w, "rank", head->rank);
    jsonw_int(&w, "ranks", head->n_ranks);
    jsonw_int(&w, "stage", SNAP_STAGE_HELD);
    jsonw_int(&w, "parities", g->shape.m);
    jsonw_array(&w, "members"); /* who, and which rank, or -1 */
    for (unsigned i = 0; i < g->shape.n; i++) {
        jsonw_array(&w, NULL);
        jsonw_int(&w, NULL, g->agents[i]);
        jsonw_int(&w, NULL, g->ranks[i] == PARITY_NO_RANK ? -1
                                                          : (int64_t)g->ranks[i]);
        jsonw_end_array(&w);
    }
    jsonw_end_array(&w);
    agent_fact_send(p->agent, &w);
}

/* As of a copy that has come: the lead has it written, if the save is not on the disk.
 * Where it has ordered it, it hears of a failure, too: nobody will write that rank. */
static void tell_built(struct agent_snap *p, const struct snap_head *head,
                       uint32_t from, bool is_ordered, const struct error *e)
{
    struct saved *s = e->code == 0 || is_ordered ? agent_partner_add(p, head, from)
                                                 : NULL;

    if (!s || !s->is_copy) {
        return; /* it is ordered again */
    }
    if (e->code) {
        s->stage = SNAP_STAGE_FAILED;
        s->error = e->code;
        str_copy(s->why, sizeof(s->why), e->text);
    }
    agent_snap_tell_lead(p->agent, s); /* which may settle it, at once */
}

static void on_built(void *arg, const struct snap_head *head, uint32_t from,
                     bool is_ordered, const struct error *e)
{
    struct agent_snap *p = arg;

    if (e->code == 0) {
        agent_note(p->agent, "node %u has made what rank %u had saved on node %u again, "
                   "from parity", p->agent->rank, head->rank, from);
    } else {
        agent_note(p->agent, "what rank %u had saved on node %u cannot be made again: "
                   "%s", head->rank, from, e->text);
    }
    snap_copy_made(p->copy, head->rank, head->uuid);
    p->fetched_from = p->agent->rank;
    agent_fetch_fetched(p, head->rank, head->uuid, e); /* if a rank here waits for it */
    tell_built(p, head, from, is_ordered, e);
}

/* Members of a group that have no workers: who was lost is among them. */
static size_t find_idle(const struct agent_snap *p, const struct parity_group *g,
                        uint32_t ret[PARITY_MAX_MEMBERS])
{
    const struct order *order = member_order(p->agent->member);
    size_t n = 0;

    for (unsigned i = 0; order->step == ORDER_RUN && i < g->shape.n; i++) {
        if (g->agents[i] >= order->n_nodes || order->n_procs[g->agents[i]] == 0) {
            ret[n++] = g->agents[i];
        }
    }
    return n <= g->shape.m ? n : 0; /* too many: who is lost does not answer */
}

bool agent_parity_make(void *arg, uint32_t rank, const char *uuid)
{
    struct agent_snap *p = arg;
    const struct parity_group *g = p->parity ? snap_parity_find(p->parity, rank, uuid)
                                             : NULL;
    uint32_t idle[PARITY_MAX_MEMBERS];
    struct snap_parity_order order = {.rank = rank, .uuid = uuid, .lost = idle};

    order.n_lost = g ? find_idle(p, g, idle) : 0;
    return g && snap_parity_build(p->parity, &order, NULL) == 0;
}

void agent_snap_rebuild(struct agent *a, const char *uuid, uint32_t rank,
                        const uint32_t *lost, size_t n_lost)
{
    struct agent_snap *p = a->snap;
    struct snap_head head = {.rank = rank, .n_ranks = rank + 1, .root = "/"};
    const struct snap_parity_order order = {rank, uuid, lost, n_lost, true};
    struct error e = {0};

    if (!p || !p->parity || agent_snap_saved(p, rank, uuid)) {
        return; /* it is told of */
    }
    if (snap_parity_build(p->parity, &order, &e) < 0) {
        str_copy(head.uuid, sizeof(head.uuid), uuid);
        tell_built(p, &head, n_lost > 0 ? lost[0] : 0, true, &e);
    }
}

/* --- life --- */

void agent_parity_short(void *arg)
{
    struct agent_snap *p = arg;

    if (p->parity) {
        snap_parity_drop(p->parity);
    }
}

int agent_parity_create(struct agent_snap *p, struct error *e)
{
    struct snap_parity_config config = {
        .loop = &p->agent->loop, .key = p->agent->key, .own = p->hold,
        .copies = p->copies, .agent = p->agent->rank, .stuck_ms = STUCK_MS,
        .hides = p->agent->config.job->checkpoint.partner_encrypt,
        .find = find, .on_sent = on_sent, .on_whole = on_whole,
        .on_built = on_built, .arg = p,
    };

    if (p->agent->config.job->checkpoint.partner == JOB_PARTNER_COPY) {
        return 0;
    }
    return snap_parity_create(&config, &p->parity, e);
}
