/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part_bed.h"

#include "tests/lib/tap.h"

#include <string.h>

const struct part_piece part_bed_pieces[PART_BED_N_PIECES] = {
    {"layer.w", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096},
    {"step", DTYPE_I64, 0, NULL, NULL, NULL, 4120},
    {".blob/rng/1", DTYPE_U8, 1, NUMBERS(5), NUMBERS(0), NUMBERS(5), 4128},
};

static const struct part_blob blobs[] = {{(char *)"rng", true}};
static const uint64_t blocks[] = {77};

struct part part_bed_example(void)
{
    return (struct part){
        .step = 12, .uuid = "0123456789abcdef0123456789abcdef", .rank = 1,
        .n_ranks = 2, .node = 1, .file_bytes = 4133,
        .n_pieces = PART_BED_N_PIECES, .pieces = (struct part_piece *)(uintptr_t)part_bed_pieces,
        .n_blobs = 1, .blobs = (struct part_blob *)(uintptr_t)blobs,
        .n_blocks = 1, .blocks = (uint64_t *)(uintptr_t)blocks,
        .state = (char *)"{\"a\":1}",
    };
}

void part_bed_encode(const struct part *p, struct buf *b)
{
    struct error e = {0};

    if (part_encode(p, b, &e) < 0) {
        bail_out("no part: %s", e.text);
    }
}

void part_bed_list(void *data[PART_BED_N_FIELDS], struct array fields[PART_BED_N_FIELDS])
{
    const struct array all[PART_BED_N_FIELDS] = {
        {"names", DTYPE_U8, &data[0], 0}, {"name_ends", DTYPE_U64, &data[1], 0},
        {"dtypes", DTYPE_U8, &data[2], 0}, {"n_dims", DTYPE_U8, &data[3], 0},
        {"shapes", DTYPE_U64, &data[4], 0}, {"boxes", DTYPE_U64, &data[5], 0},
        {"begins", DTYPE_U64, &data[6], 0}, {"blocks", DTYPE_U64, &data[7], 0},
    };

    memcpy(fields, all, sizeof(all));
}
