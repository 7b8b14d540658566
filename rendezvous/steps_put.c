/* SPDX-License-Identifier: Apache-2.0 */
/* Records of begins and events. What the core says to them: steps_outcome.c. */
#include <config.h>

#include "rendezvous/steps_priv.h"

#include <string.h>

void steps_put_head(struct buf *b, uint32_t rank)
{
    buf_append(b, STEPS_MAGIC, STEPS_MAGIC_BYTES);
    wire_put_u32(b, STEPS_VERSION);
    wire_put_u32(b, rank);
}

size_t steps_begin(struct buf *b, enum steps_kind kind)
{
    size_t at = b->len;

    wire_put_u32(b, 0);
    wire_put_u8(b, (uint8_t)kind);
    return at;
}

void steps_end(struct buf *b, size_t at)
{
    uint32_t len = (uint32_t)(b->len - at - 4);

    if (b->failed) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        b->data[at + (size_t)i] = (char)(len >> (24 - 8 * i));
    }
}

void steps_put_cut(struct buf *b)
{
    steps_end(b, steps_begin(b, STEPS_CUT));
}

/* --- parts --- */

void steps_put_order(struct buf *b, const struct order *o)
{
    _buf_ struct buf bytes = {0};

    order_encode(o, &bytes);
    b->failed = b->failed || bytes.failed;
    wire_put_bytes(b, bytes.data, bytes.len);
}

void steps_put_view(struct buf *b, const struct view *v)
{
    view_put(b, v);
    wire_put_u8(b, v->has_verdict);
    wire_put_u8(b, v->status);
    wire_put_str(b, v->reason);
}

void steps_put_failure(struct buf *b, const struct failure *f)
{
    failure_put(b, f);
}

static void put_ranks(struct buf *b, uint32_t n, const uint32_t *ranks)
{
    wire_put_u8(b, ranks != NULL);
    for (uint32_t i = 0; ranks && i < n; i++) {
        wire_put_u32(b, ranks[i]);
    }
}

static void put_names(struct buf *b, uint32_t n, const char *const *names)
{
    wire_put_u8(b, names != NULL);
    for (uint32_t i = 0; names && i < n; i++) {
        wire_put_str(b, names[i]);
    }
}

void steps_put_heritage(struct buf *b, const struct heritage *h)
{
    steps_put_view(b, &h->view);
    wire_put_u32(b, h->generation);
    past_put(b, &h->past);
    wire_put_u8(b, h->n_procs != NULL);
    wire_put_u32(b, h->n_procs ? h->n_procs_len : 0);
    for (uint32_t i = 0; h->n_procs && i < h->n_procs_len; i++) {
        wire_put_u16(b, h->n_procs[i]);
    }
    wire_put_u32(b, h->n_nodes);
    for (uint32_t i = 0; i < h->n_nodes; i++) {
        wire_put_u8(b, (uint8_t)(h->follows[i] | h->dead[i] << 1));
    }
    wire_put_u64(b, h->clear_ms);
    wire_put_u8(b, h->has_verdict);
    wire_put_u8(b, h->is_proposed);
    wire_put_u8(b, h->status);
    wire_put_str(b, h->reason);
}

/* --- begins --- */

void steps_put_member_create(struct buf *b, const struct member_config *c,
                             uint64_t now_ms)
{
    size_t at = steps_begin(b, STEPS_MEMBER_CREATE);

    wire_put_u64(b, now_ms);
    wire_put_u32(b, c->rank);
    wire_put_u16(b, c->n_procs);
    wire_put_str(b, c->host);
    wire_put_u64(b, c->lease_ms);
    wire_put_u8(b, c->waits);
    wire_put_u64(b, c->join_ms);
    wire_put_u32(b, c->linger_ms);
    wire_put_u32(b, c->margin_ms);
    steps_end(b, at);
}

void steps_put_heir_create(struct buf *b, const struct heir_config *c,
                           uint64_t now_ms)
{
    size_t at = steps_begin(b, STEPS_HEIR_CREATE);

    wire_put_u64(b, now_ms);
    wire_put_u32(b, c->rank);
    wire_put_u32(b, c->n_nodes);
    wire_put_u8(b, c->rule.on);
    wire_put_u32(b, c->rule.min_nodes);
    put_ranks(b, c->n_nodes, c->rule.node_of);
    wire_put_u64(b, c->lease_ms);
    wire_put_u64(b, c->join_ms);
    wire_put_u64(b, c->slack_ms);
    wire_put_u64(b, c->settle_ms);
    wire_put_u64(b, c->wait_ms);
    steps_end(b, at);
}

