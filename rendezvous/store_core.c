/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_core.h"

#include "rendezvous/store_state.h"
#include "rendezvous/store_trunk.h"

#include <errno.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* An idle connection keeps a buffer of at most this size. */
#define KEEP_BUFFER_BYTES (64 * KIB)

static const struct store_limits default_limits = {
    .key_bytes = 64 * KIB,
    .value_bytes = 64 * MIB,
    .request_bytes = 256 * MIB,
    .request_keys = 128 * KIB,
    .reply_bytes = 256 * MIB,
    .memory_bytes = 1024 * MIB,
    .pipeline_bytes = 1 * MIB,
    .kept_bytes = 64 * MIB,
};

static void set_limits(struct store_limits *to, const struct store_limits *from)
{
    const struct store_limits *d = &default_limits;

    to->key_bytes = from->key_bytes ? from->key_bytes : d->key_bytes;
    to->value_bytes = from->value_bytes ? from->value_bytes : d->value_bytes;
    to->request_bytes =
        from->request_bytes ? from->request_bytes : d->request_bytes;
    to->request_keys =
        from->request_keys ? from->request_keys : d->request_keys;
    to->reply_bytes = from->reply_bytes ? from->reply_bytes : d->reply_bytes;
    to->memory_bytes =
        from->memory_bytes ? from->memory_bytes : d->memory_bytes;
    to->pipeline_bytes =
        from->pipeline_bytes ? from->pipeline_bytes : d->pipeline_bytes;
    to->kept_bytes = from->kept_bytes ? from->kept_bytes : d->kept_bytes;
}

struct store *store_create(const struct store_limits *limits,
                           const uint8_t seed[16])
{
    struct store *s = calloc(1, sizeof(*s));

    if (!s || !table_init(&s->table, seed)) {
        free(s);
        return NULL;
    }
    set_limits(&s->limits, limits ? limits : &default_limits);
    return s;
}

void store_destroy(struct store *s)
{
    if (s) {
        table_release(&s->table);
        free(s->shares.readers);
        free(s);
    }
}

/* What a request would add must fit into what is left. */
int store_check_room(const struct store *s, size_t n, struct error *e)
{
    size_t used = s->table.used_bytes + s->buffered_bytes;

    if (used > s->limits.memory_bytes || n > s->limits.memory_bytes - used) {
        return error_text(e, ENOMEM, "the store is full: %zu bytes, limit %zu",
                          used, s->limits.memory_bytes);
    }
    return 0;
}

int store_no_memory(struct error *e)
{
    return error_set(e, ENOMEM, "store");
}

/* Connections and their answers */

struct store_conn *store_open(struct store *s, void *owner)
{
    struct store_conn *c = calloc(1, sizeof(*c));

    if (!c) {
        return NULL;
    }
    c->store = s;
    c->owner = owner;
    c->next = s->conns;
    if (c->next) {
        c->next->prev = c;
    }
    s->conns = c;
    s->n_conns++;
    return c;
}

struct store_conn *store_open_control(struct store *s, void *owner)
{
    struct store_conn *c = store_open(s, owner);

    if (c) {
        c->is_control = true;
        c->dialect = STORE_DIALECT_NEW;
        s->n_conns--;
    }
    return c;
}

static void add_ready(struct store *s, struct store_conn *c)
{
    if (c->is_ready) {
        return;
    }
    c->is_ready = true;
    c->ready_next = NULL;
    c->ready_prev = s->last_ready;
    if (c->ready_prev) {
        c->ready_prev->ready_next = c;
    } else {
        s->ready = c;
    }
    s->last_ready = c;
}

static void remove_ready(struct store *s, struct store_conn *c)
{
    if (!c->is_ready) {
        return;
    }
    c->is_ready = false;
    if (c->ready_prev) {
        c->ready_prev->ready_next = c->ready_next;
    } else {
        s->ready = c->ready_next;
    }
    if (c->ready_next) {
        c->ready_next->ready_prev = c->ready_prev;
    } else {
        s->last_ready = c->ready_prev;
    }
}

