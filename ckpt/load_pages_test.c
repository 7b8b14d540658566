/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is loaded into: which pages of it are got, and that nothing else is changed. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hugepages.h"
#include "ckpt/load_priv.h"
#include "ckpt/threads_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST = (5 << 20) + 300, SECOND = (3 << 20) - 1000, ROOM = 16 << 20,
       POPULATE_WRITE = 23, PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20 };

struct threads_bed threads_bed = {.n_granted = UINT_MAX};

static char root[4096];
static char *saved; /* FIRST and SECOND bytes */

/* --- what the kernel is asked --- */

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);

static atomic_int n_taken; /* pages that are asked for many at a time */
static bool is_old;        /* the kernel knows nothing of that */

/* Where huge pages were asked for, of what lies around what is loaded into. */
static uintptr_t around, around_end, loaded, loaded_end;
static atomic_int n_huge, n_odd;
static bool has_no_huge; /* it gives none */
static atomic_int n_calls; /* for pages, however many */
static atomic_bool is_held; /* whoever asks for pages waits */
static struct load_pages *ends; /* with the FEW-th of them it is waited until it ends */

enum { FEW = 5 };

static bool is_near(uintptr_t at, size_t len)
{
    return at < around_end && at + len > around;
}

static bool is_whole(uintptr_t at, size_t len)
{
    return at >= loaded && at + len <= loaded_end && at % HUGE_BYTES == 0 && len == HUGE_BYTES;
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (advice == MADV_HUGEPAGE && is_near((uintptr_t)at, len)) {
        n_huge++;
        n_odd += !is_whole((uintptr_t)at, len);
    }
    if (advice == MADV_HUGEPAGE && has_no_huge) {
        errno = EINVAL;
        return -1;
    }
    while (advice == POPULATE_WRITE && is_held) {
        usleep(100);
    }
    n_calls += advice == POPULATE_WRITE;
    if (advice == POPULATE_WRITE) {
        n_taken += (int)(len / PAGE_BYTES);
        for (int ms = 0; ends && n_calls >= FEW && !ends->is_over && ms < 10000; ms++) {
            usleep(1000);
        }
        if (is_old) {
            errno = EINVAL;
            return -1;
        }
    }
    return __real_madvise(at, len, advice);
}

/* --- saving and loading --- */

static int n_threads = 3; /* one of them gets ahead, where there is much */

static struct muster_ckpt *open_it(void)
{
    struct muster_ckpt_options options = {.size = sizeof(options), .keep = 1,
                                          .n_threads = n_threads};
    struct muster_ckpt *ck = NULL;

    if (muster_ckpt_open(NULL, NULL, root, &options, &ck) < 0) {
        bail_out("open %s: %s", root, muster_ckpt_error_text(ck));
    }
    return ck;
}

static void add(struct muster_ckpt *ck, const char *name, uint64_t n, char *data)
{
    struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_U8, .n_dims = 1, .shape = &n,
                                   .data = data};

    muster_ckpt_tensor(ck, &t);
}

static void save(void)
{
    struct muster_ckpt *ck = open_it();

    for (size_t i = 0; i < FIRST + SECOND; i++) {
        saved[i] = (char)(i * 7 + i / PAGE_BYTES);
    }
    add(ck, "first", FIRST, saved);
    add(ck, "second", SECOND, saved + FIRST);
    if (muster_ckpt_save(ck, 1, 0, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
    muster_ckpt_close(ck);
}

/* Where the first one begins, and how far behind it the second. */
static void load(char *at, size_t gap)
{
    struct muster_ckpt *ck = open_it();
    int64_t step = 0;

    add(ck, "first", FIRST, at);
    add(ck, "second", SECOND, at + FIRST + gap);
    is_int(muster_ckpt_load(ck, 1, 0, &step), 0, "it is loaded: %s", muster_ckpt_error_text(ck));
    ok(memcmp(at, saved, FIRST) == 0 && memcmp(at + FIRST + gap, saved + FIRST, SECOND) == 0,
       "both are what was saved");
    muster_ckpt_close(ck);
}

static char *memory(void)
{
    char *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        bail_out("mmap: %s", strerror(errno));
    }
    madvise(at, ROOM, MADV_NOHUGEPAGE); /* on a machine that always makes them, too */
    return at;
}

static bool is_all(const char *at, size_t n, char what)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != what) {
            return false;
        }
    }
    return true;
}

/* --- cases --- */

