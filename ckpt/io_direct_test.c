/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files written block by block, in each of the ways: the bytes are right whatever
 * their number, blocks are told of once and in order, before and after, no more are under
 * way than may be, and what fails is told.
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
    uint64_t n, n_after;
    uint64_t end_at;       /* block before which it is ended ... */
    uint64_t end_after;    /* ... or after which */
    const char *from;      /* what is written, in blocks of BLOCK; NULL: nobody looks */
    uint64_t len;
    bool in_order;
    unsigned n_early;      /* told of after it was written, and it was not */
    unsigned n_beside;     /* told so while others were yet to come */
    /* How many may be under way: so many, as it is asked the first time for a block, or
     * that time. NULL: all that can be. */
    unsigned (*depth)(const struct told *t, unsigned n_asked);
    unsigned n_asked;      /* for that block */
    unsigned last_depth;
};

static uint64_t most_behind; /* blocks that were told of, and not yet after they were written */
static int written_fd = -1; /* where blocks are written to just now */

#ifdef HAVE_LIBURING
/* What was asked of the ring for a file, as it goes on. */
static struct {
    unsigned n;          /* blocks */
    unsigned under_way;  /* with the last of those ... */
    unsigned most;       /* ... and with any of them */
    unsigned n_too_many; /* times that there were more than was said last */
    unsigned of[MAX_BYTES / BLOCK]; /* under_way with each of them */
} asked;
static const struct told *asker; /* whose depth is held against it */
#endif

/* What may be told of as handed over: the ring has it, or the file. A rest that is less
 * than the ring takes comes when all is over. */
static bool is_handed_over(const struct told *t, uint64_t block)
{
    static char got[BLOCK];
    uint64_t at = block * BLOCK, n = t->len - at < BLOCK ? t->len - at : BLOCK;

#ifdef HAVE_LIBURING
    if (asked.n > 0) {
        return asked.n > block || n < IO_DIRECT_ALIGN;
    }
#endif
    return io_read_all(io_system(), written_fd, got, n, at) == 0 &&
           memcmp(got, t->from + at, n) == 0;
}

static int note(void *arg, uint64_t block)
{
    struct told *t = arg;

    t->in_order &= block == t->n;
    most_behind = t->n - t->n_after > most_behind ? t->n - t->n_after : most_behind;
    t->n++;
    t->n_asked = 0;
    return block == t->end_at ? -ECANCELED : 0;
}

static int note_after(void *arg, uint64_t block)
{
    struct told *t = arg;

    t->in_order &= block == t->n_after && block < t->n;
    t->n_early += t->from && !is_handed_over(t, block);
    t->n_beside += t->n * BLOCK < t->len;
    t->n_after++;
    return block == t->end_after ? -EDOM : 0;
}

static unsigned note_depth(void *arg)
{
    struct told *t = arg;

    return t->last_depth = t->depth(t, t->n_asked++);
}

static int write_file(struct io *io, const char *from, uint64_t len,
                      size_t block_bytes, struct told *t)
{
    struct io_blocks b = {.data = from, .len = len, .block_bytes = block_bytes,
                          .before = note, .after = note_after,
                          .depth = t->depth ? note_depth : NULL, .arg = t};
    int fd = io->ops->create(io, root, "file"), rc;

    written_fd = fd < 0 ? -1 : io->ops->open_file(io, root, "file");
    if (written_fd < 0) {
        bail_out("create: %s", strerror(-fd));
    }
#ifdef HAVE_LIBURING
    memset(&asked, 0, sizeof(asked));
    asker = t;
#endif
    rc = io->ops->allocate(io, fd, len);
    rc = rc < 0 ? rc : io_write_blocks(io, fd, &b);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
#ifdef HAVE_LIBURING
    asker = NULL;
#endif
    io->ops->close(io, fd);
    io->ops->close(io, written_fd);
    return rc;
}

static struct told new_told(void)
{
    return (struct told){.in_order = true, .end_at = UINT64_MAX, .end_after = UINT64_MAX};
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
        uint64_t n_blocks = (sizes[i] + BLOCK - 1) / BLOCK;
        struct told t = new_told();

