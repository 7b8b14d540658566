/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_trunk.h"

#include "rendezvous/store_frame.h"
#include "rendezvous/store_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct channel {
    bool is_open;            /* the other side has not closed it */
    bool is_over;            /* its one wait has ended, and it with that */
    struct store_conn *conn; /* NULL once this side has */
    size_t n_bytes; /* of its requests, since MORE was said of them last */
};

struct store_trunk {
    struct store *store;
    void *owner;
    struct store_frames frames;
    struct store_conn *control; /* the channel for words */
    struct channel *channels;
    size_t n_channels;
    bool has_held; /* requests on some of them */
    struct buf out;
    size_t taken_bytes;
    uint64_t sent_bytes;
};

struct store_trunk *store_trunk_create(struct store *s, void *owner)
{
    struct store_trunk *t = calloc(1, sizeof(*t));

    if (!t) {
        return NULL;
    }
    t->store = s;
    t->owner = owner;
    t->control = store_open_control(s, owner);
    if (!t->control) {
        free(t);
        return NULL;
    }
    t->control->trunk = t;
    t->control->channel = STORE_CONTROL_CHANNEL;
    if (!share_add_reader(s, t->control)) {
        store_close(s, t->control);
        free(t);
        return NULL;
    }
    return t;
}

void store_trunk_destroy(struct store_trunk *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->n_channels; i++) {
        if (t->channels[i].conn) {
            store_close(t->store, t->channels[i].conn);
        }
    }
    share_remove_reader(t->store, t->control);
    store_close(t->store, t->control);
    t->store->buffered_bytes -= t->out.len + t->taken_bytes;
    buf_release(&t->out);
    free(t->channels);
    free(t);
}

struct store_trunk *store_conn_trunk(const struct store_conn *c)
{
    return c->trunk;
}

static bool put_frame(struct store_trunk *t, uint32_t channel, uint32_t number,
                      const char *data, size_t len)
{
    size_t before = t->out.len;

    store_frame_put(&t->out, channel, number, (uint32_t)len);
    t->store->n_frames_out++;
    if (len) {
        buf_append(&t->out, data, len);
    }
    if (t->out.failed) {
        return false;
    }
    t->store->buffered_bytes += t->out.len - before;
    return true;
}

/* The wait that clients share has ended for all of them. */
static bool ends_sharing(const struct store_conn *c, const char *data,
                         size_t len)
{
    return c->n_sharing > 0 && !c->waits && len > 0 &&
           data[len - 1] == STORE_STOP_WAITING;
}

static bool collect(struct store_trunk *t, struct store_conn *c,
                    bool *ret_over)
{
    size_t len;
    const char *data = store_answers(c, &len);
    uint32_t n_answered = (uint32_t)c->n_requests - (c->waits ? 1 : 0);

    if (len && !put_frame(t, c->channel, n_answered, data, len)) {
        return false;
    }
    *ret_over = ends_sharing(c, data, len);
    store_sent_now(t->store, c, len);
    return true;
}

/* Says how much of what came is done. Among the frames, not with the other words:
 * it is about this channel, before a close of it. */
static bool give_credit(struct store_trunk *t, const struct store_conn *c)
{
    struct channel *ch = &t->channels[c->channel];
    const uint32_t channel = c->channel;
    char word[1 + sizeof(channel)] = {STORE_MORE};
    bool done = true;

    memcpy(word + 1, &channel, sizeof(channel));
    while (done && ch->n_bytes - c->in.len >= STORE_CREDIT_BYTES) {
        ch->n_bytes -= STORE_CREDIT_BYTES;
        done = put_frame(t, STORE_CONTROL_CHANNEL, 0, word, sizeof(word));
    }
    return done;
}

struct store_debt store_trunk_debt(const struct store_trunk *t)
{
    const struct reader *r = &t->store->shares.readers[t->control->reader];

    return (struct store_debt){
        .n_told = r->n_told,
        .n_dropped = r->n_dropped,
        .put_bytes = t->sent_bytes + t->taken_bytes + t->out.len,
        .sent_bytes = t->sent_bytes,
    };
}

char *store_trunk_take(struct store_trunk *t, size_t *ret_len)
{
    *ret_len = t->out.len;
    t->taken_bytes += t->out.len;
    return t->out.len ? buf_take(&t->out) : NULL;
}

void store_trunk_sent(struct store_trunk *t, size_t len)
{
    t->taken_bytes -= len;
    t->sent_bytes += len;
    t->store->buffered_bytes -= len;
}

bool store_trunk_held(const struct store_trunk *t)
{
    return t->out.len + t->taken_bytes >= t->store->limits.pipeline_bytes;
}

/* Channels are numbered without gaps, so that an array of them is enough. */
static int reach(struct store_trunk *t, uint32_t channel, struct error *e)
{
    size_t n = t->n_channels ? t->n_channels * 2 : 16;
    struct channel *more;

    if (channel < t->n_channels) {
        return 0;
    }
    if (channel >= STORE_MAX_CHANNELS) {
        return error_text(e, EPROTO, "channel %u of a trunk", channel);
    }
    while (n <= channel) {
        n *= 2;
    }
    more = realloc(t->channels, n * sizeof(*more));
    if (!more) {
        return store_no_memory(e);
    }
    memset(more + t->n_channels, 0, (n - t->n_channels) * sizeof(*more));
    t->channels = more;
    t->n_channels = n;
    return 0;
}