struct store_conn *store_next_ready(struct store *s)
{
    struct store_conn *c = s->ready;

    if (c) {
        remove_ready(s, c);
    }
    return c;
}

void *store_conn_owner(const struct store_conn *c)
{
    return c->owner;
}

bool store_conn_broken(const struct store_conn *c)
{
    return c->broken;
}

static size_t unread_bytes(const struct store_conn *c)
{
    return c->out.len + c->taken_bytes;
}

bool store_conn_held(const struct store_conn *c)
{
    if (c->is_control) {
        return false; /* others may wait for what it says */
    }
    return c->blocked ||
           unread_bytes(c) >= c->store->limits.pipeline_bytes ||
           (c->trunk && store_trunk_held(c->trunk)) ||
           (c->store->relay && store_relay_held(c->store->relay, c));
}

bool store_conn_due(const struct store_conn *c)
{
    return c->is_due;
}

void store_make_due(struct store *s, struct store_conn *c)
{
    c->is_due = true;
    add_ready(s, c);
}

uint64_t store_conn_partial(const struct store_conn *c)
{
    return c->in.len > 0 && !store_conn_held(c) ? c->n_requests + 1 : 0;
}

char *store_take(struct store_conn *c, size_t *ret_len)
{
    *ret_len = c->out.len;
    c->taken_bytes += c->out.len;
    return c->out.len ? buf_take(&c->out) : NULL;
}

const char *store_answers(const struct store_conn *c, size_t *ret_len)
{
    *ret_len = c->out.len;
    return c->out.data;
}

void store_sent_now(struct store *s, struct store_conn *c, size_t len)
{
    s->buffered_bytes -= len;
    if (len == c->out.len && c->out.cap > KEEP_BUFFER_BYTES) {
        buf_release(&c->out);
    } else {
        buf_consume(&c->out, len);
    }
}

void store_sent(struct store *s, struct store_conn *c, size_t len)
{
    c->taken_bytes -= len;
    s->buffered_bytes -= len;
}

int store_reply(struct store *s, struct store_conn *c, const void *data,
                size_t len, struct error *e)
{
    int rc;

    if (len > s->limits.reply_bytes - unread_bytes(c)) {
        return error_text(e, EMSGSIZE, "more than %zu bytes of unread answers",
                          s->limits.reply_bytes);
    }
    rc = store_check_room(s, len, e);
    return rc < 0 ? rc : store_say(s, c, data, len, e);
}

int store_say(struct store *s, struct store_conn *c, const void *data,
              size_t len, struct error *e)
{
    buf_append(&c->out, data, len);
    if (c->out.failed) {
        return store_no_memory(e);
    }
    s->buffered_bytes += len;
    add_ready(s, c);
    return 0;
}

int store_reply_u8(struct store *s, struct store_conn *c, uint8_t v,
                   struct error *e)
{
    return store_reply(s, c, &v, sizeof(v), e);
}

int store_reply_i64(struct store *s, struct store_conn *c, int64_t v,
                    struct error *e)
{
    return store_reply(s, c, &v, sizeof(v), e);
}

int store_reply_blob(struct store *s, struct store_conn *c, const char *data,
                     size_t len, struct error *e)
{
    int rc = store_reply_i64(s, c, (int64_t)len, e);

    return rc < 0 || len == 0 ? rc : store_reply(s, c, data, len, e);
}

/* Waits */

void store_end_wait(struct store *s, struct store_conn *c)
{
    if (!c->waits) {
        return;
    }
    for (size_t i = 0; i < c->n_waits; i++) {
        struct slot *slot = c->waits[i].slot;

        if (slot) {
            slot_remove_wait(&s->table, &c->waits[i]);
            table_tidy(&s->table, slot);
        }
    }
    free(c->waits);
    c->waits = NULL;
    c->n_waits = 0;
    c->n_awaited = 0;
    s->n_waiting--;
}

