/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_relay_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Requests of one client of which no answer has come: with more under way, one that
 * does not read would fill this side with answers. */
enum { MAX_UNANSWERED = 8 };

/* The trunk, up */

int relay_put_frame(struct store_relay *relay, uint32_t channel,
                    uint32_t n_waiting, enum store_command command,
                    const char *fields, size_t len, struct error *e)
{
    size_t before = relay->out.len;
    int rc = len && channel != STORE_CONTROL_CHANNEL
                 ? store_check_room(relay->store, STORE_FRAME_BYTES + len, e)
                 : 0;

    if (rc < 0) {
        return rc;
    }
    store_frame_put(&relay->out, channel, n_waiting, (uint32_t)len);
    if (len) {
        buf_putc(&relay->out, (char)command);
    }
    if (len > 1) {
        buf_append(&relay->out, fields, len - 1);
    }
    if (relay->out.failed) {
        return store_no_memory(e);
    }
    relay->store->buffered_bytes += relay->out.len - before;
    return 0;
}

static int put_close(struct store_relay *relay, uint32_t channel,
                     struct error *e)
{
    return relay_put_frame(relay, channel, 0, 0, NULL, 0, e);
}

bool store_relay_held(const struct store_relay *relay,
                      const struct store_conn *c)
{
    const struct relayed *m = c->relayed;

    return (m && ((int32_t)(m->asked - m->n_done) >= MAX_UNANSWERED ||
                  m->n_bytes >= STORE_WINDOW_BYTES)) ||
           relay->out.len + relay->taken_bytes >=
               relay->store->limits.pipeline_bytes;
}

/* Channels */

static int add_lines(struct store_relay *relay, struct error *e)
{
    uint32_t n = relay->n_lines ? relay->n_lines * 2 : 16;
    struct relay_line *more;

    if (n > STORE_MAX_CHANNELS) {
        return error_text(e, EMFILE, "more than %d clients of one store",
                          STORE_MAX_CHANNELS);
    }
    more = realloc(relay->lines, n * sizeof(*more));
    if (!more) {
        return store_no_memory(e);
    }
    for (uint32_t i = relay->n_lines; i < n; i++) {
        more[i] = (struct relay_line){
            .next_free = i + 1 < n ? i + 1 : relay->free_line};
    }
    relay->free_line = relay->n_lines;
    relay->lines = more;
    relay->n_lines = n;
    return 0;
}

int relay_open_line(struct store_relay *relay, const struct relay_line *as,
                    uint32_t *ret, struct error *e)
{
    int rc = relay->free_line == NO_CHANNEL ? add_lines(relay, e) : 0;

    if (rc < 0) {
        return rc;
    }
    *ret = relay->free_line;
    relay->free_line = relay->lines[*ret].next_free;
    relay->lines[*ret] = *as;
    return 0;
}

void relay_free_line(struct store_relay *relay, uint32_t channel)
{
    relay->lines[channel] = (struct relay_line){.next_free = relay->free_line};
    relay->free_line = channel;
}

void relay_close_line(struct store_relay *relay, uint32_t channel)
{
    relay->lines[channel] = (struct relay_line){.state = LINE_CLOSING};
    put_close(relay, channel, NULL);
}

char *store_relay_take(struct store_relay *relay, size_t *ret_len)
{
    relay_write_groups(relay);
    *ret_len = relay->out.len;
    relay->taken_bytes += relay->out.len;
    return relay->out.len ? buf_take(&relay->out) : NULL;
}

void store_relay_sent(struct store_relay *relay, size_t len)
{
    relay->taken_bytes -= len;
    relay->store->buffered_bytes -= len;
}

/* Requests */

static bool has_answer(enum store_command command)
{
    return command != STORE_SET && command != STORE_MULTI_SET &&
           command != STORE_APPEND && command != STORE_QUEUE_PUSH;
}

/* It has nothing under way: what is answered here, or over another channel, comes
 * after all that it has asked for. */
static bool is_all_done(const struct relayed *m)
{
    return m->n_done == m->n_sent;
}

