/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files written block by block, in each of the ways: the bytes are right whatever
 * their number, blocks are told of once and in order, and what fails is told.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/io_direct.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef HAVE_LIBURING
#include <liburing.h>
#endif

enum { BLOCK = 16384, MAX_BYTES = 64 * BLOCK };

static char root_path[PATH_MAX];
static int root = -1;
static char *data; /* MAX_BYTES, aligned */

struct way {
    const char *name;
    struct io *io;
};

static struct way ways[5];
enum { N_WAYS = 5 };

static void make_bed(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root_path, sizeof(root_path), "%s/io_direct_test.XXXXXX",
             tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY |
                                                    O_CLOEXEC) : -1;
    data = mmap(NULL, MAX_BYTES, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (root < 0 || data == MAP_FAILED) {
        bail_out("no directory %s, or no memory", root_path);
    }
    for (size_t i = 0; i < MAX_BYTES; i++) {
        data[i] = (char)(i * 7 + i / 256 * 13 + i / BLOCK);
    }
    ways[0] = (struct way){"ring", io_direct()};
    ways[1] = (struct way){"no ring", io_direct_without(true, false)};
    ways[2] = (struct way){"through the cache", io_direct_without(false, true)};
    ways[3] = (struct way){"neither", io_direct_without(true, true)};
    ways[4] = (struct way){"system", io_system()};
}

struct told {
    uint64_t n;
    uint64_t end_at; /* block before which it is ended */
    bool in_order;
};

static int note(void *arg, uint64_t block)
{
    struct told *t = arg;

    t->in_order &= block == t->n;
    t->n++;
    return block == t->end_at ? -ECANCELED : 0;
}

static int write_file(struct io *io, const char *from, uint64_t len,
                      size_t block_bytes, struct told *t)
{
    struct io_blocks b = {.data = from, .len = len, .block_bytes = block_bytes,
                          .before = note, .arg = t};
    int fd = io->ops->create(io, root, "file"), rc;

    if (fd < 0) {
        bail_out("create: %s", strerror(-fd));
    }
    rc = io->ops->allocate(io, fd, len);
    rc = rc < 0 ? rc : io_write_blocks(io, fd, &b);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    io->ops->close(io, fd);
    return rc;
}

static bool is_there(const char *from, uint64_t len)
{
    _free_ char *got = NULL;
    size_t n = 0;

    return io_read_file(io_system(), root, "file", MAX_BYTES, &got, &n) == 0 &&
           n == len && memcmp(got, from, len) == 0;
}

static void remove_file(void)
{
    io_system()->ops->unlink(io_system(), root, "file");
}

static void test_sizes(const struct way *w)
{
    static const uint64_t sizes[] = {
        0, 1, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 4096,
        7 * BLOCK, 8 * BLOCK, 9 * BLOCK + 5, 40 * BLOCK + 4097, MAX_BYTES,
    };

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct told t = {.in_order = true, .end_at = UINT64_MAX};

        is_int(write_file(w->io, data, sizes[i], BLOCK, &t), 0,
               "%s: %llu bytes", w->name, (unsigned long long)sizes[i]);
        ok(is_there(data, sizes[i]), "they are there");
        ok(t.in_order && t.n == (sizes[i] + BLOCK - 1) / BLOCK,
           "each block was told of, in order");
        remove_file();
    }
}

/* Memory and blocks that no disk takes as they are. */
static void test_odd(const struct way *w)
{
    static const struct {
        uint64_t from, len;
        size_t block_bytes;
    } cases[] = {{1, 3 * BLOCK, BLOCK}, {0, 3 * BLOCK, 5000},
                 {512, 3 * BLOCK + 1, BLOCK}, {0, 9000, 700}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct told t = {.in_order = true, .end_at = UINT64_MAX};
        int rc = write_file(w->io, data + cases[i].from, cases[i].len,
                            cases[i].block_bytes, &t);

        ok(rc == 0 && t.in_order && is_there(data + cases[i].from, cases[i].len),
           "%s: from %llu in blocks of %zu", w->name,
           (unsigned long long)cases[i].from, cases[i].block_bytes);
        remove_file();
    }
}

