/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a message between muster-mpi and its agent. The first byte says
 * which; what decodes can be encoded, and is then the same again. */
#include <config.h>

#include "base/cleanup.h"
#include "comm/companion.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void expect_same(const struct buf *a, const struct buf *b)
{
    expect(!b->failed && a->len == b->len &&
           memcmp(a->data, b->data, a->len) == 0);
}

static void try_hello(const struct buf *in)
{
    struct companion_hello h;
    _buf_ struct buf b = {0};

    if (companion_hello_decode(in, &h) == 0) {
        companion_hello_encode(&h, &b);
        expect_same(in, &b);
    }
}

/* Any byte but 0 is true: compare what was encoded once. */
static void try_world(const struct buf *in)
{
    struct companion_world w;
    _buf_ struct buf a = {0}, b = {0};

    if (companion_world_decode(in, &w) == 0) {
        companion_world_encode(&w, &a);
        expect(companion_world_decode(&a, &w) == 0);
        companion_world_encode(&w, &b);
        expect_same(&a, &b);
    }
}

static void try_attach(const struct buf *in)
{
    struct companion_attach a;
    _buf_ struct buf b = {0};

    if (companion_attach_decode(in, &a) == 0) {
        companion_attach_encode(&a, &b);
        expect_same(in, &b);
        free(a.members);
    }
}

static void try_outcome(const struct buf *in)
{
    struct companion_outcome o;
    _buf_ struct buf a = {0}, b = {0};

    if (companion_outcome_decode(in, &o) == 0) {
        companion_outcome_encode(&o, &a);
        expect(companion_outcome_decode(&a, &o) == 0);
        companion_outcome_encode(&o, &b);
        expect_same(&a, &b);
    }
}

static void try_info(const struct buf *in)
{
    _buf_ struct buf b = {0};
    struct buf entry = {0};
    const void *data;
    struct companion_place place;

    if (companion_info_decode(in, &place, &data, &entry.len) == 0) {
        entry.data = (char *)data;
        companion_info_encode(&place, &entry, &b);
        expect_same(in, &b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const struct buf *) = {
        try_hello, try_world, try_attach, try_outcome, try_info};
    _buf_ struct buf in = {0};

    if (size > 0) {
        buf_append(&in, data + 1, size - 1);
        tries[data[0] % ARRAY_SIZE(tries)](&in);
    }
    return 0;
}
