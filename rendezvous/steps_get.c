/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads records. What a log says is not believed: enums are of those that are known,
 * what a type of event needs is there, and nothing is allocated that the record could
 * not fill.
 */
#include <config.h>

#include "rendezvous/steps_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int steps_open(const void *data, size_t len, struct steps_reader *ret,
               struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    uint32_t version;

    if (len < STEPS_HEAD_BYTES || memcmp(data, STEPS_MAGIC, STEPS_MAGIC_BYTES)) {
        return error_text(e, ERR_FORMAT, "this is no log of steps");
    }
    r.at = STEPS_MAGIC_BYTES;
    version = wire_get_u32(&r);
    if (version != STEPS_VERSION) {
        return error_text(e, ERR_VERSION, "a log of steps of version %u, "
                          "expected %d", version, STEPS_VERSION);
    }
    *ret = (struct steps_reader){.data = data, .len = len, .at = STEPS_HEAD_BYTES,
                                 .rank = wire_get_u32(&r)};
    return 0;
}

void step_release(struct step *s)
{
    order_release(&s->order);
    view_release(&s->found);
    view_release(&s->heritage.view);
    free(s->node_of);
    free(s->n_procs);
    free(s->follows);
    free(s->dead);
    for (uint32_t i = 0; s->names && i < s->n_names; i++) {
        free(s->names[i]);
    }
    free(s->names);
    free(s->text);
    free(s->addr);
    *s = (struct step){0};
}

/* --- parts --- */

static bool get_bool(struct wire_reader *r)
{
    uint8_t v = wire_get_u8(r);

    r->bad = r->bad || v > 1;
    return v == 1;
}

/* How sure of the others it was. */
static void get_hold(struct wire_reader *r, struct lead_event *event)
{
    uint8_t bits = wire_get_u8(r);

    r->bad = r->bad || bits > 3;
    event->adrift = bits & 1;
    event->loose = bits & 2;
}

/* At most `max`. */
static uint8_t get_enum(struct wire_reader *r, unsigned max)
{
    uint8_t v = wire_get_u8(r);

    r->bad = r->bad || v > max;
    return r->bad ? 0 : v;
}

/* A number of things of at least `size` bytes each. */
static uint32_t get_count(struct wire_reader *r, size_t size)
{
    uint32_t n = wire_get_u32(r);

    r->bad = r->bad || n > ORDER_MAX_NODES || n > (r->len - r->at) / size;
    return r->bad ? 0 : n;
}

static void *allocate(struct wire_reader *r, uint32_t n, size_t size)
{
    void *p = r->bad ? NULL : calloc(n + 1u, size);

    r->bad = r->bad || !p;
    return p;
}

static const char *get_text(struct wire_reader *r, char **to)
{
    *to = wire_dup_str(r, STEPS_MAX_TEXT);
    r->bad = r->bad || !*to;
    return *to;
}

/* For each of `n` the first of its node. */
static const uint32_t *get_node_of(struct wire_reader *r, uint32_t n,
                                   struct step *s)
{
    if (!get_bool(r)) {
        return NULL;
    }
    s->node_of = allocate(r, n, sizeof(*s->node_of));
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        s->node_of[i] = wire_get_u32(r);
        r->bad = r->bad || (s->node_of[i] > i && s->node_of[i] != LEAD_NO_NODE);
    }
    return s->node_of;
}

static const char *const *get_names(struct wire_reader *r, uint32_t n,
                                    struct step *s)
{
    if (!get_bool(r)) {
        return NULL;
    }
    s->names = allocate(r, n, sizeof(*s->names));
    s->n_names = s->names ? n : 0;
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        (void)get_text(r, &s->names[i]);
    }
    return (const char *const *)s->names;
}

static void get_order(struct wire_reader *r, struct order *to)
{
    size_t len = 0;
    const void *data = wire_get_bytes(r, STEPS_MAX_RECORD, &len);

    r->bad = r->bad || order_decode(data, len, to, NULL) < 0;
}

static void get_view(struct wire_reader *r, struct view *to)
{
    r->bad = view_get(r, to) < 0 || r->bad;
    to->has_verdict = get_bool(r);
    to->status = wire_get_u8(r);
    wire_get_str(r, to->reason, sizeof(to->reason));
}

