/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as COMMIT, as they are and with a digest that is right, or nothing would
 * get past that. What is taken encodes to a COMMIT that says the same.
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/commit.h"
#include "tests/lib/fuzz.h"

#include <string.h>

/* The first line with its digest. */
static void seal(const uint8_t *data, size_t size, struct buf *b)
{
    const uint8_t *end = memchr(data, '\n', size);

    buf_append(b, data, end ? (size_t)(end - data) : size);
    buf_putc(b, '\n');
    buf_printf(b, "xxh3 %016llx\n",
               (unsigned long long)digest_short_of(b->data, b->len));
}

static void try_one(const void *data, size_t size)
{
    _buf_ struct buf b = {0}, same = {0};
    struct commit c = {0}, again = {0};

    if (commit_decode(data, size, &c, NULL) < 0) {
        return;
    }
    expect(strlen(c.uuid) == COMMIT_UUID_BYTES - 1);
    expect(c.step <= INT64_MAX && c.manifest_bytes <= INT64_MAX &&
           c.n_files <= INT64_MAX && c.total_bytes <= INT64_MAX);
    commit_encode(&c, &b);
    expect(commit_decode(b.data, b.len, &again, NULL) == 0);
    commit_encode(&again, &same);
    expect(same.len == b.len && memcmp(same.data, b.data, b.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _buf_ struct buf sealed = {0};

    try_one(data, size);
    seal(data, size, &sealed);
    try_one(sealed.data, sealed.len);
    return 0;
}
