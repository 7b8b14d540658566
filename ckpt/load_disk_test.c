/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint of two files, which one thread reads: how each is opened, past the page cache or
 * through it, and what is told of a disk that fails.
 */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/digest.h"
#include "ckpt/load.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of each rank a row: with the header three blocks of a file, the last one of an odd length. */
enum { WORLD = 2, ROW = (8 << 20) + 5001, EVEN = 4096, MAX_FDS = 1024 };

static char root_path[PATH_MAX];
static int root = -1;
static uint8_t rows[WORLD][ROW], got[WORLD][ROW];

/* --- a filesystem --- */

/* That takes O_DIRECT, and then reads, or not. */
static struct {
    bool is_on, is_cached, is_stuck;
    int error;              /* of reads past the cache ... */
    int failing;            /* ... of that file; WORLD: of all */
    _Atomic int file[MAX_FDS]; /* what is open there: 1 and the number of a file */
    _Atomic bool is_direct[MAX_FDS];
    _Atomic int n_refused;
    _Atomic int n_opened, n_random, n_flags, n_looks;
    int n_threads; /* that were asked for, and not to be had, ... */
    bool has_threads; /* ... or are */
    _Atomic int n_short; /* so many more do not get memory to read with, ... */
    _Atomic int n_full;  /* ... or a descriptor */
    _Atomic uint64_t direct[WORLD], other[WORLD]; /* bytes of each that were read */
} fs;

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags);
int __real_thread_start_beside(pthread_t *thread, void *(*f)(void *arg), void *arg);
int __wrap_thread_start_beside(pthread_t *thread, void *(*f)(void *arg), void *arg);

char *__real_hugepages_buffer(size_t len);
char *__wrap_hugepages_buffer(size_t len);

char *__wrap_hugepages_buffer(size_t len)
{
    return fs.is_on && fs.n_short-- > 0 ? NULL : __real_hugepages_buffer(len);
}

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    mode_t mode;
    int fd;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (fs.is_on && fs.n_full-- > 0) {
        errno = EMFILE;
        return -1;
    }
    fd = __real_openat(dir, name, flags, mode);
    if (fs.is_on && fd >= 0 && fd < MAX_FDS) {
        fs.file[fd] = strcmp(name, "r00000.safetensors") == 0   ? 1
                      : strcmp(name, "r00001.safetensors") == 0 ? 2 : 0;
        fs.is_direct[fd] = false;
        fs.n_opened += fs.file[fd] > 0;
    }
    return fd;
}

int __wrap_fcntl(int fd, int cmd, ...)
{
    va_list args;
    long arg;

    va_start(args, cmd);
    arg = va_arg(args, long);
    va_end(args);
    if (!fs.is_on || cmd != F_SETFL) {
        return __real_fcntl(fd, cmd, arg);
    }
    if (fs.is_stuck && !(arg & O_DIRECT)) {
        errno = EPERM;
        return -1;
    }
    fs.n_flags++;
    fs.is_direct[fd] = arg & O_DIRECT;
    return 0;
}

int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    (void)fd;
    fs.n_random += at == 0 && len == 0 && advice == POSIX_FADV_RANDOM;
    return 0;
}

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    int file = fs.is_on ? fs.file[fd] : 0;

    if (file > 0 && fs.is_direct[fd] &&
        (n % EVEN || at % EVEN ||
         (fs.error && (fs.failing == WORLD || fs.failing == file - 1)))) {
        fs.n_refused++;
        memset(to, 0xee, n);
        errno = fs.error ? fs.error : EINVAL;
        return -1;
    }
    if (file > 0 && fs.is_direct[fd]) {
        fs.direct[file - 1] += n;
    } else if (file > 0) {
        fs.other[file - 1] += n;
    }
    return __real_pread(fd, to, n, at);
}

/* Who looks for a byte may bring nothing into the cache. */
ssize_t __wrap_preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
    (void)fd, (void)iov, (void)n, (void)at;
    fs.n_looks++;
    errno = EAGAIN;
    return fs.is_cached || !(flags & RWF_NOWAIT) ? 1 : -1;
}

int __wrap_thread_start_beside(pthread_t *thread, void *(*f)(void *arg), void *arg)
{
    fs.n_threads++;
    return fs.is_on && !fs.has_threads ? EAGAIN : __real_thread_start_beside(thread, f, arg);
}

/* --- the bed --- */

static const uint64_t shape[] = {WORLD, ROW};

