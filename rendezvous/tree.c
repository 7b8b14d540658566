/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/key.h"
#include "base/wire.h"
#include "rendezvous/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 2000,
    FRONT_CONNECT_MS = 5000,
    RETURN_MS = 300, /* for a child whose link broke to come back */
};

void tree_send_below(struct tree *t, enum tree_type type, const void *data,
                     size_t len)
{
    for (struct child *c = t->children; c; c = c->next) {
        link_send(c->link, (uint16_t)type, data, len);
    }
}

void tree_keep(struct buf *b, const void *data, size_t len)
{
    buf_clear(b);
    buf_append(b, data, len);
}

void tree_publish_config(struct tree *t, const void *data, size_t len)
{
    tree_keep(&t->config_data, data, len);
    tree_send_below(t, TREE_CONFIG, data, len);
}

void tree_publish_order(struct tree *t, const struct buf *order)
{
    tree_keep(&t->order, order->data, order->len);
    tree_send_below(t, TREE_ORDER, order->data, order->len);
}

void tree_ask(struct tree *t, const void *json, size_t len)
{
    tree_send_below(t, TREE_ASK, json, len);
}

void tree_send_up(struct tree *t, enum tree_type type, const struct buf *b)
{
    if (t->up_ready) {
        link_send_buf(t->up, (uint16_t)type, b);
    }
}

struct child *tree_child_of(struct tree *t, uint32_t rank)
{
    struct child *c = t->children;

    while (c && c->rank != rank) {
        c = c->next;
    }
    return c;
}

/* `rank` was heard through the child `via`. */
void tree_heard(struct tree *t, uint32_t rank, uint32_t via)
{
    struct below *b = &t->below[rank];

    if (via != rank && tree_child_of(t, rank)) {
        return; /* repeated by a parent that it has left */
    }
    b->via = via;
    b->lost = false;
    b->dead = false;
    b->due_ms = 0;
}

/* A report of `rank`, from itself or from below. */
void tree_pass_report(struct tree *t, uint32_t rank, const void *data,
                      size_t len)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_report(t->config.ctx, data, len);
        return;
    }
    tree_keep(&t->below[rank].report, data, len);
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, data, len);
    tree_send_up(t, TREE_REPORT, &b);
}

void tree_report(struct tree *t, const struct buf *report)
{
    tree_pass_report(t, t->config.rank, report->data, report->len);
}

/* Of one that nobody follows any more, because it leads, none is kept. */
void tree_pass_follow(struct tree *t, uint32_t rank, const void *data,
                      size_t len)
{
    _buf_ struct buf b = {0};

    tree_keep(&t->below[rank].follow, data, len);
    if (t->ops.on_follow && (tree_is_lead(t) || !t->up_ready)) {
        t->ops.on_follow(t->config.ctx, data, len);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, data, len);
    tree_send_up(t, TREE_FOLLOW, &b);
}

void tree_follow(struct tree *t, const struct buf *follow)
{
    tree_pass_follow(t, t->config.rank, follow->data, follow->len);
}

/* Longer than the lease no answer is waited for. */
uint64_t tree_connect_ms(const struct tree *t)
{
    uint64_t max_ms = tree_is_lead(t) ? FRONT_CONNECT_MS : CONNECT_MS;

    return t->config.lease_ms < max_ms ? t->config.lease_ms : max_ms;
}

static void on_lost_timer(uv_timer_t *timer);

static void expect_back(struct tree *t, uint32_t rank, uint64_t ms,
                        uint64_t word_ms, const char *why)
{
    struct below *b = &t->below[rank];
    uint64_t due = tree_now_ms(t) + ms;

    if (b->lost || (b->due_ms && b->due_ms <= due)) {
        return;
    }
    b->due_ms = due;
    b->quiet_at_ms = word_ms;
    b->dead = false;
    str_copy(b->why, sizeof(b->why), why);
    if (!uv_is_active((uv_handle_t *)t->lost) ||
        uv_timer_get_due_in(t->lost) > ms) {
        uv_timer_start(t->lost, on_lost_timer, ms, 0);
    }
}

