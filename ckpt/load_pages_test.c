/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is loaded into: what gets huge pages, and that nothing else is changed. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hugepages.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { FIRST = (5 << 20) + 300, SECOND = (3 << 20) - 1000, ROOM = 16 << 20, COLLAPSE = 25,
       POPULATE_WRITE = 23 };

static char root[4096];
static char *saved; /* FIRST and SECOND bytes */

/* --- what the kernel is asked --- */

static size_t huge;
static char *asked[64]; /* for which huge pages ... */
static atomic_int n_asked;
static int refusal; /* ... and what it says; 0: that there it is */

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);

static atomic_int n_taken; /* pages that are asked for many at a time */
static bool is_old;        /* the kernel knows nothing of that */

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (advice == POPULATE_WRITE) {
        n_taken += (int)(len / 4096);
        if (is_old) {
            errno = EINVAL;
            return -1;
        }
    }
    if (advice == COLLAPSE) {
        int i = atomic_fetch_add(&n_asked, 1);

        asked[i % 64] = at;
        errno = refusal;
        return refusal ? -1 : 0;
    }
    return __real_madvise(at, len, advice);
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

/* How long a huge page takes depends on the machine: no time at all. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock == CLOCK_THREAD_CPUTIME_ID) {
        *ret = (struct timespec){0};
        return 0;
    }
    return __real_clock_gettime(clock, ret);
}

void __real_hugepages_look(struct hugepages *ret, size_t len);
void __wrap_hugepages_look(struct hugepages *ret, size_t len);

/* As if each byte were many, and small pages had been measured. */
void __wrap_hugepages_look(struct hugepages *ret, size_t len)
{
    __real_hugepages_look(ret, len << 8);
    ret->has_begun = true;
}

/* Whether it was asked for all that are filled whole, from `begin` on, and for nothing
 * else: more than once, it may be, where two threads came at a time. */
static bool is_asked_for(const char *begin, size_t len)
{
    uintptr_t low = ((uintptr_t)begin + huge - 1) / huge * huge, high = (uintptr_t)begin + len;
    size_t n = 0, n_found = 0;

    for (uintptr_t at = low; at + huge <= high; at += huge) {
        bool is_found = false;

        for (int i = 0; i < n_asked && i < 64; i++) {
            is_found |= (uintptr_t)asked[i] == at;
        }
        n++;
        n_found += is_found;
    }
    for (int i = 0; i < n_asked && i < 64; i++) {
        if ((uintptr_t)asked[i] < low || (uintptr_t)asked[i] + huge > high) {
            return false;
        }
    }
    return n > 0 && n_found == n;
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
        saved[i] = (char)(i * 7 + i / 4096);
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

    n_asked = 0;
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

static void test_together(void)
{
    char *m = memory(), *at = m + 4096 + 7;

    memset(at + FIRST, 'x', 900); /* as the head of what malloc() gives */
    load(at, 900);
    ok(is_asked_for(at, FIRST + 900 + SECOND), "tensors next to each other are one: %d", n_asked);
    ok(is_all(at + FIRST, 900, 'x'), "what lies between them is as it was");
    munmap(m, ROOM);
}

static void test_apart(void)
{
    char *m = memory(), *at = m + 7;

    load(at, 3 << 20);
    for (int i = 0; i < n_asked && i < 64; i++) {
        ok(asked[i] + huge <= at + FIRST || asked[i] >= at + FIRST + (3 << 20),
           "none where other memory lies");
    }
    ok(n_asked > 0, "and some where tensors do");
    munmap(m, ROOM);
}

static void test_touched(void)
{
    char *m = memory();

    memset(m, 1, ROOM);
    n_taken = 0;
    load(m, 0);
    ok(n_asked == 0 && n_taken == 0, "memory that is there is left as it is");
    munmap(m, ROOM);
}

static size_t n_there(char *at, size_t len)
{
    unsigned char there[ROOM / 4096];
    size_t n = 0;

    if (mincore(at, len, there) < 0) {
        bail_out("mincore: %s", strerror(errno));
    }
    for (size_t i = 0; i < len / 4096; i++) {
        n += there[i] & 1;
    }
    return n;
}

/* Pages come many at a time, those that are filled and no other ones. */
static void test_taken(bool old)
{
    enum { GAP = 3 << 20 };
    char *m = memory(), *at = m + 7, *gap = m + ((7 + FIRST) / 4096 + 1) * 4096;

    refusal = EINVAL; /* no huge ones */
    is_old = old;
    n_taken = 0;
    load(at, GAP);
    is_old = false;
    refusal = 0;
    ok(n_taken >= (FIRST + SECOND) / 4096 - 2, "nearly all pages are asked for at once: %d",
       n_taken);
    is_int((intmax_t)n_there(gap, GAP - 2 * 4096), 0, "none where nothing is loaded");
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
    refusal = EINVAL; /* no huge ones */
    n_taken = 0;
    is_int(muster_ckpt_load(ck, 2, 0, NULL), 0, "many are loaded");
    refusal = 0;
    ok(memcmp(m, m + N * BYTES, N * BYTES) == 0, "all of them are what was saved");
    ok((n_threads > 1 || n_taken >= N * BYTES / 4096 - 2) && n_taken < N * BYTES / 4096 + 50,
       "their pages are asked for by many, once: %d", n_taken);
    muster_ckpt_close(ck);
    munmap(m, 2 * N * BYTES);
}

static void test_refused(int no, bool is_final)
{
    char *m = memory();

    refusal = no;
    load(m, 0);
    refusal = 0;
    ok(is_final ? n_asked <= 8 : is_asked_for(m, FIRST + SECOND), "%s: %s: %d", strerror(no),
       is_final ? "it is not asked for the next" : "it is asked for all of them", n_asked);
    munmap(m, ROOM);
}

int main(void)
{
    struct hugepages h;

    snprintf(root, sizeof(root), "/tmp/load_pages_test.XXXXXX");
    if (!mkdtemp(root)) {
        bail_out("no directory");
    }
    saved = memory();
    hugepages_look(&h, 1 << 20);
    huge = h.bytes;
    save();
    if (huge == 0) {
        skip("there are no huge pages here");
        load(memory(), 0);
    } else {
        test_together();
        test_apart();
        test_touched();
        test_refused(EAGAIN, false);
        test_refused(EINVAL, true);
    }
    test_taken(false);
    test_taken(true);
    test_order();
    n_threads = 1;
    test_order();
    fs_remove_tree(root, NULL);
    return tap_done();
}
