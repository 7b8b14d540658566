/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/hugepages.h"

#include "base/pages.h"

#include "base/cleanup.h"
#include "tests/lib/mapped.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 4, POPULATE_WRITE = 23, COLLAPSE = 25, MUCH = 16 << 20 };

static int n_asked, n_granted = -1; /* of which the first; -1: as the kernel says */
static int refused = EINVAL;          /* of the others, why */

/* For private memory: what was asked last, and how often. */
static bool is_advised, refuses_advice;
static int n_advised;

/* What the kernel is made of in /sys; NULL: what there is. */
static const char *rule, *pmd_bytes;

/* What the processor takes for small pages, and for a huge one; 0: as it is. */
static int64_t small_us, huge_us, us;

int __real_madvise(void *at, size_t len, int advice);
int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);

int __wrap_madvise(void *at, size_t len, int advice)
{
    us += advice == COLLAPSE || (advice == POPULATE_WRITE && is_advised) ? huge_us
        : advice == POPULATE_WRITE && len > 4096                        ? small_us : 0;
    is_advised = advice == MADV_HUGEPAGE;
    n_advised += is_advised;
    if (is_advised && refuses_advice) {
        errno = EINVAL;
        return -1;
    }
    if (advice != COLLAPSE) {
        return __real_madvise(at, len, advice);
    }
    n_asked++;
    if (n_granted >= 0) {
        errno = refused;
        return n_asked <= n_granted ? 0 : -1;
    }
    return __real_madvise(at, len, advice);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    const char *text = strstr(path, "/transparent_hugepage/enabled")          ? rule
                       : strstr(path, "/transparent_hugepage/hpage_pmd_size") ? pmd_bytes
                                                                              : NULL;
    int fd = text ? memfd_create("hugepages_test", MFD_CLOEXEC) : __real_open(path, flags);

    if (text && (write(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) != 0)) {
        bail_out("a file");
    }
    return fd;
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock == CLOCK_THREAD_CPUTIME_ID && small_us) {
        *ret = (struct timespec){us / 1000000, us % 1000000 * 1000};
        return 0;
    }
    return __real_clock_gettime(clock, ret);
}

/* Of memory that is mapped at `at`: how much of it lies in huge pages, by the kernel. */
static unsigned long long huge_at(const char *at)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    unsigned long long begin, end, kib, sum = 0;
    bool is_it = false;
    char line[512];

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
            is_it = begin <= (uintptr_t)at && (uintptr_t)at < end;
        } else if (is_it && (sscanf(line, "AnonHugePages: %llu", &kib) == 1 ||
                             sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)) {
            sum += kib << 10;
        }
    }
    if (f) {
        fclose(f);
    }
    return sum;
}

static struct hugepages h;