static struct tree_loss loss_of(const struct tree *t, uint32_t rank)
{
    const struct below *b = &t->below[rank];
    struct tree_loss loss = {.dead = b->dead,
                             .quiet_ms = tree_now_ms(t) - b->quiet_at_ms};

    str_copy(loss.why, sizeof(loss.why), b->why);
    return loss;
}

void tree_send_lost(struct tree *t, uint32_t rank)
{
    struct tree_loss loss = loss_of(t, rank);
    _buf_ struct buf bytes = {0};
    _buf_ struct buf b = {0};

    tree_loss_encode(&loss, &bytes);
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, bytes.data, bytes.len);
    tree_send_up(t, TREE_LOST, &b);
}

void tree_pass_here(struct tree *t, uint32_t rank)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_here(t->config.ctx, rank);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, NULL, 0);
    tree_send_up(t, TREE_HERE, &b);
}

/* The lead waits a little before it believes it: who reconnects to another
 * parent is not lost. */
void tree_pass_lost(struct tree *t, uint32_t rank, uint32_t via,
                    const struct tree_loss *loss)
{
    struct below *b = &t->below[rank];
    uint64_t now = tree_now_ms(t);

    if (b->via != NO_RANK && b->via != via) {
        return; /* it has found another way here */
    }
    expect_back(t, rank, tree_is_lead(t) && !loss->dead ? RETURN_MS : 0,
                now > loss->quiet_ms ? now - loss->quiet_ms : 0, loss->why);
    if (loss->dead && b->due_ms) {
        b->dead = true;
        tree_give_up(t, rank);
    }
}

/* All that spoke through this child have to find another way. The time for that
 * is what it takes to see that a parent is silent, and to dial past it. */
void tree_child_lost(struct tree *t, const struct child *c, uint64_t return_ms,
                     const char *why)
{
    uint32_t child = c->rank;

    if (t->below[child].via == NO_RANK || t->below[child].via == child) {
        expect_back(t, child, return_ms, c->word_ms, why);
    }
    for (uint32_t i = 0; i < t->n_below; i++) {
        if (i != child && t->below[i].via == child) {
            expect_back(t, i, t->config.lease_ms + 2 * tree_connect_ms(t),
                        c->word_ms, "its parent in the tree was lost, and it "
                        "found no other");
        }
    }
}

void tree_pass_event(struct tree *t, uint32_t rank, const void *json,
                     size_t len)
{
    _buf_ struct buf b = {0};

    if (tree_is_lead(t)) {
        t->ops.on_event(t->config.ctx, rank, json, len);
        return;
    }
    wire_put_u32(&b, rank);
    wire_put_bytes(&b, json, len);
    tree_send_up(t, TREE_EVENT, &b);
}

void tree_event(struct tree *t, const void *json, size_t len)
{
    tree_pass_event(t, t->config.rank, json, len);
}

void tree_tell_front(struct tree *t, enum tree_type type, const struct buf *b)
{
    if (tree_is_lead(t)) {
        tree_send_up(t, type, b);
    }
}

static void on_silent_timer(uv_timer_t *timer);

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
        tree_child_lost(t, c, RETURN_MS, why);
        tree_remove_child(c);
    }
    if (soonest < tree_beat_ms(t)) {
        uv_timer_start(t->silent, on_silent_timer, soonest, 0);
    }
}

static void on_silent_timer(uv_timer_t *timer)
{
    drop_silent_children(timer->data);
}

void tree_give_up(struct tree *t, uint32_t rank)
{
    struct tree_loss loss = loss_of(t, rank);
    struct below *b = &t->below[rank];

    b->due_ms = 0;
    b->lost = true;
    if (tree_is_lead(t)) {
        t->ops.on_lost(t->config.ctx, rank, &loss);
    } else {
        tree_send_lost(t, rank);
    }
    if (loss.dead && t->ops.on_dead) {
        t->ops.on_dead(t->config.ctx, rank);
    }
    buf_clear(&b->follow);
    if (t->ops.on_unfollow) {
        t->ops.on_unfollow(t->config.ctx, rank);
    }
}

void tree_is_dead(struct tree *t, uint32_t rank)
{
    if (t->below[rank].due_ms) {
        t->below[rank].dead = true;
        tree_give_up(t, rank);
    } else if (!t->below[rank].dead) {
        t->below[rank].dead = true;
        if (t->ops.on_dead) {
            t->ops.on_dead(t->config.ctx, rank);
        }
    }
}

