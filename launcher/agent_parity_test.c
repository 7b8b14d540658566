/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When an agent sends pieces of what is saved, to whom, and what it makes of what becomes of
 * them: with nodes, the order and all that has links or memory in the linker's hand.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/lead_bed.h"
#include "launcher/partner_groups.h"
#include "launcher/snap_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, GENERATION = 3 };

static char parity_bytes, copy_bytes; /* what stands for a parity, and for copies */

static struct {
    struct order order;
    uint16_t n_procs[N];
    uint32_t domains[N];
    int n_nodes_asked;
    int send_code, build_code;
    const struct parity_group *found;
    /* What was done. */
    int n_sent, n_none, n_pinned, n_unpinned, n_dropped, n_built, n_made, n_fetched, n_added;
    int n_told_lead, n_told_own;
    struct parity_group set;
    size_t n_lost;
    bool was_ordered;
    char none[256];
    struct snap_head head; /* of what was added last, ... */
    uint32_t from;         /* ... and whose it was */
    struct snap_parity_config config;
    struct saved *added;
} w;

/* --- the linker's hand --- */

const struct order *__wrap_member_order(const struct member *m);
int __wrap_agent_partner_nodes(const struct agent *a, const struct order *run,
                               struct partners_node **ret);
void __wrap_agent_partner_tell_none(struct agent_snap *p, const struct error *e);
void __wrap_agent_partner_pin(struct agent_snap *p, struct saved *s);
struct saved *__wrap_agent_partner_add(struct agent_snap *p, const struct snap_head *head,
                                       uint32_t from);
void __wrap_agent_snap_unpin(struct agent_snap *p, struct saved *s);
void __wrap_agent_snap_tell_own(struct agent *a, const struct saved *s);
void __wrap_agent_snap_tell_lead(struct agent *a, struct saved *s);
void __wrap_agent_fetch_fetched(void *arg, uint32_t rank, const char *uuid,
                                const struct error *e);
void __wrap_agent_note(struct agent *a, const char *fmt, ...);
void __wrap_snap_copy_made(struct snap_copy *c, uint32_t rank, const char *uuid);
int __wrap_snap_parity_create(const struct snap_parity_config *config,
                              struct snap_parity **ret, struct error *e);
int __wrap_snap_parity_send(struct snap_parity *c, uint32_t rank, const char *uuid,
                            const struct parity_group *g, struct error *e);
int __wrap_snap_parity_build(struct snap_parity *c, const struct snap_parity_order *order,
                             struct error *e);
const struct parity_group *__wrap_snap_parity_find(const struct snap_parity *c, uint32_t rank,
                                                   const char *uuid);
void __wrap_snap_parity_drop(struct snap_parity *c);

const struct order *__wrap_member_order(const struct member *m)
{
    (void)m;
    return &w.order;
}

int __wrap_agent_partner_nodes(const struct agent *a, const struct order *run,
                               struct partners_node **ret)
{
    int n = (int)run->n_nodes;

    (void)a;
    w.n_nodes_asked++;
    *ret = calloc((size_t)n, sizeof(**ret));
    for (int i = 0; *ret && i < n; i++) {
        (*ret)[i] = (struct partners_node){(uint32_t)i, w.domains[i]};
    }
    return *ret ? n : -ENOMEM;
}

void __wrap_agent_partner_tell_none(struct agent_snap *p, const struct error *e)
{
    (void)p;
    w.n_none++;
    str_copy(w.none, sizeof(w.none), e->text);
}

void __wrap_agent_partner_pin(struct agent_snap *p, struct saved *s)
{
    (void)p, (void)s;
    w.n_pinned++;
}

struct saved *__wrap_agent_partner_add(struct agent_snap *p, const struct snap_head *head,
                                       uint32_t from)
{
    (void)p;
    w.head = *head;
    w.from = from;
    w.n_added++;
    return w.added;
}

void __wrap_agent_snap_unpin(struct agent_snap *p, struct saved *s)
{
    (void)p, (void)s;
    w.n_unpinned++;
}

