/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory of one node's workers, one a generation: a sealed memfd
 * that the agent makes and hands to its workers and to its bulk mover
 * (muster-mpi), through which CPU collectives run.
 *
 * Work is cut into chunks, counted from 0 over the segment's life, the same on
 * all nodes because all workers make the same calls. A chunk passes through
 * three stages at each worker, each with a counter of chunks that are through:
 *
 *   in    the worker's input was copied to its own place, `in[w][c % DEPTH]`
 *   red   its stripe of the chunk is reduced, in `local[c % DEPTH]`
 *   out   the result was taken away
 *
 * With several nodes the last worker to reduce posts the chunk, the bulk mover
 * combines it over nodes into `global[c % (2 * DEPTH)]` and counts it as `done`.
 * in(c) waits for all out(c - DEPTH), red(c) for all in(c), out(c) for all red(c)
 * or for done(c): so local[] of a chunk is untouched until its result was
 * published and taken, and a bulk mover that takes over from a dead one can run
 * it again. A node is at most DEPTH chunks ahead of another in `done`, and global[]
 * keeps the last DEPTH results beside those in progress: nodes that are behind
 * get what they lack from there.
 *
 * Workers may scribble over all of this. Whoever is not a worker takes
 * geometry from its own copy and checks everything else that it reads.
 */
#ifndef MUSTER_COMM_SEGMENT_H
#define MUSTER_COMM_SEGMENT_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SEGMENT_DEPTH = 4,
    SEGMENT_LOCAL_MAX = 1024, /* workers on a node */
    SEGMENT_WHY_SIZE = 256,
    SEGMENT_N_WHYS = 16, /* that abort at the same time and are heard */
};

enum segment_abort_code {
    SEGMENT_OK = 0,
    SEGMENT_ABORT_LOST = 1,     /* a member is gone: callers get -ECONNABORTED */
    SEGMENT_ABORT_MISMATCH = 2, /* different calls: callers get -EINVAL */
    SEGMENT_ABORT_BULK = 3,     /* the bulk mover can not go on: as LOST */
};

/* What the agent decides. chunk_bytes must be equal on all nodes: leave it 0 to
 * have it follow from max_local and n_nodes. */
struct segment_spec {
    uint32_t generation;
    uint32_t n_nodes;
    uint32_t node;       /* 0 .. n_nodes-1 */
    uint32_t world;      /* workers on all nodes */
    uint32_t n_local;    /* workers here */
    uint32_t max_local;  /* the most on any node */
    uint32_t first_rank; /* workers here are first_rank .. + n_local - 1 */
    uint32_t chunk_bytes;
};

enum segment_kind {
    SEGMENT_ALLREDUCE = 1,
    SEGMENT_BROADCAST = 2,
    SEGMENT_BARRIER = 3,
};

/* What a worker called, as far as all must agree. */
struct segment_call {
    uint64_t seq;   /* calls before it */
    uint64_t count; /* elements; bytes of a broadcast */
    uint32_t kind;
    uint32_t type;
    uint32_t op;
    uint32_t root;
};

/* A word to sleep on, moved on by its one owner at each change. */
struct segment_event {
    _Alignas(64) _Atomic uint32_t word;
    _Atomic uint32_t n_waiting;
};

enum segment_stage {
    SEGMENT_IN = 0,
    SEGMENT_RED = 1,
    SEGMENT_OUT = 2,
};

struct segment_worker {
    _Alignas(64) _Atomic uint64_t through[3]; /* chunks, by stage */
    _Atomic uint64_t entered;                 /* calls */
    _Atomic uint32_t left;                    /* by the agent: it has ended */
    _Atomic uint32_t finished; /* by a process of it, which will not call again */
    struct segment_event event;
    _Alignas(64) struct segment_call calls[2]; /* by seq % 2 */
};

/* A chunk for the bulk mover, in posts[c % (2 * DEPTH)]. */
struct segment_post {
    _Alignas(64) _Atomic uint64_t seq; /* c + 1 once the rest is there */
    _Atomic uint32_t n_reduced;
    uint32_t n_bytes;
    uint32_t is_first; /* of its call */
    struct segment_call call;
};

