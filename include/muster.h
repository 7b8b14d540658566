/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmuster: what a training process may ask of muster.
 *
 * A process that was started by muster is a *worker*: one of muster_world()
 * processes, numbered 0 .. world-1, that run the same program. It reaches the
 * agent of its node over a Unix socket (MUSTER_SOCKET). Without that variable
 * every call works as in a world of one, so the same program runs by itself; but
 * under `mpirun ... muster exec`, where there is no agent either, it has its rank,
 * and collectives fail with -ENOTCONN: those of MPI are there.
 *
 * Errors. Calls return 0 (or a count) on success and a negative errno value on
 * failure; muster_error_text() words the last failure. -ECONNABORTED means that
 * a member of the group, or the connection to it, is gone: every later
 * collective fails the same way, and the process should exit non-zero (muster
 * will start the next generation). Bad arguments are -EINVAL.
 *
 * Threads. One thread at a time per `struct muster`. The library starts no
 * thread, forks nothing and prints nothing. It leaves all signals alone but
 * SIGTERM, and that until muster_should_stop() is asked: see there.
 *
 * Collectives are called by all workers in the same order with the same sizes,
 * types and operations; they block until the result is there.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct muster;

/* Joins: connects to the agent and waits for the group to be complete. The
 * caller owns *ret until muster_finalize(). On failure *ret is not written and
 * the errno value says which step: -EPROTO (not a muster of this version),
 * -ECONNREFUSED (the agent is gone), -ENOMEM. */
int muster_init(struct muster **ret);

/* Leaves. NULL is allowed. Does not wait for the others. Another process of the
 * same worker may join after it (`sh -c 'one; two'`), and go on with collectives;
 * after a process that was in them and ended without this, none can: the others
 * get -ECONNABORTED. */
void muster_finalize(struct muster *m);

/* The last failure on `m`, in one line; "" if none. Valid until the next call. */
const char *muster_error_text(const struct muster *m);

/* Where this process stands. Constant for the life of the process. */
int muster_rank(const struct muster *m);        /* 0 .. world-1 */
int muster_world(const struct muster *m);       /* number of workers */
int muster_local_rank(const struct muster *m);  /* on this node */
int muster_local_world(const struct muster *m); /* workers on this node */
int muster_node(const struct muster *m);        /* 0 .. n_nodes-1 */
int muster_n_nodes(const struct muster *m);
int muster_generation(const struct muster *m);  /* 1 at first; +1 a restart */

/* Directory of the run, and the checkpoint to resume from; NULL when there is
 * none. Borrowed, valid as long as `m`. */
const char *muster_run_dir(const struct muster *m);
const char *muster_resume_path(const struct muster *m);

enum muster_type {
    MUSTER_FLOAT32 = 0,
    MUSTER_FLOAT64 = 1,
    MUSTER_INT32 = 2,
    MUSTER_INT64 = 3,
    MUSTER_UINT8 = 4,
};

enum muster_op {
    MUSTER_SUM = 0,
    MUSTER_MIN = 1,
    MUSTER_MAX = 2,
};

/* Combines `count` elements of every worker's `send` element by element and
 * leaves the result, the same bits everywhere, in every worker's `recv`. The
 * two may be the same pointer, but must not overlap otherwise. Sums are formed
 * in a fixed order for a given layout of workers over nodes. */
int muster_allreduce(struct muster *m, const void *send, void *recv,
                     size_t count, enum muster_type type, enum muster_op op);

/* Copies `len` bytes from worker `root`'s `data` into everybody else's. */
int muster_broadcast(struct muster *m, void *data, size_t len, int root);

/* Returns when all workers have called it. */
int muster_barrier(struct muster *m);

struct muster_metric {
    const char *name; /* [A-Za-z0-9_./-]{1,64}; well known: loss, step_time,
                         throughput, accuracy */
    double value;
};

/* Tells that `step` is done, with up to 64 values of it. Never blocks for long:
 * where the agent is behind, the report may be left out (the next one is not).
 * Any worker may report; muster shows those of rank 0 first. */
int muster_report(struct muster *m, int64_t step,
                  const struct muster_metric *metrics, size_t n_metrics);

/* Tells that a checkpoint at `step` lies complete and durable at `path`: from
 * now on a restart gives it to all workers as MUSTER_RESUME_PATH. Called by one
 * worker, after all have written their part. */
int muster_checkpoint_saved(struct muster *m, const char *path, int64_t step);

/* 1 if the run is being stopped: save what is to be kept and exit 0 soon (the
 * grace time is limited); 0 if not. Cheap enough for every step. The answer can
 * reach workers at different steps: agree on it (an allreduce with MUSTER_MAX)
 * before acting together.
 *
 * SIGTERM comes with it. Who asks means to save and to leave by itself: so the
 * first question of a worker puts a handler that does nothing (SA_RESTART) in the
 * place of SIG_DFL, and muster_finalize() takes it out again. A handler of the
 * program's own, or SIG_IGN, stays; one that is installed later does, too. Forked
 * children inherit it, as any handler, until they exec. */
int muster_should_stop(struct muster *m);

/* 1 once for each request for a checkpoint now (muster checkpoint RUN); 0 else. Whoever
 * waits for it (--wait) is told by muster_checkpoint_saved() of a worker that has heard of
 * it before; the library's own saves tell by themselves. */
int muster_checkpoint_requested(struct muster *m);

#ifdef __cplusplus
}
#endif

#include "muster_ckpt.h"

#endif
