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

static bool lead_has_third(struct world *w)
{
    return w->here[3] > 0;
}

/* Where it still takes connections, too: those below it have a lease to be heard of. */
static void test_beyond_silent_parent(void)
{
    struct world w;
    struct rogue parent = {0};

    bed_open(&w);
    bed_join(&w, 0, "run");
    link_listener_open(w.nodes[1].listener, bed_key, rogue_accept, &parent);
    bed_join(&w, 3, "run");
    ok(bed_run_until(&w, lead_has_third),
       "the next ancestor is asked when a parent is silent");
    is_int(w.nodes[3].n_uplinks, 2, "and not the same one again");
    link_close(parent.link);
    bed_close(&w);
}

/* As a child: has `rank` below it. */
static void say_here(struct rogue *r, uint32_t rank)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, rank);
    wire_put_bytes(&b, NULL, 0);
    link_send_buf(r->link, TREE_HERE, &b);
}

static void say_three(struct rogue *r)
{
    static const struct tree_seen three = {.n = 3};
    _buf_ struct buf b = {0};

    say_here(r, 3);
    say_here(r, 4);
    wire_put_u64(&b, 1);
    tree_seen_put(&b, &three);
    link_send_buf(r->link, TREE_BEAT, &b);
}

static bool three_were_said(struct world *w)
{
    return w->nodes[0].seen.n == 4;
}

static bool one_is_silent_or_down(struct world *w)
{
    return w->rogue->down ||
           (w->nodes[3].n_uplinks && w->nodes[4].n_uplinks &&
            w->nodes[0].seen.n_suspect == 1);
}

/* Whether the lead took the one child for silent, and not those that it has left. Not
 * so if this process stood still until the child was given up. */
static bool counts_the_one(void)
{
    struct world w;
    struct rogue child;
    bool is_counted;

    bed_open(&w);
    bed_join(&w, 0, "run");
    rogue_join(&w, &child, 0, 1);
    say_three(&child);
    bed_run_until(&w, three_were_said);
    link_listener_close(w.nodes[1].listener);
    w.nodes[1].listener = NULL;
    bed_join(&w, 3, "run");
    bed_join(&w, 4, "run");
    bed_run_until(&w, one_is_silent_or_down);
    is_counted = !child.down;
    rogue_leave(&child);
    bed_close(&w);
    return is_counted;
}

/* They have found the lead by then: they are heard, and the lead's word is good. */
static void test_silent_inner_node(void)
{
    bool is_counted = false;

    for (int try = 0; !is_counted && try < 5; try++) {
        is_counted = counts_the_one();
    }
    ok(is_counted, "those below a silent child that come back are not silent");
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

static bool child_was_answered(struct world *w)
{
    return w->rogue->n_beats > 0 || w->rogue->down;
}

static bool parent_was_heard(struct world *w)
{
    return w->nodes[1].n_words > 0 || w->nodes[1].n_uplinks > 1;
}

/* This process stands still for longer than it lets others be silent: who has said
 * something meanwhile was not. */
static void test_own_silence(void)
{
    struct world w;
    struct rogue child, parent = {0};

    bed_open(&w);
    bed_join(&w, 0, "run");
    rogue_join(&w, &child, 0, 1);
    rogue_beat(&child, 1);
    uv_sleep(bed_lease_ms() + 1);
    ok(bed_run_until(&w, child_was_answered) && !child.down,
       "a child whose beat was not read yet is not lost");
    rogue_leave(&child);
    bed_close(&w);
    bed_open(&w);
    link_listener_open(w.nodes[0].listener, bed_key, rogue_accept, &parent);
    bed_join(&w, 1, "run");
    w.own = &parent;
    ok(bed_run_until(&w, parent_was_asked), "a parent is asked");
    w.nodes[1].n_words = 0;
    rogue_word(parent.link, parent.stamp, 0);
    uv_sleep(bed_lease_ms() / 2);
    ok(bed_run_until(&w, parent_was_heard) && w.nodes[1].n_uplinks == 1,
       "a parent whose answer was not read yet is not left");
    link_close(parent.link);
    bed_close(&w);
}

/* A child that joins and says no more. Three timers of the test's follow it: one for a
 * lease after it was heard, when it is missed; one for a turn of the loop, which has
 * looked by then; and one for the time that it has to come back. The loop runs timers
 * in their order, however late it is: these are a moment behind. */
enum { MUTES = BED_NODES - 1, RETURN_MS = 300, BEHIND_MS = 1 };

struct mute {
    struct world *w;
    struct rogue rogue;
    uint32_t rank;
    uv_timer_t timer;
    bool is_due;    /* to be missed ... */
    bool is_missed; /* ... and is, or should be */
    bool is_over;
    bool was_lost;
};

static void on_mute_timer(uv_timer_t *t)
{
    struct mute *m = t->data;

    if (!m->is_due) {
        m->is_due = true;
        uv_timer_start(t, on_mute_timer, BEHIND_MS, 0);
        return;
    }
    if (!m->is_missed) {
        m->is_missed = true;
        uv_timer_start(t, on_mute_timer, RETURN_MS + BEHIND_MS, 0);
        return;
    }
    m->is_over = true;
    m->was_lost = m->w->lost[m->rank];
}

static void join_mute(struct world *w, struct mute *m, uint32_t rank)
{
    *m = (struct mute){.w = w, .rank = rank};
    rogue_join(w, &m->rogue, 0, rank);
    uv_timer_init(&w->loop, &m->timer);
    m->timer.data = m;
    uv_timer_start(&m->timer, on_mute_timer, bed_lease_ms() + BEHIND_MS,
                   0);
}

static bool all_over(struct world *w)
{
    const struct mute *all = w->own;

    for (int i = 0; i < MUTES; i++) {
        if (!all[i].is_over) {
            return false;
        }
    }
    return true;
}

/* The lease of a child ends at any time between two beats, and is not waited for
 * until the next. */
static void test_silent_children(void)
{
    static struct mute all[MUTES];
    struct world w;
    int n_lost = 0;

    bed_open(&w);
    w.own = all;
    bed_join(&w, 0, "run");
    for (uint32_t i = 0; i < MUTES; i++) {
        join_mute(&w, &all[i], i + 1);
    }
    ok(bed_run_until(&w, all_over), "the leases of silent children pass");
    for (int i = 0; i < MUTES; i++) {
        n_lost += all[i].was_lost;
        rogue_leave(&all[i].rogue);
        uv_close((uv_handle_t *)&all[i].timer, NULL);
    }
    is_int(n_lost, MUTES, "each is missed when its own does");
    bed_close(&w);
}

int main(void)
{
    test_silent_parent();
    test_beyond_silent_parent();
    test_silent_inner_node();
    test_age_of_words();
    test_silent_front();
    test_late_words();
    test_own_silence();
    test_silent_children();
    return tap_done();
}
