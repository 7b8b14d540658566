/* SPDX-License-Identifier: Apache-2.0 */
/* What the tree brings: orders, words, who is dead, and who follows. */
#include <config.h>

#include "launcher/agent_heir_priv.h"

#include "base/cleanup.h"

#include <stdlib.h>

bool agent_heir_own_order(struct agent *a, const struct order *order)
{
    struct heir_event event = {.type = HEIR_ORDER, .order = order};

    if (a->heir && !agent_heir_step(a->heir, &event)) {
        return false;
    }
    a->order_serial = order->serial;
    agent_member_order(a, order);
    return true;
}

/* Those below get it also where this agent does not obey: they may. */
bool agent_heir_order(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;
    _order_ struct order order = {0};
    struct heir_event event = {.type = HEIR_ORDER, .order = &order};
    struct error e = {0};
    bool is_newer;

    if (order_decode(data, len, &order, &e) < 0) {
        agent_log(a, "an order does not parse: %s", e.text);
        return false;
    }
    is_newer = order.serial > a->order_serial;
    a->order_serial = is_newer ? order.serial : a->order_serial;
    if (!a->heir || agent_heir_step(a->heir, &event)) {
        agent_member_order(a, &order);
    }
    return is_newer;
}

void agent_heir_word(void *ctx, const struct tree_word *word)
{
    struct agent *a = ctx;
    struct member_event event = {.type = MEMBER_WORD, .age_ms = word->age_ms};
    struct heir_event heard = {.type = HEIR_WORD, .view = word->view,
                               .stamp_ms = word->stamp_ms,
                               .age_ms = word->age_ms};
    bool obey = !a->heir || agent_heir_step(a->heir, &heard);

    if (obey && word->age_ms != HEIR_NEVER) {
        agent_member_step(a, &event);
    }
}

void agent_heir_own_seen(void *ctx, struct tree_seen *ret)
{
    const struct agent *a = ctx;

    if (a->heir) {
        ret->view = heir_view(a->heir->core)->number;
        ret->all_ms = heir_seen_ms(a->heir->core);
        ret->n_suspect = heir_is_free(a->heir->core);
    }
}

static void step_rank(struct agent *a, enum heir_event_type type,
                      uint32_t rank)
{
    struct heir_event event = {.type = type, .rank = rank};

    if (a->heir) {
        agent_heir_step(a->heir, &event);
    }
}

void agent_heir_top(void *ctx, bool top)
{
    step_rank(ctx, top ? HEIR_TOP : HEIR_NOT_TOP, 0);
}

void agent_heir_dead(void *ctx, uint32_t rank)
{
    step_rank(ctx, HEIR_DEAD, rank);
}

void agent_heir_unfollow(void *ctx, uint32_t rank)
{
    step_rank(ctx, HEIR_UNFOLLOW, rank);
}

void agent_heir_follow(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;
    struct follow *f = calloc(1, sizeof(*f));
    struct heir_event event = {.type = HEIR_FOLLOW, .follow = f};

    if (a->heir && f && follow_decode(data, len, f, NULL) == 0 &&
        f->rank != a->rank) {
        agent_heir_step(a->heir, &event);
    }
    free(f);
}

static void keep_good(struct agent_heir *h, uint64_t age_ms)
{
    uint64_t now = uv_now(&h->agent->loop);

    if (age_ms != HEIR_NEVER && now - age_ms > h->good_ms) {
        h->good_ms = now - age_ms;
    }
}

/* The lead's own member has a word when the others have given it one. */
void agent_heir_seen(void *ctx, const struct tree_seen *seen)
{
    struct agent *a = ctx;
    struct tree_word own = {.view = seen->view,
                            .stamp_ms = uv_now(&a->loop)};
    struct heir_event saw = {.type = HEIR_SEEN,
                             .rivals = agent_lead_rivals(a),
                             .seen = {.all_ms = seen->all_ms,
                                      .live_ms = seen->live_ms,
                                      .n_suspect = seen->n_suspect,
                                      .n_quiet = seen->n_quiet}};

    if (a->heir) {
        agent_lead_quiet(a, seen->n_quiet);
        agent_heir_step(a->heir, &saw);
        own.age_ms = heir_word_age_ms(a->heir->core, uv_now(&a->loop));
        keep_good(a->heir, own.age_ms);
        agent_lead_good(a);
    }
    agent_heir_word(a, &own);
}

uint64_t agent_heir_word_age(void *ctx)
{
    const struct agent *a = ctx;

    return a->heir ? heir_word_age_ms(a->heir->core, uv_now(&a->loop)) : 0;
}

uint64_t agent_heir_good_ms(const struct agent *a)
{
    return a->heir && a->heir->good_ms ? a->heir->good_ms + agent_lease_ms(a)
                                       : UINT64_MAX;
}

bool agent_heir_in_office(const struct agent *a)
{
    return !a->heir || heir_is_in_office(a->heir->core, uv_now(&a->loop));
}

bool agent_heir_has_hold(const struct agent *a)
{
    return !a->heir || heir_has_hold(a->heir->core, uv_now(&a->loop));
}
