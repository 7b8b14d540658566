/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/pages.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

enum { POPULATE_WRITE = 23, MUCH = 4 << 20 };

static bool is_refused; /* as an old kernel does */
static int n_asked;
static uintptr_t from, to; /* what was asked for last */

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (advice != POPULATE_WRITE) {
        return __real_madvise(at, len, advice);
    }
    n_asked++;
    from = (uintptr_t)at;
    to = from + len;
    errno = EINVAL;
    return is_refused ? -1 : 0;
}

static bool has_zeros(const char *at, size_t len)
{
    size_t i = 0;

    while (i < len && at[i] == 0) {
        i++;
    }
    return i == len;
}

static void check_much(void)
{
    _free_ char *at = NULL;

    n_asked = 0;
    at = pages_calloc(MUCH / 8, 8);
    ok(at && n_asked == 1 && from <= (uintptr_t)at && to >= (uintptr_t)at + MUCH,
       "all of an array is asked for%s", is_refused ? ", in vain" : "");
    ok(at && has_zeros(at, MUCH), "and nothing but zeros is in it");
}

static void test_calloc(void)
{
    _free_ char *little = NULL;

    check_much();
    is_refused = true;
    check_much();
    n_asked = 0;
    little = pages_calloc(100, 10);
    ok(little && has_zeros(little, 1000) && n_asked == 0, "of little nothing is asked for");
}

/* What is there stays, and nothing is taken beside it. */
static void test_take(void)
{
    enum { PAGE = 4096, N = 10 };
    unsigned char there[N];
    char *at = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc;

    at[3 * PAGE + 5] = 'x';
    ok(pages_are_sparse(at, N * PAGE), "memory that was hardly touched");
    rc = pages_take(at + 2 * PAGE - 1, 5 * PAGE + 2);
    if (rc == -EINVAL) {
        skip("a kernel before 5.14: it takes no pages at once");
        munmap(at, N * PAGE);
        return;
    }
    is_int(rc, 0, "they are taken");
    ok(mincore(at, N * PAGE, there) == 0, "which pages there are");
    for (int i = 0; i < N; i++) {
        ok((there[i] & 1) == (i >= 1 && i <= 7), "page %d", i);
    }
    ok(at[3 * PAGE + 5] == 'x' && has_zeros(at, 3 * PAGE), "nothing is changed");
    munmap(at, N * PAGE);
}

/* What is asked for is not little from a MiB on, and never of what is not there. */
static void test_much(void)
{
    _free_ char *much = NULL, *less = NULL;

    n_asked = 0;
    less = pages_alloc((1 << 20) - 1, 1);
    ok(less && n_asked == 0, "a byte less than a MiB is little");
    much = pages_alloc(1 << 20, 1);
    ok(much && n_asked == 1, "a MiB is not");
    pages_expect(NULL, MUCH);
    is_int(n_asked, 1, "of no memory nothing is asked for");
}

/* Bytes that lie in two pages, whichever is there. */
static void test_edge(void)
{
    size_t page = pages_bytes();
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ok(pages_are_sparse(at + page - 1, 2), "none of two pages is there");
    at[page] = 'x';
    ok(!pages_are_sparse(at + page - 1, 2), "the second of them is");
    ok(pages_are_sparse(at, page), "which is not the first");
    munmap(at, 2 * page);
}

/* An eighth of them. */
static void test_few(void)
{
    enum { N = 64, NO_HUGE_PAGE = 15 };
    size_t page = pages_bytes();
    char *at = mmap(NULL, N * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    madvise(at, N * page, NO_HUGE_PAGE);
    for (size_t i = 0; i < N / 8; i++) {
        at[i * page] = 'x';
    }
    ok(pages_are_sparse(at, N * page), "%d of %d pages are few", N / 8, N);
    at[N / 8 * page] = 'x';
    ok(!pages_are_sparse(at, N * page), "and one more is not");
    munmap(at, N * page);
}

int main(void)
{
    test_calloc();
    test_much();
    test_edge();
    test_few();
    test_take();
    return tap_done();
}
