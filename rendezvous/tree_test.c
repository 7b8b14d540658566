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
    int n_uplinks, n_words, n_refused, n_configs;
    uint64_t word_age;
    bool blocked;
};

struct rogue;

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
    bool lease_over;
    const struct rogue *parent;
};

static void on_text(char *to, size_t size, const void *data, size_t len)
{
    snprintf(to, size, "%.*s", (int)len, (const char *)data);
}

static void on_config(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    n->n_configs++;
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
    on_writable, on_report, on_lost, on_event,  on_request, NULL,
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
    uv_timer_start(&deadline, on_deadline, 60000, 0);
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
    is_int(w.nodes[3].n_configs, 1, "nor are they configured again");
    close_world(&w);
}

static bool knows(const struct node *n)
{
    return strcmp(n->order, "order 1") == 0 &&
           strcmp(n->config, "config") == 0;
}

static bool latecomer_knows(struct world *w)
{
    return knows(&w->nodes[2]);
}

static bool its_child_knows(struct world *w)
{
    return knows(&w->nodes[5]);
}

/* Who comes when all has been said hears it all the same. */
static void test_latecomers(void)
{
    struct world w;

    open_world(&w);
    join(&w, 0, "run");
    tree_publish_config(w.nodes[0].tree, "config", 6);
    publish(&w, "order 1");
    join(&w, 2, "run");
    ok(run_until(&w, latecomer_knows), "a late child has config and order");
    join(&w, 5, "run");
    ok(run_until(&w, its_child_knows), "and so has a later one below it");
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

static bool first_is_there(struct world *w)
{
    return w->reports[1] && w->nodes[1].n_words;
}

static bool words_have_passed(struct world *w)
{
    return w->nodes[0].n_words > 15; /* five a lease */
}

/* One whose link breaks and that is back at once was never away; one that stays
 * away is lost, each time. */
static void test_comes_back(void)
{
    struct world w;

    open_world(&w);
    join(&w, 0, "run");
    join(&w, 1, "run");
    report(&w, 1);
    ok(run_until(&w, first_is_there), "a child");
    tree_close(w.nodes[1].tree);
    join(&w, 1, "run");
    report(&w, 1);
    w.nodes[0].n_words = 0;
    run_until(&w, words_have_passed);
    is_int(w.lost[1], 0, "that is back at once is not lost");
    for (int i = 1; i <= 2; i++) {
        tree_close(w.nodes[1].tree);
        w.lost[1] = 0;
        w.nodes[1].tree = NULL;
        ok(run_until(&w, inner_lost), "one that stays away is (%d)", i);
        join(&w, 1, "run");
        w.reports[1] = w.nodes[1].n_words = 0;
        report(&w, 1);
        ok(run_until(&w, first_is_there), "and can come again");
    }
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
    int n_beats;
    int n_asked;
    uint64_t asked_ms;
    uint64_t ages[3]; /* of the first beats */
    uint32_t n_pieces[N]; /* of output, by node */
    size_t n_output;  /* bytes of output frames */
    size_t owed;      /* those without credit yet */
    bool in_order;
    uint64_t stamp;
};

/* Pieces of output begin with their number. */
static void rogue_output(struct rogue *r, const struct channel_frame *f)
{
    struct tree_output o = {0};
    struct wire_reader n;

    if (tree_output_decode(f->data, f->len, &o) < 0 || o.node >= N) {
        r->in_order = false;
        return;
    }
    n = wire_reader(o.data, o.len);
    r->in_order = r->in_order && wire_get_u32(&n) == r->n_pieces[o.node];
    r->n_pieces[o.node]++;
    r->n_output += f->len;
    r->owed += f->len;
}

static void rogue_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct rogue *r = ctx;
    struct wire_reader age = wire_reader(f->data, f->len);

    (void)l;
    r->welcome |= f->type == TREE_WELCOME;
    if (f->type == TREE_BEAT && r->n_beats < 3) {
        r->stamp = wire_get_u64(&age);
        r->ages[r->n_beats++] = wire_get_u64(&age); /* from a parent */
    } else if (f->type == TREE_OUTPUT) {
        rogue_output(r, f);
    }
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

/* Says to `to` who it is. */
static void rogue_say(struct world *w, struct rogue *r, uint32_t to,
                      enum tree_type type, const struct tree_hello *h)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {
        addrs, link_listener_port(w->nodes[to].listener), 3000};
    _buf_ struct buf b = {0};

    *r = (struct rogue){0};
    the_rogue = r;
    link_connect(&w->loop, &target, key, &rogue_ops, r, &r->link, NULL);
    tree_hello_encode(h, &b);
    link_send_buf(r->link, (uint16_t)type, &b);
    run_until(w, rogue_settled);
}

