/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the part of a rank; its digest is made right first, or nothing would
 * get past that. What is taken encodes to a part that reads the same, also in brief.
 */
#include <config.h>

#include "ckpt/digest.h"
#include "ckpt/part.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fact)
{
    if (!fact) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _part_ struct part p = {0}, again = {0}, brief = {0};
    struct digest table, table_again;
    _free_ uint8_t *copy = malloc(size + 1);
    _buf_ struct buf b = {0};
    bool is_sealed;

    if (!copy || size < sizeof(uint64_t)) {
        return 0;
    }
    memcpy(copy, data, size);
    is_sealed = part_decode(data, size, &p, NULL) == 0;
    if (!is_sealed) {
        uint64_t digest = digest_short_of(data, size - sizeof(digest));

        memcpy(copy + size - sizeof(digest), &digest, sizeof(digest));
        if (part_decode(copy, size, &p, NULL) < 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < p.n_pieces; i++) {
        expect(strlen(p.pieces[i].name) < size && p.pieces[i].n_dims <= 16);
    }
    expect(part_encode(&p, &b, NULL) == 0);
    expect(part_decode(b.data, b.len, &again, NULL) == 0);
    expect(again.n_pieces == p.n_pieces && again.n_blocks == p.n_blocks &&
           again.n_blobs == p.n_blobs && again.step == p.step);
    part_release(&again);
    expect(part_decode_brief(b.data, b.len, &again, &table_again, NULL) == 0);
    expect(part_decode_brief(is_sealed ? data : copy, size, &brief, &table, NULL) == 0);
    expect(brief.n_pieces == 0 && brief.n_blocks == p.n_blocks &&
           brief.file_bytes == p.file_bytes && brief.rank == p.rank &&
           digest_equal(table, table_again));
    return 0;
}
