/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of the bulk mover: the nodes of one generation (or trial), seen from
 * one of them. Private to the engine (comm/mpi/bulk.h); the parts of its work are
 *
 *   join.h      how the members find each other
 *   transfer.h  chunks: from workers, over nodes, to workers
 *   notice.h    what members tell each other when it can not go on
 *
 * A group that failed is aborted in its segment, which ends the collectives of
 * this node; nothing more is started in it.
 */
#ifndef MUSTER_COMM_MPI_GROUP_H
#define MUSTER_COMM_MPI_GROUP_H

#include "base/cleanup.h"
#include "base/error.h"
#include "comm/segment.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A chunk on its way between nodes. */
struct transfer {
    uint64_t chunk;
    uint32_t n_bytes;
    bool is_first;
    struct segment_call call;
    MPI_Request check;
    MPI_Request data;
    uint64_t mine[2]; /* hash of the call, and its complement */
    uint64_t most[2]; /* maximum over nodes */
};

/* What members must know of each other. */
struct peer {
    uint64_t done;
    uint64_t chunk_bytes;
    uint64_t n_nodes;
    uint64_t node;
    uint64_t world;
    uint64_t first_rank;
    uint64_t n_local;
    uint64_t generation;
};

/* Why the group can not go on, from a chunk on. */
struct notice {
    uint64_t chunk;
    uint32_t code;
    char why[SEGMENT_WHY_SIZE];
};

struct group {
    struct group *next;
    uint32_t tag;
    int n;  /* members */
    int me; /* place among them */
    MPI_Comm data;
    MPI_Comm control; /* checks, details, notices */
    MPI_Op sum_bytes; /* borrowed */
    struct segment *seg;
    struct peer *peers; /* all members, in their order */
    bool failed;        /* nothing more is started */
    uint64_t left_ns;   /* when it was abandoned */

    /* transfer.h */
    uint64_t started; /* chunks */
    uint64_t done;
    struct transfer transfers[SEGMENT_DEPTH]; /* by chunk */
    MPI_Request details; /* of a difference */
    struct segment_call call;
    struct segment_call *calls; /* of all members */

    /* notice.h */
    bool must_tell; /* why it failed: others do not know */
    bool has_told;
    struct notice said;
    MPI_Request *say; /* to all members */
    struct notice heard; /* being received */
    MPI_Request hear;
    bool has_heard;
    struct notice first; /* the one with the lowest chunk so far, if any */
};

/* A group of n members without communicators and segment. */
int group_create(uint32_t tag, size_t n, struct group **ret, struct error *e);

/* Makes no MPI call: nothing of the group may be in flight. NULL is allowed. */
void group_destroy(struct group *g);

DEFINE_CLEANUP(group);

/* Ends the group's collectives on this node, for a reason that the others know
 * as well. */
void group_end(struct group *g, enum segment_abort_code code, const char *why);

/* The same for a reason that only this node has seen: the others are told. */
void group_fail(struct group *g, enum segment_abort_code code, const char *why);

/* The same after an MPI call has failed. */
void group_fail_mpi(struct group *g, int mpi_code, const char *what);

/* Words an MPI error; returns -EIO. */
int group_mpi_error(int mpi_code, const char *what, struct error *e);

/* True if there is no such request (any more). One that failed fails the
 * group. */
bool group_request_is_done(struct group *g, MPI_Request *r);

/* True while chunks or notices are on their way, as far as was looked. */
bool group_has_in_flight(const struct group *g);

/* Looks at all requests, which also has MPI go on with them. True if it has
 * nothing of the group in hand: its memory may go. */
bool group_is_quiet(struct group *g);

#endif
