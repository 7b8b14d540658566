/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: what is there after a kill at each byte, and what is not believed. */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hugepages.h"
#include "base/str.h"
#include "ckpt/snap.h"
#include "tests/lib/mapped.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 5 * SNAP_PAGE_BYTES };

static char dir_path[PATH_MAX];
static int dir = -1;

static unsigned n_threads = 1;

static int create(const char *name, uint64_t room, struct snap **ret)
{
    const struct snap_want want = {.room = room, .n_threads = n_threads};

    return snap_create(dir, name, &want, ret, NULL);
}

static void make_dir(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir_path, sizeof(dir_path), "%s/snap_test.XXXXXX",
             tmp ? tmp : "/tmp");
    dir = mkdtemp(dir_path) ? open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : -1;
    if (dir < 0) {
        bail_out("no directory %s", dir_path);
    }
}

static struct snap_head head_of(uint64_t step, enum snap_state state)
{
    struct snap_head h;

    memset(&h, 0, sizeof(h));
    h.state = state;
    h.rank = 3;
    h.n_ranks = 8;
    h.step = step;
    snprintf(h.uuid, sizeof(h.uuid), "%032llx", (unsigned long long)step);
    str_copy(h.root, sizeof(h.root), "/scratch/run");
    return h;
}

/* Of what is written, any number of bytes has come: it is as it was, or as it is
 * to be. */
static void test_kills(void)
{
    char page[SNAP_PAGE_BYTES] = {0}, next[SNAP_PAGE_BYTES], part[SNAP_PAGE_BYTES];
    unsigned n_wrong = 0, n_old = 0, n_new = 0;

    for (uint64_t step = 1; step <= 3; step++) {
        struct snap_head h = head_of(step, SNAP_FULL), got;

        memcpy(next, page, sizeof(page));
        snap_encode(next, &h);
        for (size_t n = 0; n <= sizeof(page); n++) {
            int rc;

            memcpy(part, page, sizeof(page));
            memcpy(part, next, n);
            rc = snap_decode(part, &got, NULL);
            n_wrong += rc < 0 ? step > 1
                              : got.step != step && got.step != step - 1;
            n_old += rc == 0 && got.step == step - 1;
            n_new += rc == 0 && got.step == step;
        }
        memcpy(page, next, sizeof(page));
    }
    is_int((int)n_wrong, 0, "killed at each byte of three records");
    ok(n_old > 100 && n_new > 100, "before and after");
}

static void test_flips(void)
{
    char page[SNAP_PAGE_BYTES] = {0};
    struct snap_head h = head_of(7, SNAP_FULL), got;
    unsigned n_wrong = 0;

    snap_encode(page, &h);
    for (size_t bit = 0; bit < sizeof(struct snap_head) * 8; bit++) {
        page[bit / 8] = (char)(page[bit / 8] ^ 1 << bit % 8);
        n_wrong += snap_decode(page, &got, NULL) == 0;
        page[bit / 8] = (char)(page[bit / 8] ^ 1 << bit % 8);
    }
    is_int((int)n_wrong, 0, "a changed bit is seen");
    is_int(snap_decode(page, &got, NULL), 0, "none is fine");
}

/* As it lies in a page; written by another muster, or by a program that knows how. */
struct record {
    uint64_t magic, serial;
    struct snap_head head;
    uint64_t digest; /* of all before it */
};

static void test_others_records(void)
{
    static const char *const what[] = {"as it was", "of another form", "of no state there is",
                                       "of an identity without an end",
                                       "of a directory without an end"};
    char page[SNAP_PAGE_BYTES] = {0};
    struct snap_head h = head_of(7, SNAP_KEPT), got;
    struct record was;

    snap_encode(page, &h);
    memcpy(&was, page, sizeof(was));
    for (size_t i = 0; i < ARRAY_SIZE(what); i++) {
        struct record r;

        memcpy(&r, &was, sizeof(r));
        r.magic += i == 1;
        r.head.state += i == 2;
        memset(r.head.uuid, 'a', i == 3 ? sizeof(r.head.uuid) : 0);
        memset(r.head.root, 'a', i == 4 ? sizeof(r.head.root) : 0);
        r.digest = digest_short_of(&r, offsetof(struct record, digest));
        memcpy(page, &r, sizeof(r));
        is_int(snap_decode(page, &got, NULL), i == 0 ? 0 : -ERR_FORMAT, "a record %s", what[i]);
    }
}

