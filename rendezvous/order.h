/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two messages of the control tree. The lead publishes an order, broadcast
 * down the tree; each member answers with reports, forwarded up hop by hop.
 *
 * Both are state, not events: an order says what is to be, a report says what
 * is. Either may be delivered twice, late, or not at all when a newer one
 * follows. The order with the highest serial counts, and of each rank the
 * report with the highest serial. Both ends send their newest again after a
 * reconnect, and that is all the recovery there is.
 *
 * Encoded form: base/wire.h fields, a format byte first. Decoding accepts
 * nothing that encoding could not have written.
 */
#ifndef MUSTER_RENDEZVOUS_ORDER_H
#define MUSTER_RENDEZVOUS_ORDER_H

#include "base/buf.h"
#include "base/error.h"
#include "rendezvous/avoid.h"
#include "rendezvous/exclusion.h"
#include "rendezvous/failure.h"
#include "rendezvous/view.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_MAX_NODES 65536
#define ORDER_ADDR_BYTES 64   /* a numeric address */
#define ORDER_PATH_BYTES 1024 /* where a checkpoint lies */
#define ORDER_TEXT_BYTES 1024

enum order_step {
    ORDER_PREPARE = 1, /* have no worker older than `generation`, then report
                          REPORT_STOPPED */
    ORDER_RUN = 2,     /* run the workers of `generation` */
    ORDER_END = 3,     /* stop all workers, then report REPORT_ENDED */
    ORDER_LEAVE = 4,   /* the run is over: exit */
    ORDER_VIEW = 5,    /* no more than that `view` was won: from who has read that in
                          the run directory, and the same from all who have. Its
                          serial is older than those of the lead of that view, and
                          only heirs take it (heir.h) */
};

enum order_stop {
    ORDER_STOP_NONE = 0,  /* no worker is left, as far as the lead knows */
    ORDER_STOP_GRACE = 1, /* ask, and kill after grace_ms */
    ORDER_STOP_FORCE = 2, /* kill */
};

/* An agent of which more has to be known than what its reports say. */
struct past_mark {
    uint32_t rank;
    uint32_t n_causes; /* generations that ended by a failure of it */
    enum exclusion excluded; /* and why, with all agents of its node */
};

/* More are not handed over; those that are excluded come first. */
#define PAST_MAX_MARKS 64

/* What whoever takes the lead has to know, and every order carries. */
struct past {
    uint32_t ran;         /* the newest generation that was ordered to run, or 0 */
    uint32_t n_restarts;  /* so far, the whole job's */
    uint32_t n_losses;    /* of nodes that took part */
    uint32_t want_nodes;  /* that are to take part; 0: as the job says */
    /* The newest checkpoint that was told of; "" if there is none. The next
     * generation starts from it. */
    uint32_t saved_generation; /* who wrote it; 0: an earlier run */
    int64_t resume_step;
    char resume_path[ORDER_PATH_BYTES];
    struct avoid avoid; /* checkpoints that no generation starts from */
    /* A verdict that becomes one when enough have heard it (lead_view.c): whoever
     * takes the lead proposes it again, and ends the run with it then. */
    bool has_end;
    uint8_t status;
    char reason[ORDER_TEXT_BYTES];
    bool suspended; /* a command has suspended the run, if it ends resumable */
    uint32_t n_marks;
    struct past_mark marks[PAST_MAX_MARKS]; /* by rank, rising */
};

void past_put(struct buf *b, const struct past *p);
void past_get(struct wire_reader *r, struct past *ret);

/* The number of its view is above the counter in a serial. */
#define ORDER_SERIAL_BITS 32

struct order {
    uint64_t serial;     /* rising; no two orders of a run have the same */
    struct view view;    /* that it belongs to; number 0 before the first */
    struct past past;
    uint32_t generation; /* END, LEAVE: the newest one prepared, 0 if none */
    enum order_step step;

    /* PREPARE and END: how older workers are stopped. */
    enum order_stop stop;
    uint32_t grace_ms;
    /* A worker or a node is gone: what the others wait for together can not
     * complete, and is to fail at once. False when workers are only asked to
     * stop: they may still save together. */
    bool broken;