void __wrap_agent_snap_tell_own(struct agent *a, const struct saved *s)
{
    (void)a, (void)s;
    w.n_told_own++;
}

void __wrap_agent_snap_tell_lead(struct agent *a, struct saved *s)
{
    (void)a, (void)s;
    w.n_told_lead++;
}

void __wrap_agent_fetch_fetched(void *arg, uint32_t rank, const char *uuid,
                                const struct error *e)
{
    (void)arg, (void)rank, (void)uuid, (void)e;
    w.n_fetched++;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    (void)a, (void)fmt;
}

void __wrap_snap_copy_made(struct snap_copy *c, uint32_t rank, const char *uuid)
{
    (void)rank, (void)uuid;
    w.n_made += c == (void *)&copy_bytes;
}

int __wrap_snap_parity_create(const struct snap_parity_config *config,
                              struct snap_parity **ret, struct error *e)
{
    (void)e;
    w.config = *config;
    *ret = (void *)&parity_bytes;
    return 0;
}

int __wrap_snap_parity_send(struct snap_parity *c, uint32_t rank, const char *uuid,
                            const struct parity_group *g, struct error *e)
{
    (void)c, (void)rank, (void)uuid;
    w.n_sent++;
    w.set = *g;
    return w.send_code ? error_text(e, w.send_code, "by order") : 0;
}

int __wrap_snap_parity_build(struct snap_parity *c, const struct snap_parity_order *order,
                             struct error *e)
{
    (void)c;
    w.n_built++;
    w.n_lost = order->n_lost;
    w.was_ordered = order->is_ordered;
    return w.build_code ? error_text(e, w.build_code, "by order") : 0;
}

const struct parity_group *__wrap_snap_parity_find(const struct snap_parity *c, uint32_t rank,
                                                   const char *uuid)
{
    (void)c, (void)rank, (void)uuid;
    return w.found;
}

void __wrap_snap_parity_drop(struct snap_parity *c)
{
    w.n_dropped += c == (void *)&parity_bytes;
}

/* --- an agent --- */

static struct agent a;
static struct agent_snap p;
static struct crew c;

/* Nodes with 2, 1, 2 and 2 workers, each of a host of its own. */
static void begin(void)
{
    static const uint16_t n_procs[N] = {2, 1, 2, 2};

    memset(&w, 0, sizeof(w));
    memset(&p, 0, sizeof(p));
    memcpy(w.n_procs, n_procs, sizeof(n_procs));
    w.order = (struct order){.step = ORDER_RUN, .generation = GENERATION, .n_nodes = N,
                             .n_procs = w.n_procs};
    for (uint32_t i = 0; i < N; i++) {
        w.domains[i] = i;
    }
    a.config.job->checkpoint.partner = JOB_PARTNER_XOR;
    a.config.job->checkpoint.partner_group = N;
    a.snap = &p;
    a.rank = 0;
    p.agent = &a;
    p.copy = (void *)&copy_bytes;
    c = (struct crew){.agent = &a, .generation = GENERATION, .layout = {.n_local = 2}};
    if (agent_parity_create(&p, NULL) < 0) {
        bail_out("no parity");
    }
}

static struct saved *saved(uint32_t rank)
{
    static struct saved s;

    s = (struct saved){.head = {.rank = rank, .uuid = UUID(1)}, .stage = SNAP_STAGE_HELD};
    return &s;
}

/* --- what is sent --- */

