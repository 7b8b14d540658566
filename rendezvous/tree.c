/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/key.h"
#include "base/loop_timer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void forget_ways(struct tree *t, uint32_t from)
{
    for (uint32_t i = from; i < t->n_below; i++) {
        t->below[i].via = NO_RANK;
        t->below[i].other = NO_RANK;
    }
}

int tree_create(const struct tree_config *config, struct tree **ret,
                struct error *e)
{
    struct tree *t = calloc(1, sizeof(*t));

    if (!t) {
        return error_set(e, ENOMEM, "control tree");
    }
    t->config = *config;
    t->ops = *config->ops;
    t->lead = config->lead;
    t->key = key_hold(config->key);
    str_copy(t->run_id, sizeof(t->run_id), config->run_id);
    str_copy(t->version, sizeof(t->version), config->version);
    strlist_add_all(&t->front_addrs, config->front_addrs);
    t->sought = NO_RANK;
    tree_find_ways(t);
    t->n_below = config->roster->n;
    t->below = calloc(t->n_below, sizeof(*t->below));
    t->beat = loop_timer_create(t->config.loop, t);
    t->retry = loop_timer_create(t->config.loop, t);
    t->lost = loop_timer_create(t->config.loop, t);
    t->silent = loop_timer_create(t->config.loop, t);
    if (!t->key || !t->below || !t->beat || !t->retry || !t->lost ||
        !t->silent || tree_gaze_open(t) < 0 || t->front_addrs.failed) {
        tree_close(t);
        return error_set(e, ENOMEM, "control tree");
    }
    forget_ways(t, 0);
    tree_start_beats(t);
    link_listener_open(config->listener, t->key, tree_on_peer, t);
    tree_dial_next(t);
    *ret = t;
    return 0;
}

int tree_grow(struct tree *t)
{
    uint32_t n = t->config.roster->n;
    uint32_t n_before = t->n_below;
    struct below *grown = reallocarray(t->below, n, sizeof(*grown));

    if (!grown) {
        return -ENOMEM;
    }
    memset(grown + t->n_below, 0, (n - t->n_below) * sizeof(*grown));
    t->below = grown;
    t->n_below = n;
    forget_ways(t, n_before);
    tree_ask_again(t);
    return 0;
}

/* All that is known here of those below, to the lead that this member is now. */
static void repeat_to_lead(struct tree *t)
{
    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        const struct below *b = &t->below[rank];
        struct tree_loss loss = tree_loss_of(t, rank);

        if (b->lost) {
            t->ops.on_lost(t->config.ctx, rank, &loss);
        } else if (b->via != NO_RANK && !b->due_ms) {
            t->ops.on_here(t->config.ctx, rank);
            if (b->report.len) {
                t->ops.on_report(t->config.ctx, b->report.data, b->report.len);
            }
        }
    }
}

static void take_lead(struct tree *t)
{
    tree_seek_end(t);
    link_close(t->up);
    t->up = NULL;
    t->up_ready = false;
    t->in_flight = 0;
    tree_events_unsent(t);
    t->awaits_front = t->front_addrs.n > 0;
    t->front_gone_at_ms = t->awaits_front ? tree_now_ms(t) : 0;
    uv_timer_stop(t->retry);
    repeat_to_lead(t);
    tree_dial_next(t);
}

static void lay_down(struct tree *t)
{
    tree_drop_elders(t);
    link_close(t->up);
    t->up = NULL;
    t->up_ready = false;
    t->in_flight = 0;
    tree_events_unsent(t);
    t->front_gone_at_ms = 0;
    t->was_up = true;
    uv_timer_stop(t->retry);
    tree_dial_next(t);
}

void tree_set_view(struct tree *t, uint32_t view, uint32_t lead)
{
    bool led = tree_is_lead(t);

    for (uint32_t i = 0; view != t->view && i < t->n_below; i++) {
        buf_clear(&t->below[i].follow); /* of those without the lead before */
    }
    t->view = view;
    t->lead = lead;
    t->fresh_at_ms = tree_now_ms(t);
    tree_find_ways(t);
    if (tree_is_lead(t) && !led) {
        take_lead(t);
    } else if (led && !tree_is_lead(t)) {
        lay_down(t);
    }
}

void tree_close(struct tree *t)
{
    if (!t) {
        return;
    }
    t->finishing = 0;
    tree_look_end(t);
    tree_seek_end(t);
    while (t->children) {
        tree_remove_child(t->children);
    }
    link_close(t->up);
    loop_timer_close(t->beat);
    loop_timer_close(t->retry);
    loop_timer_close(t->lost);
    loop_timer_close(t->silent);
    tree_gaze_close(t);
    for (uint32_t i = 0; t->below && i < t->n_below; i++) {
        buf_release(&t->below[i].report);
        buf_release(&t->below[i].follow);
    }
    free(t->below);
    strlist_release(&t->front_addrs);
    buf_release(&t->config_data);
    buf_release(&t->order);
    buf_release(&t->events);
    buf_release(&t->waiting);
    key_drop(t->key);
    free(t);
}

void tree_set_lease(struct tree *t, uint64_t lease_ms)
{
    t->config.lease_ms = lease_ms;
    tree_start_beats(t);
}

bool tree_has_uplink(const struct tree *t)
{
    return t->up_ready;
}

uint64_t tree_front_gone_ms(const struct tree *t)
{
    return t->front_gone_at_ms ? tree_now_ms(t) - t->front_gone_at_ms : 0;
}