        t.from = data;
        t.len = sizes[i];
        is_int(write_file(w->io, data, sizes[i], BLOCK, &t), 0,
               "%s: %llu bytes", w->name, (unsigned long long)sizes[i]);
        ok(is_there(data, sizes[i]), "they are there");
        ok(t.in_order && t.n == n_blocks && t.n_after == n_blocks,
           "each block was told of, in order, before and after");
        is_int((int)t.n_early, 0, "after it was handed over");
        ok(t.n_beside > 0 || n_blocks <= 2 * IO_DIRECT_DEPTH,
           "not all of them when all is over");
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
        struct told t = new_told();
        int rc = write_file(w->io, data + cases[i].from, cases[i].len,
                            cases[i].block_bytes, &t);

        ok(rc == 0 && t.in_order && t.n_after == t.n &&
               is_there(data + cases[i].from, cases[i].len),
           "%s: from %llu in blocks of %zu", w->name,
           (unsigned long long)cases[i].from, cases[i].block_bytes);
        remove_file();
    }
}

static void test_cancel(const struct way *w)
{
    unsigned n_wrong = 0;

    for (uint64_t at = 0; at < 20; at++) {
        struct told t = new_told();

        t.end_at = at;
        n_wrong += write_file(w->io, data, 20 * BLOCK, BLOCK, &t) != -ECANCELED ||
                   t.n != at + 1 || t.n_after > at || !t.in_order;
        remove_file();
    }
    is_int((int)n_wrong, 0, "%s: ended before each block", w->name);
}

/* The last one's, too, whether it is whole, has a rest, or is nothing else. */
static void test_cancel_after(const struct way *w)
{
    static const uint64_t sizes[] = {20 * BLOCK, 19 * BLOCK + 5000, 19 * BLOCK + 7};
    unsigned n_wrong = 0;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (uint64_t at = 0; at < 20; at++) {
            struct told t = new_told();

            t.end_after = at;
            n_wrong += write_file(w->io, data, sizes[i], BLOCK, &t) != -EDOM ||
                       t.n_after != at + 1 || t.n > at + 1 + IO_DIRECT_DEPTH || !t.in_order;
            remove_file();
        }
    }
    is_int((int)n_wrong, 0, "%s: ended after each block", w->name);
}

static int end_late(void *arg, uint64_t block)
{
    (void)arg;
    return block == 1 ? -EDOM : 0;
}

/* Who asks for one of them only. */
static void test_one_only(const struct way *w)
{
    struct io_blocks b = {.data = data, .len = 3 * BLOCK, .block_bytes = BLOCK,
                          .after = end_late};
    int fd = w->io->ops->create(w->io, root, "file");

    is_int(io_write_blocks(w->io, fd, &b), -EDOM, "%s: nothing is told before", w->name);
    b.before = end_late;
    b.after = NULL;
    is_int(io_write_blocks(w->io, fd, &b), -EDOM, "%s: nor after", w->name);
    b.before = NULL;
    is_int(io_write_blocks(w->io, fd, &b), 0, "%s: or neither", w->name);
    close(fd);
    remove_file();
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

    asked.n = (unsigned)sqe->user_data + 1;
    asked.under_way = ring->sq.sqe_tail - *ring->cq.khead;
    asked.of[sqe->user_data % ARRAY_SIZE(asked.of)] = asked.under_way;
    asked.most = asked.most > asked.under_way ? asked.most : asked.under_way;
    asked.n_too_many += asker && asker->depth &&
                        asked.under_way > (asker->last_depth > 1 ? asker->last_depth : 1);
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
            struct told t = new_told();
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
            n_wrong += rc != codes[how] || !t.in_order ||
                       (rc == 0 && (t.n_after != 20 || !is_there(data, 20 * BLOCK)));
            remove_file();
        }
    }
    odd.at = 0;
    odd.is_all = true;
    for (odd.how = SHORT; odd.how <= REFUSED; odd.how++) {
        struct told t = new_told();

        n_wrong += write_file(w->io, data, 40 * BLOCK, BLOCK, &t) < 0 || t.n != 40 ||
                   t.n_after != 40 || !t.in_order || !is_there(data, 40 * BLOCK);
        remove_file();
    }
    odd.is_all = false;
    is_int((int)n_odd, 60, "%s: each of 20 answers", w->name);
    is_int((int)n_wrong, 0, "or all of them, short, refused or an error: written, or told");
}

