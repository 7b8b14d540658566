/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels on the links of the control tree (base/link.h), and on the link
 * between the lead and a front end, which is the parent of the lead.
 *
 *   up                                   down
 *   HELLO   who connects                 WELCOME  who answers
 *   BEAT    alive: u64 stamp, of the     BEAT     the answer: u64 stamp, as it
 *           sender's clock, and what              came, u64 age of the lead's
 *           its subtree has seen                  word (2^64-1: none yet), u32
 *           (struct tree_seen)                    its view, u64 its own stamp
 *   REPORT  of one rank                  CONFIG   the job, for all
 *   LOST    a rank is gone               ORDER    the newest order
 *   HERE    a rank is connected
 *   FOLLOW  of a rank without a lead
 *   EVENT   a fact for the journal; u64  CREDIT   output that was passed on
 *           the how manieth of its rank
 *   OUTPUT  what workers print           REQUEST  (front end to lead)
 *                                        HEARD    u64: so many of the EVENTs that came
 *                                                 by this link the lead has heard
 *   STATUS  (lead to front end)          REFUSED  this connection is not wanted
 *                                        ASK      the lead wants something
 *                                        AGAIN    a longer roster has come: who is below?
 *
 * A member takes the lead to have been alive at stamp - age, by its own clock:
 * not later than it was, however long the answer was on its way.
 *
 * All fields by base/wire.h. CONFIG, ORDER, REPORT, EVENT, STATUS, REQUEST and ASK
 * carry one encoded thing and nothing else; only REPORT, FOLLOW, LOST, HERE and EVENT
 * (but for one to a front end) name a rank before it. HERE has nothing behind it, and
 * comes before a report of that rank.
 */
#ifndef MUSTER_RENDEZVOUS_TREE_MSG_H
#define MUSTER_RENDEZVOUS_TREE_MSG_H

#include "base/buf.h"
#include "base/error.h"
#include "base/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tree_type {
    TREE_HELLO = 1,
    TREE_WELCOME = 2,
    TREE_BEAT = 3,
    TREE_CONFIG = 4,
    TREE_ORDER = 5,
    TREE_REPORT = 6,
    TREE_LOST = 7,
    TREE_EVENT = 8,
    TREE_OUTPUT = 9,
    TREE_CREDIT = 10,
    TREE_STATUS = 11,
    TREE_REQUEST = 12,
    TREE_REFUSED = 13,
    TREE_ASK = 14,
    TREE_HERE = 15,
    TREE_FOLLOW = 16,
    TREE_HEARD = 17,
    TREE_AGAIN = 18,
};

enum {
    TREE_ID_BYTES = 128,
    TREE_TEXT_BYTES = 1024,
    TREE_WINDOW_BYTES = 1024 * 1024, /* of output not yet passed on, a link */
    TREE_OUTPUT_MAX = 160 * 1024,    /* bytes of one OUTPUT frame */
};

/* Where a front end listens for a lead on its own host (base/link.h). */
#define TREE_FRONT_LOCAL_NAME "front"

struct tree_hello {
    uint32_t rank;
    char run_id[TREE_ID_BYTES];
    char version[TREE_ID_BYTES]; /* of muster */
    uint32_t view; /* a lead's, to its front end; else 0 */
};

void tree_hello_encode(const struct tree_hello *h, struct buf *b);
int tree_hello_decode(const void *data, size_t len, struct tree_hello *ret,
                      struct error *e);

/* The config of a run that has been under way for so long. */
void tree_config_encode(uint64_t age_ms, const void *data, size_t len, struct buf *b);

/* Ranks that a sum counts: more than there can be, as who is just between two parents
 * may count with both. */
#define TREE_MAX_SEEN (1u << 20)

/* What a subtree has heard of the lead of `view`, by the clock of that. Who is
 * silent counts with what it had heard before, and as suspect. */
struct tree_seen {
    uint32_t view;      /* 0: nothing was heard of any */
    uint64_t all_ms;    /* the oldest of all */
    uint64_t live_ms;   /* the oldest of those that are not suspect */
    uint32_t n_suspect;
    uint32_t n_quiet;   /* of them those that are silent */
    uint32_t n;         /* ranks in it */
};

void tree_seen_put(struct buf *b, const struct tree_seen *s);
/* Sets r->bad where more are suspect than there are. */
void tree_seen_get(struct wire_reader *r, struct tree_seen *ret);

/* A rank that is gone. */
struct tree_loss {
    bool dead;         /* its agent has ended: its port answers no more, though
                          its host does */
    uint64_t quiet_ms; /* for so long, at least, it has had no word of the lead */
    char why[TREE_TEXT_BYTES];
};

void tree_loss_encode(const struct tree_loss *l, struct buf *b);
int tree_loss_decode(const void *data, size_t len, struct tree_loss *ret);

/* One piece of a worker's output; `data` is borrowed. */
struct tree_output {
    uint32_t node;       /* rank of the agent */
    uint32_t generation;
    uint32_t rank;       /* of the worker */
    uint8_t which;       /* 0 stdout, 1 stderr */
    uint8_t piece;       /* whole lines, or a cut one: launcher/output.h */
    const void *data;
    size_t len;
};

void tree_output_encode(const struct tree_output *o, struct buf *b);
int tree_output_decode(const void *data, size_t len, struct tree_output *ret);

#endif
