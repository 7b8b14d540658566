/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank writes: a safetensors file of its pieces of tensors, made in memory
 * in one pass over the program's memory. Tensors begin at a multiple of 4096, so
 * that it can be written around the page cache. Where a checkpoint has tensors in pieces,
 * the metadata of all of its files has what torch.distributed.checkpoint wants to know of
 * those (DCP_SHARDING_INFO).
 */
#ifndef MUSTER_CKPT_IMAGE_H
#define MUSTER_CKPT_IMAGE_H

#include "base/buf.h"
#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/dtype.h"
#include "ckpt/fill.h"
#include "ckpt/safetensors.h"
#include "comm/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_ALIGN 4096

/* A piece, and the memory that it is in; all borrowed as long as the image. */
struct image_piece {
    struct st_tensor tensor; /* what it is in the file, by the name that it has there;
                                image_plan() sets begin and end, from where the file begins.
                                `place` is the caller's own */
    const char *name;        /* of the tensor that it is a piece of ... */
    const uint64_t *shape, *at; /* ... of that shape, and where in it */
    const void *data;       /* the first element of the box */
    const int64_t *strides; /* in elements; NULL: row-major without gaps */
    const struct device *device; /* that reaches the data, which is dense then; NULL: the
                                    processor does */
};

struct image {
    struct image_piece *pieces; /* the caller's, by place in the file */
    size_t n;
    struct buf header;
    uint64_t bytes; /* of the file */
};

/* What the file says of the checkpoint. */
struct image_of {
    uint64_t step;
    const char *uuid;
    bool has_pieces; /* some tensor is in several boxes, in this file or others: it tells
                        where each is. Else a third of the header of many tensors would say
                        that they begin at 0 */
};

/* Orders the pieces and gives them their places. 0, -EINVAL (two of one key, a name
 * that is not UTF-8, a header too long for readers), -ENOMEM. */
int image_plan(struct image_piece *pieces, size_t n, const struct image_of *of,
               struct image *ret, struct error *e);
/* The same pieces as those of another step, as if they were planned anew. False: they have to
 * be, as the number has more digits than there is room for, say. */
bool image_set_step(struct image *im, uint64_t step, const char *uuid);
void image_release(struct image *im);
#define _image_ __attribute__((cleanup(image_release)))

/* Makes bytes [at, at + len) of the file. Any thread. 0, or -EREMOTEIO of a GPU. */
int image_read(const struct image *im, uint64_t at, size_t len, void *to,
               struct error *e);

/* Makes the file in `to`, of im->bytes bytes, block by block: any number of threads
 * help, each until no block is left that nobody has begun. It is there when
 * image_copy_end() has returned. */
struct image_copy {
    const struct image *image;
    char *to;
    uint64_t n_blocks;
    bool is_untouched; /* `to` is shared memory that was mapped just now: whoever copies
                          a block there gets its pages first, all at once */
    struct fill *fill; /* or `to` is memory that is not there yet, of a file ... */
    uint64_t fill_at;  /* ... from here on */
    _Atomic uint64_t *n_there; /* where it is said how many blocks from the front are there;
                                  NULL: nowhere */
    bool *is_there; /* of each block; NULL: nobody asks */
    _Atomic uint64_t next;
    pthread_mutex_t lock;
    pthread_cond_t left;
    unsigned n_inside; /* who may still have a block */
    bool is_over;      /* who comes now has none */
    struct error error; /* the first */
};
/* No thread is in a copy of before. */
void image_copy_begin(struct image_copy *c, const struct image *im, void *to,
                      bool is_untouched);
/* The same, for memory that it takes as it goes; `fill` is borrowed. */
void image_copy_begin_fill(struct image_copy *c, const struct image *im, struct fill *fill,
                           uint64_t fill_at);
/* Before anybody helps: how far it is may be read at `n_there`, which is 0. It takes a flag
 * for each block, false, which is borrowed until it ends. */
void image_copy_tell(struct image_copy *c, _Atomic uint64_t *n_there, bool *is_there);
/* Starts up to `n_threads` - 1 more, and waits for those. Before it helps it calls `first`,
 * where that is not NULL. */
void image_copy_help(struct image_copy *c, unsigned n_threads, void (*first)(void *arg),
                     void *arg);
/* Waits for all who help; who comes later does nothing. 0, or what any of them failed of. */
int image_copy_end(struct image_copy *c, struct error *e);

#endif