/* --- how many are under way --- */

static unsigned says; /* of each block */

static unsigned say(const struct told *t, unsigned n_asked)
{
    (void)t;
    (void)n_asked;
    return says;
}

/* One more for each block, to the ring's depth, and then few. */
static unsigned say_less(const struct told *t, unsigned n_asked)
{
    (void)n_asked;
    return t->n <= 20 ? UINT_MAX : 2;
}

/* Not so many, but only at first. */
static unsigned say_more(const struct told *t, unsigned n_asked)
{
    return t->n == 20 && n_asked == 0 ? 1 : UINT_MAX;
}

static int write_deep(const struct way *w, unsigned (*depth)(const struct told *t, unsigned n))
{
    struct told t = new_told();
    int rc;

    most_behind = 0;
    t.depth = depth;
    t.from = data;
    t.len = 40 * BLOCK;
    rc = write_file(w->io, data, t.len, BLOCK, &t);
    rc = rc < 0 || (t.in_order && t.n == 40 && t.n_after == 40 && t.n_early == 0 &&
                    is_there(data, t.len)) ? rc : -EINVAL;
    remove_file();
    return rc;
}

static void test_depth(const struct way *w)
{
    static const struct {
        unsigned says, most;
    } cases[] = {{0, 1}, {1, 1}, {2, 2}, {3, 3}, {IO_DIRECT_DEPTH - 1, IO_DIRECT_DEPTH - 1},
                 {IO_DIRECT_DEPTH, IO_DIRECT_DEPTH}, {IO_DIRECT_DEPTH + 1, IO_DIRECT_DEPTH},
                 {UINT_MAX, IO_DIRECT_DEPTH}};

    is_int(write_deep(w, NULL), 0, "%s: nobody says how many may be under way", w->name);
    if (asked.n == 0) {
        skip("no io_uring here");
        return;
    }
    is_int((int)asked.most, IO_DIRECT_DEPTH, "as many as can be are");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        says = cases[i].says;
        is_int(write_deep(w, say), 0, "%u blocks may be under way", says);
        is_int((int)asked.most, (int)cases[i].most, "so many are, and no more");
        ok(most_behind >= IO_DIRECT_DEPTH && most_behind <= IO_DIRECT_DEPTH + 1,
           "nor does more gather that is to be done while they are: %u", (unsigned)most_behind);
    }
    odd.is_all = true;
    odd.how = SHORT;
    says = 2;
    is_int(write_deep(w, say), 0, "two, and each comes back short");
    is_int((int)asked.most, 2, "are no more");
    odd.is_all = false;
    is_int(write_deep(w, say_less), 0, "all, and then two");
    ok(asked.most == IO_DIRECT_DEPTH && asked.n_too_many == 0,
       "never are there more than was said last: %u", asked.n_too_many);
    is_int(write_deep(w, say_more), 0, "one, and when one has come back all");
    is_int((int)asked.of[19], IO_DIRECT_DEPTH, "it is asked again once one has");
}
#endif

/* Where nothing is ever under way it is nobody's question. */
static unsigned say_nothing(const struct told *t, unsigned n_asked)
{
    (void)t;
    (void)n_asked;
    return 0;
}

static void test_depth_of_none(const struct way *w)
{
    struct told t = new_told();

    t.depth = say_nothing;
    is_int(write_file(w->io, data, 20 * BLOCK, BLOCK, &t), 0,
           "%s: written where none may be under way", w->name);
    ok(is_there(data, 20 * BLOCK) && t.n_after == 20, "all of it");
    remove_file();
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    make_bed();
    for (size_t i = 0; i < N_WAYS; i++) {
        test_sizes(&ways[i]);
        test_odd(&ways[i]);
        test_cancel(&ways[i]);
        test_cancel_after(&ways[i]);
        test_one_only(&ways[i]);
        test_depth_of_none(&ways[i]);
        test_limit(&ways[i]);
        test_bad_fd(&ways[i]);
    }
#ifdef HAVE_LIBURING
    test_answers(&ways[0]);
    test_depth(&ways[0]);
#endif
    munmap(data, MAX_BYTES);
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
