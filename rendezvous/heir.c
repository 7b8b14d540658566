/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/heir_priv.h"

#include "base/str.h"
#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
    [HEIR_BOUND] = "bound", [HEIR_FREE] = "free",
    [HEIR_LEAD] = "lead", [HEIR_OUT] = "out",
};

const char *heir_state_name(const struct heir *h)
{
    return state_names[h->state];
}

const struct view *heir_view(const struct heir *h)
{
    return &h->view;
}

bool heir_is_lead(const struct heir *h)
{
    return h->state == HEIR_LEAD;
}

bool heir_is_free(const struct heir *h)
{
    return h->state == HEIR_FREE || h->state == HEIR_OUT;
}

uint64_t heir_seen_ms(const struct heir *h)
{
    return h->state == HEIR_LEAD ? h->now_ms : h->has_stamp ? h->stamp_ms : 0;
}

struct view_rule heir_rule(const struct heir *h)
{
    struct view_rule rule = h->config.rule;

    rule.node_of = h->node_of;
    return rule;
}

bool heir_is_rigid(const struct heir *h)
{
    struct view_rule rule = heir_rule(h);

    return view_rival_size(&rule, &h->view, h->dead) == VIEW_NO_SIDE;
}

uint64_t heir_word_age_ms(const struct heir *h, uint64_t now_ms)
{
    if (h->state != HEIR_LEAD) {
        return HEIR_NEVER;
    }
    if (heir_is_rigid(h) || MUTANT(111)) {
        return 0;
    }
    if (!h->has_word) {
        return HEIR_NEVER;
    }
    return now_ms > h->acked_ms ? now_ms - h->acked_ms : 0;
}

void heir_destroy(struct heir *h)
{
    if (h) {
        view_release(&h->view);
        view_release(&h->claim);
        free(h->node_of);
        free(h->camp);
        free(h->dead);
        free(h->in);
        free(h->n_procs);
        free(h);
    }
}

/* Room for n of them, the new ones zero; NULL: none, and `at` stays. */
static void *grow(void **at, uint32_t n_old, uint32_t n, size_t size)
{
    char *to = reallocarray(*at, n, size);

    if (to) {
        memset(to + n_old * size, 0, (n - n_old) * size);
        *at = to;
    }
    return to;
}

/* Views may have members that this agent has not been told of yet. */
static int make_room(struct heir *h, uint32_t n)
{
    uint32_t old = h->n_nodes;

    if (n <= old) {
        return 0;
    }
    if (n > ORDER_MAX_NODES ||
        !grow((void **)&h->camp, old, n, sizeof(*h->camp)) ||
        !grow((void **)&h->dead, old, n, sizeof(*h->dead)) ||
        !grow((void **)&h->in, old, n, sizeof(*h->in)) ||
        !grow((void **)&h->node_of, old, n, sizeof(*h->node_of))) {
        return -ENOMEM;
    }
    h->n_nodes = n;
    for (uint32_t i = old; i < n; i++) {
        h->node_of[i] = i;
    }
    return 0;
}

static int make_room_for(struct heir *h, const struct view *v)
{
    return make_room(h, v->n_nodes > v->lead ? v->n_nodes : v->lead + 1);
}

int heir_grow(struct heir *h, uint32_t n, const uint32_t *node_of)
{
    if (make_room(h, n) < 0) {
        return -ENOMEM;
    }
    h->n_known = n > h->n_known ? n : h->n_known;
    for (uint32_t i = 0; node_of && i < n; i++) {
        h->node_of[i] = node_of[i];
    }
    return 0;
}

int heir_create(const struct heir_config *config, uint64_t now_ms,
                struct heir **ret, struct error *e)
{
    _cleanup_(heir) struct heir *h = NULL;

    if (config->n_nodes < 1 || config->n_nodes > ORDER_MAX_NODES ||
        config->rank >= config->n_nodes) {
        return error_text(e, EINVAL, "heir %u of %u agents, expected 1 to %d",
                          config->rank, config->n_nodes, ORDER_MAX_NODES);
    }
    h = calloc(1, sizeof(*h));
    if (!h || heir_grow(h, config->n_nodes, config->rule.node_of) < 0) {
        return error_set(e, ENOMEM, "heir %u", config->rank);
    }
    h->config = *config;
    h->config.rule.node_of = NULL;
    h->now_ms = now_ms;
    h->word_ms = now_ms;
    *ret = take_ptr(&h);
    return 0;
}

