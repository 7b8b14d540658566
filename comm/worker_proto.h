/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker socket's protocol: what a training process and the agent of its
 * node say to each other over a Unix stream socket.
 *
 * A frame is u32 length | u16 type | fields; the length counts type and fields
 * and is 2 .. WORKER_FRAME_MAX. Fields are base/wire.h's: big-endian, strings
 * and blobs with their length before them. A frame of a known type has exactly
 * the fields of its type; one of an unknown type is skipped. doc/formats.md,
 * section "worker socket", is the contract for other clients.
 *
 *   worker              agent
 *   HELLO          ->
 *                  <-   WELCOME, then STATE; or REFUSED, then end of file
 *   JOIN_COMM      ->
 *                  <-   COMM with two descriptors: segment, event; or without
 *   REPORT, CHECKPOINT_SAVED, CHECKPOINT_HEARD, SAVE_PLAN
 *                  ->   at any time after WELCOME, not answered
 *   SNAP_BEGIN, SNAP_FIND ->
 *                  <-   SNAP with a descriptor: a snapshot; or without
 *   SNAP_FILL      ->   before SNAP_DONE, not answered
 *   SNAP_DONE      ->
 *                  <-   SNAP_STATUS  then, and whenever it changes
 *   SNAP_WANT      ->   before SNAP_DONE, or later, not answered
 *                  <-   STATE  whenever it changes
 *
 * Nothing here does I/O.
 */
#ifndef MUSTER_COMM_WORKER_PROTO_H
#define MUSTER_COMM_WORKER_PROTO_H

#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WORKER_PROTO_VERSION = 1,
    WORKER_FRAME_MAX = 65536,  /* type and fields */
    WORKER_FRAME_HEAD = 4,     /* the length before them */
    WORKER_NAME_SIZE = 65,     /* of a metric, with its zero byte */
    WORKER_PATH_SIZE = 4096,
    WORKER_WHY_SIZE = 256,
    WORKER_METRICS_MAX = 64,   /* in one report */
    WORKER_COMM_FDS = 2,       /* that come with COMM */
    WORKER_UUID_SIZE = 33,     /* 32 hexadecimal digits, and a zero byte */
    WORKER_ROOT_SIZE = 1024,   /* where checkpoints lie */
};

enum worker_msg_type {
    WORKER_UNKNOWN = 0, /* decoded from a type of a later version */
    WORKER_HELLO = 1,
    WORKER_WELCOME = 2,
    WORKER_REFUSED = 3,
    WORKER_JOIN_COMM = 4,
    WORKER_COMM = 5,
    WORKER_REPORT = 6,
    WORKER_CHECKPOINT_SAVED = 7,
    WORKER_STATE = 8,
    WORKER_SNAP_BEGIN = 9,
    WORKER_SNAP = 10,
    WORKER_SNAP_DONE = 11,
    WORKER_SNAP_STATUS = 12,
    WORKER_SNAP_FIND = 13,
    WORKER_SAVE_PLAN = 14,
    WORKER_STORE = 15, /* checkpoints of the run are taken to a store */
    WORKER_SNAP_WANT = 16,
    WORKER_CHECKPOINT_HEARD = 17,
    WORKER_SNAP_FILL = 18,
};

struct worker_hello {
    uint16_t version;
    uint32_t pid;
};

struct worker_welcome {
    uint16_t version;
    uint32_t rank;
    uint32_t world;
    uint32_t local_rank;
    uint32_t local_world;
    uint32_t node;
    uint32_t n_nodes;
    uint32_t generation;
    char run_dir[WORKER_PATH_SIZE];     /* "" for none */
    char resume_path[WORKER_PATH_SIZE]; /* "" for none */
};

struct worker_refused {
    uint16_t version; /* the agent's */
    char why[WORKER_WHY_SIZE];
};

/* With segment_bytes 0 there are no descriptors, and `why` says the reason. */
struct worker_comm {
    uint64_t segment_bytes;
    char why[WORKER_WHY_SIZE];
};

struct worker_metric {
    char name[WORKER_NAME_SIZE];
    double value;
};

struct worker_report {
    int64_t step;
    size_t n_metrics;
    struct worker_metric metrics[WORKER_METRICS_MAX];
};

struct worker_checkpoint {
    int64_t step;
    char path[WORKER_PATH_SIZE];
};

/* The program has heard of so many requests to save; or, with a uuid, its agent had told
 * of so many before that save began, which may be said of each one. */
struct worker_heard {
    uint32_t requests;
    int64_t step;
    char uuid[WORKER_UUID_SIZE]; /* "": of none, and `step` says nothing */
};

/* How often checkpoints are to be made, and why: see ckpt/interval.h. Seconds, which
 * are finite and not negative. */
