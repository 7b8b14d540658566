/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees without their lead: the members come together below the lowest that lives,
 * which knows that, takes the lead, and is found by who comes back.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/tree_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { MAX_TAKEN = 1024 };

/* The port of an agent that is being killed: its kernel takes who connects, though
 * nobody is there to speak, then closes it. */
struct dying {
    uv_tcp_t port;
    uv_tcp_t taken[MAX_TAKEN];
    int n_taken;
    int max_taken;
    bool is_closed;
};

static void close_port(struct dying *d)
{
    if (!d->is_closed) {
        d->is_closed = true;
        uv_close((uv_handle_t *)&d->port, NULL);
    }
}

static void on_taken(uv_stream_t *port, int status)
{
    struct dying *d = port->data;
    uv_tcp_t *taken = &d->taken[d->n_taken++];

    if (status < 0 || d->n_taken == MAX_TAKEN ||
        uv_tcp_init(port->loop, taken) < 0 ||
        uv_accept(port, (uv_stream_t *)taken) < 0) {
        bail_out("a connection that was expected");
    }
    uv_close((uv_handle_t *)taken, NULL);
    if (d->n_taken == d->max_taken) {
        close_port(d);
    }
}

/* The lead dies, and its port with the connection after `n`. */
static void kill_lead(struct world *w, struct dying *d, int n)
{
    uint16_t port = link_listener_port(w->nodes[0].listener);
    struct sockaddr_in at;

    *d = (struct dying){.max_taken = n};
    bed_leave(w, 0);
    uv_ip4_addr("127.0.0.1", port, &at);
    uv_tcp_init(&w->loop, &d->port);
    d->port.data = d;
    if (uv_tcp_bind(&d->port, (struct sockaddr *)&at, 0) < 0 ||
        uv_listen((uv_stream_t *)&d->port, 16, on_taken) < 0) {
        bail_out("listen where the lead did");
    }
}

static void follow(struct world *w, uint32_t rank)
{
    char digit = (char)('0' + rank);
    struct buf b = {.data = &digit, .len = 1};

    tree_follow(w->nodes[rank].tree, &b);
}

static bool first_at_top(struct world *w)
{
    return w->nodes[1].top;
}

/* All but the lead and the node itself. */
static bool all_follow_first(struct world *w)
{
    for (int i = 2; i < BED_NODES; i++) {
        if (!w->nodes[1].follows[i]) {
            return false;
        }
    }
    return true;
}

static bool all_have_second(struct world *w)
{
    for (int i = 2; i < BED_NODES; i++) {
        if (strcmp(w->nodes[i].order, "order 2") != 0) {
            return false;
        }
    }
    return true;
}

static bool all_reported_again(struct world *w)
{
    for (int i = 2; i < BED_NODES; i++) {
        if (!w->reports[i]) {
            return false;
        }
    }
    return true;
}

static void forget_reports(struct world *w)
{
    memset(w->reports, 0, sizeof(w->reports));
    memset(w->here, 0, sizeof(w->here));
}

/* 1 leads from now on: it has heard of all that are below it. */
static void take_lead(struct world *w)
{
    struct buf b = {.data = (char *)"order 2", .len = 7};

    forget_reports(w);
    tree_set_view(w->nodes[1].tree, 2, 1);
    ok(all_reported_again(w) && w->here[3] && w->here[6],
       "who takes the lead hears of all at once");
    tree_publish_order(w->nodes[1].tree, &b);
}

static void lose_lead(struct world *w)
{
    bed_start_all(w);
    bed_leave(w, 0);
    ok(bed_run_until(w, first_at_top), "without the lead the next stands at the "
       "top");
    ok(w->nodes[1].dead[0], "and knows that the lead is dead");
    for (uint32_t i = 2; i < BED_NODES; i++) {
        follow(w, i);
    }
    ok(bed_run_until(w, all_follow_first), "all others follow it, over one "
       "another");
}

static void test_next_lead(void)
{
    struct world w;

    lose_lead(&w);
    take_lead(&w);
    ok(bed_run_until(&w, all_have_second), "its orders reach all");
    ok(!w.nodes[2].top && !w.nodes[3].top, "nobody else stands there");
    bed_close(&w);
}

static bool second_at_top(struct world *w)
{
    return w->nodes[2].top;
}

static bool rest_follow_second(struct world *w)
{
    for (int i = 3; i < BED_NODES; i++) {
        if (!w->nodes[2].follows[i]) {
            return false;
        }
    }
    return true;
}

/* The two lowest at once: 3 and 4 lose their parent and the lead. */
static void test_two_lost(void)
{
    struct world w;

    bed_start_all(&w);
    bed_leave(&w, 0);
    bed_leave(&w, 1);
    for (uint32_t i = 3; i < BED_NODES; i++) {
        follow(&w, i);
    }
    ok(bed_run_until(&w, second_at_top), "without the lead and the next one the "
       "third stands at the top");
    ok(bed_run_until(&w, rest_follow_second), "and all follow it");
    bed_close(&w);
}

static bool elder_has_second(struct world *w)
{
    return strcmp(w->nodes[0].order, "order 2") == 0;
}

static bool elder_is_gone(struct world *w)
{
    return w->nodes[0].n_uplinks > 1 || w->nodes[1].top;
}

