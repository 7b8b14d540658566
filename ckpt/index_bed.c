/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_bed.h"

#include "base/cleanup.h"
#include "ckpt/part.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

int index_bed_create(const struct index_piece *pieces, size_t n,
                     const struct index_file *files, size_t n_files, struct index **ret,
                     struct error *e)
{
    _free_ struct part *parts = calloc(n_files + 1, sizeof(*parts));
    _free_ struct part_piece *sorted = calloc(n + 1, sizeof(*sorted));
    struct part_piece *to = sorted;

    if (!parts || !sorted) {
        bail_out("no memory for an index");
    }
    for (size_t f = 0; f < n_files; f++) {
        struct part *p = &parts[f];

        p->pieces = to;
        p->blocks = (uint64_t *)(uintptr_t)files[f].blocks;
        p->n_blocks = files[f].n_blocks;
        for (size_t i = 0; i < n; i++) {
            const struct index_piece *from = &pieces[i];

            if (from->file == f) {
                *to++ = (struct part_piece){from->name, from->dtype, from->n_dims,
                                            from->shape, from->at, from->len, from->begin};
            }
        }
        p->n_pieces = (size_t)(to - p->pieces);
    }
    return index_create(parts, n_files, ret, e);
}
