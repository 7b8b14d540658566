/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seats: how a process that mpirun starts becomes a worker of an agent.
 *
 * A rank of an MPI world must be started by the daemon of that world, and a worker
 * by its agent. So the agent starts a stand-in for each (muster-seat), with the
 * worker's environment, output and directory, and `muster exec`, which mpirun
 * starts, takes the seat of its rank: it runs the program with what the stand-in
 * offers. The stand-in ends as the program ends, passes on signals, and when one
 * of the two is killed the other kills what is left of the program.
 *
 * Messages over a Unix socket of the user's own (base/seqsock.h), named by
 * generation and rank in the directory of the run's sockets:
 *
 *   exec                              stand-in
 *   HELLO  version, rank, world  ->
 *                                <-   OFFER  blob, stdout, stderr; or REFUSED why
 *   STARTED  pid                 ->
 *                                <-   SIGNAL  number
 *   ENDED  code, signal, whose doing; or FAILED  status, why
 *   SWEPT                        ->      nothing is left of the program
 *
 * An end that was no good one is on record before the sweep, in a file beside the
 * seat: when it was, and whether the launch itself had ended the program, as Open
 * MPI does with all ranks once one of them has failed. The agent reads it.
 */
#ifndef MUSTER_LAUNCHER_SEAT_H
#define MUSTER_LAUNCHER_SEAT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SEAT_VERSION = 2, /* changes with any message below */
    SEAT_TEXT_BYTES = 1024,
    SEAT_OFFER_MAX = 16 * 1024 * 1024,
};

enum seat_type {
    SEAT_HELLO = 1,
    SEAT_OFFER,
    SEAT_REFUSED,
    SEAT_STARTED,
    SEAT_SIGNAL,
    SEAT_ENDED,
    SEAT_FAILED,
    SEAT_SWEPT,
};

/* Finds by this what came from a program; one a seat, or a rank without one. */
#define SEAT_MARK "MUSTER_SEAT"

struct seat_hello {
    uint32_t version;
    uint32_t rank, world; /* as MPI has them */
};

/* What the program is run with. Zero-initialise; release. */
struct seat_offer {
    struct strlist argv, env;
    char cwd[4096]; /* "": where `muster exec` is */
    char umask[8];  /* octal; "": as `muster exec` has it */
    char mark[256]; /* NAME=VALUE, in `env` too */
};
void seat_offer_release(struct seat_offer *o);
#define _seat_offer_ __attribute__((cleanup(seat_offer_release)))

/* How it ended, or (FAILED) why it was never run. */
struct seat_end {
    uint32_t code, signal;
    bool by_launch; /* the daemon of its world had told it to end, or was gone */
    char text[SEAT_TEXT_BYTES]; /* FAILED only */
};

/* What is on record of such an end. */
struct seat_record {
    uint64_t at_ns; /* since 1970 */
    bool by_launch;
};

/* <dir>/mpi-g<generation>-r<rank> */
int seat_path(const char *dir, uint32_t generation, uint32_t rank, char *to,
              size_t size, struct error *e);

/* The record of the end of the seat at `path`. Best effort: an end is believed
 * without one. */
void seat_record_write(const char *path, bool by_launch);
/* Reads it; false where there is none. It lies on the node's own disk. */
bool seat_record_read(const char *path, struct seat_record *ret);

/* Encoders append; decoders give 0, -ERR_FORMAT or -ENOMEM. STARTED and SIGNAL
 * are one number. */
void seat_hello_encode(const struct seat_hello *h, struct buf *b);
int seat_hello_decode(const struct buf *b, struct seat_hello *ret);
void seat_offer_encode(const struct seat_offer *o, struct buf *b);
int seat_offer_decode(const struct buf *b, struct seat_offer *ret);
void seat_end_encode(const struct seat_end *end, struct buf *b);
int seat_end_decode(const struct buf *b, struct seat_end *ret);
void seat_number_encode(uint32_t n, struct buf *b);
int seat_number_decode(const struct buf *b, uint32_t *ret);

#endif
