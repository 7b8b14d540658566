/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

enum {
    RETRY_MS = 200, /* between attempts at the ancestors */
    FRONT_RETRY_MS = 1000,
    CONNECT_MS = 2000,
    FRONT_CONNECT_MS = 5000,
};

/* Longer than the lease no answer is waited for. */
uint64_t tree_connect_ms(const struct tree *t)
{
    uint64_t max_ms = tree_is_lead(t) ? FRONT_CONNECT_MS : CONNECT_MS;

    return t->config.lease_ms < max_ms ? t->config.lease_ms : max_ms;
}

static void on_retry(uv_timer_t *timer)
{
    tree_dial_next(timer->data);
}

/* Nobody's lease depends on a front end, which may be gone for days. */
static uint64_t retry_ms(const struct tree *t)
{
    return tree_is_lead(t) ? FRONT_RETRY_MS : RETRY_MS;
}

void tree_uplink_gone(struct tree *t, const char *why)
{
    bool was_ready = t->up_ready;

    link_close(t->up);
    t->up = NULL;
    t->up_ready = false;
    t->awaits_front = false;
    t->in_flight = 0;
    tree_events_unsent(t);
    if (!was_ready && !tree_is_lead(t)) {
        tree_seek_failed(t, t->up_rank);
    }
    if (was_ready && tree_is_lead(t)) {
        t->front_gone_at_ms = tree_now_ms(t);
    }
    uv_timer_start(t->retry, on_retry, was_ready ? 0 : retry_ms(t), 0);
    if (was_ready) {
        t->was_up = true;
        t->next_way = 0;
        t->ops.on_uplink(t->config.ctx, false, why);
        tree_pump_output(t);
    }
}

/* Who does not speak will not answer either, and this subtree has to be heard of
 * within a lease: the next ancestor is asked first, where there is one. */
void tree_parent_silent(struct tree *t)
{
    uint32_t silent = t->up_rank;

    tree_uplink_gone(t, "nothing heard from the parent");
    for (size_t i = 0; i + 1 < t->n_ways; i++) {
        if (t->ways[i] == silent) {
            t->next_way = i + 1;
        }
    }
}

static void on_up_connected(struct link *l, void *ctx)
{
    struct tree *t = ctx;
    _buf_ struct buf b = {0};
    struct tree_hello h = {.rank = t->config.rank,
                           .view = tree_is_lead(t) ? t->view : 0};

    memcpy(h.run_id, t->run_id, sizeof(h.run_id));
    memcpy(h.version, t->version, sizeof(h.version));
    tree_hello_encode(&h, &b);
    link_send_buf(l, TREE_HELLO, &b);
}

static void tell_who_is_here(struct tree *t)
{
    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        if (t->below[rank].lost) {
            tree_send_lost(t, rank);
        } else if (t->below[rank].via != NO_RANK && !t->below[rank].due_ms) {
            tree_pass_here(t, rank);
        }
    }
}

static void repeat_reports(struct tree *t)
{
    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        const struct buf *report = &t->below[rank].report;
        const struct buf *follow = &t->below[rank].follow;
        _buf_ struct buf b = {0};

        if (t->below[rank].lost) {
            continue;
        }
        if (report->len) {
            wire_put_u32(&b, rank);
            wire_put_bytes(&b, report->data, report->len);
            tree_send_up(t, TREE_REPORT, &b);
        }
        if (follow->len) {
            buf_clear(&b);
            wire_put_u32(&b, rank);
            wire_put_bytes(&b, follow->data, follow->len);
            tree_send_up(t, TREE_FOLLOW, &b);
        }
    }
}

/* A front end says no view. */
static bool is_behind(const struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);

    (void)wire_get_u32(&r);
    return !tree_is_lead(t) && tree_is_bound(t) &&
           wire_get_u32(&r) < t->view;
}

/* Tells a new parent, or one that asks again, all that is known here: by a report the lead
 * may decide, so what its node has told before comes before it. */
static void repeat_all(struct tree *t)
{
    tell_who_is_here(t);
    tree_tell_events(t);
    repeat_reports(t);
}

