/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the index of a checkpoint. What is taken encodes to an index that
 * reads the same, and any box of its tensors can be planned for.
 */
#include <config.h>

#include "ckpt/digest.h"
#include "ckpt/plan.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WANTS = 16 };

static void try_plan(const struct index *x)
{
    static const uint64_t corner[BOX_MAX_DIMS];
    struct plan_want wants[MAX_WANTS];
    _plan_ struct plan p = {0};
    size_t n = 0;

    for (size_t i = 0; i < index_n_tensors(x) && n < MAX_WANTS; i++) {
        struct index_tensor t = index_tensor(x, i);

        expect(index_find(x, "no such tensor") == SIZE_MAX || t.name_len);
        wants[n++] = (struct plan_want){i, corner, t.shape, i % 2 == 0};
    }
    if (plan_make(x, wants, n, DIGEST_BLOCK_BYTES, &p, NULL) == 0) {
        for (size_t i = 0; i < p.n_pieces; i++) {
            expect(p.pieces[i].file < index_n_files(x) &&
                   p.pieces[i].begin < p.pieces[i].end);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(index) struct index *x = NULL;
    _cleanup_(index) struct index *again = NULL;
    const char *b;
    size_t len;

    if (index_decode(data, size, &x, NULL) < 0) {
        return 0;
    }
    try_plan(x);
    b = index_bytes(x, &len);
    expect(len == size && memcmp(b, data, len) == 0);
    expect(index_decode(b, len, &again, NULL) == 0);
    expect(index_n_chunks(x) == index_n_chunks(again));
    return 0;
}