void store_close(struct store *s, struct store_conn *c)
{
    store_end_wait(s, c);
    share_unblock(c);
    if (s->relay) {
        store_relay_forget(s->relay, c);
    }
    remove_ready(s, c);
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        s->conns = c->next;
    }
    if (c->next) {
        c->next->prev = c->prev;
    }
    s->n_conns -= !c->is_control;
    s->buffered_bytes -= c->in.len + unread_bytes(c);
    buf_release(&c->in);
    buf_release(&c->out);
    free(c);
}

void store_clear(struct store *s)
{
    for (struct store_conn *c = s->conns; c; c = c->next) {
        store_end_wait(s, c);
    }
    share_clear(s);
    kept_clear(s);
    table_clear(&s->table);
}

bool store_begin_wait(struct store *s, struct store_conn *c, size_t n)
{
    c->waits = calloc(n, sizeof(struct wait));
    if (!c->waits) {
        return false;
    }
    s->n_waiting++;
    return true;
}

void store_await(struct store *s, struct store_conn *c, struct slot *slot)
{
    struct wait *w = &c->waits[c->n_waits++];

    w->conn = c;
    slot_add_wait(&s->table, slot, w);
    c->n_awaited++;
}

void store_break(struct store *s, struct store_conn *c)
{
    c->broken = true;
    add_ready(s, c);
}

static void tell_waiting(struct store *s, struct store_conn *c,
                         enum store_wait_reply reply)
{
    if (store_reply_u8(s, c, (uint8_t)reply, NULL) < 0) {
        store_break(s, c);
    }
}

/* One of the keys that `w` waits for is there. True if it was the last. The
 * slot must have something in it, or it might go with the wait. */
static bool answer_wait(struct store *s, struct wait *w)
{
    struct store_conn *c = w->conn;
    struct slot *slot = w->slot;

    slot_remove_wait(&s->table, w);
    if (--c->n_awaited > 0) {
        return false;
    }
    store_end_wait(s, c);
    share_key(s, c, slot);
    tell_waiting(s, c, STORE_STOP_WAITING);
    return true;
}

void store_wake_all(struct store *s, struct slot *slot)
{
    while (slot->waits) {
        answer_wait(s, slot->waits);
    }
}

/* What one pushed item can serve: the first that waits for nothing else. */
void store_wake_one(struct store *s, struct slot *slot)
{
    bool done = false;

    while (slot->waits && !done) {
        struct store_conn *c = slot->waits->conn;

        if (c->n_sharing > 1 && c->n_awaited == 1) {
            c->n_sharing--; /* the others go on, in their place */
            tell_waiting(s, c, STORE_STOP_WAITING_ONE);
            done = true;
        } else {
            done = answer_wait(s, slot->waits);
        }
    }
}

/* The stream of requests */

static void count_request(struct store *s, struct store_conn *c)
{
    s->n_requests++;
    c->n_requests++;
}

/* What a trunk may be told, or say: nothing else is waited for until it is whole. */
static bool is_word(const struct store *s, enum store_command command)
{
    return command == STORE_DROP ||
           (s->relay ? command == STORE_KEEP || command == STORE_MORE
                     : command == STORE_FORGOT);
}

/* The request that starts at `data`: 1 if it was there and is done. */
static int run_request(struct store *s, struct store_conn *c, const char *data,
                       size_t len, struct error *e)
{
    struct store_request r = {.data = data, .at = 1};
    int rc;

    if (c->dialect == STORE_DIALECT_UNKNOWN) {
        c->dialect = store_detect(data, len);
        if (c->dialect == STORE_DIALECT_UNKNOWN) {
            return 0;
        }
    }
    rc = store_scan(&c->scan, c->dialect, &s->limits, data, len, e);
    if (rc >= 0 && c->is_control && !is_word(s, c->scan.command)) {
        return error_text(e, EPROTO, "%d is no word for a trunk",
                          c->scan.command);
    }
    if (rc <= 0) {
        return rc;
    }
    r.command = c->scan.command;
    if (c->is_control) {
        rc = s->relay ? store_relay_word(s->relay, &r, e)
                      : share_word(s, c, &r, e);
        return rc < 0 ? rc : 1;
    }
    if (c->n_sharing > 0 && r.command == STORE_CANCEL_WAIT) {
        count_request(s, c);
        c->n_sharing--;
        if (c->n_sharing == 0) {
            store_end_wait(s, c);
        }
        return 1;
    }
    store_end_wait(s, c);
    if (!share_may_run(s, c, &r)) {
        return 0;
    }
    count_request(s, c);
    rc = s->relay ? store_relay_request(s->relay, c, &r, c->scan.at, e)
                  : store_run_command(s, c, &r, e);
    return rc < 0 ? rc : 1;
}