/* Over the client's own channel, which it has from then on. */
static int pass_on(struct store_relay *relay, struct relayed *m,
                   enum store_command command, const char *fields, size_t len,
                   struct error *e)
{
    struct relay_line as = {.state = LINE_CLIENT, .conn = m->conn};
    int rc = m->channel == NO_CHANNEL ? relay_open_line(relay, &as, &m->channel, e)
                                      : 0;

    if (rc < 0) {
        return rc;
    }
    m->n_sent++;
    m->n_bytes += len;
    m->asked = has_answer(command) ? m->n_sent : m->asked;
    return relay_put_frame(relay, m->channel, 0, command, fields, len, e);
}

/* A request behind a wait ends it, or the wait is answered already: where nobody
 * has asked yet, that is to be found out in order. */
static int ask_alone(struct store_relay *relay, struct relayed *m,
                     struct error *e)
{
    struct relay_group *g = m->group;
    int rc = pass_on(relay, m, STORE_WAIT, g->fields, g->len, e);

    relay_give_up(relay, m);
    return rc;
}

static struct relayed *relayed_of(struct store_conn *c)
{
    if (!c->relayed) {
        c->relayed = calloc(1, sizeof(*c->relayed));
        if (c->relayed) {
            c->relayed->conn = c;
            c->relayed->channel = NO_CHANNEL;
        }
    }
    return c->relayed;
}

int store_relay_request(struct store_relay *relay, struct store_conn *c,
                        struct store_request *r, size_t len, struct error *e)
{
    struct relayed *m = relayed_of(c);
    int rc = 0;

    if (!m) {
        return store_no_memory(e);
    }
    if (r->command == STORE_VALIDATE) {
        return store_run_command(relay->store, c, r, e);
    }
    if (m->group && m->group->channel == NO_CHANNEL) {
        rc = ask_alone(relay, m, e);
    } else if (m->group) {
        relay_give_up(relay, m);
        if (r->command == STORE_CANCEL_WAIT) {
            return store_run_command(relay->store, c, r, e);
        }
    }
    if (rc < 0 || !is_all_done(m)) {
        return rc < 0 ? rc : pass_on(relay, m, r->command, r->data + 1, len, e);
    }
    if (kept_answers(relay->store, r)) {
        return store_run_command(relay->store, c, r, e);
    }
    switch (r->command) {
    case STORE_PING:
        return store_run_command(relay->store, c, r, e);
    case STORE_WAIT:
        return relay_share_wait(relay, m, r->data + 1, len, e);
    default:
        return pass_on(relay, m, r->command, r->data + 1, len, e);
    }
}

/* Words */

static int say(struct store_relay *relay, enum store_command word,
               const char *key, size_t len, struct error *e)
{
    _buf_ struct buf b = {0};
    uint64_t n = len;

    buf_append(&b, &n, sizeof(n));
    buf_append(&b, key, len);
    return b.failed ? store_no_memory(e)
                    : relay_put_frame(relay, STORE_CONTROL_CHANNEL, 0,
                                      word, b.data, b.len + 1, e);
}

static int forget_excess(struct store_relay *relay, struct error *e)
{
    const char *key;
    size_t len;
    int rc = 0;

    while (rc == 0 && (key = kept_excess(relay->store, &len)) != NULL) {
        rc = say(relay, STORE_FORGOT, key, len, e);
        kept_drop(relay->store, key, len);
    }
    return rc;
}

static int keep(struct store_relay *relay, struct store_request *r,
                struct error *e)
{
    size_t key_len, len;
    const char *key = store_get_blob(r, &key_len);
    const char *value = store_get_blob(r, &len);

    if (!kept_put(relay->store, key, key_len, value, len)) {
        return say(relay, STORE_FORGOT, key, key_len, e);
    }
    return forget_excess(relay, e);
}

/* Of a client that is still there, or of a wait, which is not counted. */
static int go_on_with(struct store_relay *relay, uint32_t channel,
                      struct error *e)
{
    struct relay_line none = {.state = LINE_FREE};
    struct relay_line *line =
        channel < relay->n_lines ? &relay->lines[channel] : &none;
    struct relayed *m = line->state == LINE_CLIENT ? line->conn->relayed : NULL;

