/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A change of view among many agents, for scripts/bench: the lead, the members and
 * the trees that ship, in one process, with real connections on loopback. Workers
 * are made up: they start and end at once. An agent dies; the others stop and
 * start without it.
 *
 *   view_load AGENTS ARITY [RANK]
 *
 * prints a line of numbers: messages that went over links for it (beats apart),
 * their bytes, rounds (the longest chain of messages of which each followed from the
 * one before), how deep the tree is, processor time in s of all agents together,
 * time in s until the lead knew that all workers ran; and the processor time in s
 * of the first start, from no connection to the same.
 *
 * Each message carries the length of its chain in the upper half of its type.
 */
#include <config.h>

#include "rendezvous/lead.h"
#include "rendezvous/member.h"
#include "rendezvous/tree.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
    LEASE_MS = 600000,
    PATIENCE_S = 400,
    MAX_SOON = 8,
    CHAIN_SHIFT = 8,
    AT_ONCE = 32,
};

struct agent {
    struct world *world;
    uint32_t rank;
    struct link_listener *listener;
    struct tree *tree;
    struct member *member;
    struct member_event soon[MAX_SOON]; /* made by its own actions */
    size_t n_soon;
    bool is_stepping;
    struct order order;                 /* the newest, for these */
    uint32_t runs; /* the generation of its worker; 0: none */
};

struct world {
    uv_loop_t loop;
    uv_timer_t deadline, tick;
    struct roster roster;
    struct agent *agents;
    struct lead *lead;
    uint32_t running; /* generation of which all workers run */
};

/* What is counted, between the loss and the end. */
static struct {
    bool on;
    unsigned now;     /* length of the chain that is being followed; 0: a timer's */
    unsigned longest;
    unsigned heard;   /* the longest of which the last message has come */
    size_t n, bytes;
} count;

/* --- links, as the trees see them --- */

int __real_link_send(struct link *l, uint16_t type, const void *data,
                     size_t len);
int __wrap_link_send(struct link *l, uint16_t type, const void *data,
                     size_t len);
int __real_link_connect(uv_loop_t *loop, const struct link_target *target,
                        const uint8_t *key, const struct link_ops *ops,
                        void *ctx, struct link **ret, struct error *e);
int __wrap_link_connect(uv_loop_t *loop, const struct link_target *target,
                        const uint8_t *key, const struct link_ops *ops,
                        void *ctx, struct link **ret, struct error *e);
void __real_link_adopt(struct link *l, const struct link_ops *ops, void *ctx);
void __wrap_link_adopt(struct link *l, const struct link_ops *ops, void *ctx);
void __real_link_listener_open(struct link_listener *l, const uint8_t *key,
                               void (*on_peer)(struct link *,
                                               const struct channel_frame *,
                                               void *),
                               void *ctx);
void __wrap_link_listener_open(struct link_listener *l, const uint8_t *key,
                               void (*on_peer)(struct link *,
                                               const struct channel_frame *,
                                               void *),
                               void *ctx);

/* What follows from a timer is held to follow from all that was heard so far; a
 * HELLO follows from the loss alone. */
int __wrap_link_send(struct link *l, uint16_t type, const void *data,
                     size_t len)
{
    unsigned before = type == TREE_HELLO ? 0 : count.heard;
    unsigned chain = (count.now ? count.now : before) + 1;

    if (!count.on || type == TREE_BEAT) {
        return __real_link_send(l, type, data, len);
    }
    count.n++;
    count.bytes += len;
    count.longest = chain > count.longest ? chain : count.longest;
    return __real_link_send(l, (uint16_t)(type | chain << CHAIN_SHIFT), data,
                            len);
}

int __wrap_link_send_buf(struct link *l, uint16_t type, const struct buf *b);
int __wrap_link_send_buf(struct link *l, uint16_t type, const struct buf *b)
{
    return __wrap_link_send(l, type, b->data, b->len);
}

static void follow(void (*take)(struct link *, const struct channel_frame *,
                                void *),
                   struct link *l, const struct channel_frame *f, void *ctx)
{
    struct channel_frame plain = *f;

