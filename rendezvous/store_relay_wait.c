/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients who wait for the same share one channel: what all of a group wait for is asked
 * once, with their number, when the trunk is written to next. Who comes after that makes
 * another group.
 */
#include <config.h>

#include "rendezvous/store_relay_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void unlink_group(struct store_relay *relay, struct relay_group *g)
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

void relay_free_group(struct store_relay *relay, struct relay_group *g)
{
    relay->store->buffered_bytes -= g->len;
    free(g);
}

static void leave_group(struct store_relay *relay, struct relayed *m)
{
    struct relay_group *g = m->group;

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
static void end_group(struct store_relay *relay, struct relay_group *g)
{
    if (g->channel == NO_CHANNEL) {
        unlink_group(relay, g);
    } else {
        relay_close_line(relay, g->channel);
    }
    relay_free_group(relay, g);
}

void relay_give_up(struct store_relay *relay, struct relayed *m)
{
    struct relay_group *g = m->group;

    leave_group(relay, m);
    if (!g->first) {
        end_group(relay, g);
    } else if (g->channel != NO_CHANNEL) {
        relay_put_frame(relay, g->channel, g->n_members, STORE_CANCEL_WAIT, NULL, 1,
                        NULL);
    }
}

static void join(struct store_relay *relay, struct relay_group *g, struct relayed *m)
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

static struct relay_group *make_group(struct store_relay *relay, const char *fields,
                                      size_t len)
{
    struct relay_group *g = calloc(1, sizeof(*g) + len);

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

int relay_share_wait(struct store_relay *relay, struct relayed *m,
                     const char *fields, size_t len, struct error *e)
{
    struct relay_group *g = relay->groups;
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

void relay_break_group(struct store_relay *relay, struct relay_group *g)
{
    while (g->first) {
        struct store_conn *c = g->first->conn;

        leave_group(relay, g->first);
        store_break(relay->store, c);
    }
}

void relay_write_groups(struct store_relay *relay)
{
    while (relay->groups) {
        struct relay_group *g = relay->groups;
        struct relay_line as = {.state = LINE_GROUP, .group = g};

        unlink_group(relay, g);
        if (relay_open_line(relay, &as, &g->channel, NULL) < 0) {
            relay_break_group(relay, g);
            relay_free_group(relay, g);
        } else if (relay_put_frame(relay, g->channel, g->n_members, STORE_WAIT,
                                   g->fields, g->len, NULL) < 0) {
            relay_break_group(relay, g);
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
static int answer_group(struct store_relay *relay, struct relay_group *g, char answer,
                        struct error *e)
{
    if (answer != STORE_STOP_WAITING && answer != STORE_STOP_WAITING_ONE) {
        return error_text(e, EPROTO, "a wait was answered %d", answer);
    }
    do {
        tell(relay, g->first);
    } while (g->first && answer == STORE_STOP_WAITING);
    if (answer == STORE_STOP_WAITING) {
        relay_free_line(relay, g->channel);
        relay_free_group(relay, g);
    } else if (!g->first) {
        end_group(relay, g);
    }
    return 0;
}

int relay_answer_waits(struct store_relay *relay, const struct relay_line *line,
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
