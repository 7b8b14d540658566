/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the frames that begin a copy, or parity, or refuse it: the first byte
 * says which.
 * What decodes is within its bounds, and encodes to the same bytes.
 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"
#include "tests/lib/fuzz.h"

#include <errno.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, MAX_CODE = 4096 };

static void expect_same(const struct buf *b, const struct channel_frame *f)
{
    expect(!b->failed && b->len == f->len && memcmp(b->data, f->data, f->len) == 0);
}

static void try_offer(const struct channel_frame *f)
{
    struct snap_head h;
    uint32_t from;
    _buf_ struct buf b = {0};

    if (copy_offer_decode(f, &h, &from)) {
        expect(h.n_ranks <= MAX_RANKS && h.rank < h.n_ranks && h.root[0] == '/');
        expect(snap_room(h.image_bytes, h.part_bytes) >= h.image_bytes);
        expect(strlen(h.uuid) == COMMIT_UUID_BYTES - 1 && !strchr(h.uuid, '/'));
        copy_offer_encode(&h, from, &b);
        expect_same(&b, f);
    }
}

static void try_want(const struct channel_frame *f)
{
    char uuid[COMMIT_UUID_BYTES];
    uint32_t rank;
    _buf_ struct buf b = {0};

    if (copy_want_decode(f, &rank, uuid)) {
        expect(rank < MAX_RANKS && strlen(uuid) == COMMIT_UUID_BYTES - 1);
        copy_want_encode(rank, uuid, &b);
        expect_same(&b, f);
    }
}

/* --- of parity --- */

static void try_pieces(const struct channel_frame *f)
{
    struct parity_group g;
    struct snap_head h;
    uint32_t from;
    _buf_ struct buf b = {0};

    if (parity_offer_decode(f, &g, &h, &from)) {
        expect(parity_makes_sense(&g.shape) && h.n_ranks <= MAX_RANKS);
        expect(parity_member(&g, from) == parity_member_of_rank(&g, h.rank));
        expect(parity_member(&g, from) < g.shape.n);
        parity_offer_encode(&g, &h, from, &b);
        expect_same(&b, f);
    }
}

static void try_ranges(const struct channel_frame *f)
{
    struct parity_want w;
    struct parity_sums s;
    _buf_ struct buf b = {0};

    if (parity_want_decode(f, &w)) {
        expect(w.n <= PARITY_MAX_SEGS && w.lost < MAX_RANKS);
        for (unsigned i = 0; i < w.n; i++) {
            expect(w.segs[i].kept <= PARITY_MAX && w.segs[i].len > 0);
            expect(w.segs[i].at + w.segs[i].len > w.segs[i].at);
        }
        parity_want_encode(&w, &b);
        expect_same(&b, f);
    } else if (parity_sums_decode(f, &s)) {
        expect(s.n <= PARITY_MAX_SEGS);
        parity_sums_encode(&s, &b);
        expect_same(&b, f);
    }
}

/* Whatever it says, it is a refusal. */
static void try_refused(const struct channel_frame *f)
{
    struct error e = {0};

    copy_refused_decode(f, &e);
    expect(e.code > 0 && e.code < MAX_CODE && strlen(e.text) < sizeof(e.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct channel_frame f = {0};

    if (size == 0) {
        return 0;
    }
    f.type = data[0];
    f.data = data + 1;
    f.len = size - 1;
    try_offer(&f);
    try_want(&f);
    try_pieces(&f);
    try_ranges(&f);
    if (f.type == SNAP_COPY_REFUSED) {
        try_refused(&f);
    }
    return 0;
}
