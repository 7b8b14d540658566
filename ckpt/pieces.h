/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parcel cut into pieces, which several threads send or fetch in any order. A
 * piece is so many whole blocks of a file's digest, the last of a file what is left;
 * a file without bytes is one piece. Who has a piece's bytes hands them over, and
 * when a file has all of them its digest is known.
 */
#ifndef MUSTER_CKPT_PIECES_H
#define MUSTER_CKPT_PIECES_H

#include "ckpt/parcel.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece_file {
    const struct parcel_item *item;
    uint64_t piece_bytes;
    size_t n;      /* pieces */
    size_t first;  /* number of its first piece among all */
    bool is_done;  /* nothing is to be done for it */
    uint64_t *blocks;
    atomic_size_t n_left;
};

struct pieces {
    struct piece_file *files;
    size_t n_files;
    size_t n; /* of all files */
};

/* Not more than `max_per_file`: pieces of larger files are larger. -ENOMEM. */
int pieces_create(const struct parcel *p, uint64_t piece_bytes,
                  size_t max_per_file, struct pieces *ret);
void pieces_release(struct pieces *p);
#define _pieces_ __attribute__((cleanup(pieces_release)))

/* A multiple of the digest's block, at least `bytes`. */
uint64_t pieces_round(uint64_t bytes);
/* As if nothing had been handed over. */
void pieces_reset(struct piece_file *f);

struct piece {
    struct piece_file *file;
    size_t number; /* in its file */
    uint64_t at;
    size_t len;
};
/* i < n. */
struct piece pieces_get(const struct pieces *p, size_t i);

/* Its bytes. Whether all pieces of the file have been handed over now. */
bool pieces_put(const struct piece *piece, const void *data);
/* Whether the bytes handed over have the file's digest. */
bool pieces_are_right(const struct piece_file *f);

#endif