/* Says hello to `to` as `rank`. */
static void rogue_join(struct world *w, struct rogue *r, uint32_t to,
                       uint32_t rank)
{
    struct tree_hello h = {.rank = rank, .run_id = "run", .version = "v"};

    rogue_say(w, r, to, TREE_HELLO, &h);
}

static void rogue_leave(struct rogue *r)
{
    link_close(r->link);
}

/* What a member must say before anything else. */
static void test_hellos(void)
{
    static const struct {
        const char *what;
        enum tree_type type;
        struct tree_hello hello;
        bool welcome;
    } cases[] = {
        {"a child", TREE_HELLO, {3, "run", "v"}, true},
        {"a grandchild whose parent is gone", TREE_HELLO, {4, "run", "v"},
         true},
        {"of another run", TREE_HELLO, {3, "runs", "v"}, false},
        {"of no run", TREE_HELLO, {3, "", "v"}, false},
        {"of another version", TREE_HELLO, {3, "run", "v2"}, false},
        {"with our own rank", TREE_HELLO, {1, "run", "v"}, false},
        {"from above", TREE_HELLO, {0, "run", "v"}, false},
        {"of another part of the tree", TREE_HELLO, {2, "run", "v"}, false},
        {"beyond the run, below us", TREE_HELLO, {7, "run", "v"}, false},
        {"beyond any run", TREE_HELLO, {UINT32_MAX, "run", "v"}, false},
        {"that begins with something else", TREE_REPORT, {3, "run", "v"},
         false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct world w;
        struct rogue r;

        open_world(&w);
        join(&w, 1, "run");
        rogue_say(&w, &r, 1, cases[i].type, &cases[i].hello);
        is_int(r.welcome, cases[i].welcome, "one %s", cases[i].what);
        link_close(r.link);
        close_world(&w);
    }
}

/* Frames of the tree that are cut, have a tail, or make no sense. */
static void test_messages(void)
{
    static const struct tree_hello hello = {3, "run", "v"};
    struct tree_output o = {.node = 1, .which = 1, .data = "text", .len = 4};
    struct tree_hello h;
    _buf_ struct buf b = {0}, c = {0};
    int n_hellos = 0, n_outputs = 0;

    tree_hello_encode(&hello, &b);
    tree_output_encode(&o, &c);
    is_int(tree_hello_decode(b.data, b.len, &h, NULL), 0, "a hello");
    is_int(tree_output_decode(c.data, c.len, &o), 0, "a piece of output");
    for (size_t len = 0; len < b.len; len++) {
        n_hellos += tree_hello_decode(b.data, len, &h, NULL) == 0;
    }
    for (size_t len = 0; len < c.len; len++) {
        n_outputs += tree_output_decode(c.data, len, &o) == 0;
    }
    is_int(n_hellos + n_outputs, 0, "no part of one is one");
    buf_putc(&b, '\0');
    buf_putc(&c, '\0');
    is_int(tree_hello_decode(b.data, b.len, &h, NULL), -ERR_FORMAT,
           "nor is a hello with a byte too many");
    is_int(tree_output_decode(c.data, c.len, &o), -ERR_FORMAT,
           "nor output with one");
    c.data[12] = 2;
    is_int(tree_output_decode(c.data, c.len - 1, &o), -ERR_FORMAT,
           "nor of a third stream");
}

static bool moved_is_settled(struct world *w)
{
    link_send(the_rogue->link, TREE_BEAT, "\0\0\0\0\0\0\0\0", 8);
    return w->nodes[0].n_words > 10; /* two leases */
}

static bool moved_has_reported(struct world *w)
{
    return w->reports[3] > 0 && w->nodes[3].n_uplinks;
}

static void rogue_blob(struct rogue *r, enum tree_type type, uint32_t rank,
                       const void *data, size_t len)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, rank);
    wire_put_bytes(&b, data, len);
    link_send_buf(r->link, (uint16_t)type, &b);
}

/* A member that speaks for a child that has left it. */
static void test_old_parent(void)
{
    struct world w;
    struct rogue r;

    open_world(&w);
    join(&w, 0, "run");
    rogue_join(&w, &r, 0, 1);
    /* Nobody listens as 1: so 3 goes on to the lead. */
    link_listener_close(w.nodes[1].listener);
    w.nodes[1].listener = NULL;
    join(&w, 3, "run");
    report(&w, 3);
    ok(run_until(&w, moved_has_reported), "a member goes to another parent");
    rogue_blob(&r, TREE_REPORT, 3, "\0\0\0\3", 4);
    rogue_blob(&r, TREE_LOST, 3, "gone", 4);
    w.nodes[0].n_words = 0;
    run_until(&w, moved_is_settled);
    is_int(w.lost[3], 0, "what its old one says of it counts no more");
    rogue_leave(&r);
    close_world(&w);
}

