/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of what workers save, in memory of a partner: another agent, on another host
 * (launcher/partners.h). Each agent sends its own to its partner (launcher/snap_copy.h),
 * and tells the lead of the copies that it keeps; where a node is lost the lead has its
 * partner write what the node had not written.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/digest.h"
#include "launcher/partners.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STUCK_MS = 10000 };

/* --- who --- */

static uint32_t domain_of(const struct agent *a, uint32_t place)
{
    const char *host = a->roster.entries[place].host;

    return (uint32_t)digest_short_of(host, strlen(host));
}

int agent_partner_nodes(const struct agent *a, const struct order *run,
                        struct partners_node **ret)
{
    struct partners_node *nodes = calloc((size_t)run->n_nodes + 1, sizeof(*nodes));
    uint32_t n = 0;

    for (uint32_t i = 0; nodes && i < run->n_nodes && i < a->roster.n; i++) {
        if (run->n_procs[i] > 0) {
            nodes[n++] = (struct partners_node){i, domain_of(a, i)};
        }
    }
    *ret = nodes;
    return nodes ? (int)n : -ENOMEM;
}

/* The same, with partners. */
static int find_partners(const struct agent *a, const struct order *run,
                         struct partners_node **ret_nodes, uint32_t **ret)
{
    _free_ struct partners_node *nodes = NULL;
    _free_ uint32_t *partner = calloc((size_t)run->n_nodes + 1,
                                      sizeof(*partner));
    int n = agent_partner_nodes(a, run, &nodes);

    if (n < 0 || !partner || partners_find(nodes, (uint32_t)n, partner) < 0) {
        return -ENOMEM;
    }
    *ret_nodes = take_ptr(&nodes);
    *ret = take_ptr(&partner);
    return n;
}

static void keep_ranks(struct agent_snap *p, const struct order *run,
                       uint32_t place)
{
    struct layout l = layout_of(run->n_procs, run->n_nodes, place);

    p->kept[p->n_kept++] = (struct ranks_kept){l.first_rank, l.n_local};
}

/* As of that order. */
static void pair(struct agent_snap *p, const struct order *run)
{
    const struct agent *a = p->agent;
    _free_ struct partners_node *nodes = NULL;
    _free_ uint32_t *partner = NULL;
    int n = find_partners(a, run, &nodes, &partner);

    p->partner = PARTNERS_NONE;
    p->n_kept = 0;
    free(p->kept);
    p->kept = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof(*p->kept));
    if (n < 0 || !p->kept) {
        return;
    }
    p->paired = run->generation;
    for (int i = 0; i < n; i++) {
        uint32_t to = partner[i] == PARTNERS_NONE ? PARTNERS_NONE
                                                  : nodes[partner[i]].place;

        if (nodes[i].place == a->rank) {
            p->partner = to;
        }
        if (to == a->rank) {
            keep_ranks(p, run, nodes[i].place);
        }
    }
}

/* The pairs of the generation that runs, if one does. */
static bool pair_now(struct agent_snap *p)
{
    const struct order *order = member_order(p->agent->member);

    if (order->step != ORDER_RUN) {
        return false;
    }
    if (p->paired != order->generation) {
        pair(p, order);
    }
    return p->paired == order->generation;
}

static bool is_kept_here(void *arg, uint32_t rank)
{
    const struct agent_snap *p = arg;

    for (uint32_t i = 0; !p->parity && i < p->n_kept; i++) {
        if (rank >= p->kept[i].first && rank - p->kept[i].first < p->kept[i].n) {
            return true;
        }
    }
    return false;
}

/* --- copies of ours --- */

/* A partner that is short of memory is short of it at each save. */
void agent_partner_tell_none(struct agent_snap *p, const struct error *e)
{
    if (!p->has_told && e->code != ECANCELED) {
        p->has_told = true;
        agent_note(p->agent, "%s; what is not on the disk is lost with the node",
                   e->text);
    }
}

static void tell_none(struct agent_snap *p, uint32_t to, const struct error *e)
{
    struct error why = {0};

    error_text(&why, e->code, "node %u has no copy of what node %u saves: %s", to,
               p->agent->rank, e->text);
    agent_partner_tell_none(p, &why);
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, uint32_t to,
                    const struct error *e)
{
    struct agent_snap *p = arg;
    struct saved *s = agent_snap_saved(p, rank, uuid);

    if (e->code) {
        tell_none(p, to, e);
        if (s) {
            agent_snap_unpin(p, s);
        }
    } else if (s) { /* not on the disk yet */
        s->level = WORKER_SNAP_PARTNER;
        agent_snap_tell_own(p->agent, s);
    }
}

void agent_partner_pin(struct agent_snap *p, struct saved *s)
{
    s->is_pinned = (s->waits & 1u << INTERVAL_DISK) &&
                   snap_hold_pin(p->hold, s->head.rank, s->head.uuid);
}