static int open_channel(struct store_trunk *t, const struct store_frame *f,
                        struct error *e)
{
    struct channel *ch = &t->channels[f->channel];

    if (f->number > STORE_MAX_CHANNELS) {
        return error_text(e, EPROTO, "%u clients of a trunk wait as one",
                          f->number);
    }
    ch->conn = store_open(t->store, t->owner);
    if (!ch->conn) {
        return store_no_memory(e);
    }
    *ch = (struct channel){.is_open = true, .conn = ch->conn};
    ch->conn->trunk = t;
    ch->conn->control = t->control;
    ch->conn->channel = f->channel;
    ch->conn->n_sharing = f->number;
    ch->conn->validated = true;
    ch->conn->dialect = STORE_DIALECT_NEW;
    return 0;
}

/* This side's word that a channel is closed. */
static int close_channel(struct store_trunk *t, uint32_t channel,
                         struct error *e)
{
    struct channel *ch = &t->channels[channel];

    if (!ch->conn) {
        return 0;
    }
    store_close(t->store, ch->conn);
    ch->conn = NULL;
    return put_frame(t, channel, 0, NULL, 0) ? 0 : store_no_memory(e);
}

/* What it did wrong is the end of the channel alone; its answers so far go out
 * first, as on a connection. */
static int after_feed(struct store_trunk *t, struct store_conn *c, int rc,
                      struct error *e)
{
    bool is_over;

    if (rc == 0 && !store_conn_broken(c)) {
        return give_credit(t, c) ? 0 : store_no_memory(e);
    }
    return collect(t, c, &is_over) ? close_channel(t, c->channel, e)
                                   : store_no_memory(e);
}

static void end_channel(struct store_trunk *t, struct store_conn *c)
{
    struct channel *ch = &t->channels[c->channel];

    store_close(t->store, c);
    *ch = (struct channel){.is_over = true};
}

/* Requests that have to wait for others are no news when answers have gone. */
static void note_held(struct store_trunk *t, const struct store_conn *c)
{
    t->has_held = t->has_held || (store_conn_held(c) && !c->blocked);
}

static int resume(struct store_trunk *t, struct store_conn *c, struct error *e)
{
    int rc = store_resume(t->store, c, NULL);

    note_held(t, c);
    if (!t->channels[c->channel].is_open && !c->blocked) {
        return close_channel(t, c->channel, e);
    }
    return after_feed(t, c, rc, e);
}

bool store_trunk_collect(struct store_trunk *t, struct store_conn *c)
{
    bool is_over;
    int rc = 0;

    if (!collect(t, c, &is_over)) {
        return false;
    }
    if (store_conn_broken(c)) {
        return !c->is_control && close_channel(t, c->channel, NULL) == 0;
    }
    if (is_over) {
        end_channel(t, c);
        return true;
    }
    if (c->is_due) {
        rc = resume(t, c, NULL);
    }
    return rc == 0;
}

/* Part of a frame. */
static int take_part(struct store_trunk *t, const char *data, size_t len,
                     struct error *e)
{
    const struct store_frame *f = &t->frames.frame;
    struct channel *ch;
    int rc;

    t->store->n_frames_in += t->frames.left == 0;
    if (f->channel == STORE_CONTROL_CHANNEL && len > 0) {
        return store_feed(t->store, t->control, data, len, e);
    }
    rc = reach(t, f->channel, e);
    if (rc < 0) {
        return rc;
    }
    ch = &t->channels[f->channel];
    if (ch->is_over && f->len == 0) {
        ch->is_over = false;
        return put_frame(t, f->channel, 0, NULL, 0) ? 0 : store_no_memory(e);
    }
    if (ch->is_over && f->number > 0 && data[0] == STORE_CANCEL_WAIT) {
        return 0; /* on its way when the wait ended */
    }
    if (f->len == 0) {
        if (!ch->is_open) {
            return error_text(e, EPROTO, "a trunk closes what is not open");
        }
        ch->is_open = false;
        /* What its client asked for before it went is still to be done. */
        return ch->conn && ch->conn->blocked ? 0
                                             : close_channel(t, f->channel, e);
    }
    if (!ch->is_open && ch->conn) {
        return error_text(e, EPROTO, "a trunk uses what it has closed");
    }
    if (!ch->is_open) {
        rc = open_channel(t, f, e);
    }
    if (rc < 0 || !ch->conn) {
        return rc; /* on its way when this side closed the channel */
    }
    ch->n_bytes += len;
    rc = store_feed(t->store, ch->conn, data, len, NULL);
    note_held(t, ch->conn);
    return after_feed(t, ch->conn, rc, e);
}

int store_trunk_feed(struct store_trunk *t, const void *data, size_t len,
                     struct error *e)
{
    const char *at = data, *part;
    size_t part_len;
    int rc = 0;

    while (rc == 0 &&
           store_frames_next(&t->frames, &at, &len, &part, &part_len)) {
        rc = take_part(t, part, part_len, e);
    }
    return rc;
}

bool store_trunk_has_held(const struct store_trunk *t)
{
    return t->has_held;
}

int store_trunk_resume(struct store_trunk *t, struct error *e)
{
    int rc = 0;

    t->has_held = false;
    for (size_t i = 0; i < t->n_channels && rc == 0; i++) {
        struct store_conn *c = t->channels[i].conn;

        if (c && c->in.len > 0) {
            rc = resume(t, c, e);
        }
    }
    return rc;
}
