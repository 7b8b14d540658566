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
 *   ENDED  code, signal; or FAILED  status, why
 */
#ifndef MUSTER_LAUNCHER_SEAT_H
#define MUSTER_LAUNCHER_SEAT_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SEAT_VERSION = 1, /* changes with any message below */
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
    char text[SEAT_TEXT_BYTES]; /* FAILED only */
};

/* <dir>/mpi-g<generation>-r<rank> */
int seat_path(const char *dir, uint32_t generation, uint32_t rank, char *to,
              size_t size, struct error *e);

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
