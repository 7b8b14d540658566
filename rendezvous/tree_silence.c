/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has said nothing for too long: children are lost then, parents are left. It is
 * looked at when the sockets have been read: where this process stood still itself,
 * what others have said meanwhile waits there.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct tree_gaze {
    uv_idle_t no_wait;
    uv_check_t after_reading;
    unsigned n_open;
    bool is_beat; /* it is time for one, too */
};

static void on_silent_timer(uv_timer_t *timer);
static void on_read(uv_check_t *check);

/* Those that are silent for a lease now; a timer is for who will be that before
 * the next beat, so that nobody is lost later than it has to be. */
static void drop_silent_children(struct tree *t)
{
    uint64_t soonest = tree_beat_ms(t);
    struct child *next;

    for (struct child *c = t->children; c; c = next) {
        uint64_t silent = tree_now_ms(t) - link_last_heard_ms(c->link);
        char why[TREE_TEXT_BYTES];

        next = c->next;
        if (silent < t->config.lease_ms) {
            uint64_t left = t->config.lease_ms - silent;

            soonest = left < soonest ? left : soonest;
            continue;
        }
        snprintf(why, sizeof(why), "nothing heard for %llu ms",
                 (unsigned long long)silent);
        tree_child_lost(t, c, TREE_RETURN_MS, why);
        tree_remove_child(c);
    }
    if (soonest < tree_beat_ms(t)) {
        uv_timer_start(t->silent, on_silent_timer, soonest, 0);
    }
}

static void on_no_wait(uv_idle_t *idle)
{
    (void)idle;
}

/* As soon as the loop has read, without waiting, what is there. */
static void look_after_reading(struct tree *t)
{
    struct tree_gaze *g = t->gaze;

    uv_idle_start(&g->no_wait, on_no_wait);
    uv_check_start(&g->after_reading, on_read);
}

static void on_silent_timer(uv_timer_t *timer)
{
    look_after_reading(timer->data);
}

/* A front end may be stopped (Ctrl-Z), or wait for its terminal (Ctrl-S): it is
 * gone when its kernel says so, or does not answer any more. */
static bool parent_is_silent(const struct tree *t)
{
    return t->up_ready && !tree_is_lead(t) &&
           tree_now_ms(t) - link_last_heard_ms(t->up) >= tree_suspect_ms(t);
}

/* It knows of no lead as new as the one that this member knows of. */
static bool parent_is_behind(const struct tree *t)
{
    return t->up_ready && !tree_is_lead(t) && tree_is_bound(t) &&
           tree_now_ms(t) - t->fresh_at_ms >= tree_suspect_ms(t);
}

static void beat(struct tree *t)
{
    if (parent_is_silent(t)) {
        tree_parent_silent(t);
    } else if (parent_is_behind(t)) {
        tree_uplink_gone(t, "the parent follows a lead of before");
    } else if (t->up_ready) {
        tree_beat_up(t);
    }
    if (tree_is_lead(t)) {
        tree_tell_seen(t);
    }
}

static void on_read(uv_check_t *check)
{
    struct tree *t = check->data;
    struct tree_gaze *g = t->gaze;
    bool is_beat = g->is_beat;

    g->is_beat = false;
    uv_idle_stop(&g->no_wait);
    uv_check_stop(&g->after_reading);
    drop_silent_children(t);
    if (is_beat) {
        beat(t);
    }
}

static void on_beat(uv_timer_t *timer)
{
    struct tree *t = timer->data;

    t->gaze->is_beat = true;
    look_after_reading(t);
}

void tree_start_beats(struct tree *t)
{
    uv_timer_start(t->beat, on_beat, tree_beat_ms(t), tree_beat_ms(t));
}

int tree_gaze_open(struct tree *t)
{
    struct tree_gaze *g = calloc(1, sizeof(*g));

    if (!g) {
        return -ENOMEM;
    }
    uv_idle_init(t->config.loop, &g->no_wait);
    uv_check_init(t->config.loop, &g->after_reading);
    g->n_open = 2;
    g->no_wait.data = g;
    g->after_reading.data = t;
    t->gaze = g;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct tree_gaze *g = h->data;

    if (--g->n_open == 0) {
        free(g);
    }
}

void tree_gaze_close(struct tree *t)
{
    struct tree_gaze *g = t->gaze;

    if (g) {
        t->gaze = NULL;
        g->after_reading.data = g;
        uv_close((uv_handle_t *)&g->no_wait, on_closed);
        uv_close((uv_handle_t *)&g->after_reading, on_closed);
    }
}
