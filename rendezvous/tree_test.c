/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trees in one process, over real sockets on loopback: what goes down
 * reaches all, what goes up reaches the lead, and a lost inner node is replaced
 * as parent by the next ancestor.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/tree.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 7, ARITY = 2, LEASE_MS = 400 };

static const uint8_t key[CHANNEL_KEY_BYTES] = {3};

struct node {
    struct world *world;
    struct link_listener *listener;
    struct tree *tree;
    uint32_t rank;
    char order[32];
    char config[32];
    int n_uplinks, n_words, n_refused;
    uint64_t word_age;
    bool blocked;
};

struct world {
    uv_loop_t loop;
    struct roster roster;
    struct node nodes[N];
    int reports[N]; /* at the lead, by rank */
    int events[N];
    int lost[N];
    char why[N][128];
    bool (*until)(struct world *w);
    bool timed_out;
};

static void on_text(char *to, size_t size, const void *data, size_t len)
{
    snprintf(to, size, "%.*s", (int)len, (const char *)data);
}

static void on_config(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    on_text(n->config, sizeof(n->config), data, len);
}

static void on_order(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    on_text(n->order, sizeof(n->order), data, len);
}

static void on_word(void *ctx, uint64_t age_ms)
{
    struct node *n = ctx;

    n->n_words++;
    n->word_age = age_ms;
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    (void)why;
    ((struct node *)ctx)->n_uplinks += up;
}

static void on_refused(void *ctx, const char *why)
{
    (void)why;
    ((struct node *)ctx)->n_refused++;
}

static void on_writable(void *ctx)
{
    ((struct node *)ctx)->blocked = false;
}

/* The reports of this test are four bytes: the rank. */
static void on_report(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;
    struct wire_reader r = wire_reader(data, len);

    n->world->reports[wire_get_u32(&r) % N]++;
}

static void on_lost(void *ctx, uint32_t rank, const char *why)
{
    struct node *n = ctx;

    n->world->lost[rank]++;
    snprintf(n->world->why[rank], sizeof(n->world->why[rank]), "%s", why);
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    (void)data;
    (void)len;
    ((struct node *)ctx)->world->events[rank]++;
}

static void on_request(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    (void)data;
    (void)len;
}

static const struct tree_ops ops = {
    on_config, on_order,   on_word, on_uplink, on_refused,
    on_writable, on_report, on_lost, on_event,  on_request,
};

static uint16_t front_port; /* 0: there is none */

static void join(struct world *w, uint32_t rank, const char *run_id)
{
    static char *front[] = {(char *)"127.0.0.1", NULL};
    struct node *n = &w->nodes[rank];
    struct tree_config config = {
        .loop = &w->loop, .roster = &w->roster, .rank = rank, .arity = ARITY,
        .lease_ms = LEASE_MS, .run_id = run_id, .version = "v", .key = key,
        .listener = n->listener, .ops = &ops, .ctx = n,
        .front_addrs = front_port ? front : NULL, .front_port = front_port,
    };

    if (tree_create(&config, &n->tree, NULL) < 0) {
        bail_out("tree_create");
    }
}

static void report(struct world *w, uint32_t rank)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, rank);
    tree_report(w->nodes[rank].tree, &b);
}

static void open_world(struct world *w)
{
    memset(w, 0, sizeof(*w));
    uv_loop_init(&w->loop);
    for (uint32_t i = 0; i < N; i++) {
        struct roster_entry entry = {.slots = 1, .n_addrs = 1,
                                     .host_index = i};

        w->nodes[i].world = w;
        w->nodes[i].rank = i;
        link_listen(&w->loop, true, &w->nodes[i].listener, NULL);
        entry.port = link_listener_port(w->nodes[i].listener);
        str_copy(entry.addrs[0], ROSTER_ADDR_BYTES, "127.0.0.1");
        str_copy(entry.host, sizeof(entry.host), "h");
        roster_add(&w->roster, &entry);
    }
}

static void leave(struct world *w, uint32_t rank)
{
    tree_close(w->nodes[rank].tree);
    link_listener_close(w->nodes[rank].listener);
    w->nodes[rank].tree = NULL;
    w->nodes[rank].listener = NULL;
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < N; i++) {
        if (w->nodes[i].tree || w->nodes[i].listener) {
            leave(w, i);
        }
    }
    uv_run(&w->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&w->loop), 0, "nothing is left on the loop");
    roster_release(&w->roster);
}

static void on_deadline(uv_timer_t *t)
{
    ((struct world *)t->data)->timed_out = true;
}

/* Only wakes the loop. */
static void on_step(uv_timer_t *t)
{
    (void)t;
}

