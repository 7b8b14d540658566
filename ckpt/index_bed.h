/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes for tests: of pieces in any order, each with the number of its file. */
#ifndef MUSTER_CKPT_INDEX_BED_H
#define MUSTER_CKPT_INDEX_BED_H

#include "base/error.h"
#include "ckpt/dtype.h"
#include "ckpt/index.h"

#include <stddef.h>
#include <stdint.h>

struct index_piece {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *shape;
    const uint64_t *at, *len; /* the box */
    uint32_t file;            /* one of those that there are */
    uint64_t begin;
};

struct index_file {
    const uint64_t *blocks;
    size_t n_blocks;
};

/* As index_create() of as many parts. */
int index_bed_create(const struct index_piece *pieces, size_t n,
                     const struct index_file *files, size_t n_files, struct index **ret,
                     struct error *e);

#endif
