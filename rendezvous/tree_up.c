/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

enum {
    RETRY_MS = 200, /* between attempts at the ancestors */
    FRONT_RETRY_MS = 1000,
};

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
    t->in_flight = 0;
    if (was_ready && tree_is_lead(t)) {
        t->front_gone_at_ms = tree_now_ms(t);
    }
    uv_timer_start(t->retry, on_retry, was_ready ? 0 : retry_ms(t), 0);
    if (was_ready) {
        t->next_ancestor = 0;
        t->ops.on_uplink(t->config.ctx, false, why);
        tree_pump_output(t);
    }
}

static void on_up_connected(struct link *l, void *ctx)
{
    struct tree *t = ctx;
    _buf_ struct buf b = {0};
    struct tree_hello h = {.rank = t->config.rank};

    memcpy(h.run_id, t->run_id, sizeof(h.run_id));
    memcpy(h.version, t->version, sizeof(h.version));
    tree_hello_encode(&h, &b);
    link_send_buf(l, TREE_HELLO, &b);
}

/* Tells a new parent all that is known here. */
static void repeat_reports(struct tree *t)
{
    for (uint32_t rank = 0; rank < t->n_below; rank++) {
        const struct buf *report = &t->below[rank].report;
        _buf_ struct buf b = {0};

        if (t->below[rank].lost) {
            tree_send_lost(t, rank);
            continue;
        }
        if (t->below[rank].via != NO_RANK && !t->below[rank].due_ms) {
            tree_pass_here(t, rank);
        }
        if (report->len) {
            wire_put_u32(&b, rank);
            wire_put_bytes(&b, report->data, report->len);
            tree_send_up(t, TREE_REPORT, &b);
        }
    }
}

void tree_beat_up(struct tree *t)
{
    _buf_ struct buf b = {0};

    wire_put_u64(&b, tree_now_ms(t));
    link_send_buf(t->up, TREE_BEAT, &b);
}

static void on_welcome(struct tree *t)
{
    t->up_ready = true;
    tree_beat_up(t);
    t->front_gone_at_ms = 0;
    repeat_reports(t);
    t->ops.on_uplink(t->config.ctx, true, "");
    tree_pump_output(t);
}

/* A beat may have lain in a socket, or been on its way, for long: what it says
 * is as old as the stamp of ours that the parent had seen by then. */
static void take_beat(struct tree *t, const struct channel_frame *f)
{
    struct wire_reader r = wire_reader(f->data, f->len);
    uint64_t stamp = wire_get_u64(&r), age = wire_get_u64(&r);
    uint64_t now = tree_now_ms(t);

    if (tree_is_lead(t) || !wire_done(&r) || stamp > now || age > stamp) {
        return;
    }
    if (!t->has_word || stamp - age > t->word_at_ms) {
        t->has_word = true;
        t->word_at_ms = stamp - age;
    }
    t->ops.on_word(t->config.ctx, now - t->word_at_ms);
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

static void on_up_frame(struct link *l, const struct channel_frame *f,
                        void *ctx)
{
    struct tree *t = ctx;

    (void)l;
    switch (f->type) {
    case TREE_WELCOME:
        on_welcome(t);
        break;
    case TREE_BEAT:
        take_beat(t, f);
        break;
    case TREE_CONFIG:
        if (t->config_data.len) {
            break; /* from a new parent: those below have it too */
        }
        tree_publish_config(t, f->data, f->len);
        t->ops.on_config(t->config.ctx, f->data, f->len);
        break;
    case TREE_ORDER:
        if (!tree_is_lead(t)) {
            tree_keep(&t->order, f->data, f->len);
            tree_send_below(t, TREE_ORDER, f->data, f->len);
            t->ops.on_order(t->config.ctx, f->data, f->len);
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
    if (t->up) {
        tree_uplink_gone(t, "another front end takes its place");
    }
    uv_timer_stop(t->retry);
    tree_dial_next(t);
    return 0;
}

/* Of members that came later than others were lost, some ancestors may have no
 * address; the lead has one. */
static const struct roster_entry *next_parent(struct tree *t)
{
    const struct roster_entry *to;

    do {
        t->up_rank = t->ancestors[t->next_ancestor++ % t->n_ancestors];
        to = &t->config.roster->entries[t->up_rank];
    } while (to->port == 0 && t->up_rank != t->lead);
    return to;
}

void tree_dial_next(struct tree *t)
{
    const struct roster_entry *to;
    char *addrs[ROSTER_MAX_ADDRS + 1] = {0};

    if (t->up) {
        return;
    }
    if (tree_is_lead(t)) {
        if (t->front_addrs.n) {
            dial(t, t->front_addrs.items, t->config.front_port);
        }
        return;
    }
    to = next_parent(t);
    for (size_t i = 0; i < to->n_addrs; i++) {
        addrs[i] = (char *)to->addrs[i];
    }
    dial(t, addrs, to->port);
}
