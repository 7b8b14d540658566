/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: tensors and blobs of all ranks of a program, saved together under
 * the number of a step, and loaded again by any number of ranks.
 *
 *     muster_ckpt_open(m, NULL, "dir:/scratch/run", NULL, &ck);
 *     muster_ckpt_tensor(ck, &weights);            register, once
 *     rc = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step);
 *     while (...) {
 *         ... a step ...
 *         if (muster_ckpt_due(ck, step) > 0)
 *             muster_ckpt_save(ck, step, 0, NULL);
 *     }
 *     muster_ckpt_close(ck);
 *
 * A checkpoint is whole, verified and durable, or it does not exist. Each rank
 * writes a safetensors file of what it holds; what several ranks hold alike is
 * written by one of them. Every byte has a digest, and what is loaded is held
 * against it.
 *
 * Who takes part: a *group*. Calls marked "together" are made by all of its ranks,
 * in the same order and with the same step and flags; they return the same on all
 * of them, and none waits for a rank that has died. All others are local.
 *
 * Memory that is registered stays the caller's, and must live until it is
 * registered anew, or muster_ckpt_close(). It is read by save, up to the fence, and
 * written by load. Names and shapes are copied.
 *
 * A tensor may lie in the memory of an NVIDIA GPU, row-major there, where the program
 * has loaded the driver (libcuda): it is copied by that, after all that the GPU was
 * asked to do before the call. Blobs lie in the program's memory.
 *
 * A *lazy* save copies while the program goes on:
 *
 *     muster_ckpt_save(ck, step, MUSTER_CKPT_LAZY, NULL);
 *     ... forward and backward: what is registered is read, and not changed ...
 *     muster_ckpt_fence(ck);
 *     ... the optimizer changes it ...
 *
 * With MUSTER_CKPT_CHECK=1 in the environment what is registered is held against what it
 * was at the save once it is copied: a program that changes it before the fence fails
 * there, with the name of the tensor and the rank. That takes two more passes over it. Where
 * all ranks have it in theirs what several of them have of a tensor alike is compared before
 * each save, too, which fails where it is not the same.
 *
 * Errors: a negative errno value; muster_ckpt_error_text() says which rank, which
 * file or tensor, what was expected, and what to do. Bad arguments are -EINVAL.
 * -EILSEQ: no checkpoint that is whole, where damaged ones are.
 *
 * Threads: one at a time per `struct muster_ckpt`, and for all that have the same `m`,
 * which has to be there until they are closed. Copies may use several threads, which have
 * ended when the call returns. That of lazy saves does nothing once the fence has
 * returned, and stays until muster_ckpt_close(); it takes no signals, and calls neither
 * the group nor `m`. A child that is forked meanwhile has no part in the save; its
 * fence does nothing. With `m`, or a group of several ranks, what others are asked for is
 * refused there (-EOPNOTSUPP): it opens a handle of its own. No signal is touched,
 * nothing printed, nothing forked.
 */
#ifndef MUSTER_CKPT_H
#define MUSTER_CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct muster;
struct muster_ckpt;

/* Who saves and loads together. */
struct muster_ckpt_group {
    int rank, world;
    /* Leaves `len` bytes of every rank in `all`, in the order of the ranks, on
     * every rank. 0, or a negative errno value where a rank is gone. */
    int (*allgather)(void *arg, const void *mine, void *all, size_t len);
    void *arg; /* borrowed until muster_ckpt_close() */
};