static void fill(struct snap *s, uint64_t image_bytes, uint64_t part_bytes)
{
    char *image = s->map + SNAP_PAGE_BYTES;
    uint64_t block;

    s->head = head_of(12, SNAP_WRITTEN);
    s->head.image_bytes = image_bytes;
    s->head.part_bytes = part_bytes;
    for (uint64_t i = 0; i < image_bytes; i++) {
        image[i] = (char)(i * 11);
    }
    block = digest_short_of(image, image_bytes);
    s->head.digest = digest_of_blocks(&block, image_bytes);
    snap_note(s);
}

static void test_file(void)
{
    _cleanup_(snap) struct snap *s = NULL, *again = NULL;
    struct error e = {0};
    struct stat st;

    is_int(create("a", ROOM, &s), 0, "a snapshot is made");
    ok(fstat(s->fd, &st) == 0 && (st.st_mode & 0777) == 0600, "for its owner");
    is_int((int)s->head.state, SNAP_EMPTY, "it is empty");
    fill(s, 9000, 100);
    is_int(snap_open(dir, "a", &again, &e), 0, "it is found again");
    is_int((int)again->head.step, 12, "with its step");
    is_str(again->head.root, "/scratch/run", "and its place");
    is_int(snap_verify(again, &e), 0, "its bytes are true");
    ok((const char *)snap_part(again) ==
           (const char *)snap_image(again) + 3 * SNAP_PAGE_BYTES,
       "the part is behind it");
    s->map[SNAP_PAGE_BYTES + 77] ^= 4;
    is_int(snap_verify(again, &e), -ERR_FORMAT, "until one is changed");
    like(e.text, "rank 3 at step 12 has changed", "which is told");
}

static void test_reading(void)
{
    _cleanup_(snap) struct snap *s = NULL;
    char got[8] = "";
    int fd;

    is_int(create("r", ROOM, &s), 0, "another one");
    memcpy(s->map + SNAP_PAGE_BYTES, "image", 6);
    fd = snap_for_reading(s);
    ok(fd >= 0 && pread(fd, got, sizeof(got), SNAP_PAGE_BYTES) == 8 &&
           strcmp(got, "image") == 0, "is read through another descriptor");
    ok(pwrite(fd, "x", 1, SNAP_PAGE_BYTES) < 0 && errno == EBADF,
       "which does not write");
    ok((fcntl(fd, F_GETFD) & FD_CLOEXEC) && (fcntl(s->fd, F_GETFD) & FD_CLOEXEC),
       "no program that is started has either");
    is_int(snap_for_reading(&(struct snap){.fd = -1}), -ENOENT, "one that is not open");
    close(fd);
}