static void test_sets(void)
{
    begin();
    agent_parity_send(&c, saved(0));
    ok(w.n_sent == 1 && w.set.shape.n == N && w.set.shape.m == 1 && w.set.index == 0,
       "pieces of the first rank go to the first ranks of others");
    ok(w.set.ranks[0] == 0 && w.set.ranks[1] == 2 && w.set.ranks[2] == 3 && w.set.ranks[3] == 5,
       "of all nodes");
    agent_parity_send(&c, saved(1));
    ok(w.set.index == 1 && w.set.ranks[0] == 1 && w.set.ranks[1] == PARITY_NO_RANK &&
           w.set.ranks[2] == 4 && w.set.ranks[3] == 6,
       "of the second to the second ones: one node has none");
    is_int(w.n_pinned, 2, "they are held until that is done");
    is_int(w.n_nodes_asked, 1, "the group is found once");
    w.order.generation = c.generation = GENERATION + 1;
    w.domains[2] = 7;
    agent_parity_send(&c, saved(0));
    is_int(w.n_nodes_asked, 2, "and again for the next generation");
    is_int((int)w.set.shape.n, N, "of as many nodes");
}

/* Two groups of two: this node is of the first. */
static void test_groups(void)
{
    begin();
    a.config.job->checkpoint.partner_group = 2;
    agent_parity_send(&c, saved(0));
    ok(w.set.shape.n == 2 && w.set.agents[0] == 0 && w.set.agents[1] < N,
       "pieces go to those of this node's group: node %u", w.set.agents[1]);
}

static void test_nothing(void)
{
    begin();
    w.order.step = ORDER_PREPARE;
    agent_parity_send(&c, saved(0));
    w.order.step = ORDER_RUN;
    c.generation--;
    agent_parity_send(&c, saved(0));
    ok(w.n_sent == 0 && w.n_none == 0, "what workers that go have saved is not sent");
    begin();
    memset(w.domains, 0, sizeof(w.domains));
    agent_parity_send(&c, saved(0));
    ok(w.n_sent == 0 && w.n_none == 0 && w.n_pinned == 0,
       "nor where all nodes are of one host, of which nobody has to hear");
    begin();
    w.send_code = ENOMEM;
    agent_parity_send(&c, saved(0));
    ok(w.n_none == 1 && w.n_pinned == 0, "what cannot be sent is told, and not held: %s", w.none);
    like(w.none, "there is no parity of what node 0 saves: by order", "as what it is");
    begin();
    a.config.job->checkpoint.partner = JOB_PARTNER_RS;
    a.config.job->checkpoint.partner_parities = N;
    agent_parity_send(&c, saved(0));
    ok(w.n_sent == 0 && w.n_none == 1, "a group of nothing but parity makes no sense: %s", w.none);
}

static void test_sent(void)
{
    struct error e = {0};
    struct saved *s;

    begin();
    s = saved(0);
    p.saved = s;
    w.config.on_sent(w.config.arg, 0, UUID(1), &e);
    ok(s->level == WORKER_SNAP_PARTNER && w.n_told_own == 1 && w.n_unpinned == 0,
       "its worker hears that all others have it");
    error_text(&e, ECANCELED, "gone");
    w.config.on_sent(w.config.arg, 0, UUID(1), &e);
    ok(w.n_none == 1 && w.n_unpinned == 1, "one that others have not is held no more");
    p.saved = NULL;
    w.config.on_sent(w.config.arg, 0, UUID(1), &e);
    is_int(w.n_unpinned, 1, "nor is one that was settled");
}

/* --- where others are --- */

static void test_find(void)
{
    struct roster_entry entries[2] = {{.port = 7}, {.port = 8}};
    const struct roster all = a.roster;
    struct strlist addrs = {0};
    uint16_t port = 0;

    begin();
    a.roster.entries = entries;
    a.roster.n = 2;
    ok(w.config.find(w.config.arg, 1, &addrs, &port) && port == 8, "one that is known");
    ok(!w.config.find(w.config.arg, 2, &addrs, &port), "and none behind the last");
    a.roster = all;
    ok(w.config.stuck_ms == 10000, "who comes no further for ten seconds is given up");
}

/* --- what is made again --- */