    plain.type &= (1 << CHAIN_SHIFT) - 1;
    count.now = f->type >> CHAIN_SHIFT;
    take(l, &plain, ctx);
    count.heard = count.now > count.heard ? count.now : count.heard;
    count.now = 0;
}

static struct link_ops up_real, child_real, up_ops, child_ops;
static void (*peer_real)(struct link *, const struct channel_frame *, void *);

static void on_up_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    follow(up_real.on_frame, l, f, ctx);
}

static void on_child_frame(struct link *l, const struct channel_frame *f,
                           void *ctx)
{
    follow(child_real.on_frame, l, f, ctx);
}

static void on_peer(struct link *l, const struct channel_frame *f, void *ctx)
{
    follow(peer_real, l, f, ctx);
}

int __wrap_link_connect(uv_loop_t *loop, const struct link_target *target,
                        const uint8_t *key, const struct link_ops *ops,
                        void *ctx, struct link **ret, struct error *e)
{
    up_real = up_ops = *ops;
    up_ops.on_frame = on_up_frame;
    return __real_link_connect(loop, target, key, &up_ops, ctx, ret, e);
}

void __wrap_link_adopt(struct link *l, const struct link_ops *ops, void *ctx)
{
    child_real = child_ops = *ops;
    child_ops.on_frame = on_child_frame;
    __real_link_adopt(l, &child_ops, ctx);
}

void __wrap_link_listener_open(struct link_listener *l, const uint8_t *key,
                               void (*peer)(struct link *,
                                            const struct channel_frame *,
                                            void *),
                               void *ctx)
{
    peer_real = peer;
    __real_link_listener_open(l, key, on_peer, ctx);
}

/* --- members --- */

static void soon(struct agent *a, struct member_event event)
{
    if (a->n_soon == MAX_SOON) {
        errx(1, "agent %u has too much to do", a->rank);
    }
    a->soon[a->n_soon++] = event;
}

static void act(struct agent *a, const struct member_actions *do_)
{
    static const struct failure killed = {.kind = FAILURE_SIGNAL, .signal = 15,
                                          .killed_by_us = true};

    if (do_->stop && a->runs) {
        soon(a, (struct member_event){.type = MEMBER_EXITED, .failure = &killed,
                                      .generation = a->runs});
        soon(a, (struct member_event){.type = MEMBER_GONE,
                                      .generation = a->runs});
        a->runs = 0;
    }
    if (do_->open_store) {
        soon(a, (struct member_event){.type = MEMBER_STORE_OPEN,
                                      .generation = do_->open_store,
                                      .addr = "127.0.0.1", .port = 1});
    }
    if (do_->start) {
        a->runs = do_->start->generation;
        soon(a, (struct member_event){.type = MEMBER_STARTED,
                                      .generation = a->runs});
    }
    if (do_->send) {
        _buf_ struct buf b = {0};

        report_encode(do_->send, &b);
        tree_report(a->tree, &b);
    }
}

/* A member is not stepped within its own actions. */
static void step(struct agent *a, struct member_event event)
{
    soon(a, event);
    if (a->is_stepping || !a->tree) {
        return;
    }
    a->is_stepping = true;
    for (size_t i = 0; i < a->n_soon; i++) {
        struct member_actions do_;

        a->soon[i].now_ms = uv_now(&a->world->loop);
        member_step(a->member, &a->soon[i], &do_);
        act(a, &do_);
    }
    a->n_soon = 0;
    a->is_stepping = false;
}

static bool on_order(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;
    struct order order;

    if (order_decode(data, len, &order, NULL) < 0) {
        errx(1, "an order does not parse");
    }
    order_release(&a->order);
    a->order = order;
    step(a, (struct member_event){.type = MEMBER_ORDER, .order = &a->order});
    return true;
}

static void on_word(void *ctx, const struct tree_word *word)
{
    step(ctx, (struct member_event){.type = MEMBER_WORD,
                                    .age_ms = word->age_ms});
}

static void on_seen(void *ctx, const struct tree_seen *seen)
{
    (void)seen;
    step(ctx, (struct member_event){.type = MEMBER_WORD});
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    (void)why;
    step(ctx, (struct member_event){.type = up ? MEMBER_UPLINK_UP
                                               : MEMBER_UPLINK_LOST});
}