/* As the head of what malloc() gives: of a page that it shares with a tensor. */
static void test_together(void)
{
    char *m = memory(), *at = m + PAGE_BYTES + 7;

    memset(at + FIRST, 'x', 900);
    n_taken = 0;
    load(at, 900);
    ok(n_taken >= (FIRST + SECOND) / PAGE_BYTES - 2 && n_taken <= (FIRST + SECOND) / PAGE_BYTES + 4,
       "tensors next to each other are one, whose pages are asked for once: %d", n_taken);
    ok(is_all(at + FIRST, 900, 'x'), "what lies between them is as it was");
    munmap(m, ROOM);
}

static void test_touched(void)
{
    char *m = memory();

    memset(m, 1, ROOM);
    n_taken = 0;
    load(m, 0);
    is_int(n_taken, 0, "memory that is there is left as it is");
    munmap(m, ROOM);
}

static size_t n_there(char *at, size_t len)
{
    unsigned char there[(32 << 20) / PAGE_BYTES];
    size_t n = 0;

    if (mincore(at, len, there) < 0) {
        bail_out("mincore: %s", strerror(errno));
    }
    for (size_t i = 0; i < len / PAGE_BYTES; i++) {
        n += there[i] & 1;
    }
    return n;
}

/* Pages come many at a time, those that are filled and no other ones, however close. */
static void test_taken(bool old, size_t between)
{
    enum { FEW_PAGES = 20 }; /* in which one ends may be too few to ask for */
    char *m = memory(), *at = m + 7, *gap = m + ((7 + FIRST) / PAGE_BYTES + 1) * PAGE_BYTES;

    is_old = old;
    n_taken = 0;
    load(at, between);
    is_old = false;
    ok(n_taken >= (FIRST + SECOND) / PAGE_BYTES - FEW_PAGES,
       "nearly all pages are asked for at once: %d", n_taken);
    is_int((intmax_t)n_there(gap, between - 2 * PAGE_BYTES), 0, "none where nothing is loaded");
    munmap(m, ROOM);
}

/* What lies together in memory, and apart in the file, as the names of its tensors are in
 * another order; and so much that it is got ahead, too. */
static void test_order(void)
{
    enum { N = 2000, BYTES = 9000 };
    struct muster_ckpt *ck = open_it();
    char *m = mmap(NULL, 2 * N * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0), *at = m;

    madvise(m, 2 * N * BYTES, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < N * BYTES; i++) {
        m[i] = (char)(i * 11 + i / BYTES);
    }
    for (int round = 0; round < 2; round++, at += N * BYTES) {
        for (int i = 0; i < N; i++) {
            char name[16];

            snprintf(name, sizeof(name), "t%04d", i * 7 % N);
            add(ck, name, BYTES, at + (size_t)i * BYTES);
        }
        if (round == 0 && muster_ckpt_save(ck, 2, 0, NULL) < 0) {
            bail_out("save: %s", muster_ckpt_error_text(ck));
        }
    }
    n_taken = 0;
    is_int(muster_ckpt_load(ck, 2, 0, NULL), 0, "many are loaded");
    ok(memcmp(m, m + N * BYTES, N * BYTES) == 0, "all of them are what was saved");
    ok((n_threads > 1 || n_taken >= N * BYTES / PAGE_BYTES - 2) &&
       n_taken < N * BYTES / PAGE_BYTES + 50,
       "their pages are asked for by many, once: %d", n_taken);
    muster_ckpt_close(ck);
    munmap(m, 2 * N * BYTES);
}