static void put_policy(struct buf *b, const struct restart_policy *p)
{
    wire_put_u8(b, (uint8_t)p->kind);
    wire_put_u32(b, p->max);
    wire_put_u32(b, p->max_per_node);
    wire_put_u64(b, p->backoff_min_ms);
    wire_put_u64(b, p->backoff_max_ms);
    buf_append(b, p->retryable, sizeof(p->retryable));
}

void steps_put_lead_create(struct buf *b, const struct lead_config *c,
                           uint64_t now_ms)
{
    size_t at = steps_begin(b, STEPS_LEAD_CREATE);

    wire_put_u64(b, now_ms);
    wire_put_u32(b, c->n_nodes);
    wire_put_u32(b, c->rank);
    wire_put_u8(b, c->rule.on);
    wire_put_u32(b, c->rule.min_nodes);
    wire_put_u64(b, c->claim_ms);
    put_names(b, c->n_nodes, c->names);
    put_ranks(b, c->n_nodes, c->node_of);
    wire_put_u32(b, c->min_nodes);
    wire_put_u32(b, c->max_nodes);
    wire_put_u32(b, c->want_nodes);
    wire_put_u32(b, c->max_losses);
    wire_put_u64(b, c->grow_interval_ms);
    wire_put_u64(b, c->lease_ms);
    wire_put_u64(b, c->lease_slack_ms);
    put_policy(b, &c->restart);
    wire_put_u32(b, c->n_restarts);
    wire_put_u32(b, c->first_generation);
    wire_put_str(b, c->resume_path);
    wire_put_i64(b, c->resume_step);
    wire_put_u32(b, c->avoid_after);
    avoid_put(b, &c->avoid);
    wire_put_u64(b, c->gang_timeout_ms);
    wire_put_u32(b, c->grace_ms);
    wire_put_u32(b, c->restart_grace_ms);
    wire_put_u32(b, c->margin_ms);
    wire_put_u64(b, c->deadline_ms);
    wire_put_u8(b, c->heritage != NULL);
    if (c->heritage) {
        steps_put_heritage(b, c->heritage);
    }
    steps_end(b, at);
}

void steps_put_heir_grow(struct buf *b, uint32_t n, const uint32_t *node_of)
{
    size_t at = steps_begin(b, STEPS_HEIR_GROW);

    wire_put_u32(b, n);
    put_ranks(b, n, node_of);
    steps_end(b, at);
}

void steps_put_lead_grow(struct buf *b, uint32_t n, const char *const *names,
                         const uint32_t *node_of)
{
    size_t at = steps_begin(b, STEPS_LEAD_GROW);

    wire_put_u32(b, n);
    put_names(b, n, names);
    put_ranks(b, n, node_of);
    steps_end(b, at);
}

/* --- events --- */

void steps_put_member_event(struct buf *b, const struct member_event *event)
{
    unsigned has = (event->order ? STEPS_HAS_ORDER : 0) |
                   (event->failure ? STEPS_HAS_FAILURE : 0) |
                   (event->text ? STEPS_HAS_TEXT : 0) |
                   (event->addr ? STEPS_HAS_ADDR : 0);

    wire_put_u8(b, (uint8_t)event->type);
    wire_put_u8(b, (uint8_t)has);
    wire_put_u64(b, event->now_ms);
    wire_put_u64(b, event->age_ms);
    wire_put_u32(b, event->generation);
    wire_put_u16(b, event->port);
    wire_put_i64(b, event->step);
    wire_put_u32(b, event->floor);
    wire_put_u64(b, event->heard_ms);
    if (event->order) {
        steps_put_order(b, event->order);
    }
    if (event->failure) {
        steps_put_failure(b, event->failure);
    }
    if (event->text) {
        wire_put_str(b, event->text);
    }
    if (event->addr) {
        wire_put_str(b, event->addr);
    }
}

void steps_put_heir_event(struct buf *b, const struct heir_event *event)
{
    unsigned has = (event->order ? STEPS_HAS_ORDER : 0) |
                   (event->follow ? STEPS_HAS_FOLLOW : 0) |
                   (event->found ? STEPS_HAS_FOUND : 0);
    _buf_ struct buf follow = {0};

    wire_put_u8(b, (uint8_t)event->type);
    wire_put_u8(b, (uint8_t)has);
    wire_put_u64(b, event->now_ms);
    wire_put_u32(b, event->rank);
    wire_put_u32(b, event->view);
    wire_put_u64(b, event->stamp_ms);
    wire_put_u64(b, event->age_ms);
    wire_put_u8(b, (uint8_t)event->outcome);
    wire_put_u64(b, event->seen.all_ms);
    wire_put_u64(b, event->seen.live_ms);
    wire_put_u32(b, event->seen.n_suspect);
    wire_put_u32(b, event->seen.n_quiet);
    wire_put_u32(b, event->rivals.n_silent);
    wire_put_u32(b, event->rivals.size);
    if (event->order) {
        steps_put_order(b, event->order);
    }
    if (event->follow) {
        follow_encode(event->follow, &follow);
        b->failed = b->failed || follow.failed;
        wire_put_bytes(b, follow.data, follow.len);
    }
    if (event->found) {
        steps_put_view(b, event->found);
    }
}