/* --- the lead --- */

static void on_tick(uv_timer_t *t);

static void lead_event(struct world *w, struct lead_event event)
{
    struct lead_actions *do_ = calloc(1, sizeof(*do_));

    if (!do_) {
        err(1, "memory");
    }
    event.now_ms = uv_now(&w->loop);
    lead_step(w->lead, &event, do_);
    for (size_t i = 0; i < do_->n_notes; i++) {
        if (do_->notes[i].type == LEAD_NOTE_RUNNING) {
            w->running = do_->notes[i].generation;
        }
    }
    if (do_->order) {
        _buf_ struct buf b = {0};

        order_encode(do_->order, &b);
        tree_publish_order(w->agents[0].tree, &b);
        on_order(&w->agents[0], b.data, b.len);
    }
    uv_timer_stop(&w->tick);
    if (do_->wake_ms != LEAD_NEVER) {
        uv_timer_start(&w->tick, on_tick,
                       do_->wake_ms > event.now_ms ? do_->wake_ms - event.now_ms
                                                   : 0, 0);
    }
    free(do_);
}

static void on_tick(uv_timer_t *t)
{
    lead_event(t->data, (struct lead_event){.type = LEAD_TICK});
}

static void on_report(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;
    struct report report;

    if (report_decode(data, len, &report, NULL) < 0) {
        errx(1, "a report does not parse");
    }
    lead_event(a->world, (struct lead_event){.type = LEAD_REPORT,
                                             .report = &report});
}

static void on_lost(void *ctx, uint32_t rank, const struct tree_loss *loss)
{
    struct agent *a = ctx;

    lead_event(a->world, (struct lead_event){
        .type = LEAD_LOST, .rank = rank, .dead = loss->dead,
        .quiet_ms = loss->quiet_ms, .text = loss->why});
}

static void on_here(void *ctx, uint32_t rank)
{
    struct agent *a = ctx;

    lead_event(a->world, (struct lead_event){.type = LEAD_HERE, .rank = rank});
}

/* --- the world --- */

static void on_text(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    (void)data;
    (void)len;
}

static void on_config(void *ctx, uint64_t age_ms, const void *data, size_t len)
{
    (void)age_ms;
    on_text(ctx, data, len);
}

static void on_fact(void *ctx, uint32_t rank, const void *data, size_t len)
{
    (void)rank;
    on_text(ctx, data, len);
}

static void on_said(void *ctx, const char *why)
{
    (void)ctx;
    errx(1, "a member is refused: %s", why);
}

static void on_nothing(void *ctx)
{
    (void)ctx;
}

static const struct tree_ops ops = {
    .on_config = on_config, .on_order = on_order, .on_word = on_word,
    .on_seen = on_seen, .on_uplink = on_uplink, .on_refused = on_said, .on_writable = on_nothing,
    .on_report = on_report, .on_lost = on_lost, .on_here = on_here,
    .on_event = on_fact, .on_request = on_text, .on_ask = on_text,
};

static void listen_all(struct world *w, uint32_t n)
{
    w->agents = calloc(n, sizeof(*w->agents));
    for (uint32_t i = 0; w->agents && i < n; i++) {
        struct roster_entry entry = {.slots = 1, .n_addrs = 1, .host_index = i};
        struct error e = {0};

        w->agents[i].world = w;
        w->agents[i].rank = i;
        if (link_listen(&w->loop, true, &w->agents[i].listener, &e) < 0) {
            errx(1, "listen: %s", e.text);
        }
        entry.port = link_listener_port(w->agents[i].listener);
        str_copy(entry.addrs[0], ROSTER_ADDR_BYTES, "127.0.0.1");
        str_copy(entry.host, sizeof(entry.host), "h");
        roster_add(&w->roster, &entry);
    }
}