struct muster_ckpt_options {
    size_t size;          /* sizeof(struct muster_ckpt_options) */
    int64_t every_steps;  /* muster_ckpt_due() by steps; 0: not by steps */
    double every_seconds; /* and by time, by the clock of rank 0; 0: not by time.
                             Both 0: as the job says (checkpoint.every), if this is
                             a worker of a run; else never */
    int keep;             /* how many of the newest stay after a save that the ranks
                             write themselves; 0: all. Of what agents of a run write
                             the job says it (checkpoint.keep, 3 by default), and this
                             and what belongs to it below say nothing. What a program
                             that was killed has left of a save goes, too */
    int n_threads;        /* to copy with; 0: as many as this process may use, at
                             most 4 */
    /* Besides the newest `keep`, by which they go. Programs that were built before there
       were these have a smaller `size`. */
    int64_t keep_every;   /* those stay whose step is a multiple of it; 0: none for that */
    const char *keep_best; /* and the one that is best by a metric: METRIC or METRIC:min,
                             the lowest, or METRIC:max. It is a number that was saved as
                             MUSTER_JSON of that name, or as A.B the B of an object A.
                             Where none has it the newest stay alone. NULL: none for
                             that; copied */
};

/* Element types, those of safetensors. The numbers are fixed. */
enum muster_dtype {
    MUSTER_BOOL = 0,
    MUSTER_F4 = 1, /* 4 bits: only whole tensors, as the two that follow */
    MUSTER_F6_E2M3 = 2,
    MUSTER_F6_E3M2 = 3,
    MUSTER_U8 = 4,
    MUSTER_I8 = 5,
    MUSTER_F8_E5M2 = 6,
    MUSTER_F8_E4M3 = 7,
    MUSTER_F8_E8M0 = 8,
    MUSTER_F8_E4M3FNUZ = 9,
    MUSTER_F8_E5M2FNUZ = 10,
    MUSTER_I16 = 11,
    MUSTER_U16 = 12,
    MUSTER_F16 = 13,
    MUSTER_BF16 = 14,
    MUSTER_I32 = 15,
    MUSTER_U32 = 16,
    MUSTER_F32 = 17,
    MUSTER_C64 = 18,
    MUSTER_F64 = 19,
    MUSTER_I64 = 20,
    MUSTER_U64 = 21,
};

/* What of a tensor this rank has, and where. All counts are of elements. */
struct muster_ckpt_tensor {
    const char *name;       /* UTF-8, no leading dot; the same on all ranks */
    enum muster_dtype dtype;
    uint32_t n_dims;        /* at most 16; 0: one element */
    const uint64_t *shape;  /* of the whole tensor */
    const uint64_t *at;     /* the box: its corner; NULL: all zero */
    const uint64_t *len;    /* and its lengths; NULL: all of the tensor */
    void *data;             /* its first element; NULL for an empty one */
    const int64_t *strides; /* from one element to the next in each dimension;
                               NULL: row-major without gaps */
    int is_flat;            /* no box: elements [flat_begin, flat_end) of the
                               tensor in row-major order, without gaps */
    uint64_t flat_begin, flat_end;
};

enum muster_blob {
    MUSTER_REPLICATED = 0, /* the same bytes on every rank; written once */
    MUSTER_PER_RANK = 1,   /* of each rank its own, loaded by its rank */
    MUSTER_JSON = 2,       /* a JSON value, the same on every rank; comes back as
                              JSON, not byte by byte */
};

enum muster_ckpt_level {
    MUSTER_CKPT_SNAPSHOT = 0, /* outlives this process */
    MUSTER_CKPT_PARTNER = 1,  /* outlives this node: copied to another host, or made up
                                 for by parity there, or on the disk */
    MUSTER_CKPT_DURABLE = 2,  /* committed in the directory, and on the disk */
    MUSTER_CKPT_REMOTE = 3,   /* and in the object store of the run, checkpoint.store */
};

/* Flags of muster_ckpt_save(). */
#define MUSTER_CKPT_LAZY 1u /* copy behind the caller's back, until the fence */
#define MUSTER_CKPT_WAIT 2u /* return when it is durable */
#define MUSTER_CKPT_SKIP 4u /* do not wait for memory that earlier saves are in: -EBUSY */
#define MUSTER_CKPT_REFUSE 8u /* a rank may have it, and its own step: it has seen already that
                                 it cannot save what it should: all fail with -ECANCELED */