static void get_heritage(struct wire_reader *r, struct step *s)
{
    struct heritage *h = &s->heritage;
    bool has_procs;

    get_view(r, &h->view);
    h->generation = wire_get_u32(r);
    past_get(r, &h->past);
    has_procs = get_bool(r);
    h->n_procs_len = get_count(r, 2);
    r->bad = r->bad || (h->n_procs_len && !has_procs);
    h->n_procs = s->n_procs = allocate(r, h->n_procs_len, sizeof(*s->n_procs));
    for (uint32_t i = 0; !r->bad && i < h->n_procs_len; i++) {
        s->n_procs[i] = wire_get_u16(r);
    }
    h->n_procs = has_procs ? s->n_procs : NULL;
    h->n_nodes = get_count(r, 1);
    h->follows = s->follows = allocate(r, h->n_nodes, sizeof(*s->follows));
    h->dead = s->dead = allocate(r, h->n_nodes, sizeof(*s->dead));
    for (uint32_t i = 0; !r->bad && i < h->n_nodes; i++) {
        uint8_t is = get_enum(r, 3);

        s->follows[i] = is & 1;
        s->dead[i] = is >> 1;
    }
    h->clear_ms = wire_get_u64(r);
    h->has_verdict = get_bool(r);
    h->is_proposed = get_bool(r);
    h->status = wire_get_u8(r);
    wire_get_str(r, h->reason, sizeof(h->reason));
}

/* --- begins --- */

static uint32_t get_nodes(struct wire_reader *r)
{
    uint32_t n = wire_get_u32(r);

    r->bad = r->bad || n < 1 || n > ORDER_MAX_NODES;
    return r->bad ? 0 : n;
}

static void get_member_create(struct wire_reader *r, struct step *s)
{
    struct member_config *c = &s->member_config;

    s->now_ms = wire_get_u64(r);
    c->rank = wire_get_u32(r);
    c->n_procs = wire_get_u16(r);
    c->host = get_text(r, &s->text);
    c->lease_ms = wire_get_u64(r);
    c->waits = get_bool(r);
    c->join_ms = wire_get_u64(r);
    c->linger_ms = wire_get_u32(r);
    c->margin_ms = wire_get_u32(r);
    r->bad = r->bad || c->rank >= ORDER_MAX_NODES;
}

static void get_heir_create(struct wire_reader *r, struct step *s)
{
    struct heir_config *c = &s->heir_config;

    s->now_ms = wire_get_u64(r);
    c->rank = wire_get_u32(r);
    c->n_nodes = get_nodes(r);
    c->rule.on = get_bool(r);
    c->rule.min_nodes = wire_get_u32(r);
    c->rule.node_of = get_node_of(r, c->n_nodes, s);
    c->lease_ms = wire_get_u64(r);
    c->join_ms = wire_get_u64(r);
    c->slack_ms = wire_get_u64(r);
    c->settle_ms = wire_get_u64(r);
    c->wait_ms = wire_get_u64(r);
    r->bad = r->bad || c->rank >= c->n_nodes;
}

static void get_policy(struct wire_reader *r, struct restart_policy *p)
{
    p->kind = get_enum(r, RESTART_ALWAYS);
    p->max = wire_get_u32(r);
    p->max_per_node = wire_get_u32(r);
    p->backoff_min_ms = wire_get_u64(r);
    p->backoff_max_ms = wire_get_u64(r);
    for (size_t i = 0; i < sizeof(p->retryable); i++) {
        p->retryable[i] = wire_get_u8(r);
    }
}