static void test_cancel(const struct way *w)
{
    unsigned n_wrong = 0;

    for (uint64_t at = 0; at < 20; at++) {
        struct told t = {.in_order = true, .end_at = at};

        n_wrong += write_file(w->io, data, 20 * BLOCK, BLOCK, &t) != -ECANCELED ||
                   t.n != at + 1;
        remove_file();
    }
    is_int((int)n_wrong, 0, "%s: ended before each block", w->name);
}

/* A disk that takes no more from some byte on: the kernel says so by the same way
 * as for a full one. */
static void test_limit(const struct way *w)
{
    struct rlimit old, low;
    unsigned n_wrong = 0;

    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    for (rlim_t at = 1000; at < 20 * BLOCK; at += 3 * BLOCK / 2 + 512) {
        struct io_blocks b = {.data = data, .len = 20 * BLOCK,
                              .block_bytes = BLOCK};
        int fd = w->io->ops->create(w->io, root, "file");
        int rc;

        low.rlim_cur = at;
        setrlimit(RLIMIT_FSIZE, &low);
        rc = io_write_blocks(w->io, fd, &b);
        setrlimit(RLIMIT_FSIZE, &old);
        n_wrong += rc != -EFBIG;
        close(fd);
        remove_file();
    }
    is_int((int)n_wrong, 0, "%s: no more than some bytes", w->name);
}

static void test_bad_fd(const struct way *w)
{
    struct io_blocks b = {.data = data, .len = 20 * BLOCK, .block_bytes = BLOCK};
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    is_int(io_write_blocks(w->io, fd, &b), -EBADF, "%s: not for writing",
           w->name);
    close(fd);
}

/* --- what the ring answers --- */

#ifdef HAVE_LIBURING
static struct {
    unsigned at, n; /* that request, of those that were made; 0: none */
    bool is_all;    /* or all of them */
    enum { SHORT, REFUSED, BAD } how;
} odd;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

/* What the kernel is asked for comes back so. */
int __wrap_io_uring_submit(struct io_uring *ring)
{
    struct io_uring_sqe *sqe = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & *ring->sq.kring_mask];

    if (++odd.n == odd.at || odd.is_all) {
        sqe->len = odd.how == SHORT ? IO_DIRECT_ALIGN : sqe->len;
        sqe->opcode = odd.how == REFUSED ? 255 : sqe->opcode;
        sqe->fd = odd.how == BAD ? -1 : sqe->fd;
    }
    return __real_io_uring_submit(ring);
}

static void test_answers(const struct way *w)
{
    static const int codes[] = {[SHORT] = 0, [REFUSED] = 0, [BAD] = -EBADF};
    unsigned n_wrong = 0, n_odd = 0;

    for (size_t how = 0; how < ARRAY_SIZE(codes); how++) {
        for (unsigned at = 1; at <= 20; at++) {
            struct told t = {.in_order = true, .end_at = UINT64_MAX};
            int rc;

            odd.at = at;
            odd.n = 0;
            odd.how = how;
            rc = write_file(w->io, data, 20 * BLOCK, BLOCK, &t);
            if (odd.n == 0) {
                skip("no io_uring here");
                remove_file();
                return;
            }
            n_odd += odd.n >= at;
            n_wrong += rc != codes[how] || (rc == 0 && !is_there(data, 20 * BLOCK));
            remove_file();
        }
    }
    odd.at = 0;
    odd.is_all = true;
    for (odd.how = SHORT; odd.how <= REFUSED; odd.how++) {
        struct told t = {.in_order = true, .end_at = UINT64_MAX};

        n_wrong += write_file(w->io, data, 40 * BLOCK, BLOCK, &t) < 0 || t.n != 40 ||
                   !is_there(data, 40 * BLOCK);
        remove_file();
    }
    odd.is_all = false;
    is_int((int)n_odd, 60, "%s: each of 20 answers", w->name);
    is_int((int)n_wrong, 0, "or all of them, short, refused or an error: written, or told");
}
#endif

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    make_bed();
    for (size_t i = 0; i < N_WAYS; i++) {
        test_sizes(&ways[i]);
        test_odd(&ways[i]);
        test_cancel(&ways[i]);
        test_limit(&ways[i]);
        test_bad_fd(&ways[i]);
    }
#ifdef HAVE_LIBURING
    test_answers(&ways[0]);
#endif
    munmap(data, MAX_BYTES);
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
