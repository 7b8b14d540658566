/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To which agent copies of what is saved here go, what is made of those that come, and which
 * of them stay: with the order, and all that has links, in the linker's hand.
 */
#include <config.h>

#include "launcher/agent_snap_bed.h"
#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { N = 3, PROCS = 2, GENERATION = 5 }; /* nodes, and ranks of each */

static char copy_bytes, parity_bytes, link_bytes; /* what stands for them */

static struct {
    struct order order;
    uint16_t n_procs[N + 1]; /* one of them has not come yet */
    int send_code;
    struct snap_hold_config copies;
    struct snap_copy_config config;
    const struct snap_hold *held;
    /* What was done. */
    int n_sent, n_parity_sent, n_noted, n_unpinned, n_told_own, n_told_lead;
    int n_taken, n_parity_taken, n_closed, n_begun, n_parity_begun;
    int n_kept, n_settled, n_parity_settled;
    uint32_t to;
    uint16_t port;
    char addr[64], noted[512];
    unsigned wanted; /* 1 << rank, of which copies stay */
} w;

/* --- the linker's hand --- */

const struct order *__wrap_member_order(const struct member *m);
void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_agent_parity_send(struct crew *c, struct saved *s);
void __wrap_agent_snap_unpin(struct agent_snap *p, struct saved *s);
void __wrap_agent_snap_tell_own(struct agent *a, const struct saved *s);
void __wrap_agent_snap_tell_lead(struct agent *a, struct saved *s);
void __wrap_link_close(struct link *l);
int __wrap_snap_copy_create(const struct snap_copy_config *config, struct snap_copy **ret,
                            struct error *e);
void __wrap_snap_copy_destroy(struct snap_copy *c);
void __wrap_snap_copy_hold(struct snap_copy *c, struct snap_hold *copies);
void __wrap_snap_copy_fetch_forget(struct snap_copy *c);
int __wrap_snap_copy_send(struct snap_copy *c, uint32_t rank, const char *uuid, uint32_t to,
                          char *const *addrs, uint16_t port, struct error *e);
void __wrap_snap_copy_take(struct snap_copy *c, struct link *l,
                           const struct channel_frame *first);
void __wrap_snap_copy_begun(struct snap_copy *c, uint64_t question, const struct snap *s,
                            const struct error *e);
void __wrap_snap_parity_take(struct snap_parity *c, struct link *l,
                             const struct channel_frame *first);
void __wrap_snap_parity_begun(struct snap_parity *c, uint64_t question, const struct snap *s,
                              const struct error *e);
void __wrap_snap_parity_settle(struct snap_parity *c, const char *uuid, bool is_kept);
void __wrap_snap_parity_destroy(struct snap_parity *c);
int __real_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e);
int __wrap_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e);
void __wrap_snap_hold_keep(struct snap_hold *h, uint64_t step,
                           bool (*is_wanted)(void *arg, uint32_t rank), void *arg);

const struct order *__wrap_member_order(const struct member *m)
{
    (void)m;
    return &w.order;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    va_list ap;

    (void)a;
    va_start(ap, fmt);
    vsnprintf(w.noted, sizeof(w.noted), fmt, ap);
    va_end(ap);
    w.n_noted++;
}

