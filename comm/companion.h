/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What muster-mpi (the companion) and the agent of its node say to each other
 * over base/seqsock.h. muster-mpi connects; the connection lives as long as its
 * MPI world. The agent keeps the connection of the highest epoch only.
 *
 *   muster-mpi                            agent
 *   HELLO  version, epoch, proof       ->
 *                                      <- INFO  its place in the run, if it has
 *                                               one, and its roster entry; or
 *                                               REFUSED
 *   WORLD  run, key, place, roster     ->
 *                                      <- ATTACH  tag, members + two descriptors
 *   ATTACHED  tag, outcome             ->
 *                                      <- DETACH  tag
 *   TERM  mpirun told it to end        ->
 *   NOTICE  mpirun passed on a signal that says that the end is near ->
 *                                      <- VERDICT  status, reason: the end; the
 *                                               connection ends with the agent
 */
#ifndef MUSTER_COMM_COMPANION_H
#define MUSTER_COMM_COMPANION_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COMPANION_VERSION = 5, /* changes with any message below */
    COMPANION_KEY_BYTES = 32,
    COMPANION_PROOF_BYTES = 32,
    COMPANION_PATH_BYTES = 4096,
    COMPANION_TEXT_BYTES = 1024,
    COMPANION_MAX_FRONT = 8,
    COMPANION_ROSTER_MAX = 64 * 1024 * 1024,
};

enum companion_type {
    COMPANION_HELLO = 1,
    COMPANION_INFO = 2,
    COMPANION_REFUSED = 3,
    COMPANION_WORLD = 4,
    COMPANION_ATTACH = 5,
    COMPANION_ATTACHED = 6,
    COMPANION_DETACH = 7,
    COMPANION_TERM = 8,
    COMPANION_VERDICT = 9,
    COMPANION_NOTICE = 10,
};

/* `proof` is that of the job key (base/key.h) for companion_claim(): an agent that
 * has a run lets nobody in without. By hand, where the key is not known yet, and no
 * agent either, it is zero. */
struct companion_hello {
    uint16_t version;
    uint64_t epoch;
    char muster_version[64];
    uint8_t proof[COMPANION_PROOF_BYTES];
};

enum { COMPANION_CLAIM_BYTES = 256 };
void companion_claim(char *to, size_t size, const char *run_id,
                     uint64_t epoch);

/* Where an agent stands in its run. */
struct companion_place {
    uint32_t rank;    /* ROSTER_NO_RANK for a new agent */
    uint32_t n_known; /* places that it knows of, 0 for a new agent */
};

/* What an agent has to know of its run. */
struct companion_run {
    char id[128];
    char dir[COMPANION_PATH_BYTES];
    uint8_t key[COMPANION_KEY_BYTES];
    bool agent_is_node; /* every agent counts as a node */
    bool loopback;      /* all agents and the front end are on one host */
    bool has_front;
    char front_addrs[COMPANION_MAX_FRONT][64]; /* numeric; "" ends the list */
    uint16_t front_port;
};

/* The roster comes with it as a blob (descriptor 0). */
struct companion_world {
    uint64_t epoch;
    uint32_t mpi_rank;
    struct companion_run run;
};

/* `members` are ranks of the MPI world; the descriptors are the segment and its
 * event. Decoded members belong to the caller. */
struct companion_attach {
    uint32_t tag;
    uint32_t n_members;
    uint32_t *members;
};

struct companion_outcome {
    uint32_t tag;    /* ATTACHED */
    uint8_t status;  /* VERDICT: exit status */
    bool ok;         /* ATTACHED */
    char text[COMPANION_TEXT_BYTES];
};

/* Encoders append; decoders give 0, -ERR_FORMAT or -ENOMEM. REFUSED, ATTACHED
 * and VERDICT are outcomes; DETACH is an outcome of which only the tag counts;
 * TERM and NOTICE are empty. */
void companion_hello_encode(const struct companion_hello *h, struct buf *b);
int companion_hello_decode(const struct buf *b, struct companion_hello *ret);
/* INFO. The entry is an encoded one of rendezvous/roster.h; decoded it points into
 * `b`. */
void companion_info_encode(const struct companion_place *place,
                           const struct buf *entry, struct buf *b);
int companion_info_decode(const struct buf *b, struct companion_place *ret,
                          const void **ret_entry, size_t *ret_len);
void companion_world_encode(const struct companion_world *w, struct buf *b);
int companion_world_decode(const struct buf *b, struct companion_world *ret);
void companion_attach_encode(const struct companion_attach *a, struct buf *b);
int companion_attach_decode(const struct buf *b, struct companion_attach *ret);
void companion_outcome_encode(const struct companion_outcome *o,
                              struct buf *b);
int companion_outcome_decode(const struct buf *b,
                             struct companion_outcome *ret);

#endif
