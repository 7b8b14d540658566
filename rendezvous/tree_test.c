/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trees: what goes down reaches all, what goes up reaches the lead, and a
 * lost inner node is replaced as parent by the next ancestor.
 */
#include <config.h>

#include "rendezvous/tree_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

static bool event_of_last(struct world *w)
{
    return w->events[BED_NODES - 1];
}

static void test_both_ways(void)
{
    struct world w;
    int n_lost = 0;

    bed_start_all(&w);
    tree_event(w.nodes[BED_NODES - 1].tree, "{}", 2);
    ok(bed_run_until(&w, event_of_last), "an event of the deepest node "
       "arrives");
    for (int i = 0; i < BED_NODES; i++) {
        n_lost += w.lost[i];
    }
    is_int(n_lost, 0, "nobody is lost");
    ok(w.nodes[BED_NODES - 1].word_age < bed_lease_ms(),
       "the lead's word is fresh below");
    bed_close(&w);
}

static bool all_asked(struct world *w)
{
    bool all = true;

    for (int i = 1; i < BED_NODES; i++) {
        all = all && strcmp(w->nodes[i].asked, "{}") == 0;
    }
    return all;
}

static void test_ask(void)
{
    struct world w;

    bed_start_all(&w);
    tree_ask(w.nodes[0].tree, "{}", 2);
    ok(bed_run_until(&w, all_asked), "all below are asked");
    is_str(w.nodes[0].asked, "", "but not the lead itself");
    bed_close(&w);
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

    bed_start_all(&w);
    bed_leave(&w, 1);
    ok(bed_run_until(&w, inner_lost), "the lead is told of the loss");
    like(w.loss[1].why, "closed", "with the reason");
    ok(w.loss[1].dead, "and that it is dead: its port is closed");
    bed_publish(&w, "order 2");
    ok(bed_run_until(&w, orphans_back), "its children have found the lead, and "
       "told it where they stand");
    is_int(w.lost[3] + w.lost[4], 0, "they do not count as lost");
    is_int(w.nodes[3].n_configs, 1, "nor are they configured again");
    bed_close(&w);
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

static bool has_aged(struct world *w)
{
    const uint64_t *began_ms = w->own;

    return uv_now(&w->loop) - *began_ms > 20;
}

/* Who comes when all has been said hears it all the same, and how long ago that was. */
static void test_latecomers(void)
{
    struct world w;
    uint64_t age_ms, began_ms;

    bed_open(&w);
    bed_join(&w, 0, "run");
    tree_publish_config(w.nodes[0].tree, BED_AGE_MS, "config", 6);
    bed_publish(&w, "order 1");
    bed_join(&w, 2, "run");
    ok(bed_run_until(&w, latecomer_knows), "a late child has config and order");
    age_ms = w.nodes[2].age_ms;
    ok(age_ms >= BED_AGE_MS && age_ms < BED_AGE_MS + 60000, "it is told how old that is");
    began_ms = uv_now(&w.loop);
    w.own = &began_ms;
    ok(bed_run_until(&w, has_aged), "time passes");
    bed_join(&w, 5, "run");
    ok(bed_run_until(&w, its_child_knows), "and so has a later one below it");
    ok(w.nodes[5].age_ms > age_ms + 20, "to whom it is older");
    bed_close(&w);
}

static bool refused(struct world *w)
{
    return w->nodes[2].n_refused;
}

static void test_other_run(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 0, "run");
    bed_join(&w, 2, "another run");
    ok(bed_run_until(&w, refused), "a member of another run is refused");
    bed_close(&w);
}

static void test_other_build(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 0, "run");
    w.version = "v (build 2)";
    bed_join(&w, 2, "run");
    ok(bed_run_until(&w, refused), "a member of another build is refused");
    is_str(w.nodes[2].refused, "it is of muster v (build 2), and the node above "
           "it of muster v", "and told which one it would have to be");
    bed_close(&w);
}

static bool is_here(struct world *w)
{
    return w->here[3] > 0;
}

/* That a member is connected is known before anything that it says. */
static void test_here(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 0, "run");
    bed_join(&w, 1, "run");
    bed_join(&w, 3, "run");
    ok(bed_run_until(&w, is_here), "a member below another is heard of");
    is_int(w.reports[3], 0, "though it has said nothing");
    tree_close(w.nodes[0].tree);
    w.here[1] = w.here[3] = 0;
    bed_join(&w, 0, "run");
    ok(bed_run_until(&w, is_here), "and again by a new lead");
    ok(w.here[1], "as is its parent");
    bed_close(&w);
}

static bool last_is_connected(struct world *w)
{
    return w->nodes[6].n_words > 8;
}

static bool last_has_reported(struct world *w)
{
    return w->reports[6] > 0;
}

/* As a member of no world that has newcomers: the last node is one. */
static void join_without_last(struct world *w, uint32_t rank)
{
    w->roster.n = BED_NODES - 1;
    bed_join(w, rank, "run");
    w->roster.n = BED_NODES;
}

