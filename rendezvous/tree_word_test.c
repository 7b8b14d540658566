/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Those above a member, and their word: how old it is when it comes, and what
 * silence means.
 */
#include <config.h>

#include "base/wire.h"
#include "rendezvous/tree_bed_rogue.h"
#include "tests/lib/tap.h"

static bool joined_again(struct world *w)
{
    return w->nodes[1].n_uplinks > 1;
}

/* A parent that welcomes and says nothing more. */
static void test_silent_parent(void)
{
    struct world w;
    struct rogue parent = {0};

    bed_open(&w);
    link_listener_open(w.nodes[0].listener, bed_key, rogue_accept, &parent);
    bed_join(&w, 1, "run");
    ok(bed_run_until(&w, joined_again), "a parent that is silent is left");
    link_close(parent.link);
    bed_close(&w);
}

/* A child that asks for the word again and again. */
struct asking {
    int n_asked;
    uint64_t asked_ms;
};

/* Asks again once an answer has come, and is some time old. */
static bool child_heard_beats(struct world *w)
{
    struct asking *a = w->own;

    if (a->n_asked == w->rogue->n_beats &&
        uv_now(&w->loop) > a->asked_ms + 10) {
        a->n_asked++;
        a->asked_ms = uv_now(&w->loop);
        rogue_beat(w->rogue, a->asked_ms);
    }
    return w->rogue->n_beats == 3;
}

static bool parent_was_asked(struct world *w)
{
    return ((struct rogue *)w->own)->n_beats > 0;
}

/* The lead's last word is passed on with its age: what it was, and the time
 * since it came. */
static void test_age_of_words(void)
{
    struct world w;
    struct rogue parent = {0}, child;
    struct asking asking = {0};

    bed_open(&w);
    link_listener_open(w.nodes[0].listener, bed_key, rogue_accept, &parent);
    bed_join(&w, 1, "run");
    w.own = &parent;
    ok(bed_run_until(&w, parent_was_asked), "a parent is asked for its word");
    rogue_join(&w, &child, 1, 3);
    rogue_word(parent.link, parent.stamp, 100);
    w.nodes[1].n_words = 0;
    while (!w.nodes[1].n_words) {
        uv_run(&w.loop, UV_RUN_ONCE);
    }
    w.own = &asking;
    ok(bed_run_until(&w, child_heard_beats), "beats below");
    ok(child.ages[0] >= 100 && child.ages[1] > child.ages[0] &&
           child.ages[2] > child.ages[1], "are of a word that grows old");
    rogue_leave(&child);
    link_close(parent.link);
    bed_close(&w);
}

static bool leases_have_passed(struct world *w)
{
    return w->nodes[0].n_words > 80; /* twenty beats a lease */
}

/* One that was stopped says nothing, and is there. */
static void test_silent_front(void)
{
    struct world w;
    struct rogue r = {0};
    struct link_listener *front;

    bed_open(&w);
    front = rogue_be_front(&w, &r);
    ok(bed_run_until(&w, rogue_lead_has_front), "the lead finds its front end");
    ok(bed_run_until(&w, leases_have_passed), "which is silent for long");
    ok(w.nodes[0].n_uplinks == 1 && tree_has_uplink(w.nodes[0].tree) &&
       tree_front_gone_ms(w.nodes[0].tree) == 0, "but not gone");
    link_close(r.link);
    link_listener_close(front);
    bed_close(&w);
}

/* A parent that lives, but whose answers have been on their way for ever: each
 * repeats the first stamp that came. */
static void stale_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct rogue *r = ctx;
    struct wire_reader in = wire_reader(f->data, f->len);

    if (f->type != TREE_BEAT) {
        return;
    }
    r->stamp = r->stamp ? r->stamp : wire_get_u64(&in);
    rogue_word(l, r->stamp, 0);
}

static const struct link_ops stale_ops = {
    .on_frame = stale_frame, .on_down = rogue_on_down,
};

static void stale_peer(struct link *l, const struct channel_frame *first,
                       void *ctx)
{
    rogue_accept(l, first, ctx);
    link_adopt(l, &stale_ops, ctx);
}

static bool word_is_stale(struct world *w)
{
    return w->nodes[1].word_age >= 2 * bed_lease_ms();
}

/* What comes late is old, though it comes now. */
static void test_late_words(void)
{
    struct world w;
    struct rogue r = {0};

    bed_open(&w);
    link_listener_open(w.nodes[0].listener, bed_key, stale_peer, &r);
    bed_join(&w, 1, "run");
    ok(bed_run_until(&w, word_is_stale), "a word ages on its way");
    is_int(w.nodes[1].n_uplinks, 1, "while the link stands");
    link_close(r.link);
    bed_close(&w);
}

int main(void)
{
    test_silent_parent();
    test_age_of_words();
    test_silent_front();
    test_late_words();
    return tap_done();
}
