/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors file format: u64 (little-endian) length of the header; the
 * header, JSON; the bytes of all tensors, one after the other without a hole, in
 * row-major order, little-endian. Source of the rules: the format's description
 * and its reference reader.
 *
 * The reader refuses what the reference reader refuses, and besides what makes two
 * readers disagree: a name that comes twice.
 */
#ifndef MUSTER_CKPT_SAFETENSORS_H
#define MUSTER_CKPT_SAFETENSORS_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/dtype.h"
#include "ckpt/io.h"

#include <stddef.h>
#include <stdint.h>

#define ST_PREFIX_BYTES 8
#define ST_MAX_HEADER_BYTES 100000000 /* the reference reader's */
#define ST_MAX_NAME_BYTES 65536

struct st_tensor {
    char *name; /* UTF-8, without zero bytes */
    enum dtype dtype;
    uint32_t n_dims;
    const uint64_t *shape; /* borrowed: of the file's dims, or of who made it */
    uint64_t begin, end; /* in bytes, from where the tensors begin */
    size_t place;        /* the maker's own: st_layout() orders tensors */
};

/* An entry of `__metadata__`. */
struct st_meta {
    char *key;
    char *value;
};

/* An entry that is JSON again, of all tensors, and so long that it is not held beside the
 * header: {"NAME":{"FIELD":[1,2]}, ...}, with as many numbers as a tensor has dimensions. */
struct st_made {
    const char *key, *field;
    const uint64_t *(*numbers)(const void *arg, size_t i); /* of that tensor, as they lie */
    const void *arg;
};

struct st_file {
    uint64_t data_at;    /* where in the file the tensors begin */
    size_t n_tensors;
    struct st_tensor *tensors; /* owned, with their names; as they lie */
    size_t tensor_bytes;       /* not 0: each begins a struct of the maker's, of that size, and
                                  nothing is released */
    uint64_t *dims;            /* owned: shapes of one that was read */
    size_t n_meta;
    struct st_meta *meta;      /* owned, in no order */
    const struct st_made *made; /* one more, for who writes it; NULL: none */
};

static inline size_t st_tensor_bytes(const struct st_file *f)
{
    return f->tensor_bytes ? f->tensor_bytes : sizeof(*f->tensors);
}

static inline struct st_tensor *st_tensor_at(const struct st_file *f, size_t i)
{
    return (void *)((char *)f->tensors + i * st_tensor_bytes(f));
}

/* From the first bytes of a file of `file_bytes`: how long the header is. 0, or
 * -ERR_FORMAT: then it is none, or it is cut. */
int st_header_bytes(const uint8_t prefix[ST_PREFIX_BYTES], uint64_t file_bytes,
                    uint64_t *ret, struct error *e);

/* The header, without its prefix. 0, -ERR_FORMAT, -ENOMEM; -EFBIG: a shape of more
 * lengths than there can be here. `ret` is written only on success. */
int st_read(const void *header, size_t len, uint64_t file_bytes,
            struct st_file *ret, struct error *e);

/* That of an open file. As st_read(), and errors of reading. */
int st_load(struct io *io, int fd, struct st_file *ret, struct error *e);

void st_release(struct st_file *f);
#define _st_file_ __attribute__((cleanup(st_release)))

/* The value of a key of `__metadata__`, or NULL. */
const char *st_meta(const struct st_file *f, const char *key);

/* Gives each tensor its place: those of larger elements first, then by size,
 * largest first, then by name, so that all lie aligned to their elements. Orders
 * the tensors so. -EINVAL: a name comes twice, is too long or is `__metadata__`;
 * a shape has no size. */
int st_layout(struct st_file *f, struct error *e);

/* Prefix and header of a file, with spaces behind the header so that the tensors
 * begin at a multiple of `align` (a power of two, at least 8). Sets data_at. The
 * tensors have their places. 0, -EINVAL (not UTF-8, or a header that no reader
 * takes), -ENOMEM; then `b` has some of it. */
int st_write(struct st_file *f, uint64_t align, struct buf *b,
             struct error *e);

/* The bytes of a whole file. */
uint64_t st_file_bytes(const struct st_file *f);

#endif