/* Its parent knows a newcomer before the lead does. */
static void test_newcomer_early(void)
{
    struct world w;

    bed_open(&w);
    join_without_last(&w, 0);
    bed_join(&w, 2, "run");
    bed_join(&w, 6, "run");
    bed_report(&w, 6);
    tree_event(w.nodes[6].tree, "{}", 2);
    tree_event(w.nodes[2].tree, "{}", 2);
    ok(bed_run_until(&w, last_is_connected), "a newcomer that the lead does not know");
    is_int(w.nodes[2].n_uplinks, 1, "its parent stays where it is");
    is_int(w.here[6] + w.reports[6] + w.lost[6] + w.events[6], 0, "the lead hears nothing of it");
    is_int(w.events[2], 1, "but what others tell");
    tree_grow(w.nodes[0].tree);
    tree_tell_events(w.nodes[0].tree);
    is_int(w.events[6], 1, "once it knows it the lead has what it told");
    ok(bed_run_until(&w, last_has_reported) && w.here[6], "and hears that it is there");
    is_int(w.nodes[2].n_uplinks + w.events[6] + w.events[2], 3, "all of it once");
    bed_close(&w);
}

static bool first_is_there(struct world *w)
{
    return w->reports[1] && w->nodes[1].n_words;
}

static bool words_have_passed(struct world *w)
{
    return w->nodes[0].n_words > 60; /* twenty a lease */
}

/* One whose link breaks and that is back at once was never away; one that stays
 * away is lost, each time. */
static void test_comes_back(void)
{
    struct world w;

    bed_open(&w);
    bed_join(&w, 0, "run");
    bed_join(&w, 1, "run");
    bed_report(&w, 1);
    ok(bed_run_until(&w, first_is_there), "a child");
    tree_close(w.nodes[1].tree);
    bed_join(&w, 1, "run");
    bed_report(&w, 1);
    w.nodes[0].n_words = 0;
    bed_run_until(&w, words_have_passed);
    is_int(w.lost[1], 0, "that is back at once is not lost");
    for (int i = 1; i <= 2; i++) {
        tree_close(w.nodes[1].tree);
        w.lost[1] = 0;
        w.nodes[1].tree = NULL;
        ok(bed_run_until(&w, inner_lost), "one that stays away is (%d)", i);
        ok(!w.loss[1].dead && w.loss[1].quiet_ms >= bed_lease_ms(),
           "after a lease, and not for dead: its port answers");
        bed_join(&w, 1, "run");
        w.reports[1] = w.nodes[1].n_words = 0;
        bed_report(&w, 1);
        ok(bed_run_until(&w, first_is_there), "and can come again");
    }
    bed_close(&w);
}

static bool both_lost(struct world *w)
{
    return w->lost[1] && w->lost[3];
}

/* A node and its parent go together: nobody is left who saw the node go. */
static void test_lost_with_parent(void)
{
    struct world w;

    bed_start_all(&w);
    bed_leave(&w, 3);
    bed_leave(&w, 1);
    ok(bed_run_until(&w, both_lost), "the lead is told of both");
    like(w.loss[3].why, "parent", "and why");
    is_int(w.lost[4], 0, "their neighbour has found another parent");
    bed_close(&w);
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

    bed_open(&w);
    bed_join(&w, 1, "run");
    bed_join(&w, 3, "run");
    bed_report(&w, 3);
    bed_run_until(&w, third_is_up);
    bed_leave(&w, 3);
    for (int i = 0; i < 20; i++) {
        bed_run_until(&w, third_gone);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    bed_join(&w, 0, "run");
    ok(bed_run_until(&w, third_lost), "the lead learns of it when it comes");
    is_int(w.reports[3], 0, "and nothing else of that node");
    bed_close(&w);
}

static void on_lease(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

static bool lease_is_over(struct world *w)
{
    return *(bool *)w->own;
}

/* A parent that has no word of the lead has none to pass on. */
static void test_no_word(void)
{
    struct world w;
    uv_timer_t lease;
    bool is_over = false;

    bed_open(&w);
    w.own = &is_over;
    bed_join(&w, 1, "run");
    bed_join(&w, 3, "run");
    bed_run_until(&w, third_is_up);
    uv_timer_init(&w.loop, &lease);
    lease.data = &is_over;
    uv_timer_start(&lease, on_lease, bed_lease_ms(), 0);
    ok(bed_run_until(&w, lease_is_over), "a link stands for a lease");
    is_int(w.nodes[3].n_uplinks, 1, "a parent without a parent will do");
    is_int(w.nodes[3].n_words, 0, "but has no word of the lead");
    uv_close((uv_handle_t *)&lease, NULL);
    bed_close(&w);
}

int main(void)
{
    test_both_ways();
    test_ask();
    test_lost_inner_node();
    test_latecomers();
    test_here();
    test_newcomer_early();
    test_comes_back();
    test_other_run();
    test_other_build();
    test_lost_with_parent();
    test_loss_is_repeated();
    test_no_word();
    return tap_done();
}
