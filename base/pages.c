/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POPULATE_READ = 22, POPULATE_WRITE = 23 }; /* MADV_..., absent in old headers */

static int populate(void *at, size_t len, int how)
{
    size_t before = (uintptr_t)at % (size_t)sysconf(_SC_PAGESIZE);

    return madvise((char *)at - before, before + len, how) < 0 ? -errno : 0;
}

int pages_take(void *at, size_t len)
{
    return populate(at, len, POPULATE_WRITE);
}

int pages_map(void *at, size_t len)
{
    return populate(at, len, POPULATE_READ);
}
