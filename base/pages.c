/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/pages.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    POPULATE_READ = 22, /* MADV_..., absent in old headers */
    POPULATE_WRITE = 23,
    MANY_BYTES = 1 << 20,
};

size_t pages_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool pages_are_sparse(void *at, size_t len)
{
    enum { AT_ONCE = 512 };
    unsigned char there[AT_ONCE];
    size_t page = pages_bytes(), before = (uintptr_t)at % page;
    size_t n = (before + len + page - 1) / page, n_there = 0;

    for (size_t i = 0; i < n; i += AT_ONCE) {
        size_t some = n - i < AT_ONCE ? n - i : AT_ONCE;

        if (mincore((char *)at - before + i * page, some * page, there) < 0) {
            return false;
        }
        for (size_t k = 0; k < some; k++) {
            n_there += there[k] & 1;
        }
    }
    return n_there <= n / 8;
}

static int populate(void *at, size_t len, int how)
{
    size_t before = (uintptr_t)at % pages_bytes();

    return madvise((char *)at - before, before + len, how) < 0 ? -errno : 0;
}

int pages_take(void *at, size_t len)
{
    return populate(at, len, POPULATE_WRITE);
}

void pages_expect(void *at, size_t len)
{
    if (at && len >= MANY_BYTES) {
        pages_take(at, len);
    }
}

void *pages_alloc(size_t n, size_t size)
{
    void *at = reallocarray(NULL, n, size);

    pages_expect(at, n * size);
    return at;
}

void *pages_calloc(size_t n, size_t size)
{
    void *at = calloc(n, size);

    pages_expect(at, n * size);
    return at;
}

int pages_map(void *at, size_t len)
{
    return populate(at, len, POPULATE_READ);
}