/* What the worker's own mapping has of the page is behind what the agent writes there. */
static void test_filled(void)
{
    _cleanup_(snap) struct snap *s = NULL, *again = NULL;
    struct snap_head got;
    _Atomic uint64_t *count;
    char *theirs;

    is_int(create("filled", ROOM, &s), 0, "one that is to be filled");
    is_int((intmax_t)snap_n_filled(s), 0, "nothing of it is there");
    theirs = mmap(NULL, SNAP_PAGE_BYTES + ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (theirs == MAP_FAILED) {
        bail_out("no mapping");
    }
    count = snap_filled(theirs);
    ok((char *)(count + 1) == theirs + SNAP_PAGE_BYTES, "its last word before the image");
    *count = 3;
    is_int((intmax_t)snap_n_filled(s), 3, "is what the worker says");
    for (uint64_t step = 1; step <= 4; step++) {
        s->head = head_of(step, SNAP_FILLING);
        memset(s->head.root, 'x', sizeof(s->head.root) - 1); /* the longest */
        memset(s->head.uuid, 'f', sizeof(s->head.uuid) - 1);
        snap_note(s);
        is_int((intmax_t)snap_n_filled(s), 3, "a record does not touch it: %llu",
               (unsigned long long)step);
    }
    *count = UINT64_MAX;
    is_int(snap_decode(theirs, &got, NULL), 0, "nor does it touch the records");
    ok(got.step == 4 && snap_n_filled(s) == UINT64_MAX, "whatever it says");
    is_int(snap_open(dir, "filled", &again, NULL), 0, "who finds it later");
    ok(again && again->head.step == 4 && snap_n_filled(again) == UINT64_MAX, "reads the same");
    munmap(theirs, SNAP_PAGE_BYTES + ROOM);
}

/* A later save of the same rank takes more, and gets it. */
static void test_grows(void)
{
    _cleanup_(snap) struct snap *s = NULL, *more = NULL;

    is_int(create("g", ROOM, &s), 0, "a small one");
    fill(s, 100, 10);
    is_int(create("g", 4 * ROOM, &more), 0, "made larger");
    ok(more->room == 4 * ROOM && more->head.state == SNAP_EMPTY, "and empty");
    fill(more, 4 * ROOM, 0);
    snap_destroy(take_ptr(&s));
    is_int(create("g", ROOM, &s), 0, "a small one again");
    ok(s->room == ROOM && snap_check(more, NULL) == 0, "leaves others what they have mapped");
}

/* Whoever fills it takes its memory. */
static void test_bare(void)
{
    const struct snap_want want = {.room = 100 * SNAP_PAGE_BYTES, .is_bare = true};
    _cleanup_(snap) struct snap *s = NULL, *again = NULL, *more = NULL;
    struct stat st;

    is_int(snap_create(dir, "bare", &want, &s, NULL), 0, "a bare one");
    ok(s->is_bare && fstat(s->fd, &st) == 0 && st.st_size == 101 * SNAP_PAGE_BYTES &&
           st.st_blocks * 512 <= 2 * SNAP_PAGE_BYTES,
       "has its length, and no memory but for the page");
    is_int((int)s->head.state, SNAP_EMPTY, "it is empty");
    ok(snap_open(dir, "bare", &again, NULL) == 0 && again->is_bare, "who finds it sees that");
    snap_destroy(again);
    again = NULL;
    fill(s, 9000, 100);
    ok(snap_open(dir, "bare", &again, NULL) == 0 && again->is_bare,
       "also where less is in it than it has room for");
    snap_destroy(again);
    again = NULL;
    memset(s->map + SNAP_PAGE_BYTES, 1, want.room);
    fill(s, 9000, 100);
    ok(snap_open(dir, "bare", &again, NULL) == 0 && !again->is_bare, "until all is there");
    is_int(create("barer", ROOM, &more), 0, "a small one");
    snap_destroy(take_ptr(&more));
    is_int(snap_create(dir, "barer", &want, &more, NULL), 0, "made larger, and bare");
    is_int(snap_check(more, NULL), 0, "has its length");
}

/* --- much memory, which is not really taken --- */

enum {
    LARGE = (800 << 20) + (64 << 10),
    NEVER = INT_MAX,
    SMALL = 8192,  /* bytes of what is no piece ... */
    HUGE = 2 << 20, /* ... and what is measured, before there are any such pages */
    COLLAPSE = 25, /* MADV_COLLAPSE */
    N_THREADS = 4,
};

static bool is_faked, is_old_kernel;
static atomic_int n_taken; /* pieces */
static bool has_huge;
static atomic_int n_huge; /* that were asked for */
/* From that one on there is none; nobody wants it; who takes it is killed. */
static int n_full, n_cancel, n_die = NEVER;
static _Atomic bool cancel;

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

static int take(int no)
{
    int n = atomic_fetch_add(&n_taken, 1);

    if (n >= n_die) {
        _exit(1);
    }
    cancel = cancel || n >= n_cancel;
    errno = no;
    return n < n_full ? 0 : -1;
}

static int take_huge(void)
{
    n_huge++;
    errno = ENOMEM;
    return has_huge ? 0 : -1;
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (is_faked && (advice == COLLAPSE || len < SMALL || len == HUGE)) {
        return advice == COLLAPSE ? take_huge() : 0;
    }
    if (is_faked && is_old_kernel) {
        errno = EINVAL;
        return -1;
    }
    return is_faked ? take(EFAULT) : __real_madvise(at, len, advice);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    return is_faked ? take(ENOSPC) : __real_fallocate(fd, mode, at, len);
}

static void test_much(const char *what, bool is_old, int full, int cancelled,
                      int want_rc)
{
    const struct snap_want want = {.room = LARGE, .n_threads = N_THREADS,
                                   .cancel = &cancel};
    _cleanup_(snap) struct snap *s = NULL;
    struct error e = {0};
    struct hugepages huge;
    struct stat st;
    int rc;

    is_faked = true;
    is_old_kernel = is_old;
    n_taken = 0;
    n_huge = 0;
    n_full = full;
    n_cancel = cancelled;
    cancel = false;
    rc = snap_create(dir, "much", &want, &s, &e);
    is_faked = false;
    is_int(rc, want_rc, "%s: %s", what, e.text);
    if (rc == 0) {
        ok(fstat(s->fd, &st) == 0 && st.st_size == LARGE + SNAP_PAGE_BYTES &&
               n_taken == (LARGE + SNAP_PAGE_BYTES) / (16 << 20) + 1,
           "%s: all of it is taken, once", what);
        ok(has_huge || n_huge <= N_THREADS,
           "%s: who gets no huge page does not ask for the next: %d", what, n_huge);
        hugepages_look(&huge, LARGE);
        ok(!has_huge || huge.bytes == 0 || (size_t)n_huge == LARGE / huge.bytes - 1,
           "%s: by huge pages, but for the first, and the last bytes: %d", what, n_huge);
        return;
    }
    ok(fstatat(dir, "much", &st, 0) < 0 && !s, "%s: no file is left", what);
    ok(n_taken < 20, "%s: it ends soon", what);
}

/* Killed while it makes one of those that are there larger. */
static void test_half_made(void)
{
    _cleanup_(snap) struct snap *s = NULL, *again = NULL;
    struct snap_want want = {.room = LARGE, .cancel = &cancel};
    pid_t child;

    create("half", ROOM, &s);
    fill(s, 100, 10);
    child = fork();
    if (child == 0) {
        is_faked = true;
        cancel = false;
        n_taken = 0;
        n_full = NEVER;
        n_cancel = NEVER;
        n_die = 3;
        snap_create(dir, "half", &want, &again, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    is_int(snap_open(dir, "half", &again, NULL), -ERR_FORMAT,
           "killed before all of its memory was taken: it is none");
    is_int(create("half", 2 * ROOM, &again), 0, "and is made anew");
}

static void test_strange(void)
{
    _cleanup_(snap) struct snap *s = NULL;
    int fd = openat(dir, "short", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    is_int(snap_open(dir, "short", &s, NULL), -ERR_FORMAT, "an empty file is none");
    ok(write(fd, "x", 1) == 1, "a file of one byte");
    is_int(snap_open(dir, "short", &s, NULL), -ERR_FORMAT, "is none");
    ok(ftruncate(fd, 3 * SNAP_PAGE_BYTES) == 0, "nor is one of zeros");
    is_int(snap_open(dir, "short", &s, NULL), -ERR_FORMAT, "as it says");
    close(fd);
    ok(symlinkat("short", dir, "link") == 0, "a link");
    is_int(snap_open(dir, "link", &s, NULL), -ELOOP, "is not followed");
    is_int(create("link", ROOM, &s), -ELOOP, "nor written");
    is_int(snap_open(dir, "none", &s, NULL), -ENOENT, "one that is not there");
    is_int(create("odd", 5000, &s), -EINVAL, "no whole pages");
}

/* A directory in shared memory may have what others have put there. */
static void test_others(void)
{
    _cleanup_(snap) struct snap *s = NULL;

    if (geteuid() != 0) {
        skip("a file of somebody else can be made by root only");
        return;
    }
    is_int(create("others", ROOM, &s), 0, "a snapshot");
    fill(s, ROOM, 0);
    snap_destroy(take_ptr(&s));
    is_int(fchownat(dir, "others", 1, 1, 0), 0, "of somebody else");
    is_int(snap_open(dir, "others", &s, NULL), -ERR_FORMAT, "is none");
    unlinkat(dir, "others", 0);
}

static void open_and_close(void *arg)
{
    struct snap *s = NULL;

    (void)arg;
    if (snap_open(dir, "a", &s, NULL) < 0) {
        bail_out("no snapshot a");
    }
    snap_destroy(s);
}

/* An agent holds many, one after the other. */
static void test_gone(void)
{
    struct snap *s = NULL;
    unsigned long long before = mapped_bytes();
    int fd;

    is_int(snap_open(dir, "a", &s, NULL), 0, "one that is there");
    fd = s->fd;
    snap_destroy(s);
    ok(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "is closed");
    is_int(tap_leak(open_and_close, NULL), 0, "nothing of many is left");
    /* Half of what they had: a sanitizer keeps some of what is freed. */
    ok(mapped_bytes() < before + 60ull * (SNAP_PAGE_BYTES + ROOM), "nor is it mapped");
}

/* Its memory goes at once, whoever has mapped it. */
static void test_given_back(void)
{
    _cleanup_(snap) struct snap *s = NULL, *mapped = NULL;
    struct error e = {0};
    struct stat st;

    create("back", ROOM, &s);
    fill(s, 9000, 100);
    is_int(snap_open(dir, "back", &mapped, NULL), 0, "one that two have");
    is_int(snap_check(mapped, &e), 0, "is of use");
    snap_cut(s);
    ok(fstat(s->fd, &st) == 0 && st.st_size == 0 && snap_bytes_there(mapped) == 0,
       "one of them gives its memory back");
    is_int(snap_check(mapped, &e), -EIO, "the other one is told before it reads");
    like(e.text, "cut the shared memory that step 12 of rank 3 was saved in", "and of which");
}

/* What was read meanwhile were zeros, also where it has its length again. */
static void test_torn(void)
{
    _cleanup_(snap) struct snap *s = NULL;
    const off_t whole = SNAP_PAGE_BYTES + ROOM;
    volatile char *at;

    create("torn", ROOM, &s);
    fill(s, ROOM, 0);
    at = s->map + ROOM;
    ok(ftruncate(s->fd, whole - 1) == 0 && snap_check(s, NULL) == -EIO, "a byte is missing");
    ok(ftruncate(s->fd, whole) == 0 && snap_check(s, NULL) == 0,
       "but nobody has looked at it");
    ok(ftruncate(s->fd, SNAP_PAGE_BYTES) == 0 && *at == 0, "the last page is read as zeros");
    ok(ftruncate(s->fd, whole) == 0 && snap_check(s, NULL) == -EIO,
       "which is told later, too");
}

/* All blocks count, the last one with as many bytes as it has. */
static void test_blocks(void)
{
    enum { IMAGE = 2 * DIGEST_BLOCK_BYTES + 100 };
    _cleanup_(snap) struct snap *s = NULL;
    struct error e = {0};
    uint64_t blocks[3];
    char *image;

    create("blocks", snap_room(IMAGE, 0), &s);
    image = s->map + SNAP_PAGE_BYTES;
    s->head = head_of(12, SNAP_FULL);
    s->head.image_bytes = IMAGE;
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
        char *at = image + i * DIGEST_BLOCK_BYTES;

        memset(at, 'a' + (int)i, 100);
        blocks[i] = digest_short_of(at, i < 2 ? DIGEST_BLOCK_BYTES : 100);
    }
    s->head.digest = digest_of_blocks(blocks, IMAGE);
    is_int(snap_verify(s, &e), -ERR_FORMAT, "of one that is not written there is no digest");
    like(e.text, "without a digest", "is told");
    s->head.state = SNAP_WRITTEN;
    is_int(snap_verify(s, &e), 0, "three blocks are true");
    image[IMAGE] = 1;
    is_int(snap_verify(s, &e), 0, "what is behind it does not count");
    image[IMAGE - 1] ^= 1;
    is_int(snap_verify(s, &e), -ERR_FORMAT, "the last byte does");
    unlinkat(dir, "blocks", 0);
}

/* It says that it holds more than it does, as after a cut. */
static void test_cut(void)
{
    _cleanup_(snap) struct snap *s = NULL, *again = NULL;

    create("cut", ROOM, &s);
    fill(s, ROOM, 0);
    ok(ftruncate(s->fd, 3 * SNAP_PAGE_BYTES) == 0, "a cut one");
    is_int(snap_open(dir, "cut", &again, NULL), -ERR_FORMAT, "is refused");
    s->head.image_bytes = UINT64_MAX - 5;
    snap_note(s);
    is_int(snap_open(dir, "cut", &again, NULL), -ERR_FORMAT,
           "so is a number that is too large");
    s->head.image_bytes = 0;
    s->head.part_bytes = UINT64_MAX - 5;
    snap_note(s);
    is_int(snap_open(dir, "cut", &again, NULL), -ERR_FORMAT, "so it is of the part");
    s->head.image_bytes = SNAP_PAGE_BYTES + 1;
    s->head.part_bytes = 1;
    snap_note(s);
    is_int(snap_open(dir, "cut", &again, NULL), -ERR_FORMAT, "both are in pages of their own");
    s->head.image_bytes = SNAP_PAGE_BYTES;
    snap_note(s);
    is_int(snap_open(dir, "cut", &again, NULL), 0, "of which there are two");
}

int main(void)
{
    make_dir();
    mapguard_install();
    test_kills();
    test_flips();
    test_others_records();
    test_file();
    test_gone();
    test_reading();
    test_filled();
    test_grows();
    test_bare();
    n_threads = 4;
    test_file();
    test_grows();
    has_huge = true;
    test_much("huge pages", false, NEVER, NEVER, 0);
    has_huge = false;
    test_much("memory", false, NEVER, NEVER, 0);
    test_much("an old kernel", true, NEVER, NEVER, 0);
    test_much("no memory", false, 0, NEVER, -ENOSPC);
    test_much("not so much memory", false, 2, NEVER, -ENOSPC);
    test_much("not so much, an old kernel", true, 2, NEVER, -ENOSPC);
    test_much("cancelled", false, NEVER, 1, -ECANCELED);
    test_half_made();
    test_strange();
    test_others();
    test_given_back();
    test_torn();
    test_blocks();
    test_cut();
    close(dir);
    fs_remove_tree(dir_path, NULL);
    return tap_done();
}