static char *private_memory(size_t huge)
{
    char *at = mmap(NULL, (N + 1) * huge, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at + -(uintptr_t)at % huge;
}

/* However long it takes, and whatever is in its way for a moment. */
static void make_one(char *at)
{
    struct hugepages one;

    for (int i = 0; i < 5; i++) {
        hugepages_look(&one, MUCH);
        one.has_begun = true;
        hugepages_make(&one, at);
    }
}

/* Whoever touches a byte gets a huge page at once. */
static bool has_always(void)
{
    _close_ int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t n = read(fd, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "[always]") != NULL;
}

/* A kernel that makes some, and has some left. */
static bool has_some(void)
{
    size_t huge = h.bytes;
    char *at = huge ? private_memory(huge) : NULL;
    bool is_made = false;

    if (at) {
        at[0] = 1;
        is_made = madvise(at, huge, COLLAPSE) == 0;
        munmap(at, huge); /* what is mapped next to it is one with it, else */
    }
    return is_made;
}

static void test_private(void)
{
    size_t huge = h.bytes;
    char *at = private_memory(huge);

    at[2 * huge + 5] = 'x';
    memset(at + huge, 'y', huge / 4);
    ok(pages_are_sparse(at, huge), "memory that nobody has touched");
    ok(pages_are_sparse(at + 2 * huge, huge), "and some with a byte in it are to come");
    ok(!pages_are_sparse(at + huge, huge), "of which a quarter is there, is there");
    make_one(at);
    make_one(at + 2 * huge);
    ok(huge_at(at) == 2 * huge, "a huge page of each, and of nothing between: %llu bytes",
       huge_at(at));
    ok(at[2 * huge + 5] == 'x' && at[0] == 0 && at[2 * huge + 4] == 0, "what was there stays");
    ok(!pages_are_sparse(at, huge), "it is there now");
}

/* By advice: the first one small, and of what is not asked for nothing. */
static void test_taken(void)
{
    size_t huge = h.bytes;
    struct hugepages mine;
    char *at;

    hugepages_look(&mine, MUCH);
    at = private_memory(huge);
    n_advised = n_asked = 0;
    ok(hugepages_take(&mine, at) && n_advised + n_asked == 0 && !pages_are_sparse(at, huge),
       "small pages come in the place of the first");
    mine.small_ns = UINT64_MAX / 4; /* however long it takes here */
    ok(hugepages_take(&mine, at + 2 * huge) && n_advised == 1 && n_asked == 0, "then it asks");
    ok(huge_at(at + 2 * huge) == huge && !pages_are_sparse(at + 2 * huge, huge),
       "for a huge one, and gets it: %llu bytes", huge_at(at + 2 * huge));
    ok(pages_are_sparse(at + huge, huge), "and nothing of what lies between");
    is_int(at[2 * huge] + at[3 * huge - 1], 0, "zeros");
    refuses_advice = true;
    ok(!hugepages_take(&mine, at + huge) && mine.is_over, "of memory that takes no advice, none");
    refuses_advice = false;
    n_advised = 0;
    ok(!hugepages_take(&mine, at + huge) && n_advised == 0, "and no more");
}

/* As where the machine is a virtual one, and has to ask its host for each. */
static void test_taken_slowly(int64_t small, int64_t each, int want)
{
    struct hugepages mine;
    char *at;
    int n = 0;

    hugepages_look(&mine, MUCH);
    at = private_memory(mine.bytes);
    small_us = small;
    huge_us = each;
    n_advised = 0;
    for (int i = 0; i < N; i++) {
        n += hugepages_take(&mine, at + (size_t)i * mine.bytes);
    }
    small_us = huge_us = 0;
    ok(n_advised == want && n == want + 1,
       "small ones take %lld us, and huge ones %lld: %d of those are asked for",
       (long long)small, (long long)each, n_advised);
}

static void test_shared(void)
{
    size_t huge = h.bytes, len = 2 * huge + 4096;
    _close_ int fd = memfd_create("hugepages_test", MFD_CLOEXEC);
    char *at, *again, got[3] = "";

    ok(ftruncate(fd, (off_t)len) == 0 && pwrite(fd, "ab", 2, (off_t)huge) == 2, "a file");
    at = hugepages_map(len, PROT_READ | PROT_WRITE, fd);
    ok((uintptr_t)at % huge == 0, "it is mapped where huge pages may be");
    make_one(at);
    if (huge_at(at) == 0) {
        skip("this kernel makes none of shared memory");
        return;
    }
    make_one(at + huge);
    ok(huge_at(at) == 2 * huge, "it gets two: %llu bytes", huge_at(at));
    ok(memcmp(at + huge, "ab", 2) == 0, "what was there stays");
    at[len - 1] = 'z';
    again = hugepages_map(len, PROT_READ, fd);
    got[0] = again[huge];
    ok(got[0] == 'a' && again[len - 1] == 'z', "who maps it after that sees the same");
    ok(huge_at(again) >= huge, "by huge pages: %llu bytes", huge_at(again));
}

/* Asked of a page itself: with a tool such as valgrind the sum of all grows by its own. */
static bool is_there(const char *at)
{
    unsigned char in_memory;
    uintptr_t page = (uintptr_t)at / 4096 * 4096;

    return mincore((void *)page, 1, &in_memory) == 0;
}

/* For files: in huge pages as it is touched, and not more of it than was asked for. */
static void test_buffer(bool has_huge)
{
    size_t huge = h.bytes ? h.bytes : 4096, len = 2 * huge + 4096 + 1;
    char *at = hugepages_buffer(len), *little;
    bool is_zero = true;

    ok(at && (uintptr_t)at % huge == 0, "a buffer begins where a huge page may");
    ok(is_there(at + len - 1) && (!has_huge || !is_there(at + len + 4096)),
       "and has no more behind it");
    little = hugepages_buffer(4097);
    for (size_t i = 0; i < len; i += 100) {
        is_zero = is_zero && at[i] == 0;
    }
    memset(at, 1, len);
    ok(is_zero && at[len - 1] == 1, "all of it is there");
    ok(!has_huge || huge_at(at) >= huge, "by huge pages: %llu bytes", huge_at(at));
    memset(little, 1, 4097);
    ok(munmap(at, len) == 0 && munmap(little, 4097) == 0 && !is_there(at) &&
           !is_there(at + len - 1) && !is_there(little),
       "and goes, as one that is smaller than a huge page");
    ok(!hugepages_buffer((size_t)1 << 62), "there is none of more than there is");
}

/* A process may say that it wants none. */
static void test_refused(void)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        size_t huge = h.bytes;
        char *at = private_memory(huge);

        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        at[7] = 'y';
        h.has_begun = true;
        hugepages_make(&h, at);
        _exit(!h.is_over || at[7] != 'y' || huge_at(at) != 0);
    }
    waitpid(pid, &status, 0);
    ok(status == 0, "a process that wants none gets none: %d", status);
}

