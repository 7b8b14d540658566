/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent among the others: the companion brings the run, the key and the
 * roster, and again with each new MPI world; then the agent takes its place in
 * the control tree, and what comes over the tree goes to member, lead and job.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/key.h"
#include "base/proc.h"
#include "base/str.h"
#include "launcher/agent_snap.h"
#include "launcher/jsonw.h"
#include "launcher/snap_copy.h"
#include "launcher/snap_parity.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST_LEASE_MS = 10000, /* until the job says heartbeat.timeout */
    ARITY = 32,
};

bool agent_on_one_host(const struct agent *a)
{
    for (uint32_t i = 1; i < a->roster.n; i++) {
        const struct roster_entry *entry = &a->roster.entries[i];

        if (entry->port &&
            (strcmp(entry->boot_id, a->roster.entries[0].boot_id) != 0 ||
             strcmp(entry->host, a->roster.entries[0].host) != 0)) {
            return false;
        }
    }
    return true;
}

bool agent_leads(const struct agent *a)
{
    return a->rank == a->lead_rank;
}

/* --- the tree --- */

static bool on_order(void *ctx, const void *data, size_t len)
{
    return agent_heir_order(ctx, data, len);
}

static void on_word(void *ctx, const struct tree_word *word)
{
    agent_heir_word(ctx, word);
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    struct agent *a = ctx;
    struct member_event event = {
        .type = up ? MEMBER_UPLINK_UP : MEMBER_UPLINK_LOST};

    if (!up) {
        agent_log(a, "the link up is gone: %s", why);
    }
    if (agent_leads(a)) {
        agent_lead_front(a, up);
    } else {
        if (up) {
            agent_front_tell_lead(a);
        }
        agent_member_soon(a, &event);
    }
}

static void on_refused(void *ctx, const char *why)
{
    agent_log(ctx, "the parent refuses: %s", why);
}

static void on_report(void *ctx, const void *data, size_t len)
{
    agent_lead_report(ctx, data, len);
}

static void on_lost(void *ctx, uint32_t rank, const struct tree_loss *loss)
{
    agent_lead_lost(ctx, rank, loss);
}

static void on_here(void *ctx, uint32_t rank)
{
    agent_lead_here(ctx, rank);
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    agent_lead_fact(ctx, rank, data, len);
}

/* From the front end: as a fact of the node that leads. */
static void on_request(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;

    agent_lead_fact(a, a->rank, data, len);
}

static void on_config(void *ctx, uint64_t age_ms, const void *data, size_t len)
{
    agent_config(ctx, age_ms, data, len);
}

static void on_writable(void *ctx)
{
    agent_writable(ctx);
}

static void on_drained(void *ctx)
{
    agent_drained(ctx);
}

static void on_stranger(void *ctx, struct link *l,
                        const struct channel_frame *first)
{
    if (first->type == SNAP_COPY_OFFER || first->type == SNAP_COPY_WANT ||
        first->type == SNAP_PARITY_OFFER || first->type == SNAP_PARITY_WANT) {
        agent_partner_stranger(ctx, l, first);
    } else {
        agent_store_stranger(ctx, l, first);
    }
}

static void on_ask(void *ctx, const void *json, size_t len)
{
    agent_asked(ctx, json, len);
}

static const struct tree_ops tree_ops_ = {
    .on_config = on_config,
    .on_order = on_order,
    .on_word = on_word,
    .own_seen = agent_heir_own_seen,
    .on_top = agent_heir_top,
    .on_dead = agent_heir_dead,
    .on_follow = agent_heir_follow,
    .on_unfollow = agent_heir_unfollow,
    .on_seen = agent_heir_seen,
    .word_age = agent_heir_word_age,
    .on_uplink = on_uplink,
    .on_refused = on_refused,
    .on_writable = on_writable,
    .on_drained = on_drained,
    .on_report = on_report,
    .on_lost = on_lost,
    .on_here = on_here,
    .on_event = on_event,
    .on_request = on_request,
    .on_stranger = on_stranger,
    .on_ask = on_ask,
};

/* --- the companion --- */

/* This agent's place: by its address, which nobody else has. */
static bool find_rank(struct agent *a)
{
    for (uint32_t i = 0; i < a->roster.n; i++) {
        const struct roster_entry *entry = &a->roster.entries[i];

        if (strcmp(entry->host, a->host) == 0 &&
            entry->host_index == a->index &&
            entry->port == link_listener_port(a->listener)) {
            a->rank = i;
            return true;
        }
    }
    return false;
}

/* Tests have deep trees of few agents. */
static uint32_t tree_arity(void)
{
    const char *text = getenv("MUSTER_TEST_TREE_ARITY");
    uint64_t n;

    return text && str_to_u64(text, &n) == 0 && n >= 1 && n < ARITY
               ? (uint32_t)n : ARITY;
}

