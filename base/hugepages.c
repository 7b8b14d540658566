/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/hugepages.h"

#include "base/cleanup.h"
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    COLLAPSE = 25,       /* MADV_COLLAPSE, absent in old headers */
    LARGEST = 2 << 20,   /* bytes; where pages are larger little memory has any of them */
    LEAST = 16 << 20,   /* bytes of memory */
    ALLOWED_NS = 1000000, /* what the processor does meanwhile, for somebody else */
};

#define RULES "/sys/kernel/mm/transparent_hugepage/"

static void read_rule(const char *path, char *to, size_t size)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);

    to[n > 0 ? n : 0] = '\0';
}

static size_t find_bytes(void)
{
    char enabled[128], number[32];
    unsigned long long n;

    read_rule(RULES "enabled", enabled, sizeof(enabled));
    if (!enabled[0] || strstr(enabled, "[never]")) {
        return 0;
    }
    read_rule(RULES "hpage_pmd_size", number, sizeof(number));
    n = strtoull(number, NULL, 10);
    return n > pages_bytes() && n <= LARGEST && (n & (n - 1)) == 0 ? (size_t)n : 0;
}

void hugepages_look(struct hugepages *ret, size_t len)
{
    *ret = (struct hugepages){.bytes = len < LEAST ? 0 : find_bytes()};
    ret->is_over = ret->bytes == 0;
}

/* mmap() at an address where it may lie in huge pages. MAP_FAILED, as that. */
static void *map(size_t huge, size_t len, int prot, int flags, int fd)
{
    size_t room = len + huge, before;
    char *around, *at;

    if (huge == 0 || len < huge || room < len) {
        return mmap(NULL, len, prot, flags, fd, 0);
    }
    around = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (around == MAP_FAILED) { /* there may be room without what goes round it */
        return mmap(NULL, len, prot, flags, fd, 0);
    }
    before = -(uintptr_t)around % huge;
    at = mmap(around + before, len, prot, flags | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        munmap(around, room);
        return MAP_FAILED;
    }
    if (before > 0) {
        munmap(around, before);
    }
    len = (len + pages_bytes() - 1) / pages_bytes() * pages_bytes();
    munmap(at + len, (size_t)(around + room - (at + len)));
    return at;
}

void *hugepages_map(size_t len, int prot, int fd)
{
    return map(find_bytes(), len, prot, MAP_SHARED, fd);
}

char *hugepages_buffer(size_t len)
{
    size_t huge = find_bytes();
    void *at = map(huge, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    if (at == MAP_FAILED) {
        return NULL;
    }
    if (huge > 0) {
        madvise(at, len, MADV_HUGEPAGE);
    }
    return at;
}

/* Each of these makes one at `at`. */
typedef bool make_f(const struct hugepages *h, char *at);

static bool make_small(const struct hugepages *h, char *at)
{
    return pages_take(at, h->bytes) == 0;
}

/* The kernel makes one of pages that are there: of one, where there were none. Where
 * another thread is at work next to it, it may say that it cannot do it just now; and of
 * memory of another kind, as of a file, that it never does. */
static bool collapse(const struct hugepages *h, char *at)
{
    if (pages_take(at, pages_bytes()) < 0) {
        return false;
    }
    return madvise(at, h->bytes, COLLAPSE) == 0 || errno == EAGAIN || errno == EBUSY ||
           (errno == EINVAL && h->n > 0);
}

static bool advise(const struct hugepages *h, char *at)
{
    return madvise(at, h->bytes, MADV_HUGEPAGE) == 0 && make_small(h, at);
}

/* Until small ones have been measured none is. */
static bool is_slow(struct hugepages *h, uint64_t ns)
{
    uint64_t sum = atomic_fetch_add(&h->ns, ns) + ns; /* before n: others may be in between */
    uint64_t n = atomic_fetch_add(&h->n, 1) + 1, small_ns = atomic_load(&h->small_ns);

    return small_ns > 0 && sum > n * small_ns + ALLOWED_NS;
}

static uint64_t cpu_ns(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool make_one(struct hugepages *h, char *at, make_f *make)
{
    bool is_first = !atomic_exchange(&h->has_begun, true), is_made;
    uint64_t ns;

    if (h->is_over) {
        return false;
    }
    ns = cpu_ns();
    is_made = is_first ? make_small(h, at) : make(h, at);
    ns = cpu_ns() - ns;
    if (is_first) {
        atomic_store(&h->small_ns, ns);
    }
    if (!is_made || (!is_first && is_slow(h, ns))) {
        h->is_over = true;
    }
    return is_made;
}

void hugepages_make(struct hugepages *h, char *at)
{
    make_one(h, at, collapse);
}

bool hugepages_take(struct hugepages *h, char *at)
{
    return make_one(h, at, advise);
}
