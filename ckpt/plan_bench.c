/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a rank takes to plan what it reads of a checkpoint of many pieces: to check
 * its index, which is in memory, and to find what of it lies where.
 *
 *   plan_bench CHUNKS ROUNDS rows|columns|grid|whole     a line a round: nanoseconds
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/digest.h"
#include "ckpt/index.h"
#include "ckpt/part.h"
#include "ckpt/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "plan_bench: %s\n", what);
    exit(1);
}

enum {
    SAVED_BY = 1000,
    LOADED_BY = 64, /* a rank of those: 5 */
    RANK = 5,
    NAME_BYTES = 64,
    CHUNK_BYTES = 512,
};

/* How tensors are cut: into so many pieces in each dimension, all of 8 x 16. */
struct cut {
    const char *name;
    uint64_t n[2];
};

static const struct cut cuts[] = {
    {"rows", {SAVED_BY, 1}},
    {"columns", {1, SAVED_BY}},
    {"grid", {40, 25}},
    {"whole", {1, 1}}, /* as many tensors as pieces */
};

static const uint64_t piece_len[2] = {8, 16};

static struct buf make_index(const struct cut *cut, size_t n_chunks)
{
    const uint64_t shape[2] = {piece_len[0] * cut->n[0], piece_len[1] * cut->n[1]};
    size_t n_each = cut->n[0] * cut->n[1], n_tensors = n_chunks / n_each;
    size_t most = n_chunks / SAVED_BY + 1; /* pieces of a rank */
    struct part_piece *pieces = calloc(most * SAVED_BY, sizeof(*pieces));
    struct part *parts = calloc(SAVED_BY, sizeof(*parts));
    uint64_t *corners = calloc(n_chunks, 2 * sizeof(*corners)), *blocks;
    char (*names)[NAME_BYTES] = calloc(n_tensors, NAME_BYTES);
    uint64_t n_blocks = most * CHUNK_BYTES / DIGEST_BLOCK_BYTES + 1;
    _cleanup_(index) struct index *x = NULL;
    struct buf b = {0};
    const char *data;
    size_t len;

    blocks = calloc(n_blocks, sizeof(*blocks));
    if (!pieces || !parts || !corners || !names || !blocks) {
        die("memory");
    }
    for (size_t f = 0; f < SAVED_BY; f++) {
        parts[f] = (struct part){.pieces = pieces + f * most, .blocks = blocks,
                                 .n_blocks = n_blocks};
    }
    for (size_t i = 0; i < n_chunks; i++) {
        struct part *part = &parts[i % SAVED_BY];
        size_t tensor = i / n_each, k = i % n_each;

        snprintf(names[tensor], NAME_BYTES, "model.layers.%zu.weight", tensor);
        corners[2 * i] = piece_len[0] * (k / cut->n[1]);
        corners[2 * i + 1] = piece_len[1] * (k % cut->n[1]);
        part->pieces[part->n_pieces++] = (struct part_piece){
            names[tensor], DTYPE_F32, 2, shape, corners + 2 * i, piece_len,
            i / SAVED_BY * CHUNK_BYTES};
    }
    if (index_create(parts, SAVED_BY, &x, NULL) < 0) {
        die("make an index");
    }
    data = index_bytes(x, &len);
    buf_append(&b, data, len);
    free(pieces);
    free(parts);
    free(corners);
    free(names);
    free(blocks);
    return b;
}

/* Of each tensor what one of other ranks, fewer, has of it: a part in the dimension that
 * is longer, or each so many whole ones. */
static size_t list_wants(const struct index *x, struct plan_want *wants, uint64_t (*boxes)[4])
{
    bool is_whole = index_n_tensors(x) == index_n_chunks(x);
    size_t n = 0;

    for (size_t i = is_whole ? RANK : 0; i < index_n_tensors(x);
         i += is_whole ? LOADED_BY : 1) {
        struct index_tensor t = index_tensor(x, i);
        uint32_t d = t.shape[1] > t.shape[0];
        uint64_t *at = boxes[n], *len = at + 2;

        memset(at, 0, 2 * sizeof(*at));
        memcpy(len, t.shape, 2 * sizeof(*len));
        if (!is_whole) {
            len[d] = t.shape[d] / LOADED_BY;
            at[d] = RANK * len[d];
        }
        wants[n++] = (struct plan_want){i, at, len, is_whole};
    }
    return n;
}

static uint64_t plan_ns(const struct buf *encoded)
{
    char *data = malloc(encoded->len); /* as it was read */
    uint64_t begin, ns;
    _cleanup_(index) struct index *x = NULL;
    struct plan_want *wants;
    uint64_t (*boxes)[4]; /* of each a corner, and lengths */
    struct plan p = {0};

    if (!data) {
        die("memory");
    }
    memcpy(data, encoded->data, encoded->len);
    begin = clock_mono_ns();
    if (index_take(data, encoded->len, &x, NULL) < 0) {
        die("read an index");
    }
    wants = calloc(index_n_tensors(x), sizeof(*wants));
    boxes = calloc(index_n_tensors(x), sizeof(*boxes));
    if (!wants || !boxes ||
        plan_make(x, wants, list_wants(x, wants, boxes), DIGEST_BLOCK_BYTES, &p, NULL) < 0) {
        die("plan");
    }
    ns = clock_mono_ns() - begin;
    plan_release(&p);
    free(wants);
    free(boxes);
    return ns;
}

static const struct cut *find_cut(const char *name)
{
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        if (strcmp(cuts[i].name, name) == 0) {
            return &cuts[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t n_chunks = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;
    const struct cut *cut = argc == 4 ? find_cut(argv[3]) : NULL;
    _buf_ struct buf encoded = {0};

    if (n_chunks < SAVED_BY || !cut) {
        fprintf(stderr, "usage: plan_bench CHUNKS ROUNDS rows|columns|grid|whole "
                        "(at least %d)\n", SAVED_BY);
        return 2;
    }
    encoded = make_index(cut, n_chunks / SAVED_BY * SAVED_BY);
    for (int i = 0; i < atoi(argv[2]); i++) {
        printf("%" PRIu64 "\n", plan_ns(&encoded));
        fflush(stdout);
    }
    return 0;
}
