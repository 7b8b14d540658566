/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children that know the key and do as they like: what they may say, for whom,
 * and how long they may say nothing.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/order.h"
#include "rendezvous/tree_bed_rogue.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

/* What a member must say before anything else. */
static void test_hellos(void)
{
    static const struct {
        const char *what;
        enum tree_type type;
        struct tree_hello hello;
        bool welcome;
    } cases[] = {
        {"a child", TREE_HELLO, {3, "run", "v", 0}, true},
        {"a grandchild whose parent is gone", TREE_HELLO, {4, "run", "v", 0},
         true},
        {"of another run", TREE_HELLO, {3, "runs", "v", 0}, false},
        {"of no run", TREE_HELLO, {3, "", "v", 0}, false},
        {"of another version", TREE_HELLO, {3, "run", "v2", 0}, false},
        {"with our own rank", TREE_HELLO, {1, "run", "v", 0}, false},
        {"from above", TREE_HELLO, {0, "run", "v", 0}, false},
        {"of another part of the tree", TREE_HELLO, {2, "run", "v", 0}, true},
        {"beyond the run, below us", TREE_HELLO, {7, "run", "v", 0}, false},
        {"beyond any run", TREE_HELLO, {UINT32_MAX, "run", "v", 0}, false},
        {"that begins with something else", TREE_REPORT, {3, "run", "v", 0},
         false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct world w;
        struct rogue r;

        bed_open(&w);
        bed_join(&w, 1, "run");
        rogue_say(&w, &r, 1, cases[i].type, &cases[i].hello);
        is_int(r.welcome, cases[i].welcome, "one %s", cases[i].what);
        link_close(r.link);
        bed_close(&w);
    }
}

static bool moved_is_settled(struct world *w)
{
    rogue_beat(w->rogue, 0);
    return w->nodes[0].n_words > 40; /* two leases */
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
    static const struct tree_loss gone = {.why = "gone"};
    struct world w;
    struct rogue r;
    _buf_ struct buf b = {0};

    bed_open(&w);
    bed_join(&w, 0, "run");
    rogue_join(&w, &r, 0, 1);
    /* Nobody listens as 1: so 3 goes on to the lead. */
    link_listener_close(w.nodes[1].listener);
    w.nodes[1].listener = NULL;
    bed_join(&w, 3, "run");
    bed_report(&w, 3);
    ok(bed_run_until(&w, moved_has_reported),
       "a member goes to another parent");
    rogue_blob(&r, TREE_REPORT, 3, "\0\0\0\3", 4);
    tree_loss_encode(&gone, &b);
    rogue_blob(&r, TREE_LOST, 3, b.data, b.len);
    w.nodes[0].n_words = 0;
    bed_run_until(&w, moved_is_settled);
    is_int(w.lost[3], 0, "what its old one says of it counts no more");
    rogue_leave(&r);
    bed_close(&w);
}

static bool child_is_dropped(struct world *w)
{
    struct rogue *both = w->own;

    rogue_beat(&both[0], 0);
    return both[1].down;
}

static bool parent_is_settled(struct world *w)
{
    struct rogue *both = w->own;

    rogue_beat(&both[0], 0);
    return w->nodes[0].n_words > 40; /* two leases */
}

static bool third_lost(struct world *w)
{
    return w->lost[3];
}

/* A child that leaves us while the link to us is cut: we hear nothing of that, but
 * another says that it is there. */
static void test_left_unheard(void)
{
    static const struct tree_loss gone = {.quiet_ms = 60000, .why = "gone"};
    struct rogue both[2]; /* the other, and the child */
    _buf_ struct buf b = {0};
    uint64_t joined_ms;
    struct world w;

    bed_open(&w);
    w.own = both;
    bed_join(&w, 0, "run");
    rogue_join(&w, &both[0], 0, 1);
    joined_ms = uv_now(&w.loop);
    rogue_join(&w, &both[1], 0, 3);
    uv_sleep(2);
    rogue_blob(&both[0], TREE_REPORT, 3, "\0\0\0\3", 4);
    ok(bed_run_until(&w, child_is_dropped), "a silent child is dropped");
    w.nodes[0].n_words = 0;
    bed_run_until(&w, parent_is_settled);
    is_int(w.lost[3], 0, "but not lost: it is below another one");
    tree_loss_encode(&gone, &b);
    rogue_blob(&both[0], TREE_LOST, 3, b.data, b.len);
    ok(bed_run_until(&w, third_lost), "until that one says so");
    ok(uv_now(&w.loop) - w.loss[3].quiet_ms >= joined_ms,
       "and it may have had our words for as long as it had a link");
    rogue_leave(&both[1]);
    rogue_leave(&both[0]);
    bed_close(&w);
}

/* As a child: `n` have heard of the lead of view 2. */
static void beat_of(struct rogue *r, uint32_t n)
{
    const struct tree_seen seen = {.view = 2, .all_ms = 5, .live_ms = 5, .n = n};
    _buf_ struct buf b = {0};

    wire_put_u64(&b, 1);
    tree_seen_put(&b, &seen);
    link_send_buf(r->link, TREE_BEAT, &b);
}

static bool one_is_counted(struct world *w)
{
    beat_of(w->rogue, 1);
    return w->nodes[0].seen.n == 2 && w->nodes[0].seen.n_suspect == 0;
}

static bool third_is_here(struct world *w)
{
    return w->here[3];
}

static bool lead_has_looked(struct world *w)
{
    return w->nodes[0].seen.n;
}

static bool two_are_counted(struct world *w)
{
    beat_of(w->rogue, 2);
    return w->nodes[0].seen.n == 3 && w->nodes[0].seen.n_suspect == 0;
}

/* Who comes below another one was in no beat of that one so far. */
static void test_new_below(void)
{
    struct world w;
    struct rogue r;

    bed_open(&w);
    bed_join(&w, 0, "run");
    tree_set_view(w.nodes[0].tree, 2, 0);
    rogue_join(&w, &r, 0, 1);
    ok(bed_run_until(&w, one_is_counted), "a child has heard of the lead");
    rogue_blob(&r, TREE_HERE, 3, NULL, 0);
    bed_run_until(&w, third_is_here);
    w.nodes[0].seen = (struct tree_seen){0};
    bed_run_until(&w, lead_has_looked);
    ok(w.nodes[0].seen.n == 3 && w.nodes[0].seen.n_suspect &&
           w.nodes[0].seen.all_ms == 0,
       "who has come below it has heard nothing, for all that is known");
    ok(bed_run_until(&w, two_are_counted), "until its beat counts that one, too");
    rogue_leave(&r);
    bed_close(&w);
}

static bool inner_lost(struct world *w)
{
    return w->lost[1];
}

static void test_silent_child(void)
{
    struct world w;
    struct rogue r;

    bed_open(&w);
    bed_join(&w, 0, "run");
    rogue_join(&w, &r, 0, 1);
    ok(r.welcome, "a child");
    ok(bed_run_until(&w, inner_lost), "that says nothing any more is lost");
    like(w.loss[1].why, "nothing heard", "for that reason");
    rogue_leave(&r);
    bed_close(&w);
}

static void test_lies_about_ranks(void)
{
    struct world w;
    struct rogue r;
    _buf_ struct buf b = {0};

    bed_open(&w);
    bed_join(&w, 1, "run");
    rogue_join(&w, &r, 1, 0);
    ok(!r.welcome, "a lower rank is refused");
    rogue_leave(&r);
    rogue_join(&w, &r, 1, 3);
    ok(r.welcome, "a higher one is welcome");
    wire_put_u32(&b, 2);
    wire_put_bytes(&b, "x", 1);
    link_send_buf(r.link, TREE_REPORT, &b);
    ok(bed_run_until(&w, rogue_is_down), "but may not speak for one above it");
    rogue_leave(&r);
    rogue_join(&w, &r, 1, 3);
    rogue_blob(&r, TREE_HERE, ORDER_MAX_NODES, NULL, 0);
    ok(bed_run_until(&w, rogue_is_down), "nor for one that no run has");
    rogue_leave(&r);
    bed_close(&w);
}

static void rogue_event(struct rogue *r, uint32_t rank)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, rank);
    wire_put_u64(&b, 1);
    wire_put_bytes(&b, "{}", 2);
    link_send_buf(r->link, TREE_EVENT, &b);
}

