/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save, since PyTorch 1.6: a ZIP archive <name>/data.pkl,
 * <name>/version, <name>/data/0, 1, ... . Looked at without running what is in
 * them.
 */
#ifndef MUSTER_CKPT_TORCH_FILE_H
#define MUSTER_CKPT_TORCH_FILE_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_file {
    size_t n_storages; /* data/0, data/1, ... */
    uint64_t bytes;    /* of these together */
    /* PyTorch was told to write no checksums (set_crc32_options(False)): nothing
     * but the structure can be verified. */
    bool has_no_checksums;
    /* It was told to leave storages out (skip_data()), whose bytes somebody else writes, and
     * for which it has none. */
    bool lacks_checksums;
};

/* 0 if it is whole; with `is_deep` its bytes are held against their checksums, too.
 * -ERR_FORMAT: it is none, cut or damaged; -ENOMEM; errors of reading. */
int torch_file_check(struct io *io, int fd, bool is_deep,
                     struct torch_file *ret, struct error *e);

/* Whether it is a program that PyTorch has saved, and no checkpoint: TorchScript, or of
 * torch.export. */
bool torch_file_is_program(struct io *io, int fd);

/* Whether it is an archive of another program: it has a directory, and nothing there is
 * called as in those of torch.save. One that is cut has no directory. */
bool torch_file_is_other(struct io *io, int fd);

/* What is under a key of a dict in it. Nothing is run: the key is looked for as it is
 * written, and a file with another dict that has it first fools it. */
struct torch_asked {
    const char *key;
    const char *behind; /* only where this text came before; NULL: anywhere */
    bool is_there;
    bool is_none;       /* at the first place where it is */
    bool is_number;     /* and the first that there is */
    uint64_t number;
};
/* Of each what is known; nothing, where it cannot be read. */
void torch_file_ask(struct io *io, int fd, struct torch_asked *asked, size_t n);

/* The number under one key. False: none. */
bool torch_file_number(struct io *io, int fd, const char *key, uint64_t *ret);

#endif