    /* PREPARE: the member that opens the c10d store of `generation` before it
     * reports REPORT_STOPPED: the node of worker 0. */
    uint32_t store_rank;
    /* PREPARE: agents that count as lost; whoever reads of itself here has no
     * time to let its workers save: they are killed at once. NULL unless
     * PREPARE. */
    uint32_t n_gone;
    uint32_t *gone; /* n_gone of them, rising; owned */

    /* RUN. A node with n_procs 0 takes no part in this generation. */
    uint32_t n_nodes;
    uint16_t *n_procs; /* n_nodes of them, owned; NULL unless RUN */
    char master_addr[ORDER_ADDR_BYTES];
    uint16_t master_port;
    uint32_t max_restarts;
    char previous[ORDER_TEXT_BYTES];    /* how the last generation failed */
    /* What its workers start from, "" for nothing: as long as it runs, and whatever
     * the past of a later order says that they have saved. */
    int64_t resume_step;
    char resume_path[ORDER_PATH_BYTES];

    /* END and LEAVE: the verdict. It never changes once END was published. */
    uint8_t status; /* the exit status of the run */
    char reason[ORDER_TEXT_BYTES];
};

enum report_state {
    REPORT_JOINED = 0,  /* here; no workers; generation is 0 */
    REPORT_STOPPED = 1, /* no worker older than `generation` is alive here, and
                           this node is ready to run it */
    REPORT_RUNNING = 2, /* workers of `generation` were started; some may have
                           exited or failed */
    REPORT_DONE = 3,    /* all of them exited 0, and nothing of them is left */
    REPORT_ENDED = 4,   /* an END was seen and no worker is alive */
};

struct report {
    uint32_t rank;   /* of the agent */
    uint64_t serial; /* from 1, per agent */
    uint32_t generation;
    enum report_state state;
    uint32_t floor;   /* it obeys no order of a view with a smaller number; it has
                         promised that when it was free (heir.h). 0: none yet */
    uint32_t fenced;  /* the newest generation whose workers it has killed because
                         its lease was over, or 0: it may have another by now */
    uint64_t heard_ago_ms; /* when it last heard of a lead of an older view, at
                              least so long ago; UINT64_MAX: never */
    uint16_t n_procs; /* that this node would run */
    uint16_t n_alive;

    /* The store of `generation`, from order.store_rank while it is prepared or
     * runs; port 0 and "" from everybody else. */
    uint16_t store_port;
    char store_addr[ORDER_ADDR_BYTES];

    /* The newest checkpoint that a worker here announced as complete, with the
     * generation that wrote it; "" if none. */
    uint32_t saved_generation;
    int64_t saved_step;
    char saved_path[ORDER_PATH_BYTES];

    /* The first failure of the newest generation here that had one. It stays
     * in later reports, with its generation, until the next one fails. */
    bool failed;
    struct failure failure;
};

/* Appends the encoded form. A report with wrong values (state, step) is our own
 * bug and asserted. An allocation failure is remembered in `b`. */
void order_encode(const struct order *o, struct buf *b);
void report_encode(const struct report *r, struct buf *b);

/* 0, or -ERR_FORMAT, -ERR_VERSION, -ENOMEM; `ret` is only written on success
 * and for orders must be released then. */
int order_decode(const void *data, size_t len, struct order *ret,
                 struct error *e);
int report_decode(const void *data, size_t len, struct report *ret,
                  struct error *e);

/* A deep copy. `to` is released first, so it must be valid (zeroed will do).
 * 0 or -ENOMEM, with `to` then empty. */
int order_copy(struct order *to, const struct order *from);

/* Whether a PREPARE counts that member as lost. */
bool order_is_gone(const struct order *o, uint32_t rank);

/* Frees what it owns; the struct is zeroed. */
void order_release(struct order *o);
#define _order_ __attribute__((cleanup(order_release)))

/* "prepare", "run", ...; "joined", "stopped", ...; for logs. */
const char *order_step_name(enum order_step step);
const char *report_state_name(enum report_state state);

#endif