void steps_put_lead_event(struct buf *b, const struct lead_event *event)
{
    unsigned has = (event->report ? STEPS_HAS_REPORT : 0) |
                   (event->text ? STEPS_HAS_TEXT : 0) | (event->why ? STEPS_HAS_WHY : 0) |
                   (event->generation || event->is_later ? STEPS_HAS_SAVED : 0);
    _buf_ struct buf report = {0};

    wire_put_u8(b, (uint8_t)event->type);
    wire_put_u8(b, (uint8_t)has);
    wire_put_u64(b, event->now_ms);
    wire_put_u32(b, event->rank);
    wire_put_u8(b, (uint8_t)event->stop);
    wire_put_u8(b, event->force);
    wire_put_i64(b, event->step);
    wire_put_u32(b, event->n_nodes);
    wire_put_u8(b, event->dead);
    wire_put_u8(b, (uint8_t)(event->adrift | event->loose << 1));
    wire_put_u8(b, (uint8_t)event->outcome);
    wire_put_u32(b, event->n_quiet);
    wire_put_u64(b, event->quiet_ms);
    if (event->report) {
        report_encode(event->report, &report);
        b->failed = b->failed || report.failed;
        wire_put_bytes(b, report.data, report.len);
    }
    if (event->text) {
        wire_put_str(b, event->text);
    }
    if (event->why) {
        wire_put_u8(b, (uint8_t)event->why);
    }
    if (has & STEPS_HAS_SAVED) {
        wire_put_u32(b, event->generation);
        wire_put_u8(b, event->is_later);
    }
}

/* --- steps --- */

/* With the length of the outcome before it. */
static void put_outcome(struct buf *b, const struct buf *outcome)
{
    b->failed = b->failed || outcome->failed;
    wire_put_bytes(b, outcome->data, outcome->len);
}

void steps_put_member(struct buf *b, const struct member *m,
                      const struct member_event *event, int rc,
                      const struct member_actions *do_)
{
    size_t at = steps_begin(b, STEPS_MEMBER);
    _buf_ struct buf outcome = {0};

    steps_put_member_event(b, event);
    steps_put_member_outcome(&outcome, m, rc, do_);
    put_outcome(b, &outcome);
    steps_end(b, at);
}

void steps_put_heir(struct buf *b, const struct heir *h,
                    const struct heir_event *event, int rc,
                    const struct heir_actions *do_)
{
    size_t at = steps_begin(b, STEPS_HEIR);
    _buf_ struct buf outcome = {0};

    steps_put_heir_event(b, event);
    steps_put_heir_outcome(&outcome, h, rc, do_);
    put_outcome(b, &outcome);
    steps_end(b, at);
}

void steps_put_lead(struct buf *b, const struct lead *l,
                    const struct lead_event *event, int rc,
                    const struct lead_actions *do_)
{
    size_t at = steps_begin(b, STEPS_LEAD);
    _buf_ struct buf outcome = {0};

    steps_put_lead_event(b, event);
    steps_put_lead_outcome(&outcome, l, rc, do_);
    put_outcome(b, &outcome);
    steps_end(b, at);
}

void steps_put_again(struct buf *b, const struct step *s)
{
    struct buf outcome = {.data = (char *)s->outcome, .len = s->outcome_len};
    size_t at;

    switch (s->kind) {
    case STEPS_MEMBER_CREATE:
        steps_put_member_create(b, &s->member_config, s->now_ms);
        return;
    case STEPS_HEIR_CREATE:
        steps_put_heir_create(b, &s->heir_config, s->now_ms);
        return;
    case STEPS_LEAD_CREATE:
        steps_put_lead_create(b, &s->lead_config, s->now_ms);
        return;
    case STEPS_HEIR_GROW:
        steps_put_heir_grow(b, s->n_nodes, s->node_of);
        return;
    case STEPS_LEAD_GROW:
        steps_put_lead_grow(b, s->n_nodes, (const char *const *)s->names,
                            s->node_of);
        return;
    case STEPS_CUT:
        steps_put_cut(b);
        return;
    case STEPS_MEMBER:
    case STEPS_HEIR:
    case STEPS_LEAD:
        break;
    }
    at = steps_begin(b, s->kind);
    if (s->kind == STEPS_MEMBER) {
        steps_put_member_event(b, &s->member);
    } else if (s->kind == STEPS_HEIR) {
        steps_put_heir_event(b, &s->heir);
    } else {
        steps_put_lead_event(b, &s->lead);
    }
    put_outcome(b, &outcome);
    steps_end(b, at);
}