/* What is known of the run ------------------------------------------------ */

void heir_learn(struct heir *h, uint64_t serial, uint32_t generation,
                const struct past *past)
{
    struct follow *k = &h->known;

    if (generation > k->generation) {
        k->generation = generation;
    }
    if (serial > k->order_serial) {
        k->order_serial = serial;
        k->past = *past;
        h->tells = true;
    }
}

void heir_learn_end(struct heir *h, uint8_t status, const char *reason)
{
    struct follow *k = &h->known;

    if (!k->has_verdict) {
        k->has_verdict = true;
        k->status = status;
        str_copy(k->reason, sizeof(k->reason), reason);
        h->tells = true;
    }
}

static int learn_order(struct heir *h, const struct order *o)
{
    uint16_t *n_procs = NULL;

    if (o->step == ORDER_RUN && o->generation > h->n_procs_of) {
        n_procs = calloc(o->n_nodes, sizeof(*n_procs));
        if (!n_procs) {
            return -ENOMEM;
        }
        memcpy(n_procs, o->n_procs, o->n_nodes * sizeof(*n_procs));
        free(h->n_procs);
        h->n_procs = n_procs;
        h->n_procs_len = o->n_nodes;
        h->n_procs_of = o->generation;
    }
    heir_learn(h, o->serial, o->generation, &o->past);
    if (o->step >= ORDER_END) {
        h->member_has_end = true;
        heir_learn_end(h, o->status, o->reason);
    }
    return 0;
}

/* Bound and free ---------------------------------------------------------- */

static void promise(struct heir *h, uint32_t floor, struct heir_actions *ret)
{
    h->floor = floor;
    ret->floor = floor;
    ret->heard_ms = h->has_heard ? h->heard_ms : HEIR_NEVER;
}

static void leave(struct heir *h, struct heir_actions *ret)
{
    h->state = HEIR_OUT;
    h->claiming = false;
    ret->leave = h->why;
}

static uint64_t lease_end_ms(const struct heir *h)
{
    return heir_later(h->word_ms, h->view.number ? h->config.lease_ms
                                  : h->config.join_ms > h->config.lease_ms
                                      ? h->config.join_ms
                                      : h->config.lease_ms);
}

static void word_lease(struct heir *h)
{
    snprintf(h->why, sizeof(h->why), "no word from the lead for %llu s",
             (unsigned long long)(h->now_ms - h->word_ms) / 1000);
}

static void become_free(struct heir *h, struct heir_actions *ret)
{
    h->state = HEIR_FREE;
    h->free_ms = h->now_ms;
    h->tells = true;
    promise(h, h->view.number + 1, ret);
}

/* The lease ends; or the lead has, and somebody can follow it. */
static void check_bond(struct heir *h, struct heir_actions *ret)
{
    bool is_over = h->now_ms >= lease_end_ms(h);

    if (h->state != HEIR_BOUND ||
        (!is_over && !(h->view.number && h->dead[h->view.lead]))) {
        return;
    }
    if (h->view.number && !heir_is_rigid(h)) {
        become_free(h, ret);
    } else if (is_over) {
        word_lease(h);
        leave(h, ret);
    }
}

/* A newer view is there, and this agent obeys it. */
static void bind(struct heir *h, struct heir_actions *ret)
{
    h->state = h->view.lead == h->config.rank ? HEIR_LEAD : HEIR_BOUND;
    h->has_stamp = false;
    h->has_word = false;
    h->word_ms = h->now_ms; /* this agent's patience; its member's lease waits
                               for a word */
    h->claiming = false;
    promise(h, h->view.number, ret);
}

static int on_order(struct heir *h, const struct order *o,
                    struct heir_actions *ret)
{
    const struct view *v = &o->view;
    bool is_newer = v->number > h->view.number;

    if (h->state == HEIR_OUT || v->number < h->floor ||
        v->number < h->view.number ||
        (!is_newer && v->lead != h->view.lead && v->number) ||
        (h->state == HEIR_LEAD && v->lead != h->config.rank && !is_newer)) {
        return 0;
    }
    if (make_room_for(h, v) < 0 || learn_order(h, o) < 0) {
        return -ENOMEM;
    }
    if (is_newer) {
        ret->quit = h->state == HEIR_LEAD && v->lead != h->config.rank;
        if (view_copy(&h->view, v) < 0) {
            return -ENOMEM;
        }
        bind(h, ret);
    } else if (v->shared != h->view.shared) {
        h->view.shared = v->shared;
    }
    ret->obey = true;
    return 0;
}

