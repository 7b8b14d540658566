/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part.h"

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