static int join_tree(struct agent *a, struct error *e)
{
    _strlist_ struct strlist front = {0};
    struct tree_config config = {
        .loop = &a->loop,
        .roster = &a->roster,
        .rank = a->rank,
        .lead = a->lead_rank,
        .arity = tree_arity(),
        .lease_ms = FIRST_LEASE_MS,
        .run_id = a->run.id,
        .version = build_name(),
        .key = a->key,
        .listener = a->listener,
        .front_port = a->run.front_port,
        .ops = &tree_ops_,
        .ctx = a,
    };
    char name[32];

    for (size_t i = 0; a->run.has_front && i < COMPANION_MAX_FRONT &&
                       a->run.front_addrs[i][0]; i++) {
        strlist_add(&front, a->run.front_addrs[i]);
    }
    config.front_addrs = front.items;
    snprintf(name, sizeof(name), "agent-%u", a->index);
    if (control_server_create(&a->loop, a->run.id, name, agent_on_control, a,
                              &a->control, e) < 0) {
        agent_log(a, "commands cannot reach this agent: %s", e->text);
    }
    return tree_create(&config, &a->tree, e);
}

/* The front end makes a new world when one is lost. */
static void tell_mpi(struct agent *a, const char *fact, uint64_t epoch,
                     const char *what)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, fact);
    char text[ROSTER_HOST_BYTES + 64];

    snprintf(text, sizeof(text), "%s %s", a->host, what);
    jsonw_int(&w, "epoch", (int64_t)epoch);
    jsonw_str(&w, "text", text);
    agent_fact_send(a, &w);
}

/* A later world of the run: newcomers wait in the tree, as spares, until somebody
 * wants them. Who came when others were in no world hears of those here. */
static int renew_roster(struct agent *a, const struct roster *roster)
{
    bool is_news;

    if (roster_renew(&a->roster, roster, &is_news) < 0) {
        return -ENOMEM;
    }
    companion_link_set_place(a->companion, a->rank, a->roster.n);
    if (is_news) {
        if (tree_grow(a->tree) < 0) {
            return -ENOMEM;
        }
        agent_heir_grow(a);
        agent_lead_grow(a);
        tree_tell_events(a->tree);
        agent_store_grow(a);
    }
    return 0;
}

static void on_world(void *ctx, const struct companion_world *w,
                     const struct roster *roster)
{
    struct agent *a = ctx;
    struct error e = {0};

    if (a->leaving) {
        return;
    }
    if (a->has_run) {
        if (renew_roster(a, roster) < 0) {
            agent_leave(a, RUN_FAILED, "out of memory");
            return;
        }
        a->epoch = w->epoch;
        tell_mpi(a, "mpi_joined", a->epoch, "is in a new MPI world");
        crew_unstrand(a);
        crew_join_world(a);
        return;
    }
    a->has_run = true;
    a->run = w->run;
    explicit_bzero(a->run.key, sizeof(a->run.key));
    a->key = key_hold(w->run.key);
    if (!a->key) {
        agent_leave(a, RUN_FAILED, "out of memory");
        return;
    }
    a->epoch = w->epoch;
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster_add(&a->roster, &roster->entries[i]) < 0) {
            agent_leave(a, RUN_FAILED, "out of memory");
            return;
        }
        a->roster.entries[i].origin = roster->entries[i].origin;
    }
    if (!find_rank(a)) {
        agent_leave(a, RUN_FAILED, "this agent is not in its own roster");
        return;
    }
    companion_link_set_place(a->companion, a->rank, a->roster.n);
    if (join_tree(a, &e) < 0) {
        agent_leave(a, RUN_FAILED, e.text);
    }
}

static void on_attached(void *ctx, const struct companion_outcome *o)
{
    crew_attached(ctx, o);
}

/* Until it is known what that means, workers may save: mpirun by hand takes its
 * time, and whoever told it to end may not have it. */
static void on_term(void *ctx)
{
    struct agent *a = ctx;
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "term");

    agent_fact_send(a, &w);
    if (a->config.by_hand) {
        crew_ask_checkpoint(a, "");
    }
}

static void on_notice(void *ctx)
{
    agent_notice(ctx);
}

/* The world that was lost may be one that was only being made: who waits for it has to
 * know that it comes no more. */
static void on_companion_lost(void *ctx, uint64_t epoch)
{
    struct agent *a = ctx;

    if (a->leaving) {
        return;
    }
    if (!a->has_config) {
        agent_leave(a, RUN_RESUMABLE, "muster-mpi ended before the run began");
        return;
    }
    tell_mpi(a, "mpi_lost", epoch, epoch > a->epoch
             ? "has lost an MPI world that was being made; training goes on"
             : "has lost its MPI world; training goes on");
    if (a->config.by_hand) {
        crew_strand(a);
    }
}

/* Who comes for a newer world takes the place of the one that is there. A worker
 * has no part in that: whatever session and environment it is in, it is below this
 * agent, which is a subreaper, and muster-mpi never is. */
static const char *may_come(void *ctx, int pid,
                            const struct companion_hello *h)
{
    const struct agent *a = ctx;
    char claim[COMPANION_CLAIM_BYTES];

    if (!a->has_run) {
        return NULL; /* nor has it workers */
    }
    if (pid && proc_is_below(pid, getpid()) != 0) {
        return "it comes from a worker of this agent";
    }
    companion_claim(claim, sizeof(claim), a->run.id, h->epoch);
    return key_is_proved(a->key, claim, h->proof)
               ? NULL : "it does not show the key of the run";
}

const struct companion_link_ops agent_companion_ops = {
    .may_come = may_come,
    .on_world = on_world,
    .on_attached = on_attached,
    .on_term = on_term,
    .on_notice = on_notice,
    .on_lost = on_companion_lost,
};
