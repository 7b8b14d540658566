/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/pieces.h"

#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>

uint64_t pieces_round(uint64_t bytes)
{
    uint64_t n = bytes / DIGEST_BLOCK_BYTES + (bytes % DIGEST_BLOCK_BYTES != 0);

    return (n ? n : 1) * DIGEST_BLOCK_BYTES;
}

void pieces_release(struct pieces *p)
{
    for (size_t i = 0; i < p->n_files && p->files; i++) {
        free(p->files[i].blocks);
    }
    free(p->files);
    *p = (struct pieces){0};
}

void pieces_reset(struct piece_file *f)
{
    atomic_store(&f->n_left, f->n);
}

static int cut(struct piece_file *f, const struct parcel_item *item,
               uint64_t piece_bytes, size_t max)
{
    uint64_t bytes = pieces_round(piece_bytes);

    if (item->bytes / max >= bytes) {
        bytes = pieces_round(item->bytes / max + 1);
    }
    f->item = item;
    f->piece_bytes = bytes;
    f->n = item->bytes / bytes + (item->bytes % bytes != 0);
    f->n = f->n ? f->n : 1;
    f->blocks = calloc(digest_n_blocks(item->bytes) + 1, sizeof(*f->blocks));
    pieces_reset(f);
    return f->blocks ? 0 : -ENOMEM;
}

int pieces_create(const struct parcel *p, uint64_t piece_bytes,
                  size_t max_per_file, struct pieces *ret)
{
    _pieces_ struct pieces all = {.n_files = p->n};

    all.files = calloc(p->n + 1, sizeof(*all.files));
    if (!all.files) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < p->n; i++) {
        if (cut(&all.files[i], &p->items[i], piece_bytes, max_per_file) < 0) {
            return -ENOMEM;
        }
        all.files[i].first = all.n;
        all.n += all.files[i].n;
    }
    *ret = all;
    all = (struct pieces){0};
    return 0;
}

struct piece pieces_get(const struct pieces *p, size_t i)
{
    size_t low = 0, high = p->n_files;
    struct piece piece;

    /* The last file whose first piece is not behind it. */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (p->files[middle].first <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    piece.file = &p->files[low];
    piece.number = i - piece.file->first;
    piece.at = piece.number * piece.file->piece_bytes;
    piece.len = piece.file->item->bytes - piece.at < piece.file->piece_bytes
                    ? piece.file->item->bytes - piece.at
                    : piece.file->piece_bytes;
    return piece;
}

bool pieces_put(const struct piece *piece, const void *data)
{
    uint64_t block = piece->at / DIGEST_BLOCK_BYTES;

    for (size_t at = 0; at < piece->len; at += DIGEST_BLOCK_BYTES) {
        size_t len = piece->len - at < DIGEST_BLOCK_BYTES ? piece->len - at
                                                          : DIGEST_BLOCK_BYTES;

        piece->file->blocks[block++] =
            digest_short_of((const char *)data + at, len);
    }
    return atomic_fetch_sub(&piece->file->n_left, 1) == 1;
}

bool pieces_are_right(const struct piece_file *f)
{
    return digest_equal(digest_of_blocks(f->blocks, f->item->bytes),
                        f->item->digest);
}