static void drop_input(struct store *s, struct store_conn *c, size_t n)
{
    s->buffered_bytes -= n;
    if (n == c->in.len && c->in.cap > KEEP_BUFFER_BYTES) {
        buf_release(&c->in);
    } else if (n > 0) {
        buf_consume(&c->in, n);
    }
}

/* Runs the requests at the front of `data` that are whole, as far as answers may
 * pile up. *ret_at: what of it is done with. */
static int run_requests(struct store *s, struct store_conn *c,
                        const char *data, size_t len, size_t *ret_at,
                        struct error *e)
{
    size_t at = 0;
    int rc = 1;

    while (rc == 1 && at < len && !store_conn_held(c)) {
        rc = run_request(s, c, data + at, len - at, e);
        if (rc == 1) {
            at += c->scan.at;
            c->scan = (struct store_scan){0};
        }
    }
    *ret_at = at;
    return rc < 0 ? rc : 0;
}

int store_resume(struct store *s, struct store_conn *c, struct error *e)
{
    size_t at;
    int rc;

    c->is_due = false;
    rc = run_requests(s, c, c->in.data, c->in.len, &at, e);

    drop_input(s, c, at);
    return rc;
}

static int keep_input(struct store *s, struct store_conn *c, const char *data,
                      size_t len, struct error *e)
{
    buf_append(&c->in, data, len);
    if (c->in.failed) {
        return store_no_memory(e);
    }
    s->buffered_bytes += len;
    return 0;
}

int store_feed(struct store *s, struct store_conn *c, const void *data,
               size_t len, struct error *e)
{
    int rc = c->is_control ? 0 : store_check_room(s, len, e);
    size_t at = 0;

    if (rc < 0) {
        return rc;
    }
    if (c->in.len) {
        rc = keep_input(s, c, data, len, e);
        return rc < 0 ? rc : store_resume(s, c, e);
    }
    /* Most often it is one whole request, which need not be kept. It counts
     * meanwhile, so that a full store has room left for a request. */
    s->buffered_bytes += len;
    rc = run_requests(s, c, data, len, &at, e);
    s->buffered_bytes -= len;
    if (at < len) {
        int kept = keep_input(s, c, (const char *)data + at, len - at, e);

        rc = rc < 0 ? rc : kept;
    }
    return rc;
}

void store_awaited(const struct store *s, store_awaited_f *f, void *arg)
{
    for (const struct store_conn *c = s->conns; c; c = c->next) {
        for (size_t i = 0; i < c->n_waits; i++) {
            for (uint32_t n = 0; c->waits[i].slot &&
                                 n < (c->n_sharing ? c->n_sharing : 1); n++) {
                f(arg, c->waits[i].slot->key, c->waits[i].slot->key_len);
            }
        }
    }
}

void store_get_stats(const struct store *s, struct store_stats *ret)
{
    *ret = (struct store_stats){
        .n_keys = s->table.n_values,
        .n_conns = s->n_conns,
        .n_waiting = s->n_waiting,
        .used_bytes = s->table.used_bytes + s->buffered_bytes,
        .n_requests = s->n_requests,
        .n_frames_in = s->n_frames_in,
        .n_frames_out = s->n_frames_out,
    };
}