static void on_word(struct heir *h, const struct heir_event *event,
                    struct heir_actions *ret)
{
    uint64_t at_ms = h->now_ms > event->age_ms ? h->now_ms - event->age_ms : 0;

    if (event->view != h->view.number || heir_is_free(h) ||
        (h->state == HEIR_BOUND && event->view < h->floor)) {
        return;
    }
    if (!h->has_stamp || event->stamp_ms > h->stamp_ms) {
        h->has_stamp = true;
        h->stamp_ms = event->stamp_ms;
        h->has_heard = true;
        h->heard_ms = h->now_ms;
    }
    if (event->age_ms == HEIR_NEVER) {
        return;
    }
    if (h->view.number && at_ms > h->word_ms) {
        h->word_ms = at_ms;
    }
    ret->obey = true;
}

static void on_seen(struct heir *h, const struct heir_event *event)
{
    struct view_rule rule = heir_rule(h);
    uint64_t n_astray = (uint64_t)event->seen.n_suspect + event->n_silent;
    uint64_t acked_ms;

    if (h->state != HEIR_LEAD) {
        return;
    }
    if (n_astray < view_rival_size(&rule, &h->view, h->dead)) {
        acked_ms = event->seen.live_ms;
    } else if (!event->n_silent) {
        acked_ms = event->seen.all_ms;
    } else {
        return;
    }
    if (acked_ms && acked_ms != HEIR_NEVER &&
        (!h->has_word || acked_ms > h->acked_ms)) {
        h->has_word = true;
        h->acked_ms = acked_ms;
    }
}

static void on_dead(struct heir *h, uint32_t rank)
{
    h->dead[rank] = true;
    h->camp[rank].follows = false;
}

/* Answers ----------------------------------------------------------------- */

static void take_end(struct heir *h, const struct view *found,
                     struct heir_actions *ret)
{
    (void)view_copy(&h->view, found); /* only the verdict matters now */
    heir_learn_end(h, found->status, found->reason);
    if (!h->member_has_end) {
        h->end = (struct order){
            .serial = ((uint64_t)found->number << ORDER_SERIAL_BITS) + 1,
            .generation = h->known.generation, .step = ORDER_END,
            .stop = ORDER_STOP_FORCE, .status = found->status,
            .view = h->view, /* borrowed */
        };
        str_copy(h->end.reason, sizeof(h->end.reason), found->reason);
        ret->order = &h->end;
        h->member_has_end = true;
    }
    str_copy(h->why, sizeof(h->why), "the run has ended");
    leave(h, ret);
}

/* The view that this agent wanted is another's. */
static int on_found(struct heir *h, const struct view *found,
                    struct heir_actions *ret)
{
    if (!found || found->number <= h->view.number) {
        return -EPROTO;
    }
    if (make_room_for(h, found) < 0) {
        return -ENOMEM;
    }
    if (found->has_verdict) {
        take_end(h, found, ret);
        return 0;
    }
    if (!view_has(found, h->config.rank) && !MUTANT(113)) {
        snprintf(h->why, sizeof(h->why), "the others go on without this node "
                 "(view %u, led by node %u)", found->number, found->lead);
        leave(h, ret);
        return 0;
    }
    if (view_copy(&h->view, found) < 0) {
        return -ENOMEM;
    }
    h->state = HEIR_BOUND; /* also to itself, should it have been the one */
    h->has_stamp = false;
    h->word_ms = h->now_ms;
    h->has_heard = true;
    h->heard_ms = h->now_ms; /* its lead may be heard of by others */
    promise(h, found->number, ret);
    ret->seek = found->lead;
    return 0;
}

static int on_claimed(struct heir *h, const struct heir_event *event,
                      struct heir_actions *ret)
{
    if (!h->claiming) {
        return 0;
    }
    h->claiming = false;
    switch (event->outcome) {
    case HEIR_WON:
        heir_win(h, ret);
        return 0;
    case HEIR_LOST:
        if (MUTANT(114)) {
            heir_win(h, ret);
            return 0;
        }
        return on_found(h, event->found, ret);
    case HEIR_UNKNOWN:
        if (MUTANT(115)) {
            heir_win(h, ret);
            return 0;
        }
        h->claiming = true; /* it may be ours: the same again */
        ret->claim = &h->claim;
        return 0;
    }
    return -EPROTO;
}