struct worker_save_plan {
    double every_s, cost_s, mtbf_s, ran_s;
    uint32_t n_failures;
    uint8_t is_assumed; /* 0 or 1: the cost, for there was no save yet */
};

struct worker_state {
    uint8_t should_stop;          /* 0 or 1 */
    uint32_t checkpoint_requests; /* how many there were so far */
};

/* Wants memory for a snapshot. */
struct worker_snap_begin {
    uint64_t step;
    uint64_t bytes; /* see snap_room() in ckpt/snap.h */
    char uuid[WORKER_UUID_SIZE];
    char root[WORKER_ROOT_SIZE]; /* absolute */
};

/* With `error` 0 there is one descriptor: 4096 bytes that are the agent's, then the
 * image, then the part. */
struct worker_snap {
    uint32_t error; /* errno; EBUSY: others are on their way to the disk */
    uint64_t bytes; /* behind the first 4096 */
    uint8_t is_bare; /* of which not all is there: to be filled, it is to be taken as
                        ckpt/fill.h does; that was found, it is on its way here, and how far
                        that is can be seen (snap_filled() in ckpt/snap.h) */
    uint64_t step, image_bytes, part_bytes; /* of one that was found */
    char uuid[WORKER_UUID_SIZE];
    char why[WORKER_WHY_SIZE];
};

/* Its image is being copied there, and how far that is can be seen (snap_filled() in
 * ckpt/snap.h): what is there may go to the disk before all of it is. */
struct worker_snap_fill {
    uint64_t image_bytes; /* 0: it comes to nothing */
    uint8_t may_stay, is_chosen; /* what SNAP_WANT will say of it */
    uint8_t is_crowded; /* those that copy have all processors */
    char uuid[WORKER_UUID_SIZE];
};

struct worker_snap_done {
    uint64_t image_bytes, part_bytes;
    char uuid[WORKER_UUID_SIZE];
};

enum worker_snap_level {
    WORKER_SNAP_NONE = 0,
    WORKER_SNAP_HELD = 1,    /* outlives the worker */
    WORKER_SNAP_PARTNER = 2, /* outlives the node */
    WORKER_SNAP_DURABLE = 3, /* a checkpoint, on the disk */
    WORKER_SNAP_REMOTE = 4,
};

struct worker_snap_status {
    uint8_t level;  /* enum worker_snap_level */
    uint32_t error; /* errno: it will not get any further. ESTALE: a later one did. 0 with
                       a `why`: it stays there, unless somebody wants it elsewhere */
    char uuid[WORKER_UUID_SIZE];
    char why[WORKER_WHY_SIZE];
};

/* Where a save is to get to. Before SNAP_DONE: memory is enough, and how seldom saves go
 * on from there is for the job to say (checkpoint.diskEvery); `is_chosen`, it was muster
 * that found this one due. Later: somebody waits for it to be there. */
struct worker_snap_want {
    uint8_t level; /* WORKER_SNAP_HELD; or, later, PARTNER or DURABLE */
    uint8_t is_chosen;
    char uuid[WORKER_UUID_SIZE];
};

/* What a rank has saved: the one that asks, or another one, of which nothing is fetched. */
struct worker_snap_find {
    uint32_t rank;
    char uuid[WORKER_UUID_SIZE]; /* "": the newest that is part of a checkpoint */
};

struct worker_msg {
    enum worker_msg_type type;
    union {
        struct worker_hello hello;
        struct worker_welcome welcome;
        struct worker_refused refused;
        struct worker_comm comm;
        struct worker_report report;
        struct worker_checkpoint checkpoint;
        struct worker_heard heard;
        struct worker_state state;
        struct worker_snap_begin snap_begin;
        struct worker_snap snap;
        struct worker_snap_fill snap_fill;
        struct worker_snap_done snap_done;
        struct worker_snap_status snap_status;
        struct worker_snap_find snap_find;
        struct worker_snap_want snap_want;
        struct worker_save_plan save_plan;
    };
};

/* True for [A-Za-z0-9_./-]{1,64}. */
int worker_name_is_valid(const char *name);

/* Appends a whole frame, length included. */
void worker_msg_encode(struct buf *b, const struct worker_msg *m);

/* Looks for a whole frame at the start of `data`. 1: there is one of *ret_len
 * bytes, its length field included; 0: more bytes are needed; -ERR_FORMAT: the
 * length is out of bounds, and the stream can not be followed any further. */
int worker_frame_next(const void *data, size_t len, size_t *ret_len,
                      struct error *e);

/* Decodes a whole frame as found by worker_frame_next(). 0, or -ERR_FORMAT; a
 * HELLO of any version decodes as long as its first field is there. */
int worker_msg_decode(const void *frame, size_t len, struct worker_msg *ret,
                      struct error *e);

#endif
