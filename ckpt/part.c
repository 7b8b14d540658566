/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part.h"

#include "ckpt/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void part_release(struct part *p)
{
    for (size_t i = 0; i < p->n_blobs; i++) {
        free(p->blobs[i].name);
    }
    free(p->blobs);
    free(p->pieces);
    free(p->blocks);
    free(p->state);
    free(p->memory);
    *p = (struct part){0};
}

void part_file_name(uint32_t rank, char to[PART_NAME_BYTES])
{
    snprintf(to, PART_NAME_BYTES, "r%05u.part", rank);
}

void part_data_name(uint32_t rank, char to[PART_NAME_BYTES])
{
    snprintf(to, PART_NAME_BYTES, "r%05u.safetensors", rank);
}

bool part_data_rank(const char *name, uint32_t *ret)
{
    char again[PART_NAME_BYTES];
    uint64_t rank = 0;
    size_t n = name[0] == 'r' ? strspn(name + 1, "0123456789") : 0;

    if (n == 0 || n > 9) {
        return false;
    }
    rank = strtoull(name + 1, NULL, 10);
    part_data_name((uint32_t)rank, again);
    *ret = (uint32_t)rank;
    return strcmp(name, again) == 0;
}

void part_blob_name(const char *name, bool is_per_rank, uint32_t rank,
                    struct buf *to)
{
    buf_printf(to, ".blob/%s", name);
    if (is_per_rank) {
        buf_printf(to, "/%u", rank);
    }
}

int part_finish(const void *part, size_t len, const uint64_t *blocks,
                size_t n_blocks, struct buf *ret, struct error *e)
{
    _part_ struct part p = {0};
    int rc = part_decode(part, len, &p, e);

    if (rc == 0 && n_blocks != digest_n_blocks(p.file_bytes)) {
        rc = error_text(e, ERR_FORMAT, "the part of rank %u: a file of %llu "
                        "bytes has no %zu blocks", p.rank,
                        (unsigned long long)p.file_bytes, n_blocks);
    }
    if (rc < 0) {
        return rc;
    }
    free(p.blocks);
    p.n_blocks = 0;
    p.blocks = calloc(n_blocks + 1, sizeof(*p.blocks));
    if (!p.blocks) {
        return error_set(e, ENOMEM, "the part of rank %u", p.rank);
    }
    if (n_blocks > 0) {
        memcpy(p.blocks, blocks, n_blocks * sizeof(*blocks));
    }
    p.n_blocks = n_blocks;
    return part_encode(&p, ret, e);
}