static void save(void *arg, const struct muster_ckpt_group *group)
{
    uint64_t at[] = {(uint64_t)group->rank, 0}, len[] = {1, ROW};
    const struct muster_ckpt_tensor t = {.name = "rows", .dtype = MUSTER_U8, .n_dims = 2,
                                         .shape = shape, .at = at, .len = len,
                                         .data = rows[group->rank]};
    struct muster_ckpt *ck = NULL;

    (void)arg;
    if (muster_ckpt_open(NULL, group, root_path, NULL, &ck) < 0 ||
        muster_ckpt_tensor(ck, &t) < 0 || muster_ckpt_save(ck, 1, MUSTER_CKPT_WAIT, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
    muster_ckpt_close(ck);
}

static void make_bed(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/load_disk_test.XXXXXX", tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    for (size_t i = 0; i < sizeof(rows); i++) {
        rows[i / ROW][i % ROW] = (uint8_t)(i * 2654435761u >> 13);
    }
    team_run(WORLD, false, save, NULL);
}

static uint64_t file_bytes[WORLD];

/* The first `n` bytes of each row, by one thread. 0, or a code. */
static int load_from(struct io *io, const struct load_source *source, uint64_t n, bool is_shared,
                     struct error *e)
{
    const uint64_t at[] = {0, 0}, len[] = {WORLD, n};
    const int64_t strides[] = {ROW, 1};
    struct load_want want = {"rows", DTYPE_U8, 2, shape, at, len, strides, got, NULL, 0};
    _load_ struct load l = {0};
    struct step s = {0};
    int rc = step_find_newest(io, root, false, NULL, NULL, &s, e);

    rc = rc < 0 ? rc : load_open(&s, &l, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < WORLD; i++) {
        file_bytes[i] = l.step.manifest.files[i].bytes;
    }
    l.is_shared = is_shared;
    memset(got, 0, sizeof(got));
    fs.n_opened = fs.n_random = fs.n_flags = fs.n_looks = 0;
    fs.n_refused = fs.n_threads = 0;
    for (size_t i = 0; i < WORLD; i++) {
        fs.direct[i] = fs.other[i] = 0;
    }
    fs.is_on = true;
    rc = load_boxes(&l, source, &want, 1, 1, e);
    fs.is_on = false;
    for (size_t i = 0; i < WORLD && rc == 0; i++) {
        rc = memcmp(got[i], rows[i], n) == 0 ? 0 : -EILSEQ;
    }
    return rc;
}

static int load_by(struct io *io, uint64_t n, bool is_shared, struct error *e)
{
    return load_from(io, NULL, n, is_shared, e);
}

static int load_rows(uint64_t n, struct error *e)
{
    return load_by(io_system(), n, false, e);
}

static int n_open(void)
{
    int n = 0;

    for (int fd = 0; fd < MAX_FDS; fd++) {
        n += __real_fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/* Whether all of both was read past the cache, or nothing. */
static bool is_past(void)
{
    bool is = true;

    for (size_t i = 0; i < WORLD; i++) {
        is = is && fs.direct[i] == file_bytes[i] / EVEN * EVEN &&
             fs.other[i] == file_bytes[i] % EVEN;
    }
    return is;
}

static bool is_through(void)
{
    return fs.direct[0] + fs.direct[1] == 0 && fs.other[0] == file_bytes[0] &&
           fs.other[1] == file_bytes[1];
}

/* --- cases --- */

static void test_files(void)
{
    struct error e = {0};
    int before = n_open();

    is_int(load_rows(ROW, &e), 0, "two files, of which nothing is in the cache: %s", e.text);
    is_int(fs.n_opened, WORLD, "each is opened once");
    is_int(n_open(), before, "and closed");
    is_int(fs.n_random, WORLD, "the kernel hears that what is behind a byte is not wanted");
    ok(is_past() && fs.n_refused == 0, "all is read past the cache, as far as it is even");
    fs.is_cached = true;
    is_int(load_rows(ROW, &e), 0, "what is in the cache: %s", e.text);
    ok(is_through(), "is read out of it");
    ok(fs.n_looks >= 2 * WORLD, "of each block it is asked");
    fs.is_cached = false;
}

static void test_shared(void)
{
    struct error e = {0};

    is_int(load_by(io_system(), ROW, true, &e), 0, "what others want as well: %s", e.text);
    ok(is_through(), "comes by way of the cache, once for all");
    is_int(load_by(io_system(), ROW - 1, true, &e), 0, "a part of it: %s", e.text);
    ok(is_past(), "does not");
}

/* Those of another layer are no descriptors of the system, or not such ones. */
static void test_other_layer(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct error e = {0};

    is_int(load_by(&io, ROW, false, &e), 0, "files of another layer: %s", e.text);
    ok(fs.n_flags + fs.n_looks + fs.n_random == 0, "of which the system is asked nothing");
    ok(is_through(), "are read by it");
}

static void test_refused(void)
{
    struct error e = {0};

    fs.error = EINVAL;
    fs.failing = 0;
    is_int(load_rows(ROW, &e), 0, "one that cannot be read past the cache: %s", e.text);
    ok(fs.direct[0] == 0 && fs.other[0] == file_bytes[0], "is read by way of it");
    is_int(fs.n_refused, 1, "once is enough");
    ok(fs.direct[1] == file_bytes[1] / EVEN * EVEN, "not so the next one");
    fs.error = EIO;
    for (fs.failing = 0; fs.failing <= WORLD; fs.failing++) {
        int before = n_open();

        e = (struct error){0};
        is_int(load_rows(ROW, &e), -EIO, "a disk that fails is no reason to read it again");
        like(e.text, fs.failing == 1 ? "/r00001.safetensors" : "/r00000.safetensors",
             "of which file is told");
        is_int(n_open(), before, "and nothing stays open");
    }
    fs.error = 0;
    fs.is_stuck = true;
    is_int(load_rows(ROW, &e), -EPERM, "a descriptor that stays as it is");
    is_int(e.code, EPERM, "that is told: %s", e.text);
    fs.is_stuck = false;
}

/* --- how many read --- */

static char *memory[WORLD]; /* what is in each file; NULL: it is read */

static const char *held_file(void *arg, const struct step *s, uint32_t file)
{
    const char *name = s->manifest.files[file].name;

    (void)arg;
    return strcmp(name, "r00000.safetensors") == 0   ? memory[0]
           : strcmp(name, "r00001.safetensors") == 0 ? memory[1] : NULL;
}

static char *read_file(int rank)
{
    _step_ struct step s = {0};
    char name[64], *bytes = NULL;
    size_t len;

    snprintf(name, sizeof(name), "r%05d.safetensors", rank);
    if (step_find_newest(io_system(), root, false, NULL, NULL, &s, NULL) < 0 ||
        io_read_file(io_system(), s.dir, name, 64 << 20, &bytes, &len) < 0) {
        bail_out("no %s", name);
    }
    return bytes;
}

/* For a disk is waited, by more than compute. */
static void test_readers(void)
{
    const struct load_source source = {.file = held_file};
    char *bytes[WORLD] = {read_file(0), read_file(1)};
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct error e = {0};

    for (unsigned held = 0; held < 1u << WORLD; held++) {
        bool is_all = held == (1u << WORLD) - 1;

        memory[0] = held & 1 ? bytes[0] : NULL;
        memory[1] = held & 2 ? bytes[1] : NULL;
        is_int(load_from(io_system(), &source, ROW, false, &e), 0, "files %u are in memory: %s",
               held, e.text);
        ok((fs.n_threads > 0) == !is_all, "one thread is %s", is_all ? "enough" : "too few");
        ok((fs.other[0] + fs.direct[0] == 0) == (memory[0] != NULL) &&
               (fs.other[1] + fs.direct[1] == 0) == (memory[1] != NULL), "the others are read");
    }
    memory[0] = memory[1] = NULL;
    is_int(load_from(&io, &source, ROW, false, &e), 0, "of another layer: %s", e.text);
    is_int(fs.n_threads, 0, "none are asked for that the caller does not want");
    free(bytes[0]);
    free(bytes[1]);
}

/* What a thread lacks others have, or the last one when they have given it back. */
static void test_scarce(void)
{
    static const struct {
        int n_short, n_full;
        bool has_threads;
        const char *what;
    } cases[] = {
        {1, 0, false, "memory that is there the second time"},
        {0, 1, false, "a descriptor that is there the second time"},
        {1, 0, true, "memory for all threads but one"},
        {4, 0, true, "for none of many"},
        {0, 4, true, "descriptors for none"},
        {2, 2, true, "or little of both"},
    };
    struct error e = {0};
    int before = n_open();

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fs.has_threads = cases[i].has_threads;
        fs.n_short = cases[i].n_short;
        fs.n_full = cases[i].n_full;
        is_int(load_rows(ROW, &e), 0, "%s: %s", cases[i].what, e.text);
    }
    for (int has_threads = 0; has_threads <= 1; has_threads++) {
        fs.has_threads = has_threads;
        fs.n_short = INT_MAX;
        is_int(load_rows(ROW, &e), -ENOMEM, "memory that nobody gets");
        like(e.text, "get 4194304 bytes to read step-", "how much is told");
        like(e.text, ".safetensors with", "and of which file");
        fs.n_short = 0;
        fs.n_full = INT_MAX;
        is_int(load_rows(ROW, &e), -EMFILE, "nor a descriptor: %s", e.text);
        fs.n_full = 0;
    }
    is_int(n_open(), before, "nothing stays open");
    fs.has_threads = false;
}

int main(void)
{
    make_bed();
    test_files();
    test_shared();
    test_other_layer();
    test_refused();
    test_readers();
    test_scarce();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
