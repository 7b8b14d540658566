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

/* Where a majority decides, our lead knows who of the dead were bound to it to the
 * end. */
uint32_t heir_rival_size(const struct heir *h)
{
    struct view_rule rule = heir_rule(h);

    if (h->known.has_verdict && rule.min_nodes) {
        rule.min_nodes = 1; /* who knows the end may write it down, alone */
    }
    return h->state == HEIR_LEAD && !h->view.shared
               ? h->rival_size
               : view_rival_size(&rule, &h->view, h->dead);
}

bool heir_is_rigid(const struct heir *h)
{
    return heir_rival_size(h) == VIEW_NO_SIDE;
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

bool heir_is_in_office(const struct heir *h, uint64_t now_ms)
{
    uint64_t age_ms = heir_word_age_ms(h, now_ms);

    if (MUTANT(125)) {
        return h->state == HEIR_LEAD;
    }
    return age_ms != HEIR_NEVER &&
           heir_later(age_ms, h->config.slack_ms) < h->config.lease_ms;
}

/* A lease begins with the word that was told, and not when it is acknowledged. */
bool heir_has_hold(const struct heir *h, uint64_t now_ms)
{
    uint64_t age_ms = now_ms > h->bound_ms ? now_ms - h->bound_ms : 0;

    return h->state == HEIR_LEAD &&
           (heir_is_rigid(h) ||
            heir_later(age_ms, h->config.slack_ms) < h->config.lease_ms);
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
        free(h->idle);
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
        !grow((void **)&h->idle, old, n, sizeof(*h->idle)) ||
        !grow((void **)&h->node_of, old, n, sizeof(*h->node_of))) {
        return -ENOMEM;
    }
    h->n_nodes = n;
    for (uint32_t i = old; i < n; i++) {
        h->node_of[i] = i;
    }
    return 0;
}

int heir_make_room_for(struct heir *h, const struct view *v)
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

/* Bound and free ---------------------------------------------------------- */

/* For a lead it stays a rival where it may have been one before it died; so for one
 * whose claim is not answered, should it win. */
static void on_dead(struct heir *h, uint32_t rank)
{
    struct camper *c = &h->camp[rank];

    c->follows = false;
    c->died_late = c->died_late || (h->claiming && !h->dead[rank]);
    if (h->state != HEIR_LEAD || heir_is_in_office(h, h->now_ms) ||
        MUTANT(118)) {
        h->dead[rank] = true;
    }
}

/* Stepping ---------------------------------------------------------------- */

static int on_event(struct heir *h, const struct heir_event *event,
                    struct heir_actions *ret)
{
    switch (event->type) {
    case HEIR_TICK:
        return 0;
    case HEIR_ORDER:
        return heir_on_order(h, event->order, ret);
    case HEIR_WORD:
        heir_on_word(h, event, ret);
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
        return heir_take_follow(h, event->follow, ret);
    case HEIR_UNFOLLOW:
        if (event->rank >= h->n_nodes) {
            return -EPROTO;
        }
        h->camp[event->rank].follows = false;
        return 0;
    case HEIR_CLAIMED:
        return heir_on_claimed(h, event, ret);
    case HEIR_DEPOSED:
        return heir_on_deposed(h, event->found, ret);
    case HEIR_SEEN:
        heir_on_seen(h, event);
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
        heir_leave(h, ret);
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
        return heir_lease_end_ms(h);
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
    heir_check_bond(h, ret);
    rc = on_event(h, event, ret);
    heir_check_bond(h, ret);
    if (h->state == HEIR_FREE) {
        act_free(h, ret);
    }
    tell(h, ret);
    ret->wake_ms = next_wake(h);
    return rc;
}