static void join(struct world *w, uint32_t rank, uint32_t arity)
{
    static const uint8_t key[CHANNEL_KEY_BYTES] = {7};
    struct agent *a = &w->agents[rank];
    struct member_config member = {
        .rank = rank, .n_procs = 1, .host = "h", .join_ms = LEASE_MS,
        .lease_ms = rank ? LEASE_MS : 0, .linger_ms = 1000, .margin_ms = 1000,
    };
    struct tree_config tree = {
        .loop = &w->loop, .roster = &w->roster, .rank = rank, .arity = arity,
        .lease_ms = LEASE_MS, .run_id = "run", .version = "v", .key = key,
        .listener = a->listener, .ops = &ops, .ctx = a,
    };

    if (member_create(&member, uv_now(&w->loop), &a->member, NULL) < 0 ||
        tree_create(&tree, &a->tree, NULL) < 0) {
        errx(1, "agent %u cannot be made", rank);
    }
}

static void on_deadline(uv_timer_t *t)
{
    (void)t;
    errx(1, "the generation did not start in %d s", PATIENCE_S);
}

static void expect_soon(struct world *w)
{
    uv_timer_start(&w->deadline, on_deadline, PATIENCE_S * 1000, 0);
}

/* A few at a time: on a busy machine a thousand handshakes in one process take longer
 * than each of them may, and all would be begun again, for ever. */
static void join_all(struct world *w, uint32_t n, uint32_t arity)
{
    for (uint32_t i = 0; i < n; i++) {
        join(w, i, arity);
        if (i < AT_ONCE || i % AT_ONCE > 0) {
            continue;
        }
        expect_soon(w);
        for (uint32_t k = i - AT_ONCE + 1; k <= i; k++) {
            while (!tree_has_uplink(w->agents[k].tree)) {
                uv_run(&w->loop, UV_RUN_ONCE);
            }
        }
    }
}

/* Until the workers of `generation` run. */
static void run_until(struct world *w, uint32_t generation)
{
    expect_soon(w);
    while (w->running < generation) {
        uv_run(&w->loop, UV_RUN_ONCE);
    }
}

/* As a process that ends: its kernel closes all that it had. */
static void die(struct agent *a)
{
    struct tree *tree = a->tree;

    a->tree = NULL;
    tree_close(tree);
    link_listener_close(a->listener);
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static double clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned depth_of(uint32_t rank, uint32_t arity)
{
    unsigned depth = 0;

    for (; rank > 0; rank = (rank - 1) / arity) {
        depth++;
    }
    return depth;
}

static void start(struct world *w, uint32_t n, uint32_t arity)
{
    struct lead_config config = {
        .n_nodes = n, .min_nodes = 1, .max_losses = n, .lease_ms = LEASE_MS,
        .restart = {.kind = RESTART_ON_FAILURE, .max = 1},
        .first_generation = 1, .gang_timeout_ms = LEASE_MS, .margin_ms = 1000,
    };

    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->deadline);
    uv_timer_init(&w->loop, &w->tick);
    w->tick.data = w;
    listen_all(w, n);
    if (lead_create(&config, uv_now(&w->loop), &w->lead, NULL) < 0) {
        errx(1, "no lead");
    }
    join_all(w, n, arity);
    step(&w->agents[0], (struct member_event){.type = MEMBER_UPLINK_UP});
    run_until(w, 1);
}

int main(int argc, char **argv)
{
    struct rlimit files = {0};
    struct world w = {0};
    uint32_t n = argc > 2 ? (uint32_t)atoi(argv[1]) : 0;
    uint32_t arity = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    uint32_t victim = argc > 3 ? (uint32_t)atoi(argv[3]) : n - 1;
    double cpu, begun;

    if (n < 3 || arity < 1 || victim < 1 || victim >= n) {
        errx(2, "usage: view_load AGENTS ARITY [RANK]");
    }
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    start(&w, n, arity);
    cpu = cpu_s();
    begun = clock_s();
    count.on = true;
    die(&w.agents[victim]);
    run_until(&w, 2);
    printf("%zu %zu %u %u %.6f %.6f %.6f\n", count.n, count.bytes,
           count.longest, depth_of(n - 1, arity), cpu_s() - cpu,
           clock_s() - begun, cpu);
    fflush(stdout);
    _exit(0); /* a thousand trees are not taken down one by one */
}