/* Flags of muster_ckpt_load(); a rank may have its own. */
#define MUSTER_CKPT_CANNOT 1u /* this rank has seen already that it cannot load what it
                                 needs: all fail with -EILSEQ */
#define MUSTER_CKPT_UNFIT 2u  /* or that it is not what this rank wants: -ENODATA */

/* Flags of muster_ckpt_map(). */
#define MUSTER_CKPT_WRITABLE 1u /* it may be written to, which nobody else sees */
#define MUSTER_CKPT_VERIFY 2u   /* hold it against its digests first */

/* Reasons of muster_ckpt_due(). */
#define MUSTER_CKPT_BY_STEPS 1
#define MUSTER_CKPT_BY_SECONDS 2
#define MUSTER_CKPT_REQUESTED 4 /* muster checkpoint RUN */
#define MUSTER_CKPT_STOPPING 8  /* the run is being stopped: the last chance */
#define MUSTER_CKPT_AUTO 16     /* what muster chose as the interval has passed */

#define MUSTER_CKPT_LATEST INT64_MAX

/* Together. Opens the checkpoints in `uri`: "dir:/path" or a path, whose parent is
 * there, and which all ranks see; NULL: the environment's MUSTER_CHECKPOINT_DIR.
 * Without a group it is the workers of `m`, and a world of one without `m`. `m`
 * may be NULL, is borrowed, and is used by nobody else during a call. `options`
 * may be NULL. The caller owns *ret; on failure it is not written, unless there was
 * memory for it: then it is good for muster_ckpt_error_text() and
 * muster_ckpt_close() alone.
 *
 * Its path, without the links in it, is what counts later: where another directory is in its
 * place by then, saves go there, and so do muster_ckpt_latest() and muster_ckpt_load(), and
 * with these what one rank reads. Where there is none these fail with -ESTALE, as do saves
 * that ranks write themselves. */
int muster_ckpt_open(struct muster *m, const struct muster_ckpt_group *group,
                     const char *uri, const struct muster_ckpt_options *options,
                     struct muster_ckpt **ret);
/* NULL is allowed. Saves that are on their way go on. Of a lazy one without its fence
 * this rank's part is handed over; without an agent it is given up, unless this rank
 * is alone, and then it is saved. */
void muster_ckpt_close(struct muster_ckpt *ck);

/* The last failure in one line; after a call that passed over checkpoints, damaged or
 * removed meanwhile, what was wrong with them; once, on the rank that removes checkpoints,
 * after a save or a fence that went well, that none has the metric of keep_best. "" if
 * nothing. Valid until the next call. */
const char *muster_ckpt_error_text(const struct muster_ckpt *ck);

/* Registers what this rank has of a tensor, which may be nothing. Again with the
 * same name and box: the new memory counts. A rank may have several boxes of a
 * tensor. -EINVAL, -ENOMEM. */
int muster_ckpt_tensor(struct muster_ckpt *ck,
                       const struct muster_ckpt_tensor *t);
/* Registers bytes; again with the same name: the new ones count. -EINVAL: no name, or none
 * that can be saved, no such kind, or no data for a length; -ENOMEM. What is wrong with JSON
 * muster_ckpt_save() says. */
int muster_ckpt_blob(struct muster_ckpt *ck, const char *name, void *data,
                     size_t len, enum muster_blob kind);
/* 1 where `data` is memory of a GPU, and can be registered as that of a tensor; else 0.
 * Managed and pinned memory is the program's. -EINVAL: `ck` is NULL. */
int muster_ckpt_is_device(struct muster_ckpt *ck, const void *data);
/* Nothing is registered any more. */
int muster_ckpt_clear(struct muster_ckpt *ck);

/* Together. 0, or why a checkpoint is due after `step`, the same on all ranks: by steps after
 * each that is a multiple of `every_steps`, 0 included. Without a run, and without options
 * that say when, it is never due. Fails with what is wrong with a rank: -ECONNABORTED, say. */