static void on_welcome(struct tree *t, const struct channel_frame *f)
{
    bool was_top = t->is_top;

    if (is_behind(t, f)) {
        tree_uplink_gone(t, "it follows a lead of before");
        return;
    }
    t->up_ready = true;
    t->awaits_front = false;
    t->fresh_at_ms = tree_now_ms(t);
    if (t->seek) {
        tree_look_at_lead(t);
    }
    tree_seek_end(t);
    if (was_top && t->ops.on_top) {
        t->ops.on_top(t->config.ctx, false);
    }
    t->front_gone_at_ms = 0;
    repeat_all(t); /* before the beat that counts those below */
    if (!tree_is_lead(t)) {
        tree_beat_up(t);
    }
    t->ops.on_uplink(t->config.ctx, true, "");
    tree_pump_output(t);
}

static void take_credit(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    size_t n = wire_get_u32(&r);

    t->in_flight -= n < t->in_flight ? n : t->in_flight;
    tree_pump_output(t);
}

static void take_refusal(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    char why[TREE_TEXT_BYTES];

    wire_get_str(&r, why, sizeof(why));
    t->ops.on_refused(t->config.ctx, why);
}

static void take_config(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t age_ms = wire_get_u64(&r);
    size_t len = f->len - sizeof(age_ms);
    const void *data = (const uint8_t *)f->data + sizeof(age_ms);

    if (r.bad || len == 0 || t->config_data.len) {
        return; /* one that is known: from a new parent, and those below have it too */
    }
    tree_publish_config(t, age_ms, data, len);
    t->ops.on_config(t->config.ctx, age_ms, data, len);
}

/* What it says may make this member lead, or end it. */
static void take_order(struct tree *t, const struct channel_frame *f)
{
    _buf_ struct buf order = {0};

    buf_append(&order, f->data, f->len);
    if (!order.failed &&
        t->ops.on_order(t->config.ctx, order.data, order.len)) {
        tree_keep(&t->order, order.data, order.len);
        tree_send_below(t, TREE_ORDER, order.data, order.len);
    }
}

static void on_up_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct tree *t = ctx;

    (void)l;
    switch (f->type) {
    case TREE_WELCOME:
        on_welcome(t, f);
        break;
    case TREE_BEAT:
        tree_take_word(t, f);
        break;
    case TREE_CONFIG:
        take_config(t, f);
        break;
    case TREE_ORDER:
        if (!tree_is_lead(t)) {
            take_order(t, f);
        }
        break;
    case TREE_ASK:
        if (!tree_is_lead(t)) {
            tree_ask(t, f->data, f->len);
            t->ops.on_ask(t->config.ctx, f->data, f->len);
        }
        break;
    case TREE_CREDIT:
        take_credit(t, f);
        break;
    case TREE_AGAIN:
        if (t->up_ready && !tree_is_lead(t)) {
            repeat_all(t);
            tree_beat_up(t);
        }
        break;
    case TREE_HEARD:
        tree_take_heard(t, f);
        break;
    case TREE_REQUEST:
        if (tree_is_lead(t)) {
            t->ops.on_request(t->config.ctx, f->data, f->len);
        }
        break;
    case TREE_REFUSED:
        take_refusal(t, f);
        break;
    default:
        break;
    }
}

static void on_up_down(struct link *l, bool closed, const struct error *why,
                       void *ctx)
{
    struct error e = *why;

    (void)l;
    (void)closed;
    tree_uplink_gone(ctx, e.text);
}

static const struct link_ops up_ops = {
    .on_up = on_up_connected,
    .on_frame = on_up_frame,
    .on_down = on_up_down,
};

static void dial(struct tree *t, char *const *addrs, uint16_t port)
{
    struct link_target target = {
        .addrs = addrs, .port = port,
        .local_name = tree_is_lead(t) ? TREE_FRONT_LOCAL_NAME : NULL,
        .timeout_ms = (unsigned)tree_connect_ms(t)};

    if (link_connect(t->config.loop, &target, t->key, &up_ops, t, &t->up,
                     NULL) < 0) {
        t->up = NULL;
        uv_timer_start(t->retry, on_retry, RETRY_MS, 0);
    }
}

