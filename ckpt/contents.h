/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a checkpoint, whoever wrote it: tensors by name, with type and shape, and
 * their bytes. Of muster's own, and of safetensors files, one or a directory of them.
 * Names and shapes of what torch.save and torch.distributed.checkpoint write are in
 * pickles, which are not run: of those only files are known.
 */
#ifndef MUSTER_CKPT_CONTENTS_H
#define MUSTER_CKPT_CONTENTS_H

#include "base/error.h"
#include "base/str.h"
#include "ckpt/found.h"
#include "ckpt/load.h"
#include "ckpt/safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct contents_tensor {
    char *name; /* owned */
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t shape[BOX_MAX_DIMS];
    uint64_t bytes;
    size_t n_pieces;
    struct strlist files; /* that it lies in */
    /* Private. */
    size_t place;   /* muster's: in the index; else which of the open files */
    uint64_t begin; /* in that file */
};

struct contents {
    struct found found;
    struct found_facts facts;   /* bytes, files */
    const char *why_no_tensors; /* NULL: they are known */
    size_t n_tensors;
    struct contents_tensor *tensors; /* by name, rising; blobs are not among them */
    /* `__metadata__` of safetensors files, by key: owned. Where several files have a
     * key with different values it is left out. */
    size_t n_meta, n_meta_left_out;
    struct st_meta *meta;
    bool is_verified; /* what is read is held against digests */
    struct load load; /* of muster's own; without an index else */
    /* Private. */
    struct io *io;
    int *fds;
    size_t n_fds;
};

/* Opens one. What found_check() has to say of it, without reading all bytes; -EINVAL:
 * two files have a tensor of one name. On failure nothing is to be released. */
int contents_open(struct io *io, int dir, const struct found *f,
                  struct contents *ret, struct error *e);
void contents_release(struct contents *c);
#define _contents_ __attribute__((cleanup(contents_release)))

/* Elements [begin, end) of a tensor in row-major order; of one whose elements are
 * smaller than a byte all. -ERR_FORMAT: damaged, and where; others. */
int contents_read(const struct contents *c, const struct contents_tensor *t,
                  uint64_t begin, uint64_t end, void *to, struct error *e);

/* How many elements a tensor has. */
uint64_t contents_elements(const struct contents_tensor *t);

#endif