static void get_lead_create(struct wire_reader *r, struct step *s)
{
    struct lead_config *c = &s->lead_config;

    s->now_ms = wire_get_u64(r);
    c->n_nodes = get_nodes(r);
    c->rank = wire_get_u32(r);
    c->rule.on = get_bool(r);
    c->rule.min_nodes = wire_get_u32(r);
    c->claim_ms = wire_get_u64(r);
    c->names = get_names(r, c->n_nodes, s);
    c->node_of = get_node_of(r, c->n_nodes, s);
    c->min_nodes = wire_get_u32(r);
    c->max_nodes = wire_get_u32(r);
    c->want_nodes = wire_get_u32(r);
    c->max_losses = wire_get_u32(r);
    c->grow_interval_ms = wire_get_u64(r);
    c->lease_ms = wire_get_u64(r);
    c->lease_slack_ms = wire_get_u64(r);
    get_policy(r, &c->restart);
    c->n_restarts = wire_get_u32(r);
    c->first_generation = wire_get_u32(r);
    c->resume_path = get_text(r, &s->text);
    c->resume_step = wire_get_i64(r);
    c->avoid_after = wire_get_u32(r);
    avoid_get(r, &c->avoid);
    c->gang_timeout_ms = wire_get_u64(r);
    c->grace_ms = wire_get_u32(r);
    c->restart_grace_ms = wire_get_u32(r);
    c->margin_ms = wire_get_u32(r);
    c->deadline_ms = wire_get_u64(r);
    if (get_bool(r)) {
        get_heritage(r, s);
        c->heritage = &s->heritage;
    }
    r->bad = r->bad || c->rank >= c->n_nodes;
}

/* --- events --- */

static bool member_needs(const struct member_event *event)
{
    switch (event->type) {
    case MEMBER_ORDER: return event->order;
    case MEMBER_START_FAILED: case MEMBER_FAILED: return event->failure;
    case MEMBER_STORE_OPEN: return event->addr;
    case MEMBER_STORE_FAILED: case MEMBER_SAVED: case MEMBER_LEAVE:
        return event->text;
    default: return true;
    }
}

static void get_member(struct wire_reader *r, struct step *s)
{
    struct member_event *event = &s->member;
    unsigned has;

    event->type = get_enum(r, MEMBER_PROMISE);
    has = wire_get_u8(r);
    r->bad = r->bad || (has & ~(STEPS_HAS_ORDER | STEPS_HAS_FAILURE |
                                STEPS_HAS_TEXT | STEPS_HAS_ADDR));
    event->now_ms = wire_get_u64(r);
    event->age_ms = wire_get_u64(r);
    event->generation = wire_get_u32(r);
    event->port = wire_get_u16(r);
    event->step = wire_get_i64(r);
    event->floor = wire_get_u32(r);
    event->heard_ms = wire_get_u64(r);
    if (has & STEPS_HAS_ORDER) {
        get_order(r, &s->order);
        event->order = &s->order;
    }
    if (has & STEPS_HAS_FAILURE) {
        failure_get(r, &s->failure);
        event->failure = &s->failure;
    }
    event->text = has & STEPS_HAS_TEXT ? get_text(r, &s->text) : NULL;
    event->addr = has & STEPS_HAS_ADDR ? get_text(r, &s->addr) : NULL;
    r->bad = r->bad || !member_needs(event);
}

static void get_follow(struct wire_reader *r, struct follow *to)
{
    size_t len = 0;
    const void *data = wire_get_bytes(r, STEPS_MAX_RECORD, &len);

    r->bad = r->bad || follow_decode(data, len, to, NULL) < 0;
}

static void get_heir(struct wire_reader *r, struct step *s)
{
    struct heir_event *event = &s->heir;
    unsigned has;

    event->type = get_enum(r, HEIR_SEEN);
    has = wire_get_u8(r);
    r->bad = r->bad || (has & ~(STEPS_HAS_ORDER | STEPS_HAS_FOLLOW |
                                STEPS_HAS_FOUND));
    event->now_ms = wire_get_u64(r);
    event->rank = wire_get_u32(r);
    event->view = wire_get_u32(r);
    event->stamp_ms = wire_get_u64(r);
    event->age_ms = wire_get_u64(r);
    event->outcome = get_enum(r, HEIR_UNKNOWN);
    event->seen.all_ms = wire_get_u64(r);
    event->seen.live_ms = wire_get_u64(r);
    event->seen.n_suspect = wire_get_u32(r);
    event->seen.n_quiet = wire_get_u32(r);
    event->rivals.n_silent = wire_get_u32(r);
    event->rivals.size = wire_get_u32(r);
    if (has & STEPS_HAS_ORDER) {
        get_order(r, &s->order);
        event->order = &s->order;
    }
    if (has & STEPS_HAS_FOLLOW) {
        get_follow(r, &s->follow);
        event->follow = &s->follow;
    }
    if (has & STEPS_HAS_FOUND) {
        get_view(r, &s->found);
        event->found = &s->found;
    }
    r->bad = r->bad || (event->type == HEIR_ORDER && !event->order) ||
             (event->type == HEIR_FOLLOW && !event->follow);
}

