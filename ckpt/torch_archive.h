/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ZIP archives of torch.save, by their names: <name>/data.pkl says what is in one, and
 * <name>/data/<key> are the storages that it names. A file is one, or several lie in it, one
 * after the other (torch.distributed.checkpoint).
 */
#ifndef MUSTER_CKPT_TORCH_ARCHIVE_H
#define MUSTER_CKPT_TORCH_ARCHIVE_H

#include "base/error.h"
#include "ckpt/io.h"
#include "ckpt/zip.h"

#include <stddef.h>
#include <stdint.h>

struct torch_archive {
    struct zip zip;
    size_t prefix; /* "<name>/", of all names */
    size_t n_storages;
    const struct zip_entry **storages; /* owned; by name, rising */
};

/* Of an open file, or of bytes [begin, end) of one. -ERR_FORMAT: it is none, cut or damaged;
 * -ENOMEM; errors of reading. On failure nothing is to be released. */
int torch_archive_open(struct io *io, int fd, struct torch_archive *ret, struct error *e);
int torch_archive_open_at(struct io *io, int fd, uint64_t begin, uint64_t end,
                          struct torch_archive *ret, struct error *e);
void torch_archive_release(struct torch_archive *a);
#define _torch_archive_ __attribute__((cleanup(torch_archive_release)))

/* By its name behind the prefix; NULL. */
const struct zip_entry *torch_archive_find(const struct torch_archive *a, const char *name);
/* data/<key>; NULL. */
const struct zip_entry *torch_archive_storage(const struct torch_archive *a, const char *key,
                                              size_t len);

/* The bytes of data.pkl, for the caller to free. -ENOMEM, where they are very many, too. */
int torch_archive_pickle(struct io *io, int fd, const struct torch_archive *a, char **ret,
                         size_t *ret_len, struct error *e);

#endif
