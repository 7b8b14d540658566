/* SPDX-License-Identifier: Apache-2.0 */
/* Events: each reaches the lead, and once, whoever is lost on the way, be it that it has
 * read them. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/tree_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

static void send_events(struct world *w, uint32_t rank, int n, size_t len)
{
    _free_ char *text = calloc(1, len);

    for (int i = 0; text && i < n; i++) {
        tree_event(w->nodes[rank].tree, text, len);
    }
}

static bool two_up(struct world *w)
{
    return w->nodes[5].n_uplinks && w->nodes[6].n_uplinks;
}

static bool events_of_three(struct world *w)
{
    return w->events[2] && w->events[5] && w->events[6];
}

/* Nodes 5 and 6 have a parent, which has none yet. */
static void test_wait(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 5, "run");
    send_events(&w, 5, 1, 2);
    bed_join(&w, 2, "run");
    bed_join(&w, 6, "run");
    ok(bed_run_until(&w, two_up), "two are below one that has no parent");
    send_events(&w, 2, 3, 2);
    send_events(&w, 6, 2, 2);
    bed_join(&w, 0, "run");
    ok(bed_run_until(&w, events_of_three), "what they told meanwhile arrives");
    is_int(w.events[2], 3, "all that the one told");
    is_int(w.events[5] + w.events[6], 3, "and those below it, each once");
    bed_close(&w);
}

static bool word_of_last(struct world *w)
{
    return w->events[6] == 1;
}

static void test_bounded(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 2, "run");
    send_events(&w, 2, 17, 1 << 16);
    bed_join(&w, 0, "run");
    bed_join(&w, 6, "run");
    send_events(&w, 6, 1, 2);
    ok(bed_run_until(&w, word_of_last), "a lead is there");
    is_int(w.events[2], 15, "of 17 events of 64 KiB, those wait that fit into 1 MiB");
    bed_close(&w);
}

static bool report_of_second(struct world *w)
{
    return w->reports[2] > 0;
}

/* By a report the lead may decide, for which it has to know what was told before. */
static void test_before_report(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 2, "run");
    send_events(&w, 2, 2, 2);
    bed_report(&w, 2);
    bed_join(&w, 0, "run");
    ok(bed_run_until(&w, report_of_second), "a lead is there, and hears a report");
    is_int(w.events_then[2], 2, "after the events that came before it");
    bed_close(&w);
}

static void test_of_lead(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 1, "run");
    send_events(&w, 1, 2, 2);
    tree_set_view(w.nodes[1].tree, 2, 1);
    is_int(w.events[1], 0, "one takes the lead, which has to begin first");
    tree_tell_events(w.nodes[1].tree);
    is_int(w.events[1], 2, "then it hears what it had to tell itself");
    tree_tell_events(w.nodes[1].tree);
    is_int(w.events[1], 2, "once");
    bed_close(&w);
}

static bool event_of_fifth(struct world *w)
{
    return w->events[5] == 1;
}

static bool fifth_is_back(struct world *w)
{
    return w->nodes[5].n_uplinks > 1;
}

static bool third_of_fifth(struct world *w)
{
    return w->events[5] >= 3;
}

/* As with one that is stopped, and is lost then. */
static void test_unread(void)
{
    struct world w;

    bed_start_all(&w);
    send_events(&w, 5, 1, 2);
    bed_leave(&w, 2);
    ok(bed_run_until(&w, event_of_fifth), "what its parent has not read the next one hears");
    send_events(&w, 5, 2, 2);
    ok(bed_run_until(&w, third_of_fifth), "and what it tells then");
    is_int(w.events[5], 3, "all of it once");
    bed_close(&w);
}

static bool two_of_fifth(struct world *w)
{
    return w->events[5] == 2;
}

/* It does not know that its parent has read them. */
static void test_again(void)
{
    struct world w;

    bed_start_all(&w);
    send_events(&w, 5, 2, 2);
    ok(bed_run_until(&w, two_of_fifth), "what its parent has passed on arrives");
    bed_leave(&w, 2);
    ok(bed_run_until(&w, fifth_is_back), "it finds another parent");
    send_events(&w, 5, 1, 2);
    ok(bed_run_until(&w, third_of_fifth), "and tells more");
    is_int(w.events[5], 3, "the lead hears nothing twice");
    bed_close(&w);
}

static bool second_at_top(struct world *w)
{
    return w->nodes[2].top;
}

static bool fifth_hears(struct world *w)
{
    return w->nodes[5].n_words > 8;
}

