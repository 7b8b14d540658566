/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading boxes of tensors out of one checkpoint. What is read is held against the
 * digests of the blocks that it lies in, block by block, before it counts.
 */
#ifndef MUSTER_CKPT_LOAD_H
#define MUSTER_CKPT_LOAD_H

#include "base/cleanup.h"
#include "base/error.h"
#include "ckpt/index.h"
#include "ckpt/step.h"
#include "ckpt/strided.h"
#include "comm/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the bytes of a checkpoint's files come from, other than its directory: a
 * snapshot of one of them in memory, say. */
struct load_source {
    /* That file is going to be read: comes before anybody asks for it, maybe again, from
     * the thread that loads. It maps nothing: memory is got ahead meanwhile, and who maps
     * some waits for that. NULL: nothing is to be done. */
    void (*look)(void *arg, const struct step *s, uint32_t file);
    /* All of that file, or NULL. It stays as it is until loading ends. First from the thread
     * that loads, then from any. */
    const char *(*file)(void *arg, const struct step *s, uint32_t file);
    /* Returns once its bytes before `end` are there. False: they will not be. Any thread.
     * NULL: all are. */
    bool (*await)(void *arg, const struct step *s, uint32_t file, uint64_t end);
    void *arg;
};

/* A checkpoint with its index. */
struct load {
    struct step step;
    struct index *index;
    bool is_shared; /* other ranks of this node load, too: tensors that one wants whole
                       come by way of the page cache, so from the disk once */
};

/* Takes over an open checkpoint, on success, and reads its index. 0; -ERR_FORMAT:
 * it is damaged; -ENOENT: it is being removed; others: it cannot be read; -ENOMEM. */
int load_open(struct step *s, struct load *ret, struct error *e);
void load_close(struct load *l);
#define _load_ __attribute__((cleanup(load_close)))

/* A box of a tensor, and where it goes. */
struct load_want {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *shape; /* of the tensor, as in the checkpoint */
    const uint64_t *at, *len;
    const int64_t *strides;
    void *data;
    const struct device *device; /* that reaches the data, which is dense then; or NULL */
    uint32_t rank; /* for messages: which rank wants it */
};

/* The place in the index of the tensor that it is of; `near` as for index_find_near().
 * -ENODATA, -EINVAL as below. */
int load_find(const struct load *l, const struct load_want *w, size_t near, size_t *ret,
              struct error *e);

/* Boxes that are going to be filled, by up to `n_threads` threads, or more where they wait
 * for a disk. Memory that is not there yet is got from the beginning on: beside opening the
 * checkpoint, and finding what is in it. `wants` stays the caller's, and as it is. 0,
 * -ENOMEM. */
struct load_into;
int load_into_begin(const struct load_want *wants, size_t n, unsigned n_threads,
                    struct load_into **ret, struct error *e);
/* NULL is allowed. */
void load_into_destroy(struct load_into *into);
DEFINE_CLEANUP(load_into);

/* Fills all of them; once. `source` may be NULL. After a failure some may be filled, with
 * anything. 0; -ENODATA: there is no such tensor; -EINVAL: it has another type or shape;
 * damage is -ERR_FORMAT or what reading failed of, and load_is_damage() tells it apart, as
 * it does -ENOENT, of what is being removed; -ENOMEM. */
int load_fill(const struct load *l, const struct load_source *source,
              struct load_into *into, struct error *e);

/* All of that. */
int load_boxes(const struct load *l, const struct load_source *source,
               const struct load_want *wants, size_t n, unsigned n_threads,
               struct error *e);

/* Whether a failure is the checkpoint's, and another may do. */
bool load_is_damage(int rc);

#endif