int tree_set_front(struct tree *t, char *const *addrs, uint16_t port)
{
    struct strlist fresh = {0};

    strlist_add_all(&fresh, addrs);
    if (fresh.failed) {
        strlist_release(&fresh);
        return -ENOMEM;
    }
    strlist_release(&t->front_addrs);
    t->front_addrs = fresh;
    t->config.front_port = port;
    if (!tree_is_lead(t)) {
        return 0;
    }
    if (t->up) {
        tree_uplink_gone(t, "another front end takes its place");
    }
    uv_timer_stop(t->retry);
    tree_dial_next(t);
    return 0;
}

void tree_seek_rank(struct tree *t, uint32_t rank)
{
    t->sought = rank;
    tree_find_ways(t);
    if (!t->up) {
        uv_timer_stop(t->retry);
        tree_dial_next(t);
    }
}

void tree_beat_now(struct tree *t)
{
    if (t->up_ready && !tree_is_lead(t)) {
        tree_beat_up(t);
    }
}

static void add_way(struct tree *t, uint32_t rank)
{
    for (size_t i = 0; i < t->n_ways; i++) {
        if (t->ways[i] == rank) {
            return;
        }
    }
    t->ways[t->n_ways++] = rank;
}

/* Whoever is sought; the ancestors, the nearest first, as far as the lead; the lead
 * itself, which may have a higher rank than this member alone where it is sought. */
void tree_find_ways(struct tree *t)
{
    uint32_t above[MAX_ANCESTORS];
    size_t n = tree_ancestors(t->config.rank, t->config.arity, above,
                              MAX_ANCESTORS);

    t->n_ways = 0;
    t->next_way = 0;
    if (t->sought != NO_RANK && t->sought != t->config.rank) {
        add_way(t, t->sought);
    }
    for (size_t i = 0; i < n; i++) {
        if (above[i] > t->lead) {
            add_way(t, above[i]);
        }
    }
    if (t->lead < t->config.rank) {
        add_way(t, t->lead);
    }
}

/* Of members that came later than others were lost, some ancestors may have no
 * address; others are known to be dead. */
static bool may_be_parent(const struct tree *t, uint32_t rank)
{
    return rank < t->config.roster->n && rank < t->n_below &&
           t->config.roster->entries[rank].port && !t->below[rank].dead;
}

void tree_dial(struct tree *t, uint32_t rank)
{
    const struct roster_entry *to = &t->config.roster->entries[rank];
    char *addrs[ROSTER_MAX_ADDRS + 1] = {0};

    t->up_rank = rank;
    for (size_t i = 0; i < to->n_addrs; i++) {
        addrs[i] = (char *)to->addrs[i];
    }
    dial(t, addrs, to->port);
}

static uint32_t next_parent(struct tree *t)
{
    while (t->next_way < t->n_ways) {
        uint32_t rank = t->ways[t->next_way++];

        if (may_be_parent(t, rank)) {
            return rank;
        }
    }
    t->next_way = 0;
    return NO_RANK;
}

/* The last way is to the lead, which may answer late, or never. */
static bool is_last_way(const struct tree *t)
{
    return t->next_way == 0 || t->next_way >= t->n_ways;
}

void tree_dial_next(struct tree *t)
{
    uint32_t rank;

    if (t->up) {
        return;
    }
    if (tree_is_lead(t)) {
        if (t->front_addrs.n) {
            dial(t, t->front_addrs.items, t->config.front_port);
        }
        return;
    }
    rank = next_parent(t);
    if (rank != NO_RANK) {
        tree_dial(t, rank);
    } else {
        uv_timer_start(t->retry, on_retry, RETRY_MS, 0);
    }
    if (rank == NO_RANK || (t->was_up && is_last_way(t))) {
        tree_seek(t); /* one that is new may know of leads before alone */
    }
}
