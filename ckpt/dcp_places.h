/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pieces of a checkpoint of torch.distributed.checkpoint lie, as its
 * .metadata says (or that of a rank): for each a file, an offset and a length. That is a
 * pickle, which is not run: its records are found as they are written, by their classes
 * (from PyTorch 1.13 to now _StorageInfo, each behind its MetadataIndex) and keys.
 */
#ifndef MUSTER_CKPT_DCP_PLACES_H
#define MUSTER_CKPT_DCP_PLACES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dcp_place {
    const char *file; /* in the pickle's bytes, without a zero byte behind it */
    size_t file_len;
    uint64_t offset, length;
};

struct dcp_places {
    struct dcp_place *items; /* owned; by file, offset and length */
    size_t n;
    bool is_empty; /* it says so: the record of places is there, and has none */
};

void dcp_places_release(struct dcp_places *p);
#define _dcp_places_ __attribute__((cleanup(dcp_places_release)))

/* 0, also where there are none that are known: another version may write others.
 * -EFBIG, -ENOMEM; -ERR_FORMAT: it is no pickle, or one of its records is wrong, or one
 * is missing. */
int dcp_places_read(const void *metadata, size_t len, struct dcp_places *ret,
                    struct error *e);

/* The order of its file among names. */
int dcp_place_file_compare(const struct dcp_place *a, const char *name, size_t len);

#endif