static bool fifth_and_sixth_told(struct world *w)
{
    return w->events[5] && w->events[6];
}

static bool is_asked_again(struct world *w)
{
    return w->rogue->is_asked_again || w->rogue->down;
}

/* A member between a newcomer and the lead does not know that one yet. */
static void test_newcomer_between(void)
{
    struct world w;
    struct rogue r;

    bed_open(&w);
    bed_join(&w, 0, "run");
    w.roster.n = 6;
    bed_join(&w, 2, "run");
    w.roster.n = 7;
    rogue_join(&w, &r, 2, 5);
    rogue_blob(&r, TREE_HERE, 6, NULL, 0);
    rogue_event(&r, 6);
    rogue_blob(&r, TREE_REPORT, 6, "\0\0\0\6", 4);
    rogue_event(&r, 5);
    ok(bed_run_until(&w, fifth_and_sixth_told) && !r.down, "events of it go up");
    ok(!w.here[6] && !w.reports[6] && !r.is_asked_again, "and nothing else of it");
    tree_grow(w.nodes[2].tree);
    ok(bed_run_until(&w, is_asked_again) && !r.down,
       "who has told of it is asked again once it is known");
    rogue_leave(&r);
    bed_close(&w);
}

static void test_lies_about_numbers(void)
{
    static const struct tree_seen lies[] = {
        {.n = 1, .n_suspect = 2},
        {.n = 1, .n_quiet = 2},
        {.n = TREE_MAX_SEEN + 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
        struct world w;
        struct rogue r;
        _buf_ struct buf b = {0};

        bed_open(&w);
        bed_join(&w, 0, "run");
        rogue_join(&w, &r, 0, 1);
        wire_put_u64(&b, 1);
        tree_seen_put(&b, &lies[i]);
        link_send_buf(r.link, TREE_BEAT, &b);
        ok(bed_run_until(&w, rogue_is_down) && r.n_beats == 0,
           "who counts more than there are is dropped");
        rogue_leave(&r);
        bed_close(&w);
    }
}

static void test_flood_without_credit(void)
{
    struct world w;
    struct rogue r;
    _free_ char *data = calloc(1, 100000);
    struct tree_output o = {.node = 2, .rank = 5, .data = data, .len = 100000};
    _buf_ struct buf b = {0};

    bed_open(&w);
    bed_join(&w, 1, "run"); /* has no parent: nothing leaves it */
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
    ok(bed_run_until(&w, rogue_is_down),
       "a child that goes on without credit is dropped");
    rogue_leave(&r);
    bed_close(&w);
}

int main(void)
{
    test_hellos();
    test_old_parent();
    test_left_unheard();
    test_new_below();
    test_silent_child();
    test_lies_about_ranks();
    test_newcomer_between();
    test_lies_about_numbers();
    test_flood_without_credit();
    return tap_done();
}
