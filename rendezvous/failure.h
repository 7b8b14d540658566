/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a worker that failed. The member that saw it fills it in;
 * the lead picks the first of a generation as the cause of what follows.
 */
#ifndef MUSTER_RENDEZVOUS_FAILURE_H
#define MUSTER_RENDEZVOUS_FAILURE_H

#include "base/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAILURE_HOST_BYTES 256
#define FAILURE_PROGRAM_BYTES 256
#define FAILURE_WHAT_BYTES 256
#define FAILURE_TEXT_BYTES 4096

enum failure_kind {
    FAILURE_NONE = 0,
    FAILURE_EXIT = 1,   /* exit code other than 0 */
    FAILURE_SIGNAL = 2, /* killed by a signal */
    FAILURE_EXEC = 3,   /* the command could not start: exit_code 126 or 127 */
    FAILURE_AGENT = 4,  /* the agent could not do its part */
    FAILURE_OOM = 5,    /* the kernel's out-of-memory killer; signal is 9 */
    FAILURE_SAID = 6,   /* said so itself, and had not ended when it was
                           stopped; exit_code is 1, as after an exception */
    FAILURE_HANG = 7,   /* it was alive and made no progress, or did not release
                           its timer; signal is that by which it was to die: 9,
                           or the timer's */
};

/* How much speaks for a failure being the first of its generation: one of a
 * lower grade comes before one of a higher grade, whatever the clocks say. */
enum failure_grade {
    FAILURE_OWN = 0,  /* it ended by itself, or wrote its error file */
    FAILURE_HINT = 1, /* it printed a traceback and had not ended when it was
                         stopped: perhaps it would have lived on */
    FAILURE_ECHO = 2, /* its own words: it lost a peer, which failed before */
};

struct failure {
    enum failure_kind kind;
    enum failure_grade grade;
    uint32_t generation; /* of the worker */
    uint32_t node;       /* agent rank */
    int32_t rank;        /* global, -1 where no worker is meant */
    int32_t local_rank;  /* -1 likewise */
    int32_t pid;         /* 0 if it never had one */
    uint8_t exit_code;   /* FAILURE_EXIT, FAILURE_EXEC */
    uint8_t signal;      /* FAILURE_SIGNAL, FAILURE_OOM */
    bool core_dumped;
    bool killed_by_us;   /* by a stop: never a cause (a kill of a hung worker
                            is not a stop) */
    bool has_file;       /* it wrote an error file, which is kept */
    uint64_t wall_ns;    /* the node's clock when it failed */
    uint32_t age_ms;     /* how long ago that was when this was told: to the
                            member, and by it to the lead, so that none need
                            trust the clocks of nodes */
    char host[FAILURE_HOST_BYTES];
    char program[FAILURE_PROGRAM_BYTES];
    char what[FAILURE_WHAT_BYTES]; /* one line in its own words, or "" */
    char text[FAILURE_TEXT_BYTES]; /* last log lines, traceback */
};

/* Appends. `kind` must not be FAILURE_NONE. */
void failure_put(struct buf *b, const struct failure *f);

/* Reads; anything out of range sets r->bad. `ret` is always written. */
void failure_get(struct wire_reader *r, struct failure *ret);

/* One line without the log text, e.g. "rank 3 (node 1, n2) was killed by
 * signal 11 (SIGSEGV), core dumped: what it said". Truncated to `size`. */
void failure_describe(const struct failure *f, char *to, size_t size);

/* What the user may do about it, a sentence; NULL where muster knows nothing that
 * the failure does not say itself. */
const char *failure_advice(const struct failure *f);

/* Its text is what the worker printed last; else failure_describe() has all. */
bool failure_has_lines(const struct failure *f);

/* "SIGSEGV", "SIGRTMIN+3" or "signal 99" for any number. */
void failure_signal_name(int signal, char *to, size_t size);

#endif