int muster_ckpt_due(struct muster_ckpt *ck, int64_t step);
/* 1 if the run is being stopped, as muster_ckpt_due() last saw, the same on all
 * ranks; *why may be NULL, and gets MUSTER_CKPT_STOPPING. */
int muster_ckpt_should_stop(struct muster_ckpt *ck, int *why);

/* Together. Saves all that is registered as `step` (not negative). Where there is
 * no agent, or no memory of one, it is durable on return. Otherwise it is safe from
 * the death of this process on return, or with LAZY at the fence; the agent does the
 * rest. *ret_save, which may be NULL, numbers the save for the calls below.
 * -EINVAL: nothing is registered on any rank; ranks differ in a tensor's shape, or nobody
 * or two have a part of it;
 * -ENOSPC and others: no checkpoint was made, older ones are as they were, and the
 * program may go on; -EBUSY: with SKIP, earlier saves of some rank are still on their way
 * to the disk, so that none saves, and muster_ckpt_due() says so again; a run that is
 * being stopped waits all the same; without SKIP, two of them have been on their way for 60 s,
 * and no checkpoint was made: the next one may be tried; -EREMOTEIO: a GPU failed, in its
 * driver's words; -ECANCELED: a rank has refused; -ECONNABORTED: a rank is gone. */
int muster_ckpt_save(struct muster_ckpt *ck, int64_t step, unsigned flags,
                     uint64_t *ret_save);
/* Together, after a lazy save; else it does nothing. Before registered memory is
 * changed again: takes a share of what is left to copy, and hands it over. Fails as
 * muster_ckpt_save() does. The next save, load and latest begin with it (what it fails
 * of then is told by muster_ckpt_test()); and whatever registers waits for the copy. */
int muster_ckpt_fence(struct muster_ckpt *ck);
/* How far a save has come: 1 there, 0 not yet, or what it failed of; -ENOTSUP for a
 * level that there is not; -ESTALE: a later one was taken there instead. `save` 0 is the
 * newest. -EINVAL: it is none of the last 64 of this handle, or nothing has been saved by
 * it. */
int muster_ckpt_test(struct muster_ckpt *ck, uint64_t save,
                     enum muster_ckpt_level level);
/* Waits for it: 0, -ETIMEDOUT, or what it failed of. What would stay in memory, by the
 * job's checkpoint.diskEvery, goes to the partner and the disk where that is waited for.
 * A negative time is for ever. For the newest of none, 0 at once. Of a lazy save it waits
 * for this rank's copy first, and for other ranks until they are at the fence. -EDEADLK: a
 * lazy save of several ranks without an agent, before its fence. */
int muster_ckpt_wait(struct muster_ckpt *ck, uint64_t save,
                     enum muster_ckpt_level level, int64_t timeout_ms);

/* Together. The newest checkpoint that all ranks see with a step below `below`
 * (MUSTER_CKPT_LATEST: any); its bytes are not looked at, but for those of COMMIT and
 * manifest.json: where they are damaged, or a file is not of its length, the one before
 * is told.
 * -ENOENT: none; -EILSEQ: only such; -EACCES: the newest may not be read. */
int muster_ckpt_latest(struct muster_ckpt *ck, int64_t below, int64_t *ret_step);

/* Together. Fills all that is registered from the checkpoint of `step`, or from the
 * newest that is whole: damaged ones are passed over, on all ranks, but not one that may
 * not be read, which may be whole. Where one is removed meanwhile it begins with the newest
 * again, and does not count it. How many were passed over; muster_ckpt_error_text() tells of
 * them, and of what was removed;
 * *ret_step, which may be NULL, is what was loaded. Boxes need not be those that were
 * saved. A blob is filled that has just the length that was saved (muster_ckpt_read_blob()
 * tells it). Blobs of a rank that was not there when it was saved are left alone, and so is
 * MUSTER_JSON, which muster_ckpt_read_blob() reads.
 * -ENOENT: there is none; -EILSEQ: only damaged ones; -EACCES: it may not be read;
 * -ENODATA: it lacks a tensor or a blob; -EINVAL: one of another type, shape or length;
 * -EREMOTEIO: a GPU failed. After a failure the memory may hold anything. */