struct segment_head {
    uint64_t magic;
    struct segment_spec spec;
    _Alignas(64) _Atomic uint32_t aborted; /* 0, or the code + (i << 8) */
    _Atomic uint32_t n_whys;
    char whys[SEGMENT_N_WHYS][SEGMENT_WHY_SIZE]; /* the reason is whys[i] */
    _Alignas(64) _Atomic uint64_t done; /* by the bulk mover */
    struct segment_event mover;
    struct segment_post posts[2 * SEGMENT_DEPTH];
    struct segment_worker workers[]; /* n_local */
};

/* One process's mapping. */
struct segment {
    int fd;
    int event_fd;              /* written to after each post */
    size_t size;
    struct segment_spec spec;  /* private copy, checked */
    struct segment_head *head; /* shared */
    uint8_t *in;               /* shared: [n_local][DEPTH][chunk_bytes] */
    uint8_t *local;            /* shared: [DEPTH][chunk_bytes] */
    uint8_t *global;           /* shared: [2 * DEPTH][chunk_bytes]; NULL with
                                  one node */
};

/* Makes a segment and its event. -EINVAL: numbers that do not fit each other. */
int segment_create(const struct segment_spec *spec, struct segment **ret,
                   struct error *e);

/* Maps a segment that came as descriptors, which are duplicated. -EINVAL: not
 * a sealed segment of this version. */
int segment_map(int fd, int event_fd, struct segment **ret, struct error *e);

/* Unmaps and closes; the memory goes when the last process does so. NULL is
 * allowed. */
void segment_destroy(struct segment *s);

/* Ends all collectives, now and later, in all processes of the node: the first
 * call's code and text are the ones reported. From any process; never blocks. */
void segment_abort(struct segment *s, enum segment_abort_code code,
                   const char *why);

/* For the agent: tells that a worker has ended, without a failure. What it took
 * part in goes on; who waits for more of it gets -ECONNABORTED, on all nodes. */
void segment_leave(struct segment *s, uint32_t worker);

/* A worker may be several processes, one after the other: a shell with two
 * programs, say. A process that makes no more calls says so before it hangs up,
 * and the next one goes on where it ended. Whoever hangs up without that was in
 * the middle of something, or nobody knows. */
void segment_finish(struct segment *s, uint32_t worker);

/* For the agent: whether the worker's process did. */
bool segment_is_finished(const struct segment *s, uint32_t worker);

/* Whether a worker here has left and not finished, which nobody gets past; why then
 * names the first. */
bool segment_lacks_one(const struct segment *s, char why[SEGMENT_WHY_SIZE]);

/* The text for it: that worker has left. */
void segment_say_left(const struct segment *s, uint32_t worker,
                      char why[SEGMENT_WHY_SIZE]);

/* For the agent, for the next process: the same, and forgets it. */
bool segment_take_over(const struct segment *s, uint32_t worker);

/* Whether workers here wait for a chunk that the bulk mover has not done. */
bool segment_waits(const struct segment *s);

/* SEGMENT_OK, or why it was aborted, with the text in `why` if not NULL. */
enum segment_abort_code segment_aborted(const struct segment *s,
                                        char why[SEGMENT_WHY_SIZE]);

uint8_t *segment_in(const struct segment *s, uint32_t worker, uint64_t chunk);
uint8_t *segment_local(const struct segment *s, uint64_t chunk);
uint8_t *segment_global(const struct segment *s, uint64_t chunk);
struct segment_post *segment_post(const struct segment *s, uint64_t chunk);

/* Writes e.g. "allreduce of 12 float32 (sum)"; size at least 96. */
void segment_call_text(const struct segment_call *c, char *to, size_t size);

/* True if `a` and `b` are the same call. */
bool segment_call_equal(const struct segment_call *a,
                        const struct segment_call *b);

/* Moves the event on and wakes who sleeps on it. */
void segment_event_signal(struct segment_event *ev);

/* Sleeps while the word is `seen`, at most timeout_ms. May return early. */
void segment_event_sleep(struct segment_event *ev, uint32_t seen,
                         uint32_t timeout_ms);

#endif
