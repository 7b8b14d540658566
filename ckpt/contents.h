/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a checkpoint, whoever wrote it: tensors by name, with type and shape, and
 * their bytes. Of muster's own; of safetensors files, and files of torch.save, one or a
 * directory of them; and of torch.distributed.checkpoint. Pickles are looked through for
 * what PyTorch would make of them (ckpt/torch_tensors.h), and never run.
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
    size_t place;   /* muster's: in the index; else which of the files */
    uint64_t begin; /* in that file */
    struct contents_piece *pieces; /* owned; NULL: it lies there as it is (contents_priv.h) */
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
    bool has_sums;    /* there are checksums, and found_check() is to hold bytes against them */
    struct load load; /* of muster's own; without an index else */
    /* Of pickles: values that are no tensors; and tensors of which safetensors files do not
     * have the like, with the name of one. */
    size_t n_values_left_out, n_tensors_left_out;
    char left_out[128];
    size_t n_files_left_out; /* of torch.save, in forms that are not looked into */
    /* Private. */
    size_t room; /* for tensors */
    struct io *io;
    int dir; /* where files are that are opened later */
    bool has_dir;
    struct contents_file *files;
    size_t n_files;
    struct contents_span *span; /* what was read last, where it is not read as it lies */
    char why[256]; /* what why_no_tensors may be: it is not to be moved to another place */
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