/* Node 2 has no parent then, and those below it are where they were. */
static void lose_those_above(struct world *w)
{
    bed_leave(w, 1);
    bed_leave(w, 0);
    ok(bed_run_until(w, second_at_top), "the parent of some has none");
}

static void wait_for_beats(struct world *w)
{
    w->nodes[5].n_words = 0;
    ok(bed_run_until(w, fifth_hears), "heartbeats go to and fro");
}

/* What node 2 has read and cannot pass on is lost with it. */
static void test_middle(void)
{
    struct world w;

    bed_start_all(&w);
    lose_those_above(&w);
    send_events(&w, 5, 1, 2);
    wait_for_beats(&w);
    bed_leave(&w, 2);
    bed_join(&w, 0, "run");
    ok(bed_run_until(&w, event_of_fifth), "what it has read and not passed on arrives");
    send_events(&w, 5, 2, 2);
    ok(bed_run_until(&w, third_of_fifth), "and what is told then");
    is_int(w.events[5], 3, "all of it once");
    bed_close(&w);
}

/* Node 0 is lost and comes again, and does not know what it has heard. */
static void restart_lead(struct world *w)
{
    bed_leave(w, 0);
    bed_join(w, 0, "run");
    wait_for_beats(w);
}

static void test_heard(void)
{
    struct world w;

    bed_start_all(&w);
    send_events(&w, 5, 2, 2);
    ok(bed_run_until(&w, two_of_fifth), "what two pass on arrives");
    wait_for_beats(&w);
    restart_lead(&w);
    send_events(&w, 5, 1, 2);
    ok(bed_run_until(&w, third_of_fifth), "another lead hears what is told then");
    is_int(w.events[5], 3, "and nothing that the one before has heard: they know of it");
    bed_close(&w);
}

static bool sixteen_of_fifth(struct world *w)
{
    return w->events[5] >= 16;
}

static void test_heard_no_room(void)
{
    struct world w;

    bed_start_all(&w);
    lose_those_above(&w);
    send_events(&w, 5, 17, 1 << 16);
    wait_for_beats(&w);
    tree_set_view(w.nodes[2].tree, 2, 2);
    tree_tell_events(w.nodes[2].tree);
    is_int(w.events[5], 15, "who takes the lead hears those that there was room for");
    wait_for_beats(&w);
    bed_leave(&w, 2);
    bed_join(&w, 2, "run");
    tree_set_view(w.nodes[2].tree, 3, 2);
    send_events(&w, 5, 1, 2);
    ok(bed_run_until(&w, sixteen_of_fifth), "and what is told then");
    is_int(w.events[5], 16, "none waits any more for which there was no room");
    bed_close(&w);
}

static bool first_at_top(struct world *w)
{
    return w->nodes[1].top;
}

static bool third_was_read(struct world *w)
{
    return w->nodes[3].n_words > 8;
}

static bool event_of_third(struct world *w)
{
    return w->events[3] == 1;
}

static bool first_hears(struct world *w)
{
    return w->nodes[1].n_words > 2;
}

/* Node 1 has what node 3 had to tell, and no parent; then 3 leads. */
static void test_come_back(void)
{
    struct world w;
    int n_uplinks;

    bed_start_all(&w);
    bed_leave(&w, 0);
    ok(bed_run_until(&w, first_at_top), "one has a parent, which has none");
    n_uplinks = w.nodes[1].n_uplinks;
    send_events(&w, 3, 1, 2);
    w.nodes[3].n_words = 0;
    ok(bed_run_until(&w, third_was_read), "that hears from it");
    tree_set_view(w.nodes[3].tree, 2, 3);
    tree_tell_events(w.nodes[3].tree);
    tree_set_view(w.nodes[1].tree, 2, 3);
    tree_seek_rank(w.nodes[1].tree, 3);
    ok(bed_run_until(&w, event_of_third), "what it has told comes back to it when it leads");
    send_events(&w, 3, 1, 2);
    is_int(w.events[3], 2, "as what it tells itself then does");
    w.nodes[1].n_words = 0;
    ok(bed_run_until(&w, first_hears) && w.nodes[1].n_uplinks == n_uplinks + 1,
       "its parent of before stays with it");
    bed_close(&w);
}

int main(void)
{
    test_wait();
    test_bounded();
    test_before_report();
    test_of_lead();
    test_unread();
    test_again();
    test_middle();
    test_heard();
    test_heard_no_room();
    test_come_back();
    return tap_done();
}