void __wrap_agent_parity_send(struct crew *c, struct saved *s)
{
    (void)c, (void)s;
    w.n_parity_sent++;
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

void __wrap_link_close(struct link *l)
{
    w.n_closed += l == (struct link *)&link_bytes;
}

int __wrap_snap_copy_create(const struct snap_copy_config *config, struct snap_copy **ret,
                            struct error *e)
{
    (void)e;
    w.config = *config;
    *ret = (struct snap_copy *)&copy_bytes;
    return 0;
}

void __wrap_snap_copy_destroy(struct snap_copy *c)
{
    (void)c;
}

void __wrap_snap_copy_hold(struct snap_copy *c, struct snap_hold *copies)
{
    (void)c;
    w.held = copies;
}

void __wrap_snap_copy_fetch_forget(struct snap_copy *c)
{
    (void)c;
}

int __wrap_snap_copy_send(struct snap_copy *c, uint32_t rank, const char *uuid, uint32_t to,
                          char *const *addrs, uint16_t port, struct error *e)
{
    (void)c, (void)rank, (void)uuid;
    if (w.send_code) {
        return error_text(e, w.send_code, "by order");
    }
    w.n_sent++;
    w.to = to;
    w.port = port;
    str_copy(w.addr, sizeof(w.addr), addrs[0]);
    return 0;
}

void __wrap_snap_copy_take(struct snap_copy *c, struct link *l,
                           const struct channel_frame *first)
{
    (void)c, (void)l, (void)first;
    w.n_taken++;
}

void __wrap_snap_copy_begun(struct snap_copy *c, uint64_t question, const struct snap *s,
                            const struct error *e)
{
    (void)c, (void)question, (void)s, (void)e;
    w.n_begun++;
}

void __wrap_snap_parity_take(struct snap_parity *c, struct link *l,
                             const struct channel_frame *first)
{
    (void)c, (void)l, (void)first;
    w.n_parity_taken++;
}

void __wrap_snap_parity_begun(struct snap_parity *c, uint64_t question, const struct snap *s,
                              const struct error *e)
{
    (void)c, (void)question, (void)s, (void)e;
    w.n_parity_begun++;
}

void __wrap_snap_parity_settle(struct snap_parity *c, const char *uuid, bool is_kept)
{
    (void)c, (void)uuid, (void)is_kept;
    w.n_parity_settled++;
}

void __wrap_snap_parity_destroy(struct snap_parity *c)
{
    (void)c;
}

int __wrap_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e)
{
    w.copies = *config;
    return __real_snap_hold_create(config, ret, e);
}

void __wrap_snap_hold_keep(struct snap_hold *h, uint64_t step,
                           bool (*is_wanted)(void *arg, uint32_t rank), void *arg)
{
    (void)h, (void)step;
    w.n_kept++;
    w.wanted = 0;
    for (uint32_t rank = 0; rank < N * PROCS; rank++) {
        w.wanted |= is_wanted(arg, rank) ? 1u << rank : 0;
    }
}

/* --- */

struct bed {
    struct agent_snap_bed snap;
    struct agent *agent;
    struct agent_snap *p;
    struct saved saved; /* by the first rank here */
};

/* Three nodes, each on a host of its own, that run. */
static void open_bare(struct bed *b)
{
    static uint8_t key[CHANNEL_KEY_BYTES];

    memset(&w, 0, sizeof(w));
    memset(b, 0, sizeof(*b));
    agent_snap_bed_open(&b->snap);
    b->agent = &b->snap.agent;
    b->p = &b->snap.snap;
    b->agent->key = key;
    b->agent->has_config = true;
    b->agent->config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_PARTNER;
    for (uint32_t i = 0; i < N; i++) {
        struct roster_entry *r = &b->agent->roster.entries[i];

        snprintf(r->host, sizeof(r->host), "host%u", i);
        snprintf(r->addrs[0], sizeof(r->addrs[0]), "10.0.0.%u", i);
        r->port = (uint16_t)(100 + i);
        w.n_procs[i] = PROCS;
    }
    w.order = (struct order){.step = ORDER_RUN, .generation = GENERATION, .n_nodes = N,
                             .n_procs = w.n_procs};
    b->snap.crew.generation = GENERATION;
    b->saved = (struct saved){.head = {.rank = 0, .step = 1, .uuid = UUID(1)}};
}

