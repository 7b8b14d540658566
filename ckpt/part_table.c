/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most saves of a program have the same pieces in the same places as the one before, and
 * other bytes: then all that is new in a part are its metadata and the digests of its
 * file's blocks. There may be 10^5 pieces and more, which need not be looked at again.
 */
#include <config.h>

#include "ckpt/part_priv.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct digest digest_of_table(const struct array fields[PART_N_FIELDS],
                                     uint64_t file_bytes)
{
    uint64_t all[2 * PART_BLOCKS + 1];
    size_t n = 0;

    for (size_t i = 0; i < PART_BLOCKS; i++) {
        size_t element = dtype_bits(fields[i].dtype) / 8;
        struct digest d = digest_of(*fields[i].data, fields[i].n * element);

        all[n++] = d.high;
        all[n++] = d.low;
    }
    all[n++] = file_bytes;
    return digest_of(all, n * sizeof(*all));
}

static int take_blocks(const struct array fields[PART_N_FIELDS], const uint64_t *blocks,
                       struct part *p, struct error *e)
{
    size_t n = fields[PART_BLOCKS].n;

    p->blocks = calloc(n + 1, sizeof(*p->blocks));
    if (!p->blocks) {
        return error_set(e, ENOMEM, "read a part");
    }
    memcpy(p->blocks, blocks, n * sizeof(*blocks));
    p->n_blocks = n;
    return 0;
}

int part_decode_brief(const void *data, size_t len, struct part *ret, struct digest *ret_table,
                      struct error *e)
{
    struct part_arrays a = {0}; /* where they lie in `data` */
    _part_ struct part p = {0};
    _st_file_ struct st_file f = {0};
    struct array fields[PART_N_FIELDS];
    int rc;

    part_list_fields(&a, fields);
    rc = part_find(data, len, fields, &f, e);
    rc = rc < 0 ? rc : part_take_meta(&f, &p, e);
    rc = rc < 0 ? rc : take_blocks(fields, a.blocks, &p, e);
    if (rc == 0) {
        *ret_table = digest_of_table(fields, p.file_bytes);
        *ret = p;
        p = (struct part){0};
    }
    arrays_free(data, len, fields, PART_N_FIELDS);
    return rc;
}
