/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are a list of named arrays of numbers, encoded as a safetensors file
 * (ckpt/safetensors.h) with one-dimensional tensors, which any reader of that format
 * can look into. Little-endian, as the machines that this is for.
 */
#ifndef MUSTER_CKPT_ARRAYS_H
#define MUSTER_CKPT_ARRAYS_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/dtype.h"
#include "ckpt/safetensors.h"

#include <stddef.h>
#include <stdint.h>

struct array {
    const char *name;
    enum dtype dtype; /* of whole bytes */
    void **data;      /* where the array is, or is found */
    size_t n;         /* elements; decoding sets it */
};

/* 0 or -ENOMEM; -EINVAL: metadata that is not UTF-8. `meta` is borrowed. */
int arrays_encode(const struct array *arrays, size_t n, struct st_meta *meta,
                  size_t n_meta, struct buf *b, struct error *e);

/* The same of arrays that are not there yet: afterwards *data of each is where in `b` its n
 * elements go, until `b` grows. They are aligned if `b` was empty, and it begins with a page. */
int arrays_make_room(const struct array *arrays, size_t n, struct st_meta *meta,
                     size_t n_meta, struct buf *b, struct error *e);

/* All of that before the arrays themselves. */
int arrays_encode_header(const struct array *arrays, size_t n, struct st_meta *meta,
                         size_t n_meta, struct buf *b, struct error *e);

/* Fills *data and n of each. They lie in `data`, as long as that is there, except those that
 * are not aligned there and are copied: arrays_free() frees these, and no others, and is
 * called always. `what` names the file in errors. The caller releases `ret`, which has the
 * metadata, on success. 0, -ERR_FORMAT, -ENOMEM. */
int arrays_find(const void *data, size_t len, const char *what,
                struct array *arrays, size_t n, struct st_file *ret,
                struct error *e);
void arrays_free(const void *data, size_t len, struct array *arrays, size_t n);

#endif