static void create(struct bed *b)
{
    const struct snap_hold_config config = {
        .loop = &b->snap.hold.loop, .dir = b->snap.hold.dir, .agent = 3, .budget = 1 << 20,
        .budget_why = "all that this test has", .io = io_system(), .arg = b->p,
    };
    struct error e = {0};

    if (agent_partner_create(b->p, &config, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void open_bed(struct bed *b)
{
    open_bare(b);
    create(b);
}

static void close_bed(struct bed *b)
{
    agent_partner_destroy(b->p);
    agent_snap_bed_close(&b->snap);
}

static void send_it(struct bed *b)
{
    agent_partner_send(&b->snap.crew, &b->saved);
}

/* --- to whom --- */

/* Two are a pair where there are two, and three a circle. */
static void test_partner(struct bed *b)
{
    open_bed(b);
    send_it(b);
    is_int(w.n_sent, 1, "what is saved goes to a partner");
    ok(w.to == 1 && w.port == 101 && strcmp(w.addr, "10.0.0.1") == 0, "by its address");
    is_int(w.n_parity_sent, 0, "as a copy");
    w.n_procs[1] = 0;
    send_it(b);
    is_int(w.to, 1, "which stays as long as the generation does");
    w.order.generation = b->snap.crew.generation = GENERATION + 1;
    send_it(b);
    is_int(w.to, 2, "of nodes that have no workers none is a partner");
    w.order.generation = b->snap.crew.generation = GENERATION + 2;
    str_copy(b->agent->roster.entries[2].host, sizeof(b->agent->roster.entries[2].host), "host0");
    w.n_sent = 0;
    send_it(b);
    ok(w.n_sent == 0 && w.n_noted == 0, "nor is one of the same host");
    close_bed(b);
}

/* The order may be of more nodes than this agent knows of. */
static void test_newcomer(struct bed *b)
{
    open_bed(b);
    b->agent->rank = 2;
    w.order.n_nodes = N + 1;
    w.n_procs[N] = PROCS;
    send_it(b);
    ok(w.n_sent == 1 && w.to == 0, "a partner is one that is known: node %u", w.to);
    close_bed(b);
}

static void test_not_now(struct bed *b)
{
    open_bed(b);
    w.order.step = ORDER_PREPARE;
    send_it(b);
    is_int(w.n_sent, 0, "nothing is sent as another generation is prepared");
    w.order.step = ORDER_RUN;
    w.order.generation = GENERATION + 1;
    send_it(b);
    is_int(w.n_sent, 0, "nor what workers of the one before have saved");
    close_bed(b);
    open_bed(b);
    b->agent->config.job->checkpoint.partner = JOB_PARTNER_XOR;
    b->p->parity = (struct snap_parity *)&parity_bytes;
    send_it(b);
    ok(w.n_sent == 0 && w.n_parity_sent == 1, "where there is parity instead that is sent");
    close_bed(b);
    open_bare(b);
    b->agent->config.job->checkpoint.levels = JOB_LEVEL_MEMORY;
    create(b);
    send_it(b);
    ok(w.n_sent == 0 && !b->p->copies && !b->p->copy, "a job may want neither");
    agent_partner_settled(b->p, UUID(1), 1, true);
    is_int(w.n_kept, 0, "and keeps nothing");
    close_bed(b);
}

/* What does not go to the disk is not lost before all of it is with others. */
static void test_pinned(struct bed *b)
{
    open_bed(b);
    is_int(hold_bed_save(&b->snap.hold, 0, 1, UUID(1)), 0, "a rank saves");
    hold_bed_run_until(&b->snap.hold, &b->snap.hold.said.n_written, 1);
    send_it(b);
    ok(!b->saved.is_pinned, "what goes to the disk needs no memory");
    b->saved.waits = 1u << INTERVAL_DISK;
    w.send_code = ENOMEM;
    send_it(b);
    ok(!b->saved.is_pinned, "nor what goes nowhere");
    w.send_code = 0;
    send_it(b);
    ok(b->saved.is_pinned, "what goes to a partner alone does");
    snap_hold_unpin(b->snap.hold.hold, 0, UUID(1));
    close_bed(b);
}

/* --- what becomes of it --- */

static struct saved *add_own(struct bed *b)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s) {
        bail_out("memory");
    }
    *s = b->saved;
    s->next = b->p->saved;
    b->p->saved = s;
    return s;
}

static void end(struct bed *b, int code)
{
    struct error e = {0};

    if (code) {
        error_text(&e, code, "it is short of memory");
    }
    w.config.on_sent(b->p, 0, UUID(1), 1, &e);
}

static void test_sent(struct bed *b)
{
    struct saved *s;

    open_bed(b);
    end(b, 0);
    is_int(w.n_told_own, 0, "one that is on the disk by now is no news");
    s = add_own(b);
    end(b, 0);
    ok(s->level == WORKER_SNAP_PARTNER && w.n_told_own == 1, "one that is not is with a partner");
    is_int(w.n_unpinned, 0, "and its memory stays");
    end(b, ECANCELED);
    is_int(w.n_unpinned, 1, "one that does not get there needs it no more");
    is_int(w.n_noted, 0, "where it was given up that is all");
    end(b, ENOMEM);
    is_str(w.noted, "node 1 has no copy of what node 0 saves: it is short of memory; what is not "
           "on the disk is lost with the node", "else it is told");
    end(b, ENOMEM);
    w.send_code = ENOMEM;
    send_it(b);
    is_int(w.n_noted, 1, "once");
    close_bed(b);
}

static void test_not_sent(struct bed *b)
{
    open_bed(b);
    w.send_code = ENOMEM;
    send_it(b);
    is_str(w.noted, "node 1 has no copy of what node 0 saves: by order; what is not on the disk "
           "is lost with the node", "one that cannot be sent is told of");
    close_bed(b);
}

/* --- copies of others --- */

static void test_got(struct bed *b)
{
    const struct snap_head head = {.rank = 4, .step = 1, .uuid = UUID(1)};
    const struct saved *s;

    open_bed(b);
    w.config.on_got(b->p, &head, 2);
    s = agent_snap_saved(b->p, 4, UUID(1));
    ok(s && s->is_copy && s->from == 2 && s->stage == SNAP_STAGE_HELD, "a copy has come");
    is_int(w.n_told_lead, 1, "the lead hears of it");
    ok(uv_is_active((uv_handle_t *)b->p->timer), "until it is settled");
    w.config.on_got(b->p, &head, 2);
    ok(w.n_told_lead == 2 && !s->next && b->p->saved == s, "and again, where it comes again");
    close_bed(b);
}

static void test_kept(struct bed *b)
{
    open_bed(b);
    agent_partner_settled(b->p, UUID(1), 9, false);
    agent_partner_settled(b->p, UUID(1), 0, true);
    is_int(w.n_kept, 0, "what comes to nothing, or is of no step, takes the place of none");
    agent_partner_settled(b->p, UUID(1), 9, true);
    is_int(w.n_kept, 1, "what is a checkpoint does");
    is_int((int)w.wanted, 0x30, "but of those whose partner is here, two ranks of node 2");
    w.n_procs[1] = 0;
    w.order.generation++;
    w.order.step = ORDER_PREPARE;
    agent_partner_settled(b->p, UUID(2), 10, true);
    is_int(w.n_kept, 1, "as another generation is prepared all stays");
    w.order.step = ORDER_RUN;
    agent_partner_settled(b->p, UUID(2), 10, true);
    is_int((int)w.wanted, 0xc, "its ranks are others");
    is_int((int)b->p->n_kept, 1, "and no more than there are");
    is_int(w.n_parity_settled, 0, "there is no parity");
    b->p->parity = (struct snap_parity *)&parity_bytes;
    agent_partner_settled(b->p, UUID(3), 11, true);
    is_int(w.n_parity_settled, 1, "where there is it hears of it");
    is_int((int)w.wanted, 0, "and what was made again goes");
    close_bed(b);
}

/* Memory for a copy of rank 4 is filled. */
static void keep(struct bed *b, uint64_t step, const char *uuid)
{
    const struct snap_rank who = {.rank = 4, .n_ranks = N * PROCS, .generation = GENERATION};
    struct error e = {0};

    if (snap_hold_begin(b->p->copies, &who, step, uuid, b->snap.hold.root, HOLD_ROOM, 1, &e) < 0) {
        bail_out("%s", e.text);
    }
    hold_bed_run_works(&b->snap.hold);
    is_int(snap_hold_done(b->p->copies, 4, uuid, 10, 10, &e), 0, "a copy is here: %s", e.text);
}

static bool has(const struct bed *b, const char *uuid)
{
    return snap_hold_get(b->p->copies, 4, uuid) != NULL;
}

static void test_settled(struct bed *b)
{
    open_bed(b);
    keep(b, 1, UUID(1));
    keep(b, 2, UUID(2));
    agent_partner_settled(b->p, UUID(1), 1, true);
    ok(has(b, UUID(1)) && has(b, UUID(2)), "one is a checkpoint: it stays, as does a later one");
    agent_partner_settled(b->p, UUID(2), 2, false);
    ok(has(b, UUID(1)) && !has(b, UUID(2)), "one that comes to nothing goes");
    ok(hold_bed_has(&b->snap.hold, "copy-3-4-0"), "there is memory for copies");
    agent_partner_destroy(b->p);
    ok(!hold_bed_has(&b->snap.hold, "copy-3-4-0"), "but for nobody when the agent ends");
    ok(!b->p->copies && !b->p->copy && !b->p->kept, "nothing is left of it");
    agent_snap_bed_close(&b->snap);
}

static void meet(struct bed *b, uint16_t type)
{
    const struct channel_frame first = {.type = type};

    agent_partner_stranger(b->agent, (struct link *)&link_bytes, &first);
}

static void test_stranger(struct bed *b)
{
    open_bed(b);
    meet(b, SNAP_COPY_OFFER);
    meet(b, SNAP_COPY_WANT);
    is_int(w.n_taken, 2, "who offers a copy, or wants one, is heard");
    meet(b, SNAP_COPY_DATA);
    ok(w.n_taken == 2 && w.n_closed == 1, "who says something else is not");
    b->p->parity = (struct snap_parity *)&parity_bytes;
    meet(b, SNAP_COPY_DATA);
    meet(b, SNAP_COPY_OFFER);
    ok(w.n_taken == 3 && w.n_parity_taken == 1, "but where there is parity it may be of that");
    b->agent->leaving = true;
    meet(b, SNAP_COPY_OFFER);
    b->agent->leaving = false;
    b->agent->has_config = false;
    meet(b, SNAP_COPY_OFFER);
    ok(w.n_taken == 3 && w.n_closed == 3, "nobody is by who leaves, or has no job yet");
    b->agent->has_config = true;
    close_bed(b);
    open_bare(b);
    meet(b, SNAP_COPY_OFFER);
    ok(w.n_taken == 0 && w.n_closed == 1, "nor by who keeps no copies");
    close_bed(b);
}

/* --- life --- */

static void test_create(struct bed *b)
{
    char path[PATH_MAX];

    open_bare(b);
    fs_mkdirs(b->snap.hold.dir, NULL);
    chmod(b->snap.hold.dir, 0700);
    snprintf(path, sizeof(path), "%s/copy-3-7-0", b->snap.hold.dir);
    is_int(fs_write_replace(path, "", 0, NULL), 0, "an agent before has kept a copy");
    b->agent->config.job->checkpoint.partner_encrypt = true;
    create(b);
    ok(!hold_bed_has(&b->snap.hold, "copy-3-7-0"), "which goes");
    ok(w.copies.is_elsewhere && strcmp(w.copies.name, "copy") == 0,
       "copies are not written but by order");
    ok(w.config.hides && w.config.agent == 0 && w.config.own == b->p->hold,
       "and hidden on the way, where the job says so");
    is_int((int)w.config.stuck_ms, 10000, "who sends none for ten seconds is given up");
    ok(w.held == b->p->copies && b->p->hold->copies == b->p->copies,
       "they have what memory those of this node leave");
    ok(w.config.make == agent_parity_make && w.copies.on_short == agent_parity_short,
       "parity makes them, and loses its memory to them");
    w.copies.on_begun(b->p, 1, NULL, NULL);
    w.copies.on_begun(b->p, SNAP_PARITY_QUESTION | 1, NULL, NULL);
    is_int(w.n_begun, 2, "memory is for copies");
    b->p->parity = (struct snap_parity *)&parity_bytes;
    w.copies.on_begun(b->p, 1, NULL, NULL);
    w.copies.on_begun(b->p, SNAP_PARITY_QUESTION | 1, NULL, NULL);
    ok(w.n_begun == 3 && w.n_parity_begun == 1, "or for what parity has asked for");
    agent_partner_destroy(b->p);
    ok(!b->p->copies && !b->p->copy && !b->p->parity && !b->p->kept, "nothing is left of it");
    agent_snap_bed_close(&b->snap);
}

int main(void)
{
    static struct bed b;

    test_partner(&b);
    test_newcomer(&b);
    test_not_now(&b);
    test_pinned(&b);
    test_sent(&b);
    test_not_sent(&b);
    test_got(&b);
    test_kept(&b);
    test_settled(&b);
    test_stranger(&b);
    test_create(&b);
    return tap_done();
}