static void test_silent_child(void)
{
    struct world w;
    struct rogue r;

    open_world(&w);
    join(&w, 0, "run");
    rogue_join(&w, &r, 0, 1);
    ok(r.welcome, "a child");
    ok(run_until(&w, inner_lost), "that says nothing any more is lost");
    like(w.why[1], "nothing heard", "for that reason");
    rogue_leave(&r);
    close_world(&w);
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
    link_close(r->link);
    r->link = l;
    r->welcome = true;
    link_adopt(l, &rogue_ops, r);
    link_send_buf(l, TREE_WELCOME, &b);
}

static bool joined_again(struct world *w)
{
    return w->nodes[1].n_uplinks > 1;
}

/* Asks again once an answer has come, and is some time old. */
static bool child_heard_beats(struct world *w)
{
    struct rogue *r = the_rogue;
    _buf_ struct buf b = {0};

    if (r->n_asked == r->n_beats && uv_now(&w->loop) > r->asked_ms + 10) {
        r->n_asked++;
        r->asked_ms = uv_now(&w->loop);
        wire_put_u64(&b, r->asked_ms);
        link_send_buf(r->link, TREE_BEAT, &b);
    }
    return r->n_beats == 3;
}

static bool parent_was_asked(struct world *w)
{
    return w->parent->n_beats > 0;
}

/* A parent that welcomes and says nothing more. */
static void test_silent_parent(void)
{
    struct world w;
    struct rogue parent = {0};

    open_world(&w);
    link_listener_open(w.nodes[0].listener, key, front_peer, &parent);
    join(&w, 1, "run");
    ok(run_until(&w, joined_again), "a parent that is silent is left");
    link_close(parent.link);
    close_world(&w);
}

/* The lead's last word is passed on with its age: what it was, and the time
 * since it came. */
static void test_age_of_words(void)
{
    struct world w;
    struct rogue parent = {0}, child;
    _buf_ struct buf b = {0};

    open_world(&w);
    link_listener_open(w.nodes[0].listener, key, front_peer, &parent);
    join(&w, 1, "run");
    w.parent = &parent;
    ok(run_until(&w, parent_was_asked), "a parent is asked for its word");
    rogue_join(&w, &child, 1, 3);
    wire_put_u64(&b, parent.stamp);
    wire_put_u64(&b, 100);
    link_send_buf(parent.link, TREE_BEAT, &b);
    w.nodes[1].n_words = 0;
    while (!w.nodes[1].n_words) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    ok(run_until(&w, child_heard_beats), "beats below");
    ok(child.ages[0] >= 100 && child.ages[1] > child.ages[0] &&
           child.ages[2] > child.ages[1], "are of a word that grows old");
    rogue_leave(&child);
    link_close(parent.link);
    close_world(&w);
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

/* --- output under credit --- */

enum { PIECE_BYTES = 20000, N_PIECES = 150 };

/* Two nodes that print as fast as they may. */
struct printing {
    struct rogue front;
    struct link_listener *listener;
    uint32_t n_sent[N];
    bool gives_credit;
};

static struct printing *printing;

static void print_more(struct world *w, uint32_t rank)
{
    static char text[PIECE_BYTES];
    struct tree_output o = {.node = rank, .data = text, .len = sizeof(text)};
    _buf_ struct buf number = {0};

    while (!w->nodes[rank].blocked && printing->n_sent[rank] < N_PIECES) {
        wire_put_u32(&number, printing->n_sent[rank]++);
        memcpy(text, number.data, 4);
        buf_clear(&number);
        w->nodes[rank].blocked = !tree_output(w->nodes[rank].tree, &o);
    }
}

static void give_credit(struct rogue *front, uint32_t n)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, n);
    link_send_buf(front->link, TREE_CREDIT, &b);
}

static bool all_printed(struct world *w)
{
    struct rogue *front = &printing->front;

    print_more(w, 0);
    print_more(w, 2);
    if (printing->gives_credit && front->owed && !front->down) {
        give_credit(front, (uint32_t)front->owed);
        front->owed = 0;
    }
    return front->n_pieces[0] == N_PIECES && front->n_pieces[2] == N_PIECES;
}

static bool beats_without_credit(struct world *w)
{
    (void)all_printed(w);
    return w->nodes[0].n_words > 10;
}

static bool front_is_gone(struct world *w)
{
    return tree_front_gone_ms(w->nodes[0].tree) > 0;
}

static bool lead_found_front(struct world *w)
{
    return tree_has_uplink(w->nodes[0].tree);
}