/* As where memory is in pieces that have to be moved together. */
static void test_slow(int64_t small, int64_t each, int want)
{
    struct hugepages mine;
    char *at;

    hugepages_look(&mine, MUCH);
    at = private_memory(mine.bytes);
    small_us = small;
    huge_us = each;
    n_asked = 0;
    n_granted = N;
    for (int i = 0; i < N; i++) {
        hugepages_make(&mine, at + (size_t)i * mine.bytes);
    }
    small_us = huge_us = 0;
    n_granted = -1;
    ok(!pages_are_sparse(at, mine.bytes), "small pages take the place of the first");
    ok(n_asked == want && mine.is_over == (want < N - 1),
       "they take %lld us, and huge ones %lld: %d of those are asked for",
       (long long)small, (long long)each, n_asked);
}

static void test_little(void)
{
    struct hugepages mine;

    hugepages_look(&mine, MUCH - 1);
    n_asked = 0;
    hugepages_make(&mine, private_memory(h.bytes));
    ok(n_asked == 0 && mine.is_over, "there are none of little memory");
}

/* There is no memory, for the first ones. */
static void test_none(void)
{
    struct hugepages mine;
    char *at;

    hugepages_look(&mine, MUCH);
    at = private_memory(mine.bytes);
    mprotect(at, mine.bytes, PROT_READ);
    hugepages_make(&mine, at);
    ok(mine.is_over, "where small ones cannot be had there are no huge ones");
}

/* EINVAL is about the memory where others have had some, else about the kernel. */
static void test_other_kind(int granted, int want)
{
    struct hugepages mine;
    char *at;

    hugepages_look(&mine, MUCH);
    mine.has_begun = true;
    at = private_memory(mine.bytes);
    n_asked = 0;
    n_granted = granted;
    for (int i = 0; i < N; i++) {
        hugepages_make(&mine, at + (size_t)i * mine.bytes);
    }
    n_granted = -1;
    ok(n_asked == want, "the first %d are made: %d are asked for", granted, n_asked);
}

/* Somebody else is at work on the memory, or on that beside it. */
static void test_busy(int code)
{
    refused = code;
    test_other_kind(0, N);
    refused = EINVAL;
}

/* As where no huge page was asked for before. */
static void test_never(void)
{
    struct hugepages mine;
    char *at;

    hugepages_look(&mine, MUCH);
    at = private_memory(mine.bytes);
    n_asked = n_granted = 0;
    for (int i = 0; i < N; i++) {
        hugepages_make(&mine, at + (size_t)i * mine.bytes);
    }
    n_granted = -1;
    is_int(n_asked, 1, "behind small pages a kernel that makes none is asked once");
}

/* Another thread is still at work on those that are measured. */
static void test_not_measured(void)
{
    small_us = 1;
    huge_us = 5000;
    test_other_kind(N, N);
    small_us = huge_us = 0;
}

/* What a kernel says about its pages. */
static void test_rules(void)
{
    static const struct {
        const char *rule, *bytes;
        size_t want;
    } cases[] = {
        {"always [madvise] never\n", "2097152\n", 2 << 20},
        {"[always] madvise never\n", "2097152\n", 2 << 20},
        {"always madvise [never]\n", "2097152\n", 0},
        {"", "2097152\n", 0},
        {"always [madvise] never\n", "", 0},
        {"always [madvise] never\n", "1048576\n", 1 << 20},
        {"always [madvise] never\n", "4194304\n", 0},
        {"always [madvise] never\n", "1572864\n", 0},
        {"always [madvise] never\n", "512\n", 0},
    };
    struct hugepages mine;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        rule = cases[i].rule;
        pmd_bytes = cases[i].bytes;
        hugepages_look(&mine, MUCH);
        ok(mine.bytes == cases[i].want && mine.is_over == (mine.bytes == 0),
           "pages of %.7s bytes, %.22s: %zu", pmd_bytes, rule, mine.bytes);
    }
    rule = cases[0].rule;
    pmd_bytes = cases[0].bytes;
    hugepages_look(&mine, MUCH - 1);
    ok(mine.bytes == 0 && mine.is_over, "of little memory none are asked for");
    rule = pmd_bytes = NULL;
}