void agent_partner_send(struct crew *c, struct saved *s)
{
    struct agent_snap *p = c->agent->snap;
    const struct roster_entry *to;
    _strlist_ struct strlist addrs = {0};
    struct error e = {0};

    if (p->parity) {
        agent_parity_send(c, s);
        return;
    }
    if (!p->copy || !pair_now(p) || p->paired != c->generation ||
        p->partner >= c->agent->roster.n) {
        return;
    }
    to = &c->agent->roster.entries[p->partner];
    for (size_t i = 0; i < to->n_addrs; i++) {
        strlist_add(&addrs, to->addrs[i]);
    }
    if (addrs.failed) {
        error_set(&e, ENOMEM, "copy a snapshot");
    } else {
        snap_copy_send(p->copy, s->head.rank, s->head.uuid, p->partner,
                       addrs.items, to->port, &e);
    }
    if (e.code) {
        tell_none(p, p->partner, &e);
    } else {
        agent_partner_pin(p, s);
    }
}

/* --- copies of others --- */

struct saved *agent_partner_add(struct agent_snap *p, const struct snap_head *head,
                                uint32_t from)
{
    struct saved *s = agent_snap_saved(p, head->rank, head->uuid);

    if (!s) {
        s = calloc(1, sizeof(*s));
        if (!s) {
            return NULL;
        }
        s->head = *head;
        s->is_copy = true;
        s->from = from;
        s->stage = SNAP_STAGE_HELD;
        s->next = p->saved;
        p->saved = s;
    }
    agent_snap_keep_telling(p);
    return s;
}

static void on_got(void *arg, const struct snap_head *head, uint32_t from)
{
    struct agent_snap *p = arg;
    struct saved *s = agent_partner_add(p, head, from);

    if (s) { /* else nobody hears of it: as if there were none */
        agent_snap_tell_lead(p->agent, s); /* which may settle it, at once */
    }
}

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct agent_snap *p = arg;

    if (p->parity && question & SNAP_PARITY_QUESTION) {
        snap_parity_begun(p->parity, question, s, e);
    } else {
        snap_copy_begun(p->copy, question, s, e);
    }
}

void agent_partner_settled(struct agent_snap *p, const char *uuid, uint64_t step,
                           bool is_kept)
{
    if (!p->copies) {
        return;
    }
    snap_hold_settle(p->copies, uuid, is_kept);
    if (p->parity) {
        snap_parity_settle(p->parity, uuid, is_kept);
    }
    if (is_kept && step > 0 && pair_now(p)) {
        snap_hold_keep(p->copies, step, is_kept_here, p);
    }
}

void agent_partner_stranger(struct agent *a, struct link *l,
                            const struct channel_frame *first)
{
    struct error e = {0};

    if (!a->has_config || a->leaving || agent_snap_need(a, &e) < 0 ||
        !a->snap->copy) {
        link_close(l);
        return;
    }
    if (first->type == SNAP_COPY_OFFER || first->type == SNAP_COPY_WANT) {
        snap_copy_take(a->snap->copy, l, first);
    } else if (a->snap->parity) {
        snap_parity_take(a->snap->parity, l, first);
    } else {
        link_close(l);
    }
}

/* --- life --- */

int agent_partner_create(struct agent_snap *p,
                         const struct snap_hold_config *config, struct error *e)
{
    struct snap_hold_config other = *config;
    struct snap_copy_config copy = {
        .loop = config->loop, .key = p->agent->key, .own = p->hold,
        .agent = p->agent->rank, .stuck_ms = STUCK_MS,
        .hides = p->agent->config.job->checkpoint.partner_encrypt,
        .on_sent = on_sent, .on_got = on_got,
        .on_coming = agent_fetch_coming, .on_fetched = agent_fetch_fetched,
        .make = agent_parity_make, .arg = p,
    };
    int rc;

    p->partner = PARTNERS_NONE;
    if (!(p->agent->config.job->checkpoint.levels & JOB_LEVEL_PARTNER)) {
        return 0;
    }
    other.name = "copy";
    other.is_elsewhere = true;
    other.on_begun = on_begun;
    other.on_short = agent_parity_short;
    rc = snap_hold_create(&other, &p->copies, e);
    rc = rc < 0 ? rc : snap_copy_create(&copy, &p->copy, e);
    rc = rc < 0 ? rc : agent_fetch_create(p, e);
    rc = rc < 0 ? rc : agent_parity_create(p, e);
    if (rc < 0) {
        agent_partner_destroy(p);
        return rc;
    }
    snap_hold_serve(p->copies, 0, 0); /* nothing of an agent before this one */
    snap_hold_serve(p->copies, 0, UINT32_MAX);
    snap_hold_lend(p->hold, p->copies);
    snap_copy_hold(p->copy, p->copies);
    return 0;
}

void agent_partner_destroy(struct agent_snap *p)
{
    agent_fetch_destroy(p);
    snap_parity_destroy(p->parity);
    snap_copy_destroy(p->copy);
    if (p->copies) {
        snap_hold_lend(p->hold, NULL);
        snap_hold_remove(p->copies); /* nobody asks for them later */
        snap_hold_destroy(p->copies);
    }
    free(p->kept);
    p->parity = NULL;
    p->copy = NULL;
    p->copies = NULL;
    p->kept = NULL;
}