/* Huge pages are asked for where all of one is loaded into, and nowhere else. */
static void test_huge(void)
{
    enum { BYTES = (24 << 20) + 777, BEFORE = (1 << 20) + 100, ALL = 32 << 20 };
    struct muster_ckpt *ck = open_it();
    char *m = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = m + BEFORE, *from = malloc(BYTES);
    struct hugepages huge;

    for (size_t i = 0; i < BYTES; i++) {
        from[i] = (char)(i * 13 + i / PAGE_BYTES);
    }
    add(ck, "large", BYTES, from);
    if (muster_ckpt_save(ck, 3, 0, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
    add(ck, "large", BYTES, at);
    memset(m, 'x', BEFORE);
    memset(at + BYTES, 'x', PAGE_BYTES);
    hugepages_look(&huge, BYTES);
    around = (uintptr_t)m;
    around_end = around + ALL;
    loaded = (uintptr_t)at;
    loaded_end = loaded + BYTES;
    n_huge = n_odd = 0;
    is_int(muster_ckpt_load(ck, 3, 0, NULL), 0, "a large one is loaded");
    around = around_end = 0;
    ok(memcmp(at, from, BYTES) == 0, "and is what was saved");
    ok((n_huge > 0) == (huge.bytes == HUGE_BYTES) && n_odd == 0,
       "of huge pages such as it fills are asked for, where there are any: %d", n_huge);
    ok(is_all(m, BEFORE, 'x') && is_all(at + BYTES, PAGE_BYTES, 'x'),
       "what is around it is as it was");
    is_int((intmax_t)n_there(m + (28 << 20), 4 << 20), 0, "and no more of it is there");
    muster_ckpt_close(ck);
    munmap(m, ALL);
    free(from);
}

/* --- ahead --- */

/* Who plans is given way to by whoever gets pages ahead; once it has ended, nobody is. Of what
 * lies around them none is touched: two begin within a page, and end with one. */
static void test_planned(bool planned)
{
    enum { N = 3, BEFORE = 100, ALL = 40 << 20, LAST_AT = 36 << 20, LAST_BYTES = 1 << 20,
           SHORT_MS = 10000 };
    static const uint64_t ats[N] = {BEFORE, 24 << 20, LAST_AT + BEFORE};
    static const uint64_t lens[N] = {(20 << 20) - BEFORE, 8 << 20, LAST_BYTES - BEFORE};
    char *room = mmap(NULL, ALL + HUGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *m = room + -(uintptr_t)room % HUGE_BYTES, *to[N];
    struct load_want wants[N];
    struct load_pages p;
    size_t n = 0, want = 0;

    for (size_t i = 0; i < N; i++) {
        to[i] = m + ats[i];
        wants[i] = (struct load_want){.dtype = DTYPE_U8, .n_dims = 1, .len = &lens[i]};
        want += (ats[i] % PAGE_BYTES + lens[i]) / PAGE_BYTES;
    }
    madvise(room, ALL + HUGE_BYTES, MADV_NOHUGEPAGE);
    has_no_huge = true;
    n_calls = 0;
    is_held = planned; /* else they may have come before it is said */
    load_pages_begin(&p, wants, to, N, 3);
    if (planned) {
        load_pages_planned(&p);
    }
    is_held = false;
    for (int ms = 0; n < want && ms < SHORT_MS; ms++) {
        usleep(1000);
        n = 0;
        for (size_t i = 0; i < N; i++) {
            n += n_there(m + ats[i] / PAGE_BYTES * PAGE_BYTES, lens[i] + BEFORE);
        }
    }
    load_pages_release(&p);
    has_no_huge = false;
    ok(n == want && ((size_t)n_calls < want / 10) == planned,
       "all %zu pages come ahead, by %d calls", n, n_calls);
    is_int((intmax_t)(n_there(m, ALL / 2) + n_there(m + ALL / 2, ALL / 2)), (intmax_t)want,
           "and none of what is not filled");
    munmap(room, ALL + HUGE_BYTES);
}

/* One of those that there may be plans meanwhile. */
static void test_threads(void)
{
    static const struct {
        unsigned n_threads;
        uint64_t bytes;
        unsigned want;
    } cases[] = {
        {0, 32 << 20, 0}, {1, 32 << 20, 0}, {2, 32 << 20, 1}, {3, 32 << 20, 2},
        {8, 32 << 20, 7}, {100, 32 << 20, 7}, {100, 1 << 20, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *m = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
        struct load_want want = {.dtype = DTYPE_U8, .n_dims = 1, .len = &cases[i].bytes};
        struct load_pages p;

        threads_bed_reset();
        load_pages_begin(&p, &want, &m, 1, cases[i].n_threads);
        load_pages_release(&p);
        ok(threads_bed.n_started == cases[i].want && threads_bed.n_joined == threads_bed.n_started,
           "of %u threads %u get %llu bytes ahead, and have ended: %u, %u", cases[i].n_threads,
           cases[i].want, (unsigned long long)cases[i].bytes, threads_bed.n_started,
           threads_bed.n_joined);
        munmap(m, 32 << 20);
    }
}

static void test_over(void)
{
    enum { BYTES = 64 << 20, UNITS = BYTES / HUGE_BYTES };
    char *m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint64_t len = BYTES;
    struct load_want want = {.dtype = DTYPE_U8, .n_dims = 1, .len = &len};
    struct load_pages p;

    has_no_huge = true;
    n_calls = 0;
    ends = &p;
    load_pages_begin(&p, &want, &m, 1, 3);
    load_pages_planned(&p);
    for (int ms = 0; n_calls < FEW && ms < 10000; ms++) {
        usleep(1000);
    }
    load_pages_end(&p);
    ends = NULL;
    has_no_huge = false;
    ok(n_there(m, BYTES / 2) + n_there(m + BYTES / 2, BYTES / 2) < BYTES / PAGE_BYTES,
       "who is told to end leaves the rest to whoever fills it");
    load_pages_release(&p);
    munmap(m, BYTES);
}

/* --- one by one --- */

static char *unit_in(char *m)
{
    return m + -(uintptr_t)m % HUGE_BYTES;
}

/* How often the kernel is asked for the pages of that much. */
static int n_calls_for(char *to, uint64_t len)
{
    struct load_want want = {.dtype = DTYPE_U8, .n_dims = 1, .len = &len};
    struct load_pages p;

    n_calls = 0;
    load_pages_begin(&p, &want, &to, 1, 1);
    load_pages_get(&p, 0, 0, len);
    load_pages_release(&p);
    return n_calls;
}

static void test_least(void)
{
    char *m = memory(), *at = unit_in(m);

    is_int(n_calls_for(at, (64 << 10) - 1), 0, "for little nothing is asked");
    is_int(n_calls_for(at, 64 << 10), 1, "for more it is");
    memset(at + (5 << 20), 1, 1 << 20);
    is_int(n_calls_for(at + (4 << 20), 1 << 20), 1, "also where what is behind it is there");
    munmap(m, ROOM);
}

/* A tensor of no elements need not be anywhere. */
static void test_empty(void)
{
    enum { BYTES = 4 << 20 };
    const uint64_t lens[] = {0, BYTES, 0, BYTES};
    char *m = memory(), *to[] = {NULL, m, NULL, m + 2 * BYTES};
    struct load_want wants[4];
    struct load_pages p;

    for (size_t i = 0; i < 4; i++) {
        wants[i] = (struct load_want){.dtype = DTYPE_U8, .n_dims = 1, .len = &lens[i]};
    }
    load_pages_begin(&p, wants, to, 4, 1);
    for (size_t i = 0; i < 4; i++) {
        load_pages_get(&p, i, 0, lens[i]);
    }
    load_pages_release(&p);
    is_int((intmax_t)n_there(m, BYTES), BYTES / PAGE_BYTES, "pages come beside what is empty");
    is_int((intmax_t)n_there(m + 2 * BYTES, BYTES), BYTES / PAGE_BYTES, "and behind it");
    munmap(m, ROOM);
}

/* Huge pages are for much in all. */
static void test_sum(void)
{
    const uint64_t lens[] = {12 << 20, 12 << 20, 100};
    char *m = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to[] = {m, m + (13 << 20), m + (26 << 20)};
    struct load_want wants[3];
    struct hugepages huge;
    struct load_pages p;

    for (size_t i = 0; i < 3; i++) {
        wants[i] = (struct load_want){.dtype = DTYPE_U8, .n_dims = 1, .len = &lens[i]};
    }
    hugepages_look(&huge, 24 << 20);
    load_pages_begin(&p, wants, to, 3, 1);
    is_int((intmax_t)p.huge.bytes, (intmax_t)huge.bytes, "huge pages are for all together");
    load_pages_release(&p);
    munmap(m, 32 << 20);
}

/* What lies apart in memory is got as it is touched. */
static void test_apart(void)
{
    const uint64_t len = 1 << 20;
    char *m = memory(), *at = unit_in(m);
    struct load_want want = {.dtype = DTYPE_U8, .n_dims = 1, .len = &len};
    struct plan_piece piece = {.end = len, .to = PLAN_APART};
    const struct load_job job = {.plan = {.n_pieces = 1, .pieces = &piece}};
    const struct plan_span span = {.n = 1};
    struct load_pages p;

    load_pages_begin(&p, &want, &at, 1, 1);
    n_calls = 0;
    load_pages_make(&p, &job, &span);
    is_int(n_calls, 0, "of what lies apart no pages are asked for");
    piece.to = 0;
    load_pages_make(&p, &job, &span);
    is_int(n_calls, 1, "of what lies together they are");
    load_pages_release(&p);
    munmap(m, ROOM);
}

int main(void)
{
    snprintf(root, sizeof(root), "/tmp/load_pages_test.XXXXXX");
    if (!mkdtemp(root)) {
        bail_out("no directory");
    }
    saved = memory();
    save();
    test_together();
    test_touched();
    test_taken(false, 3 << 20);
    test_taken(false, 4 * PAGE_BYTES);
    test_taken(true, 3 << 20);
    n_threads = 1;
    test_together();
    test_order();
    n_threads = 3;
    test_order();
    test_huge();
    test_planned(false);
    test_planned(true);
    test_threads();
    test_over();
    test_least();
    test_empty();
    test_sum();
    test_apart();
    fs_remove_tree(root, NULL);
    return tap_done();
}
