/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/hugepages.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    POPULATE_WRITE = 23, /* MADV_POPULATE_WRITE and MADV_COLLAPSE, absent in old headers */
    COLLAPSE = 25,
    MAX_PAGES = 1 << 13, /* in one huge page; there are machines with as many */
};

#define RULES "/sys/kernel/mm/transparent_hugepage/"

static void read_rule(const char *path, char *to, size_t size)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);

    to[n > 0 ? n : 0] = '\0';
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t hugepages_bytes(void)
{
    char enabled[128], number[32];
    unsigned long long n;

    read_rule(RULES "enabled", enabled, sizeof(enabled));
    if (!enabled[0] || strstr(enabled, "[never]")) {
        return 0;
    }
    read_rule(RULES "hpage_pmd_size", number, sizeof(number));
    n = strtoull(number, NULL, 10);
    return n > page_bytes() && (n & (n - 1)) == 0 && n / page_bytes() <= MAX_PAGES
               ? (size_t)n : 0;
}

void *hugepages_map(size_t len, int prot, int fd)
{
    size_t huge = hugepages_bytes(), room = len + huge, before;
    char *around, *at;

    if (huge == 0 || len < huge || room < len) {
        return mmap(NULL, len, prot, MAP_SHARED, fd, 0);
    }
    around = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (around == MAP_FAILED) {
        return MAP_FAILED;
    }
    before = -(uintptr_t)around % huge;
    at = mmap(around + before, len, prot, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        munmap(around, room);
        return MAP_FAILED;
    }
    if (before > 0) {
        munmap(around, before);
    }
    len = (len + page_bytes() - 1) / page_bytes() * page_bytes();
    munmap(at + len, (size_t)(around + room - (at + len)));
    return at;
}

/* The kernel makes one of pages that are there: of one, where there were none. Where
 * another thread is at work next to it, it may say that it cannot do it just now. */
bool hugepages_make(char *at, size_t huge)
{
    return madvise(at, page_bytes(), POPULATE_WRITE) == 0 &&
           (madvise(at, huge, COLLAPSE) == 0 || errno == EAGAIN || errno == EBUSY);
}

bool hugepages_is_sparse(char *at, size_t huge)
{
    unsigned char there[MAX_PAGES];
    size_t n = huge / page_bytes(), n_there = 0;

    if (n > MAX_PAGES || mincore(at, huge, there) < 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        n_there += there[i] & 1;
    }
    return n_there <= n / 8;
}