/* The lead of before comes back, and looks for the new one, which has a higher
 * rank. Were that to look for a parent then, the two would have each other. */
static void test_elder(void)
{
    struct world w;

    lose_lead(&w);
    take_lead(&w);
    ok(bed_run_until(&w, all_have_second), "a second lead");
    link_listen(&w.loop, true, &w.nodes[0].listener, NULL);
    bed_join(&w, 0, "run");
    tree_set_view(w.nodes[0].tree, 2, 1);
    tree_seek_rank(w.nodes[0].tree, 1);
    ok(bed_run_until(&w, elder_has_second), "is a parent of the first, where that "
       "comes back");
    tree_set_view(w.nodes[1].tree, 2, TREE_NO_RANK);
    ok(bed_run_until(&w, elder_is_gone), "one that leads no more lets it go");
    bed_close(&w);
}

static bool newcomer_has_second(struct world *w)
{
    return strcmp(w->nodes[5].order, "order 2") == 0;
}

/* One that comes when another leads: what it knows of the first and of its own
 * parent is that there is none, or where they once were. */
static void test_newcomer(bool has_ports)
{
    struct buf order = {.data = (char *)"order 2", .len = 7};
    struct world w;

    bed_open(&w);
    bed_join(&w, 1, "run");
    tree_set_view(w.nodes[1].tree, 2, 1);
    tree_publish_order(w.nodes[1].tree, &order);
    for (uint32_t i = 0; i <= 2; i += 2) {
        link_listener_close(w.nodes[i].listener);
        w.nodes[i].listener = NULL;
        if (!has_ports) {
            w.roster.entries[i].port = 0;
        }
    }
    bed_join(&w, 5, "run");
    ok(bed_run_until(&w, newcomer_has_second), "a newcomer finds another lead than "
       "the first, %s", has_ports ? "which has gone" : "of which it knows nothing");
    bed_close(&w);
}

static bool heard_all(struct world *w)
{
    const struct tree_seen *s = &w->nodes[0].seen;

    return s->n == BED_NODES && s->all_ms > 0 && s->n_suspect == 0;
}

static bool one_is_suspect(struct world *w)
{
    return w->nodes[0].seen.n_quiet > 0;
}

static uint64_t all_before;

static bool heard_more(struct world *w)
{
    return w->nodes[0].seen.all_ms > all_before;
}

/* What the lead's clock has shown comes back, the oldest of all. */
static void test_seen(void)
{
    struct world w;

    bed_start_all(&w);
    ok(bed_run_until(&w, heard_all), "the lead knows that all have heard of it");
    all_before = w.nodes[0].seen.all_ms;
    ok(bed_run_until(&w, heard_more), "again and again");
    tree_close(w.nodes[6].tree);
    w.nodes[6].tree = NULL;
    ok(bed_run_until(&w, one_is_suspect), "and who is gone, and not lost yet");
    bed_close(&w);
}

static bool first_is_up(struct world *w)
{
    return w->nodes[1].n_uplinks > 0;
}

static void open_pair(struct world *w)
{
    bed_open(w);
    bed_join(w, 0, "run");
    bed_join(w, 1, "run");
    ok(bed_run_until(w, first_is_up), "a lead and a member");
}

/* What connects first is taken: the dialled link and the question whether somebody
 * is there. Both are over when the port is closed. */
static void test_killed(void)
{
    static struct dying d;
    struct world w;

    open_pair(&w);
    kill_lead(&w, &d, 2);
    ok(bed_run_until(&w, first_at_top), "the member of a lead that is killed stands "
       "at the top");
    ok(w.nodes[1].dead[0], "and knows by then that it is dead");
    bed_close(&w);
}

static bool lead_is_dead(struct world *w)
{
    return w->nodes[1].dead[0];
}

/* Meanwhile the lead is dialled, again and again. */
static void test_slowly_killed(void)
{
    static struct dying d;
    struct world w;

    open_pair(&w);
    kill_lead(&w, &d, MAX_TAKEN);
    ok(bed_run_until(&w, first_at_top), "that of one whose port stays stands there, "
       "too");
    ok(!w.nodes[1].dead[0], "and does not know whether it is dead");
    close_port(&d);
    ok(bed_run_until(&w, lead_is_dead), "until that is closed");
    bed_close(&w);
}

static bool second_is_up(struct world *w)
{
    return w->nodes[2].n_uplinks > 0;
}

static bool second_knows(struct world *w)
{
    return w->nodes[2].dead[0];
}

/* The port of the lead stays until a member has found another way. */
static void test_killed_late(void)
{
    static struct dying d;
    struct world w;

    open_pair(&w);
    bed_join(&w, 2, "run");
    ok(bed_run_until(&w, second_is_up), "another member");
    w.nodes[2].n_uplinks = 0;
    kill_lead(&w, &d, MAX_TAKEN);
    ok(bed_run_until(&w, second_is_up), "finds the first in the place of the lead");
    ok(!w.nodes[2].dead[0], "and does not know that it is dead");
    close_port(&d);
    ok(bed_run_until(&w, second_knows), "until it refuses");
    bed_close(&w);
}

int main(void)
{
    test_killed();
    test_slowly_killed();
    test_killed_late();
    test_next_lead();
    test_two_lost();
    test_elder();
    test_newcomer(true);
    test_newcomer(false);
    test_seen();
    return tap_done();
}