static int on_deposed(struct heir *h, const struct view *found,
                      struct heir_actions *ret)
{
    if (h->state != HEIR_LEAD) {
        return 0;
    }
    ret->quit = true;
    h->state = HEIR_BOUND;
    return on_found(h, found, ret);
}

/* Stepping ---------------------------------------------------------------- */

static int on_event(struct heir *h, const struct heir_event *event,
                    struct heir_actions *ret)
{
    switch (event->type) {
    case HEIR_TICK:
        return 0;
    case HEIR_ORDER:
        return on_order(h, event->order, ret);
    case HEIR_WORD:
        on_word(h, event, ret);
        return 0;
    case HEIR_DEAD:
        if (event->rank >= h->n_nodes || event->rank == h->config.rank) {
            return -EPROTO;
        }
        on_dead(h, event->rank);
        return 0;
    case HEIR_TOP:
    case HEIR_NOT_TOP:
        h->is_top = event->type == HEIR_TOP;
        h->tells = h->tells || !h->is_top;
        return 0;
    case HEIR_FOLLOW:
        return heir_take_follow(h, event->follow);
    case HEIR_UNFOLLOW:
        if (event->rank >= h->n_nodes) {
            return -EPROTO;
        }
        h->camp[event->rank].follows = false;
        return 0;
    case HEIR_CLAIMED:
        return on_claimed(h, event, ret);
    case HEIR_DEPOSED:
        return on_deposed(h, event->found, ret);
    case HEIR_SEEN:
        on_seen(h, event);
        return 0;
    }
    return -EPROTO;
}

/* How long a free agent stays: with a verdict for somebody to see to it, and, where
 * there is no file to read it in, for others to hear it from it; else for a view
 * that binds it. */
static uint64_t stay_end_ms(const struct heir *h)
{
    uint64_t ms = !h->known.has_verdict ? h->config.wait_ms
                  : h->view.shared      ? 2 * h->config.lease_ms
                                        : h->config.lease_ms;

    return heir_later(h->free_ms, ms);
}

static void act_free(struct heir *h, struct heir_actions *ret)
{
    if (h->now_ms >= stay_end_ms(h)) {
        if (h->known.has_verdict) {
            str_copy(h->why, sizeof(h->why), "the lead is gone");
        } else {
            snprintf(h->why, sizeof(h->why), "no lead was found for %llu s",
                     (unsigned long long)(h->now_ms - h->word_ms) / 1000);
        }
        leave(h, ret);
        return;
    }
    heir_consider(h, ret);
}

static void tell(struct heir *h, struct heir_actions *ret)
{
    if (h->state != HEIR_FREE || !h->tells) {
        return;
    }
    h->tells = false;
    h->follow = h->known;
    h->follow.rank = h->config.rank;
    h->follow.serial = ++h->follow_serial;
    h->follow.view = h->view.number;
    h->follow.heard_ago_ms = h->has_heard ? h->now_ms - h->heard_ms
                                          : HEIR_NEVER;
    ret->follow = &h->follow;
}

static uint64_t next_wake(const struct heir *h)
{
    uint64_t stay_ms = stay_end_ms(h), settled_ms = heir_settled_ms(h);

    switch (h->state) {
    case HEIR_BOUND:
        return lease_end_ms(h);
    case HEIR_FREE:
        return settled_ms > h->now_ms && settled_ms < stay_ms ? settled_ms
                                                              : stay_ms;
    default:
        return HEIR_NEVER;
    }
}

int heir_step(struct heir *h, const struct heir_event *event,
              struct heir_actions *ret)
{
    int rc;

    *ret = (struct heir_actions){.seek = HEIR_NO_RANK, .wake_ms = HEIR_NEVER};
    if (event->now_ms > h->now_ms) {
        h->now_ms = event->now_ms;
    }
    if (!h->config.rule.on) {
        ret->obey = true;
        return 0;
    }
    check_bond(h, ret);
    rc = on_event(h, event, ret);
    check_bond(h, ret);
    if (h->state == HEIR_FREE) {
        act_free(h, ret);
    }
    tell(h, ret);
    ret->wake_ms = next_wake(h);
    return rc;
}