static bool run_until(struct world *w, bool (*until)(struct world *w))
{
    uv_timer_t deadline, step;

    w->timed_out = false;
    uv_timer_init(&w->loop, &deadline);
    uv_timer_init(&w->loop, &step);
    deadline.data = w;
    uv_timer_start(&deadline, on_deadline, 20000, 0);
    uv_timer_start(&step, on_step, 5, 5);
    while (!w->timed_out && !until(w)) {
        uv_run(&w->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_close((uv_handle_t *)&step, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return !w->timed_out;
}

static bool all_reported(struct world *w)
{
    for (int i = 0; i < N; i++) {
        if (!w->reports[i]) {
            return false;
        }
    }
    return true;
}

static bool all_know(struct world *w)
{
    for (int i = 1; i < N; i++) {
        if (strcmp(w->nodes[i].order, "order 1") != 0 ||
            strcmp(w->nodes[i].config, "config") != 0 ||
            !w->nodes[i].n_words) {
            return false;
        }
    }
    return true;
}

static void publish(struct world *w, const char *text)
{
    struct buf b = {.data = (char *)text, .len = strlen(text)};

    tree_publish_order(w->nodes[0].tree, &b);
}

/* Members that join before and after, deep ones first. */
static void start_all(struct world *w)
{
    open_world(w);
    for (uint32_t i = N; i-- > 0;) {
        join(w, i, "run");
        report(w, i);
    }
    tree_publish_config(w->nodes[0].tree, "config", 6);
    publish(w, "order 1");
    ok(run_until(w, all_reported), "every report reaches the lead");
    ok(run_until(w, all_know), "config, order and heartbeats reach all");
}

static bool event_of_last(struct world *w)
{
    return w->events[N - 1];
}

static void test_both_ways(void)
{
    struct world w;
    int n_lost = 0;

    start_all(&w);
    tree_event(w.nodes[N - 1].tree, "{}", 2);
    ok(run_until(&w, event_of_last), "an event of the deepest node arrives");
    for (int i = 0; i < N; i++) {
        n_lost += w.lost[i];
    }
    is_int(n_lost, 0, "nobody is lost");
    ok(w.nodes[N - 1].word_age < LEASE_MS, "the lead's word is fresh below");
    close_world(&w);
}

static bool inner_lost(struct world *w)
{
    return w->lost[1];
}

static bool orphans_back(struct world *w)
{
    return strcmp(w->nodes[3].order, "order 2") == 0 &&
           strcmp(w->nodes[4].order, "order 2") == 0 && w->reports[3] > 1 &&
           w->reports[4] > 1;
}

/* Node 1 is the parent of 3 and 4. */
static void test_lost_inner_node(void)
{
    struct world w;

    start_all(&w);
    leave(&w, 1);
    ok(run_until(&w, inner_lost), "the lead is told of the loss");
    like(w.why[1], "closed", "with the reason");
    publish(&w, "order 2");
    ok(run_until(&w, orphans_back), "its children have found the lead, and "
       "told it where they stand");
    is_int(w.lost[3] + w.lost[4], 0, "they do not count as lost");
    close_world(&w);
}

static bool refused(struct world *w)
{
    return w->nodes[2].n_refused;
}

static void test_other_run(void)
{
    struct world w;

    open_world(&w);
    join(&w, 0, "run");
    join(&w, 2, "another run");
    ok(run_until(&w, refused), "a member of another run is refused");
    close_world(&w);
}

static struct tree_output piece(const char *data)
{
    return (struct tree_output){.node = 2, .rank = 5, .data = data,
                                .len = 100000};
}

/* Without a front end output goes nowhere, and nobody waits for that. */
static void test_output_without_front(void)
{
    struct world w;
    _free_ char *data = calloc(1, 100000);
    struct tree_output o = piece(data);
    int n_taken = 0;

    start_all(&w);
    for (int i = 0; i < 100; i++) {
        if (!tree_output(w.nodes[2].tree, &o)) {
            break;
        }
        n_taken++;
    }
    ok(n_taken > 0 && n_taken < 100, "a node without credit has to wait (%d)",
       n_taken);
    w.nodes[2].blocked = true;
    for (int i = 0; i < 1000 && w.nodes[2].blocked; i++) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    ok(!w.nodes[2].blocked, "and is told when it may go on");
    close_world(&w);
}

static bool both_lost(struct world *w)
{
    return w->lost[1] && w->lost[3];
}

/* A node and its parent go together: nobody is left who saw the node go. */
static void test_lost_with_parent(void)
{
    struct world w;

    start_all(&w);
    leave(&w, 3);
    leave(&w, 1);
    ok(run_until(&w, both_lost), "the lead is told of both");
    like(w.why[3], "parent", "and why");
    is_int(w.lost[4], 0, "their neighbour has found another parent");
    close_world(&w);
}

static bool third_lost(struct world *w)
{
    return w->lost[3];
}

static bool third_gone(struct world *w)
{
    return !w->nodes[3].tree;
}

static bool third_is_up(struct world *w)
{
    return w->nodes[3].n_uplinks;
}

/* A child is lost while its parent has no parent itself. */
static void test_loss_is_repeated(void)
{
    struct world w;

    open_world(&w);
    join(&w, 1, "run");
    join(&w, 3, "run");
    report(&w, 3);
    run_until(&w, third_is_up);
    leave(&w, 3);
    for (int i = 0; i < 20; i++) {
        run_until(&w, third_gone);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    join(&w, 0, "run");
    ok(run_until(&w, third_lost), "the lead learns of it when it comes");
    is_int(w.reports[3], 0, "and nothing else of that node");
    close_world(&w);
}

/* --- peers that know the key and do as they like --- */

struct rogue {
    struct link *link;
    bool down;
    bool welcome;
};

static void rogue_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    (void)l;
    ((struct rogue *)ctx)->welcome |= f->type == TREE_WELCOME;
}

static void rogue_down(struct link *l, bool closed, const struct error *why,
                       void *ctx)
{
    (void)l;
    (void)closed;
    (void)why;
    ((struct rogue *)ctx)->down = true;
}

static void rogue_up(struct link *l, void *ctx)
{
    (void)l;
    (void)ctx;
}

static const struct link_ops rogue_ops = {
    .on_up = rogue_up, .on_frame = rogue_frame, .on_down = rogue_down,
};

static struct rogue *the_rogue;

static bool rogue_is_down(struct world *w)
{
    (void)w;
    return the_rogue->down;
}

static bool rogue_settled(struct world *w)
{
    (void)w;
    return the_rogue->down || the_rogue->welcome;
}

/* Says hello to `to` as `rank`. */
static void rogue_join(struct world *w, struct rogue *r, uint32_t to,
                       uint32_t rank)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {
        addrs, link_listener_port(w->nodes[to].listener), 3000};
    struct tree_hello h = {.rank = rank, .run_id = "run", .version = "v"};
    _buf_ struct buf b = {0};

    *r = (struct rogue){0};
    the_rogue = r;
    link_connect(&w->loop, &target, key, &rogue_ops, r, &r->link, NULL);
    tree_hello_encode(&h, &b);
    link_send_buf(r->link, TREE_HELLO, &b);
    run_until(w, rogue_settled);
}

static void rogue_leave(struct rogue *r)
{
    link_close(r->link);
}

static void test_lies_about_ranks(void)
{
    struct world w;
    struct rogue r;
    _buf_ struct buf b = {0};

    open_world(&w);
    join(&w, 1, "run");
    rogue_join(&w, &r, 1, 2);
    ok(!r.welcome, "a rank of another part of the tree is refused");
    rogue_leave(&r);
    rogue_join(&w, &r, 1, 3);
    ok(r.welcome, "one of this part is welcome");
    wire_put_u32(&b, 4);
    wire_put_bytes(&b, "x", 1);
    link_send_buf(r.link, TREE_REPORT, &b);
    ok(run_until(&w, rogue_is_down), "but may not speak for its neighbour");
    rogue_leave(&r);
    close_world(&w);
}

static void test_flood_without_credit(void)
{
    struct world w;
    struct rogue r;
    _free_ char *data = calloc(1, 100000);
    struct tree_output o = piece(data);
    _buf_ struct buf b = {0};

    open_world(&w);
    join(&w, 1, "run"); /* has no parent: nothing leaves it */
    rogue_join(&w, &r, 1, 3);
    tree_output_encode(&o, &b);
    for (int i = 0; i < 10; i++) {
        link_send_buf(r.link, TREE_OUTPUT, &b);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    ok(!r.down, "a window's worth of output is kept");
    for (int i = 0; i < 100 && !r.down; i++) {
        link_send_buf(r.link, TREE_OUTPUT, &b);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    ok(run_until(&w, rogue_is_down), "a child that goes on without credit is "
       "dropped");
    rogue_leave(&r);
    close_world(&w);
}

static void front_peer(struct link *l, const struct channel_frame *first,
                       void *ctx)
{
    struct rogue *r = ctx;
    _buf_ struct buf b = {0};

    (void)first;
    wire_put_u32(&b, 0);
    r->link = l;
    r->welcome = true;
    link_adopt(l, &rogue_ops, r);
    link_send_buf(l, TREE_WELCOME, &b);
}

static bool lead_has_front(struct world *w)
{
    return tree_has_uplink(w->nodes[0].tree);
}

static bool leases_have_passed(struct world *w)
{
    return w->nodes[0].n_words > 20; /* five beats a lease */
}

/* One that was stopped says nothing, and is there. */
static void test_silent_front(void)
{
    struct world w;
    struct rogue r = {0};
    struct link_listener *front = NULL;

    open_world(&w);
    link_listen(&w.loop, true, &front, NULL);
    link_listener_open(front, key, front_peer, &r);
    front_port = link_listener_port(front);
    join(&w, 0, "run");
    front_port = 0;
    ok(run_until(&w, lead_has_front), "the lead finds its front end");
    ok(run_until(&w, leases_have_passed), "which is silent for long");
    ok(w.nodes[0].n_uplinks == 1 && tree_has_uplink(w.nodes[0].tree) &&
       tree_front_gone_ms(w.nodes[0].tree) == 0, "but not gone");
    link_close(r.link);
    link_listener_close(front);
    close_world(&w);
}

int main(void)
{
    test_both_ways();
    test_lost_inner_node();
    test_other_run();
    test_output_without_front();
    test_lost_with_parent();
    test_loss_is_repeated();
    test_lies_about_ranks();
    test_flood_without_credit();
    test_silent_front();
    return tap_done();
}