/* Output comes in order and whole, no more of it than there is credit for. */
static void test_credit(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};

    printing = &p;
    open_world(&w);
    link_listen(&w.loop, true, &p.listener, NULL);
    link_listener_open(p.listener, key, front_peer, &p.front);
    front_port = link_listener_port(p.listener);
    join(&w, 0, "run");
    front_port = 0;
    join(&w, 2, "run");
    ok(run_until(&w, lead_found_front), "a lead with a front end");
    run_until(&w, beats_without_credit);
    ok(p.front.n_output > 0 &&
           p.front.n_output <= TREE_WINDOW_BYTES + 2 * PIECE_BYTES,
       "without credit a window's worth comes (%zu bytes)", p.front.n_output);
    p.gives_credit = true;
    give_credit(&p.front, UINT32_MAX); /* far more than is owed */
    p.front.owed = 0;
    ok(run_until(&w, all_printed), "with credit all of it");
    ok(p.front.in_order, "in order");
    link_listener_close(p.listener);
    link_close(p.front.link);
    ok(run_until(&w, front_is_gone), "the front end goes, and is missed");
    close_world(&w);
}

static bool front_hears(struct world *w)
{
    if (tree_has_uplink(w->nodes[0].tree)) {
        print_more(w, 0);
    }
    return printing->front.n_output > 0;
}

/* Output that was on its way to a front end that is gone is nobody's debt. */
static void test_front_comes_back(void)
{
    struct world w;
    struct printing p = {.front = {.in_order = true}};

    printing = &p;
    open_world(&w);
    link_listen(&w.loop, true, &p.listener, NULL);
    link_listener_open(p.listener, key, front_peer, &p.front);
    front_port = link_listener_port(p.listener);
    join(&w, 0, "run");
    front_port = 0;
    run_until(&w, lead_found_front);
    p.n_sent[2] = N_PIECES; /* node 2 is not there */
    run_until(&w, beats_without_credit); /* the window is full now */
    link_close(p.front.link);
    p.front = (struct rogue){0};
    ok(run_until(&w, front_hears), "the next front end hears what is printed, "
       "though the last one gave no credit");
    link_close(p.front.link);
    link_listener_close(p.listener);
    close_world(&w);
}

/* A parent that lives, but whose answers have been on their way for ever: each
 * repeats the first stamp that came. */
static void stale_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct rogue *r = ctx;
    struct wire_reader in = wire_reader(f->data, f->len);
    _buf_ struct buf b = {0};

    if (f->type != TREE_BEAT) {
        return;
    }
    r->stamp = r->stamp ? r->stamp : wire_get_u64(&in);
    wire_put_u64(&b, r->stamp);
    wire_put_u64(&b, 0);
    link_send_buf(l, TREE_BEAT, &b);
}

static const struct link_ops stale_ops = {
    .on_up = rogue_up, .on_frame = stale_frame, .on_down = rogue_down,
};

static void stale_peer(struct link *l, const struct channel_frame *first,
                       void *ctx)
{
    front_peer(l, first, ctx);
    link_adopt(l, &stale_ops, ctx);
}

static bool word_is_stale(struct world *w)
{
    return w->nodes[1].word_age >= 2 * LEASE_MS;
}

/* What comes late is old, though it comes now. */
static void test_late_words(void)
{
    struct world w;
    struct rogue r = {0};

    open_world(&w);
    link_listener_open(w.nodes[0].listener, key, stale_peer, &r);
    join(&w, 1, "run");
    ok(run_until(&w, word_is_stale), "a word ages on its way");
    is_int(w.nodes[1].n_uplinks, 1, "while the link stands");
    link_close(r.link);
    close_world(&w);
}

static void on_lease(uv_timer_t *t)
{
    ((struct world *)t->data)->lease_over = true;
}

static bool lease_is_over(struct world *w)
{
    return w->lease_over;
}

/* A parent that has no word of the lead has none to pass on. */
static void test_no_word(void)
{
    struct world w;
    uv_timer_t lease;

    open_world(&w);
    join(&w, 1, "run");
    join(&w, 3, "run");
    run_until(&w, third_is_up);
    uv_timer_init(&w.loop, &lease);
    lease.data = &w;
    uv_timer_start(&lease, on_lease, LEASE_MS, 0);
    ok(run_until(&w, lease_is_over), "a link stands for a lease");
    is_int(w.nodes[3].n_uplinks, 1, "a parent without a parent will do");
    is_int(w.nodes[3].n_words, 0, "but has no word of the lead");
    uv_close((uv_handle_t *)&lease, NULL);
    close_world(&w);
}

int main(void)
{
    test_both_ways();
    test_lost_inner_node();
    test_latecomers();
    test_comes_back();
    test_other_run();
    test_output_without_front();
    test_lost_with_parent();
    test_loss_is_repeated();
    test_hellos();
    test_messages();
    test_old_parent();
    test_silent_child();
    test_silent_parent();
    test_age_of_words();
    test_lies_about_ranks();
    test_flood_without_credit();
    test_silent_front();
    test_credit();
    test_front_comes_back();
    test_late_words();
    test_no_word();
    return tap_done();
}
