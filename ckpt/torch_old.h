/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save as before PyTorch 1.6, and on demand since, and plain pickles.
 * They have no checksums; looked at without running what is in them.
 */
#ifndef MUSTER_CKPT_TORCH_OLD_H
#define MUSTER_CKPT_TORCH_OLD_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stddef.h>
#include <stdint.h>

/* What they begin with in protocols 0 and 1, which have no sign of their own. */
#define TORCH_OLD_LINE "L119547037146038801333356L\n"

/* A file of so many bytes, at least one, that begins as a pickle. Of one of torch.save
 * the length must be just what its storages take, where their types are known; of
 * another the first pickle must be whole. 0; -ERR_FORMAT: it is cut, or no pickle;
 * -ENOMEM; errors of reading. */
int torch_old_check(struct io *io, int fd, uint64_t bytes, struct error *e);

/* Bytes of a storage in such a file. */
struct torch_old_storage {
    const char *key; /* in `data`, without a zero byte behind it */
    size_t len;
    uint64_t begin, end; /* in the file */
};

struct torch_old {
    uint8_t *data; /* owned: the file's beginning */
    size_t pickle_at, pickle_len; /* what was saved, in that */
    size_t n_storages;
    struct torch_old_storage *storages; /* owned; by key */
};

/* What is where in one of torch.save. -ENOTSUP: it is another pickle, or has storages of types
 * that are not known; else as torch_old_check(). */
int torch_old_open(struct io *io, int fd, uint64_t bytes, struct torch_old *ret, struct error *e);
void torch_old_release(struct torch_old *f);
#define _torch_old_ __attribute__((cleanup(torch_old_release)))

/* NULL: it has none of that key. */
const struct torch_old_storage *torch_old_storage(const struct torch_old *f, const char *key,
                                                  size_t len);

#endif
