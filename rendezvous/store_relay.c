/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_relay.h"

#include "rendezvous/store_frame.h"
#include "rendezvous/store_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_CHANNEL UINT32_MAX

/* Requests of one client of which no answer has come: with more under way, one that
 * does not read would fill this side with answers. */
enum { MAX_UNANSWERED = 8 };

/* What a connection has on the trunk. */
struct relayed {
    struct store_conn *conn;
    uint32_t channel; /* or NO_CHANNEL */
    uint32_t n_sent;  /* requests on it, also without an answer */
    uint32_t asked;   /* the last of them that is answered */
    uint32_t n_done;  /* of them, as the other side has said */
    size_t n_bytes;   /* of them, but for those that MORE was said of */
    struct group *group;  /* whose wait it shares, or NULL */
    struct relayed *prev; /* in the group, oldest first */
    struct relayed *next;
};

/* Those who wait for the same, since between two writes to the trunk. */
struct group {
    struct group *prev; /* of those that are not written yet */
    struct group *next;
    uint32_t channel;   /* or NO_CHANNEL: not written yet */
    struct relayed *first;
    struct relayed *last;
    uint32_t n_members;
    size_t len; /* of the request; without the command: */
    char fields[];
};

enum line_state { LINE_FREE, LINE_CLIENT, LINE_GROUP, LINE_CLOSING };

struct line {
    enum line_state state;
    uint32_t next_free;
    struct store_conn *conn;
    struct group *group;
};

struct store_relay {
    struct store *store;
    struct store_frames frames;
    struct store_conn *control; /* words that have come */
    struct line *lines; /* by channel */
    uint32_t n_lines;
    uint32_t free_line; /* or NO_CHANNEL */
    struct group *groups; /* not written yet */
    struct buf out;
    size_t taken_bytes;
};

/* The trunk, up */

/* A frame with a request, for one client (0) or so many that wait; or without one:
 * the close of the channel, which a store that is full lets through, as words. */
static int put_frame(struct store_relay *relay, uint32_t channel,
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
    return put_frame(relay, channel, 0, 0, NULL, 0, e);
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
    struct line *more;

    if (n > STORE_MAX_CHANNELS) {
        return error_text(e, EMFILE, "more than %d clients of one store",
                          STORE_MAX_CHANNELS);
    }
    more = realloc(relay->lines, n * sizeof(*more));
    if (!more) {
        return store_no_memory(e);
    }
    for (uint32_t i = relay->n_lines; i < n; i++) {
        more[i] = (struct line){
            .next_free = i + 1 < n ? i + 1 : relay->free_line};
    }
    relay->free_line = relay->n_lines;
    relay->lines = more;
    relay->n_lines = n;
    return 0;
}