    if (line->state == LINE_FREE || (m && m->n_bytes < STORE_CREDIT_BYTES)) {
        return error_text(e, EPROTO, "more is done on channel %u than was asked "
                          "for", channel);
    }
    if (m) {
        m->n_bytes -= STORE_CREDIT_BYTES;
    }
    return 0;
}

int store_relay_word(struct store_relay *relay, struct store_request *r,
                     struct error *e)
{
    const char *key;
    size_t len;

    if (r->command == STORE_KEEP) {
        return keep(relay, r, e);
    }
    if (r->command == STORE_MORE) {
        return go_on_with(relay, store_get_u32(r), e);
    }
    key = store_get_blob(r, &len);
    kept_drop(relay->store, key, len);
    return say(relay, STORE_DROP, key, len, e);
}

void store_relay_forget(struct store_relay *relay, struct store_conn *c)
{
    struct relayed *m = c->relayed;

    if (!m) {
        return;
    }
    if (m->group) {
        relay_give_up(relay, m);
    }
    if (m->channel != NO_CHANNEL) {
        relay_close_line(relay, m->channel);
    }
    free(m);
    c->relayed = NULL;
}

/* The trunk, down */

static int line_closed(struct store_relay *relay, uint32_t channel,
                       struct error *e)
{
    struct relay_line line = relay->lines[channel];

    relay_free_line(relay, channel);
    if (line.state == LINE_CLOSING) {
        return 0;
    }
    if (line.state == LINE_CLIENT) {
        line.conn->relayed->channel = NO_CHANNEL;
        store_break(relay->store, line.conn);
    } else {
        relay_break_group(relay, line.group);
        relay_free_group(relay, line.group);
    }
    return put_close(relay, channel, e);
}

static int take_part(struct store_relay *relay, const char *data, size_t len,
                     struct error *e)
{
    const struct store_frame *f = &relay->frames.frame;
    struct relay_line *line =
        f->channel < relay->n_lines ? &relay->lines[f->channel] : NULL;

    if (f->channel == STORE_CONTROL_CHANNEL && len > 0) {
        return store_feed(relay->store, relay->control, data, len, e);
    }
    if (!line || line->state == LINE_FREE) {
        return error_text(e, EPROTO, "an answer on channel %u, which is not "
                          "open", f->channel);
    }
    if (f->len == 0) {
        return line_closed(relay, f->channel, e);
    }
    if (line->state == LINE_CLOSING) {
        return 0;
    }
    if (line->state == LINE_GROUP) {
        return relay_answer_waits(relay, line, f->channel, data, len, e);
    }
    if (store_reply(relay->store, line->conn, data, len, NULL) < 0) {
        store_break(relay->store, line->conn);
    }
    if (relay->frames.left == 0) {
        line->conn->relayed->n_done = f->number;
    }
    return 0;
}

int store_relay_feed(struct store_relay *relay, const void *data, size_t len,
                     struct error *e)
{
    const char *at = data, *part;
    size_t part_len;
    int rc = 0;

    while (rc == 0 &&
           store_frames_next(&relay->frames, &at, &len, &part, &part_len)) {
        rc = take_part(relay, part, part_len, e);
    }
    return rc == 0 && relay->out.failed ? store_no_memory(e) : rc;
}

struct store_relay *store_relay_create(struct store *s)
{
    struct store_relay *relay = calloc(1, sizeof(*relay));

    if (!relay) {
        return NULL;
    }
    relay->store = s;
    relay->free_line = NO_CHANNEL;
    relay->control = store_open_control(s, NULL);
    if (!relay->control) {
        free(relay);
        return NULL;
    }
    s->relay = relay;
    return relay;
}

void store_relay_destroy(struct store_relay *relay)
{
    if (!relay) {
        return;
    }
    store_close(relay->store, relay->control);
    kept_clear(relay->store);
    relay->store->buffered_bytes -= relay->out.len + relay->taken_bytes;
    relay->store->relay = NULL;
    buf_release(&relay->out);
    free(relay->lines);
    free(relay);
}