static bool lead_needs(const struct lead_event *event)
{
    return event->type == LEAD_REPORT ? event->report != NULL
           : event->type == LEAD_LOST || event->type == LEAD_CHOSEN ||
                     event->type == LEAD_EXCLUDE
               ? event->text != NULL
               : true;
}

static void get_report(struct wire_reader *r, struct report *to)
{
    size_t len = 0;
    const void *data = wire_get_bytes(r, STEPS_MAX_RECORD, &len);

    r->bad = r->bad || report_decode(data, len, to, NULL) < 0;
}

static void get_lead(struct wire_reader *r, struct step *s)
{
    struct lead_event *event = &s->lead;
    unsigned has;

    event->type = get_enum(r, LEAD_READMIT);
    has = wire_get_u8(r);
    r->bad = r->bad || (has & ~(STEPS_HAS_REPORT | STEPS_HAS_TEXT | STEPS_HAS_WHY |
                                STEPS_HAS_SAVED));
    event->now_ms = wire_get_u64(r);
    event->rank = wire_get_u32(r);
    event->stop = get_enum(r, LEAD_STOP_SUSPEND);
    event->force = get_bool(r);
    event->step = wire_get_i64(r);
    event->n_nodes = wire_get_u32(r);
    event->dead = get_bool(r);
    get_hold(r, event);
    event->outcome = get_enum(r, HEIR_UNKNOWN);
    event->n_quiet = wire_get_u32(r);
    event->quiet_ms = wire_get_u64(r);
    if (has & STEPS_HAS_REPORT) {
        get_report(r, &s->report);
        event->report = &s->report;
    }
    event->text = has & STEPS_HAS_TEXT ? get_text(r, &s->text) : NULL;
    event->why = has & STEPS_HAS_WHY ? get_enum(r, EXCLUSION_LAST) : EXCLUSION_NONE;
    if (has & STEPS_HAS_SAVED) {
        event->generation = wire_get_u32(r);
        event->is_later = get_bool(r);
    }
    r->bad = r->bad || (has & STEPS_HAS_WHY && !event->why) || !lead_needs(event);
}

/* --- records --- */

static void get_grow(struct wire_reader *r, struct step *s)
{
    s->n_nodes = get_nodes(r);
    if (s->kind == STEPS_LEAD_GROW) {
        (void)get_names(r, s->n_nodes, s);
    }
    (void)get_node_of(r, s->n_nodes, s);
}

static void get_body(struct wire_reader *r, struct step *s)
{
    switch (s->kind) {
    case STEPS_MEMBER_CREATE: get_member_create(r, s); return;
    case STEPS_HEIR_CREATE: get_heir_create(r, s); return;
    case STEPS_LEAD_CREATE: get_lead_create(r, s); return;
    case STEPS_HEIR_GROW: case STEPS_LEAD_GROW: get_grow(r, s); return;
    case STEPS_CUT: return;
    case STEPS_MEMBER: get_member(r, s); break;
    case STEPS_HEIR: get_heir(r, s); break;
    case STEPS_LEAD: get_lead(r, s); break;
    default: r->bad = true; return;
    }
    s->outcome = wire_get_bytes(r, STEPS_MAX_RECORD, &s->outcome_len);
}

int steps_next(struct steps_reader *r, struct step *ret, struct error *e)
{
    struct wire_reader head = wire_reader(r->data + r->at, r->len - r->at);
    struct wire_reader body;
    uint32_t len;

    *ret = (struct step){0};
    if (r->at == r->len || r->is_torn) {
        return 0;
    }
    len = wire_get_u32(&head);
    if (len < 1 || len > STEPS_MAX_RECORD || len > head.len - head.at) {
        r->is_torn = head.bad || (len && len <= STEPS_MAX_RECORD);
        return r->is_torn ? 0 : error_text(e, ERR_FORMAT, "a record of %u bytes "
                                           "at byte %zu", len, r->at);
    }
    body = wire_reader(head.data + head.at, len);
    ret->kind = wire_get_u8(&body);
    get_body(&body, ret);
    if (!wire_done(&body)) {
        step_release(ret);
        return error_text(e, ERR_FORMAT, "a record at byte %zu does not parse",
                          r->at);
    }
    r->at += 4 + len;
    return 1;
}
