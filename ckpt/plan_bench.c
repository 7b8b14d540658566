/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a rank takes to plan what it reads of a checkpoint of many pieces: to check
 * its index, which is in memory, and to find what of it lies where.
 *
 *   plan_bench CHUNKS ROUNDS     a line a round: nanoseconds
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/digest.h"
#include "ckpt/index.h"
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

enum { SAVED_BY = 1000, LOADED_BY = 64, NAME_BYTES = 64 };

/* Tensors cut by rows, a piece each by as many ranks as saved them. */
static void make_index(size_t n_chunks, struct buf *to)
{
    static const uint64_t shape[2] = {SAVED_BY * 8, 16}, len[2] = {8, 16};
    struct index_piece *pieces = calloc(n_chunks, sizeof(*pieces));
    struct index_file *files = calloc(SAVED_BY, sizeof(*files));
    uint64_t *corners = calloc(n_chunks, 2 * sizeof(*corners)), *blocks;
    char (*names)[NAME_BYTES] = calloc(n_chunks / SAVED_BY, NAME_BYTES);
    uint64_t n_blocks = n_chunks / SAVED_BY * 512 / DIGEST_BLOCK_BYTES + 1;
    _cleanup_(index) struct index *x = NULL;

    blocks = calloc(n_blocks, sizeof(*blocks));
    if (!pieces || !files || !corners || !names || !blocks) {
        die("memory");
    }
    for (size_t i = 0; i < n_chunks; i++) {
        size_t tensor = i / SAVED_BY, rank = i % SAVED_BY;

        snprintf(names[tensor], NAME_BYTES, "model.layers.%zu.weight", tensor);
        corners[2 * i] = 8 * rank;
        pieces[i] = (struct index_piece){names[tensor], DTYPE_F32, 2, shape,
                                         corners + 2 * i, len, (uint32_t)rank,
                                         tensor * 512};
    }
    for (size_t i = 0; i < SAVED_BY; i++) {
        files[i] = (struct index_file){blocks, n_blocks};
    }
    if (index_create(pieces, n_chunks, files, SAVED_BY, &x, NULL) < 0 ||
        index_encode(x, to) < 0) {
        die("make an index");
    }
    free(pieces);
    free(files);
    free(corners);
    free(names);
    free(blocks);
}

/* Of each tensor the rows of one of other ranks, fewer. */
static uint64_t plan_ns(const struct buf *encoded)
{
    char *data = malloc(encoded->len); /* as it was read */
    uint64_t begin, ns;
    _cleanup_(index) struct index *x = NULL;
    struct plan_want *wants;
    struct plan p = {0};
    size_t n;

    if (!data) {
        die("memory");
    }
    memcpy(data, encoded->data, encoded->len);
    begin = clock_mono_ns();
    if (index_take(data, encoded->len, &x, NULL) < 0) {
        die("read an index");
    }
    n = index_n_tensors(x);
    wants = calloc(n, sizeof(*wants));
    for (size_t i = 0; wants && i < n; i++) {
        wants[i] = (struct plan_want){
            i, {.n_dims = 2, .at = {SAVED_BY * 8 / LOADED_BY * 5, 0},
                .len = {SAVED_BY * 8 / LOADED_BY, 16}}};
    }
    if (!wants || plan_make(x, wants, n, DIGEST_BLOCK_BYTES, &p, NULL) < 0) {
        die("plan");
    }
    ns = clock_mono_ns() - begin;
    plan_release(&p);
    free(wants);
    return ns;
}

int main(int argc, char **argv)
{
    uint64_t n_chunks = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    _buf_ struct buf encoded = {0};

    if (n_chunks < SAVED_BY) {
        fprintf(stderr, "usage: plan_bench CHUNKS ROUNDS (at least %d)\n", SAVED_BY);
        return 2;
    }
    make_index(n_chunks / SAVED_BY * SAVED_BY, &encoded);
    for (int i = 0; i < atoi(argv[2]); i++) {
        printf("%" PRIu64 "\n", plan_ns(&encoded));
        fflush(stdout);
    }
    return 0;
}