/* Memory for files there is all the same. */
static void test_never_any(void)
{
    enum { BYTES = (4 << 20) + 1 };
    _close_ int fd = memfd_create("hugepages_test", MFD_CLOEXEC);
    char *at, *shared;

    rule = "always madvise [never]\n";
    pmd_bytes = "2097152\n";
    n_advised = 0;
    at = hugepages_buffer(BYTES);
    shared = ftruncate(fd, BYTES) == 0 ? hugepages_map(BYTES, PROT_READ | PROT_WRITE, fd)
                                       : MAP_FAILED;
    ok(at && shared != MAP_FAILED, "there is a buffer where there are no huge pages");
    at[BYTES - 1] = shared[BYTES - 1] = 'x';
    ok(at[BYTES - 1] == 'x' && n_advised == 0, "of other ones, and none are asked for");
    munmap(at, BYTES);
    munmap(shared, BYTES);
    rule = pmd_bytes = NULL;
}

/* A process may have room for as much as it asks for, and no more. */
static void test_no_room(void)
{
    enum { BYTES = 8 << 20, MORE = 1 << 20 };
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        rlim_t most = mapped_bytes() + BYTES + MORE;
        char *at;

        setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
        rule = "always [madvise] never\n";
        pmd_bytes = "2097152\n";
        at = hugepages_buffer(BYTES);
        _exit(!at || at[BYTES - 1] != 0);
    }
    waitpid(pid, &status, 0);
    ok(status == 0, "where there is no room to lie in huge pages there is a buffer: %d", status);
}

static void test_any_length(void)
{
    bool has_own = getenv("MUSTER_INSTRUMENTED") || tap_valgrind(); /* memory, of such tools */
    static const size_t lengths[] = {1, 4096, 5000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1};
    _close_ int fd = memfd_create("hugepages_test", MFD_CLOEXEC);

    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t len = lengths[i], page = (size_t)sysconf(_SC_PAGESIZE);
        unsigned long long before = mapped_bytes(), after;
        char *at = ftruncate(fd, (off_t)len) == 0
                       ? hugepages_map(len, PROT_READ | PROT_WRITE, fd) : MAP_FAILED;

        after = mapped_bytes();
        ok(at != MAP_FAILED && (has_own || after - before == (len + page - 1) / page * page),
           "%zu bytes are mapped, and nothing beside them: %llu", len, after - before);
        if (at != MAP_FAILED) {
            at[0] = 'x';
            at[len - 1] = 'x';
            munmap(at, len);
        }
    }
    for (size_t len = 4096; len <= 4 << 20; len <<= 10) {
        unsigned long long before = mapped_bytes();

        ok(hugepages_map(len, PROT_READ, -1) == MAP_FAILED &&
               (has_own || mapped_bytes() == before),
           "of no file %zu bytes are not, and nothing stays", len);
    }
}

int main(void)
{
    test_any_length();
    test_rules();
    test_never_any();
    if (getenv("MUSTER_INSTRUMENTED") || tap_valgrind()) {
        skip("such a tool takes what it needs itself");
    } else {
        test_no_room();
    }
    hugepages_look(&h, MUCH);
    if (has_some()) {
        if (has_always()) {
            skip("here whoever touches a byte gets a huge page, asked for or not");
        } else {
            test_private();
            test_taken();
        }
        test_taken_slowly(1000, 1000, N - 1);
        test_taken_slowly(1000, 1900, 2); /* with what is allowed in all */
        test_taken_slowly(1000, 2500, 1);
        test_shared();
        test_buffer(true);
        test_refused();
        test_slow(1000, 1000, N - 1);
        test_slow(1000, 1900, 2); /* with what is allowed in all */
        test_slow(1000, 2500, 1);
        test_little();
        test_none();
        test_other_kind(0, 1);
        test_other_kind(1, N);
        test_busy(EAGAIN);
        test_busy(EBUSY);
        test_never();
        test_not_measured();
    } else {
        skip("this kernel makes no huge pages when it is asked");
        test_buffer(false);
    }
    return tap_done();
}
