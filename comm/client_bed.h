/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of comm/client.h: an agent in the same thread. --wrap makes up the clock, and
 * poll(): while the client waits the agent has its turn, so that a minute takes no time
 * and nothing depends on who is faster.
 */
#ifndef MUSTER_COMM_CLIENT_BED_H
#define MUSTER_COMM_CLIENT_BED_H

#include "comm/agent_bed.h"
#include "comm/client.h"
#include "comm/worker_proto.h"

#include "base/buf.h"
#include "base/str.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLIENT_BED_TURNS = 8,
    CLIENT_BED_REPORTS = 1000, /* more than the socket takes */
};

struct client_bed;

/* What happens in one poll(): time passes, and the agent does something. It returns
 * what poll() does: 1 ready, 0 not in time, or -1 interrupted. */
struct turn {
    unsigned ms;
    int rc;
    void (*act)(struct client_bed *a);
};

struct client_bed {
    struct agent_bed place;
    int listener, fd;
    const struct turn *turns;
    size_t n_turns;
    int waited[CLIENT_BED_TURNS]; /* for how long poll() was asked to */
    short events[CLIENT_BED_TURNS];
    size_t n_waited;
    struct buf in; /* what has come */
    struct worker_hello hello; /* with which the client came */
};

/* Which agent has its turn, and when; each test has one. */
struct client_bed_world {
    struct client_bed *agent;
    uint64_t now_ms;
};
extern struct client_bed_world client_bed_world;

#define plan_turns(a, ...)                            \
    static const struct turn turns_[] = {__VA_ARGS__}; \
    (a)->turns = turns_;                              \
    (a)->n_turns = ARRAY_SIZE(turns_);                \
    (a)->n_waited = 0

/* A place to listen; then a client that is welcome, of generation 7. The clock stands. */
void client_bed_open(struct client_bed *a);
struct client *client_bed_connect(struct client_bed *a);
/* The client may be NULL. */
void client_bed_close(struct client_bed *a, struct client *c);

void client_bed_accept(struct client_bed *a);
void client_bed_say(struct client_bed *a, const struct worker_msg *m);
/* With so many descriptors, which stay the caller's. */
void client_bed_say_with(struct client_bed *a, const struct worker_msg *m,
                         const int *fds, size_t n_fds);
/* The first three bytes of an answer to client_join(), or what is behind them. */
void client_bed_say_part(struct client_bed *a, bool is_first);
/* Takes all that has come. */
void client_bed_hear(struct client_bed *a);

/* Reports, until the socket takes nothing more. */
void client_bed_fill(struct client *c);

/* How often the client has waited, and for how long each time. */
void client_bed_check_waits(const struct client_bed *a, short events, int n,
                            const int *want);
#define check_waited(a, events, ...)                                             \
    client_bed_check_waits(a, events, (int)ARRAY_SIZE(((int[]){__VA_ARGS__})), \
                           (int[]){__VA_ARGS__})

#endif