static void test_idle(void)
{
    static const struct parity_group g = {.shape = {3, 1}, .agents = {0, 1, 2}};

    begin();
    ok(!agent_parity_make(&p, 2, UUID(1)) && w.n_built == 0, "without parity nothing is made");
    w.found = &g;
    ok(agent_parity_make(&p, 2, UUID(1)) && w.n_lost == 0 && !w.was_ordered,
       "all of the group have workers");
    w.order.n_nodes = 2;
    ok(agent_parity_make(&p, 2, UUID(1)) && w.n_lost == 1, "one is no node any more");
    w.n_procs[1] = 0;
    ok(agent_parity_make(&p, 2, UUID(1)) && w.n_lost == 0,
       "of two that parity does not make up for both are asked");
    w.order.n_nodes = N;
    ok(agent_parity_make(&p, 2, UUID(1)) && w.n_lost == 1, "one that has no workers is not");
    w.order.step = ORDER_PREPARE;
    ok(agent_parity_make(&p, 2, UUID(1)) && w.n_lost == 0,
       "as another generation is prepared nobody knows who has");
    w.build_code = ENOENT;
    ok(!agent_parity_make(&p, 2, UUID(1)), "it cannot be made");
    agent_parity_short(&p);
    is_int(w.n_dropped, 1, "parity gives way to what the node saves itself");
    p.parity = NULL;
    agent_parity_short(&p);
    ok(w.n_dropped == 1 && !agent_parity_make(&p, 2, UUID(1)), "where there is some");
}

static void test_ordered(void)
{
    static const uint32_t lost[] = {1};
    struct saved s;

    begin();
    s = *saved(2);
    s.is_copy = true;
    w.added = &s;
    agent_snap_rebuild(&a, UUID(1), 2, lost, 1);
    ok(w.n_built == 1 && w.was_ordered && w.n_told_lead == 0, "the lead has one made again");
    w.build_code = ENOENT;
    agent_snap_rebuild(&a, UUID(1), 2, lost, 1);
    ok(w.n_told_lead == 1 && s.stage == SNAP_STAGE_FAILED && s.error == ENOENT &&
           strcmp(s.why, "by order") == 0, "and hears that it cannot be");
    ok(w.from == 1 && w.head.rank == 2 && w.head.n_ranks > 2 && strcmp(w.head.uuid, UUID(1)) == 0,
       "and whose it was");
    p.saved = &s;
    agent_snap_rebuild(&a, UUID(1), 2, lost, 1);
    is_int(w.n_built, 2, "what is here already is not made");
    p.saved = NULL;
}

static void test_built(void)
{
    const struct snap_head head = {.rank = 2, .uuid = UUID(1)};
    struct error e = {0};
    struct saved s;

    begin();
    p.fetched_from = 3;
    s = *saved(2);
    s.is_copy = true;
    w.added = &s;
    w.config.on_built(w.config.arg, &head, 1, false, &e);
    ok(w.n_made == 1 && w.n_fetched == 1 && w.n_told_lead == 1 && s.stage == SNAP_STAGE_HELD,
       "all who wait for one that was made hear of it");
    is_int((int)p.fetched_from, (int)a.rank, "it comes from this node");
    error_text(&e, ENODATA, "too many are gone");
    w.config.on_built(w.config.arg, &head, 1, false, &e);
    ok(w.n_made == 2 && w.n_fetched == 2 && w.n_told_lead == 1 && w.n_added == 1,
       "of one that was not the lead does not, where it has not ordered it");
    w.config.on_built(w.config.arg, &head, 1, true, &e);
    ok(w.n_told_lead == 2 && s.stage == SNAP_STAGE_FAILED && s.error == ENODATA,
       "and does where it has");
    s = *saved(2);
    w.config.on_built(w.config.arg, &head, 1, true, &e);
    ok(w.n_told_lead == 2 && s.stage == SNAP_STAGE_HELD,
       "what this node has saved itself has not failed by that");
}

int main(void)
{
    lead_bed_make(&a);
    test_sets();
    test_groups();
    test_nothing();
    test_sent();
    test_find();
    test_idle();
    test_ordered();
    test_built();
    a.snap = NULL;
    fs_remove_tree(a.run.dir, NULL);
    lead_bed_release(&a);
    return tap_done();
}