int muster_ckpt_load(struct muster_ckpt *ck, int64_t step, unsigned flags,
                     int64_t *ret_step);

/* How many damaged checkpoints the last muster_ckpt_load() or muster_ckpt_latest() passed
 * over, the same on all ranks, also where it failed with -EILSEQ. That of a step tells of
 * those of that step, and of those of it that were removed meanwhile; muster_ckpt_latest() of
 * those of later steps than it tells. *ret_why, which may be NULL, is what is wrong with them,
 * or that one was removed, "" if nothing, valid until the next call. */
int muster_ckpt_passed_over(const struct muster_ckpt *ck, const char **ret_why);

/* Reads a box of a tensor, registered or not, from the checkpoint of `step`. */
int muster_ckpt_read(struct muster_ckpt *ck, int64_t step,
                     const struct muster_ckpt_tensor *box);
enum muster_ckpt_where {
    MUSTER_CKPT_COPIED = 0,    /* it was read */
    MUSTER_CKPT_IN_MEMORY = 1, /* mapped from the memory of this node's agent */
    MUSTER_CKPT_IN_FILE = 2,   /* mapped from the checkpoint's file */
};

/* What muster_ckpt_map() gives; the caller changes nothing in it. */
struct muster_ckpt_view {
    void *data;                   /* its first element, row-major without gaps */
    size_t bytes;
    enum muster_ckpt_where where; /* at last */
};

/* The same as muster_ckpt_read(), without copying where that can be: the box is mapped,
 * which takes the same time for any size; `data` and `strides` of `box` do not count.
 * What this rank has saved is mapped from the memory of the node's agent, as long as
 * that has it, and anything else from the checkpoint's file. A box is read instead, and
 * verified, where it does not lie together in one file, or not aligned to its elements.
 *
 * What is mapped is not held against digests, but with VERIFY, which reads all blocks
 * of 4 MiB that the box lies in; one that is damaged is looked for in the next of these
 * places. It is only to be read: writing to it is a SIGSEGV. With WRITABLE it may be
 * written to: a page that is, becomes the caller's own.
 *
 * It is as it is until muster_ckpt_unmap(), whatever is saved, removed or closed
 * meanwhile: what is in the agent's memory is copied, to where it is mapped, by the save
 * that would take its place, as a rule the second one after it; that fails with -ENOMEM
 * where there is no memory for that. During a save no other thread writes to it. In a
 * forked child it may change. A program that cuts the file or the memory, or a disk that
 * cannot be read, means a SIGBUS to who touches it.
 *
 * Fails as muster_ckpt_read() does; -EINVAL also for unknown flags. */
int muster_ckpt_map(struct muster_ckpt *ck, int64_t step,
                    const struct muster_ckpt_tensor *box, unsigned flags,
                    struct muster_ckpt_view **ret);
/* At any time, but during no other call of that handle, or of one with the same `m`.
 * NULL is allowed. */
void muster_ckpt_unmap(struct muster_ckpt_view *view);

/* Reads a blob: at most `size` bytes of it into `to`, and *ret_len, which may be NULL, is how
 * many it has. -ENODATA: there is none of that name, or of this rank. Of one of each rank this
 * rank's; JSON as text. Of several checkpoints of that step it is the newest that opens;
 * where the blob is damaged there, that of the next one, which may have another length. The
 * next muster_ckpt_load() of that step begins with the one that was read, on all ranks with
 * the oldest of these, and counts what is newer and damaged; muster_ckpt_latest() begins
 * anew. */
int muster_ckpt_read_blob(struct muster_ckpt *ck, int64_t step, const char *name,
                          void *to, size_t size, size_t *ret_len);

#ifdef __cplusplus
}
#endif

#endif
