/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file says by which a run has a directory of checkpoints to itself, and what
 * another run makes of it. One line of text:
 *
 *   muster-run 1 has ID HOST MACHINE PID START alone SINCE xxh3 0123456789abcdef
 *
 * No clock, no file: what was seen is an input.
 */
#ifndef MUSTER_CKPT_LEASE_NOTE_H
#define MUSTER_CKPT_LEASE_NOTE_H

#include "base/machine.h"
#include "ckpt/commit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEASE_NOTE_BYTES = 512, /* the longest, with a zero byte */
    /* How long it may not be renewed, by the filesystem's clock, or ours. */
    LEASE_STALE_MS = 60 * 1000,
    /* That its clock says so is not enough: it may have jumped, or be that of who has
     * written. For so long nobody renews it under our eyes. */
    LEASE_WATCH_MS = 15 * 1000,
};

enum lease_state {
    LEASE_WANTS, /* looks who else is there */
    LEASE_HAS,
};

struct lease_note {
    enum lease_state state;
    char run[COMMIT_WRITER_BYTES];  /* its id */
    char host[COMMIT_WRITER_BYTES]; /* for people */
    char machine[MACHINE_ID_BYTES]; /* machine_id(): where the pid means something */
    int pid;                        /* of the agent that leads it, ... */
    uint64_t start;                 /* ... and when that began, as struct proc has it */
    bool is_alone; /* its only agent: nobody leads the run on when it dies */
    int64_t since_s; /* has it since then, by the wall clock there; for people */
};

/* Into one of these: as commit_put_writer(), but never empty. */
void lease_note_put(struct lease_note *n, const char *run, const char *host,
                    const char *machine);

/* Returns the length. */
size_t lease_note_encode(const struct lease_note *n, char to[LEASE_NOTE_BYTES]);
/* False: it is cut, changed, or written by another muster. `ret` is only written on
 * success. */
bool lease_note_decode(const void *data, size_t len, struct lease_note *ret);

/* What was seen of another run's. */
struct lease_sight {
    bool is_whole; /* else `note` says nothing */
    struct lease_note note;
    bool is_here;    /* of this machine ... */
    bool is_running; /* ... where that process is there */
    int64_t age_ms;  /* since it was renewed, by the filesystem's clock */
    uint64_t still_ms; /* since it was seen first as it is, by ours */
    bool is_renewed;   /* while it is being looked at */
};

enum lease_fate {
    LEASE_HELD,  /* that run is there, or may be */
    LEASE_GONE,  /* it is not */
    LEASE_WATCH, /* that has to be seen for longer */
};

enum lease_fate lease_judge(const struct lease_sight *s);

#endif
