/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a relay share. Private to store_relay*.c.
 *
 *   store_relay.c       the trunk, its channels, and what clients ask on their own
 *   store_relay_wait.c  those who wait for the same, together
 */
#ifndef MUSTER_RENDEZVOUS_STORE_RELAY_PRIV_H
#define MUSTER_RENDEZVOUS_STORE_RELAY_PRIV_H

#include "rendezvous/store_relay.h"

#include "rendezvous/store_frame.h"
#include "rendezvous/store_state.h"

#define NO_CHANNEL UINT32_MAX

/* What a connection has on the trunk. */
struct relayed {
    struct store_conn *conn;
    uint32_t channel; /* or NO_CHANNEL */
    uint32_t n_sent;  /* requests on it, also without an answer */
    uint32_t asked;   /* the last of them that is answered */
    uint32_t n_done;  /* of them, as the other side has said */
    size_t n_bytes;   /* of them, but for those that MORE was said of */
    struct relay_group *group; /* whose wait it shares, or NULL */
    struct relayed *prev;      /* in the group, oldest first */
    struct relayed *next;
};

/* Those who wait for the same, since between two writes to the trunk. */
struct relay_group {
    struct relay_group *prev; /* of those that are not written yet */
    struct relay_group *next;
    uint32_t channel;         /* or NO_CHANNEL: not written yet */
    struct relayed *first;
    struct relayed *last;
    uint32_t n_members;
    size_t len; /* of the request; without the command: */
    char fields[];
};

enum line_state { LINE_FREE, LINE_CLIENT, LINE_GROUP, LINE_CLOSING };

struct relay_line {
    enum line_state state;
    uint32_t next_free;
    struct store_conn *conn;
    struct relay_group *group;
};

struct store_relay {
    struct store *store;
    struct store_frames frames;
    struct store_conn *control; /* words that have come */
    struct relay_line *lines;   /* by channel */
    uint32_t n_lines;
    uint32_t free_line;         /* or NO_CHANNEL */
    struct relay_group *groups; /* not written yet */
    struct buf out;
    size_t taken_bytes;
};

/* --- store_relay.c --- */

/* A frame with a request, for one client (0) or so many that wait; or without one:
 * the close of the channel, which a store that is full lets through, as words. */
int relay_put_frame(struct store_relay *relay, uint32_t channel, uint32_t n_waiting,
                    enum store_command command, const char *fields, size_t len,
                    struct error *e);

int relay_open_line(struct store_relay *relay, const struct relay_line *as,
                    uint32_t *ret, struct error *e);
void relay_free_line(struct store_relay *relay, uint32_t channel);
/* Without memory for the word the trunk is of no use: its next user finds
 * `out.failed`. */
void relay_close_line(struct store_relay *relay, uint32_t channel);

/* --- store_relay_wait.c --- */

/* `m` waits for that, with others who do. */
int relay_share_wait(struct store_relay *relay, struct relayed *m, const char *fields,
                     size_t len, struct error *e);
/* One client waits no more: the other side must not count it. */
void relay_give_up(struct store_relay *relay, struct relayed *m);
/* What all groups wait for goes into `out`. */
void relay_write_groups(struct store_relay *relay);
/* What came on a group's channel. */
int relay_answer_waits(struct store_relay *relay, const struct relay_line *line,
                       uint32_t channel, const char *data, size_t len, struct error *e);
/* Its members get no answer any more: their connections break. */
void relay_break_group(struct store_relay *relay, struct relay_group *g);
/* Without members, and after its channel. */
void relay_free_group(struct store_relay *relay, struct relay_group *g);

#endif