static int open_line(struct store_relay *relay, const struct line *as,
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

static void free_line(struct store_relay *relay, uint32_t channel)
{
    relay->lines[channel] = (struct line){.next_free = relay->free_line};
    relay->free_line = channel;
}

/* Without memory for the word the trunk is of no use: its next user finds
 * `out.failed`. */
static void close_line(struct store_relay *relay, uint32_t channel)
{
    relay->lines[channel] = (struct line){.state = LINE_CLOSING};
    put_close(relay, channel, NULL);
}

/* Waits */

static void unlink_group(struct store_relay *relay, struct group *g)
{
    if (g->prev) {
        g->prev->next = g->next;
    } else {
        relay->groups = g->next;
    }
    if (g->next) {
        g->next->prev = g->prev;
    }
    g->prev = g->next = NULL;
}

/* Without members, and after its channel. */
static void free_group(struct store_relay *relay, struct group *g)
{
    relay->store->buffered_bytes -= g->len;
    free(g);
}

static void leave_group(struct store_relay *relay, struct relayed *m)
{
    struct group *g = m->group;

    if (m->prev) {
        m->prev->next = m->next;
    } else {
        g->first = m->next;
    }
    if (m->next) {
        m->next->prev = m->prev;
    } else {
        g->last = m->prev;
    }
    m->group = NULL;
    m->prev = m->next = NULL;
    g->n_members--;
    relay->store->n_waiting--;
}

/* Nobody is left to wait. */
static void end_group(struct store_relay *relay, struct group *g)
{
    if (g->channel == NO_CHANNEL) {
        unlink_group(relay, g);
    } else {
        close_line(relay, g->channel);
    }
    free_group(relay, g);
}

/* One client waits no more: the other side must not count it. */
static void give_up(struct store_relay *relay, struct relayed *m)
{
    struct group *g = m->group;

    leave_group(relay, m);
    if (!g->first) {
        end_group(relay, g);
    } else if (g->channel != NO_CHANNEL) {
        put_frame(relay, g->channel, g->n_members, STORE_CANCEL_WAIT, NULL, 1,
                  NULL);
    }
}

static void join(struct store_relay *relay, struct group *g, struct relayed *m)
{
    m->group = g;
    m->prev = g->last;
    m->next = NULL;
    if (m->prev) {
        m->prev->next = m;
    } else {
        g->first = m;
    }
    g->last = m;
    g->n_members++;
    relay->store->n_waiting++;
}

static struct group *make_group(struct store_relay *relay, const char *fields,
                                size_t len)
{
    struct group *g = calloc(1, sizeof(*g) + len);

    if (!g) {
        return NULL;
    }
    g->channel = NO_CHANNEL;
    g->len = len;
    memcpy(g->fields, fields, len - 1);
    relay->store->buffered_bytes += len;
    g->next = relay->groups;
    if (g->next) {
        g->next->prev = g;
    }
    relay->groups = g;
    return g;
}

static int share_wait(struct store_relay *relay, struct relayed *m,
                      const char *fields, size_t len, struct error *e)
{
    struct group *g = relay->groups;
    int rc = store_check_room(relay->store, len, e);

    if (rc < 0) {
        return rc;
    }
    while (g && (g->len != len || memcmp(g->fields, fields, len - 1) != 0)) {
        g = g->next;
    }
    if (!g) {
        g = make_group(relay, fields, len);
    }
    if (!g) {
        return store_no_memory(e);
    }
    join(relay, g, m);
    return 0;
}

static void break_group(struct store_relay *relay, struct group *g)
{
    while (g->first) {
        struct store_conn *c = g->first->conn;

        leave_group(relay, g->first);
        store_break(relay->store, c);
    }
}

static void write_groups(struct store_relay *relay)
{
    while (relay->groups) {
        struct group *g = relay->groups;
        struct line as = {.state = LINE_GROUP, .group = g};

        unlink_group(relay, g);
        if (open_line(relay, &as, &g->channel, NULL) < 0) {
            break_group(relay, g);
            free_group(relay, g);
        } else if (put_frame(relay, g->channel, g->n_members, STORE_WAIT,
                             g->fields, g->len, NULL) < 0) {
            break_group(relay, g);
            end_group(relay, g);
        }
    }
}

static void tell(struct store_relay *relay, struct relayed *m)
{
    leave_group(relay, m);
    if (store_reply_u8(relay->store, m->conn, STORE_STOP_WAITING, NULL) < 0) {
        store_break(relay->store, m->conn);
    }
}

/* All of a group are told, or the one that has waited longest. */
static int answer_group(struct store_relay *relay, struct group *g, char answer,
                        struct error *e)
{
    if (answer != STORE_STOP_WAITING && answer != STORE_STOP_WAITING_ONE) {
        return error_text(e, EPROTO, "a wait was answered %d", answer);
    }
    do {
        tell(relay, g->first);
    } while (g->first && answer == STORE_STOP_WAITING);
    if (answer == STORE_STOP_WAITING) {
        free_line(relay, g->channel);
        free_group(relay, g);
    } else if (!g->first) {
        end_group(relay, g);
    }
    return 0;
}

static int answer_waits(struct store_relay *relay, const struct line *line,
                        uint32_t channel, const char *data, size_t len,
                        struct error *e)
{
    int rc = 0;

    /* It may end with any of them. */
    while (len-- > 0 && rc == 0 && line->state == LINE_GROUP) {
        rc = answer_group(relay, line->group, *data++, e);
        line = &relay->lines[channel];
    }
    return rc;
}

char *store_relay_take(struct store_relay *relay, size_t *ret_len)
{
    write_groups(relay);
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
    struct line as = {.state = LINE_CLIENT, .conn = m->conn};
    int rc = m->channel == NO_CHANNEL ? open_line(relay, &as, &m->channel, e)
                                      : 0;

    if (rc < 0) {
        return rc;
    }
    m->n_sent++;
    m->n_bytes += len;
    m->asked = has_answer(command) ? m->n_sent : m->asked;
    return put_frame(relay, m->channel, 0, command, fields, len, e);
}

/* A request behind a wait ends it, or the wait is answered already: where nobody
 * has asked yet, that is to be found out in order. */
static int ask_alone(struct store_relay *relay, struct relayed *m,
                     struct error *e)
{
    struct group *g = m->group;
    int rc = pass_on(relay, m, STORE_WAIT, g->fields, g->len, e);

    give_up(relay, m);
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
        give_up(relay, m);
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
        return share_wait(relay, m, r->data + 1, len, e);
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
                    : put_frame(relay, STORE_CONTROL_CHANNEL, 0,
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
    struct line none = {.state = LINE_FREE};
    struct line *line =
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
        give_up(relay, m);
    }
    if (m->channel != NO_CHANNEL) {
        close_line(relay, m->channel);
    }
    free(m);
    c->relayed = NULL;
}

/* The trunk, down */

static int line_closed(struct store_relay *relay, uint32_t channel,
                       struct error *e)
{
    struct line line = relay->lines[channel];

    free_line(relay, channel);
    if (line.state == LINE_CLOSING) {
        return 0;
    }
    if (line.state == LINE_CLIENT) {
        line.conn->relayed->channel = NO_CHANNEL;
        store_break(relay->store, line.conn);
    } else {
        break_group(relay, line.group);
        free_group(relay, line.group);
    }
    return put_close(relay, channel, e);
}

static int take_part(struct store_relay *relay, const char *data, size_t len,
                     struct error *e)
{
    const struct store_frame *f = &relay->frames.frame;
    struct line *line =
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
        return answer_waits(relay, line, f->channel, data, len, e);
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