void tree_tell_top(struct tree *t)
{
    if (t->ops.on_top) {
        t->ops.on_top(t->config.ctx, true);
    }
    for (uint32_t i = 0; t->ops.on_follow && i < t->n_below; i++) {
        const struct buf *follow = &t->below[i].follow;

        if (follow->len && !t->below[i].lost) {
            t->ops.on_follow(t->config.ctx, follow->data, follow->len);
        }
    }
}

/* Gives up those who did not come back in time. */
static void give_up_lost(struct tree *t)
{
    uint64_t now = tree_now_ms(t), next = UINT64_MAX;

    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        uint64_t due = t->below[rank].due_ms;

        if (due && due <= now) {
            tree_give_up(t, rank);
        } else if (due) {
            next = due < next ? due : next;
        }
    }
    if (next != UINT64_MAX) {
        uv_timer_start(t->lost, on_lost_timer, next - now, 0);
    }
}

static void on_lost_timer(uv_timer_t *timer)
{
    give_up_lost(timer->data);
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

static void on_beat(uv_timer_t *timer)
{
    struct tree *t = timer->data;

    drop_silent_children(t);
    if (parent_is_silent(t)) {
        tree_uplink_gone(t, "nothing heard from the parent");
    } else if (parent_is_behind(t)) {
        tree_uplink_gone(t, "the parent follows a lead of before");
    } else if (t->up_ready) {
        tree_beat_up(t);
    }
    if (tree_is_lead(t)) {
        tree_tell_seen(t);
    }
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

static void close_timer(uv_timer_t *timer)
{
    if (timer) {
        uv_close((uv_handle_t *)timer, free_timer);
    }
}

static uv_timer_t *timer_create_on(struct tree *t)
{
    uv_timer_t *timer = calloc(1, sizeof(*timer));

    if (timer) {
        uv_timer_init(t->config.loop, timer);
        timer->data = t;
    }
    return timer;
}

static void forget_ways(struct tree *t, uint32_t from)
{
    for (uint32_t i = from; i < t->n_below; i++) {
        t->below[i].via = NO_RANK;
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
    t->beat = timer_create_on(t);
    t->retry = timer_create_on(t);
    t->lost = timer_create_on(t);
    t->silent = timer_create_on(t);
    if (!t->key || !t->below || !t->beat || !t->retry || !t->lost ||
        !t->silent || t->front_addrs.failed) {
        tree_close(t);
        return error_set(e, ENOMEM, "control tree");
    }
    forget_ways(t, 0);
    uv_timer_start(t->beat, on_beat, tree_beat_ms(t), tree_beat_ms(t));
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
    return 0;
}

/* All that is known here of those below, to the lead that this member is now. */
static void repeat_to_lead(struct tree *t)
{
    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        const struct below *b = &t->below[rank];
        struct tree_loss loss = loss_of(t, rank);

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
    t->is_finishing = false;
    tree_look_end(t);
    tree_seek_end(t);
    while (t->children) {
        tree_remove_child(t->children);
    }
    link_close(t->up);
    close_timer(t->beat);
    close_timer(t->retry);
    close_timer(t->lost);
    close_timer(t->silent);
    for (uint32_t i = 0; t->below && i < t->n_below; i++) {
        buf_release(&t->below[i].report);
        buf_release(&t->below[i].follow);
    }
    free(t->below);
    strlist_release(&t->front_addrs);
    buf_release(&t->config_data);
    buf_release(&t->order);
    buf_release(&t->waiting);
    key_drop(t->key);
    free(t);
}

void tree_set_lease(struct tree *t, uint64_t lease_ms)
{
    t->config.lease_ms = lease_ms;
    uv_timer_start(t->beat, on_beat, tree_beat_ms(t), tree_beat_ms(t));
}

bool tree_has_uplink(const struct tree *t)
{
    return t->up_ready;
}

uint64_t tree_front_gone_ms(const struct tree *t)
{
    return t->front_gone_at_ms ? tree_now_ms(t) - t->front_gone_at_ms : 0;
}
