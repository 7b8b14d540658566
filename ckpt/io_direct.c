/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is written in two pieces: what is a multiple of IO_DIRECT_ALIGN past the
 * page cache, the rest, less than that, through it. What io_uring or O_DIRECT will
 * not take is written by plain calls from the block on that was refused: blocks
 * are told of once, and in order, whichever way they go. What is to be done after they
 * were handed over is done where the ring is full, and would only be waited for, or where
 * as many have gathered.
 */
#include <config.h>

#include "ckpt/io_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#ifdef HAVE_LIBURING
#include <liburing.h>
#endif

struct direct_io {
    struct io io; /* first: it is what callers have */
    bool no_ring, no_direct;
};

/* A file that is being written. */
struct stream {
    struct io *io;
    int fd;
    const struct io_blocks *b;
    uint64_t told; /* blocks that were told of ... */
    uint64_t seen; /* ... and these once they were handed over */
};

static uint64_t bytes_of(const struct stream *s, uint64_t block)
{
    uint64_t at = block * s->b->block_bytes;

    return s->b->len - at < s->b->block_bytes ? s->b->len - at
                                              : s->b->block_bytes;
}

static const char *place_of(const struct stream *s, uint64_t block)
{
    return (const char *)s->b->data + block * s->b->block_bytes;
}

static uint64_t n_blocks(const struct stream *s)
{
    return s->b->len / s->b->block_bytes + (s->b->len % s->b->block_bytes != 0);
}

static int tell(struct stream *s, uint64_t block)
{
    int rc = 0;

    if (block >= s->told) {
        rc = s->b->before ? s->b->before(s->b->arg, block) : 0;
        s->told = block + 1;
    }
    return rc < 0 ? rc : 0;
}

/* The next one that was handed over, of those before `end`. */
static int see_next(struct stream *s, uint64_t end)
{
    int rc = 0;

    if (s->seen < end) {
        rc = s->b->after ? s->b->after(s->b->arg, s->seen) : 0;
        s->seen++;
    }
    return rc < 0 ? rc : 0;
}

/* Whether these errors may be the way's, not the disk's. */
static bool is_refusal(int rc)
{
    return rc == -EINVAL || rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EPERM;
}

/* --- one after the other --- */

static bool set_direct(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0) {
        return false;
    }
    flags = on ? flags | O_DIRECT : flags & ~O_DIRECT;
    return fcntl(fd, F_SETFL, flags) == 0;
}

/* The rest of a block, of which `done` bytes are written. */
static int write_rest(struct stream *s, uint64_t block, uint64_t done,
                      bool is_direct)
{
    const char *data = place_of(s, block) + done;
    uint64_t at = block * s->b->block_bytes + done;
    uint64_t n = bytes_of(s, block) - done;
    uint64_t even = is_direct ? n / IO_DIRECT_ALIGN * IO_DIRECT_ALIGN : 0;
    int rc = 0;

    if (even > 0) {
        rc = io_write_all(s->io, s->fd, data, even, at);
        if (is_refusal(rc)) {
            even = 0;
            rc = 0;
        }
    }
    if (rc == 0 && even < n) {
        set_direct(s->fd, false);
        rc = io_write_all(s->io, s->fd, data + even, n - even, at + even);
        if (is_direct) {
            set_direct(s->fd, true);
        }
    }
    return rc;
}

static int write_plain(struct stream *s, uint64_t from, bool is_direct)
{
    int rc = 0;

    for (uint64_t i = from; i < n_blocks(s) && rc == 0; i++) {
        rc = tell(s, i);
        rc = rc < 0 ? rc : write_rest(s, i, 0, is_direct);
        rc = rc < 0 ? rc : see_next(s, i + 1);
    }
    return rc;
}

/* --- several at a time --- */

#ifdef HAVE_LIBURING

/* The ring carries even parts of blocks; their rests, and what came back short or
 * refused, are written by plain calls once nothing is under way. */
struct ring {
    struct io_uring uring;
    struct stream *s;
    unsigned n_under_way;
    uint64_t short_of[IO_DIRECT_DEPTH]; /* blocks to write once more */
    unsigned n_short;
    int error;
};

static uint64_t even_of(const struct stream *s, uint64_t block)
{
    return bytes_of(s, block) / IO_DIRECT_ALIGN * IO_DIRECT_ALIGN;
}

/* Takes one answer. */
static void take_one(struct ring *r)
{
    struct io_uring_cqe *cqe;
    uint64_t block;
    int rc;

    do {
        rc = io_uring_wait_cqe(&r->uring, &cqe);
    } while (rc == -EINTR || rc == -EAGAIN);
    if (rc < 0) {
        r->error = rc; /* what is under way ends with the ring */
        r->n_under_way = 0;
        return;
    }
    block = io_uring_cqe_get_data64(cqe);
    rc = cqe->res;
    io_uring_cqe_seen(&r->uring, cqe);
    r->n_under_way--;
    if (rc < 0 && !is_refusal(rc) && rc != -EINTR && rc != -EAGAIN) {
        r->error = r->error ? r->error : rc;
    } else if (rc < 0 || (uint64_t)rc < even_of(r->s, block)) {
        r->short_of[r->n_short++] = block;
    }
}

static int submit(struct ring *r, uint64_t block)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    int rc;

    if (!sqe) {
        return -EBUSY;
    }
    io_uring_prep_write(sqe, r->s->fd, place_of(r->s, block),
                        (unsigned)even_of(r->s, block),
                        block * r->s->b->block_bytes);
    io_uring_sqe_set_data64(sqe, block);
    do {
        rc = io_uring_submit(&r->uring);
    } while (rc == -EINTR || rc == -EAGAIN);
    if (rc < 0) {
        return rc;
    }
    r->n_under_way++;
    return 0;
}

static int wait_for_all(struct ring *r)
{
    while (r->n_under_way > 0) {
        take_one(r);
    }
    for (; r->n_short > 0 && r->error == 0; r->n_short--) {
        r->error = write_rest(r->s, r->short_of[r->n_short - 1], 0, true);
    }
    return r->error;
}

static unsigned depth_of(const struct stream *s)
{
    unsigned n = s->b->depth ? s->b->depth(s->b->arg) : IO_DIRECT_DEPTH;

    return n < 1 ? 1 : n < IO_DIRECT_DEPTH ? n : IO_DIRECT_DEPTH;
}

/* One block, when there is room for it. */
static int put_block(struct ring *r, uint64_t block)
{
    int rc = tell(r->s, block);
    unsigned depth = depth_of(r->s);

    if (rc == 0 && (r->n_under_way + r->n_short >= IO_DIRECT_DEPTH ||
                    block - r->s->seen > IO_DIRECT_DEPTH)) {
        rc = see_next(r->s, block);
    }
    while (rc == 0 && r->n_under_way + r->n_short >= depth) {
        rc = r->n_short > 0 ? wait_for_all(r) : (take_one(r), r->error);
        depth = depth_of(r->s);
    }
    if (rc == 0 && even_of(r->s, block) > 0) {
        rc = submit(r, block);
    }
    return rc;
}

static int write_ring(struct stream *s)
{
    struct ring r = {.s = s};
    uint64_t last = n_blocks(s) - 1;
    int rc = io_uring_queue_init(IO_DIRECT_DEPTH, &r.uring, 0), ended;

    if (rc < 0) {
        return write_plain(s, 0, true);
    }
    for (uint64_t i = 0; i <= last && rc == 0; i++) {
        rc = put_block(&r, i);
    }
    while (rc == 0 && s->seen <= last) {
        rc = see_next(s, last + 1);
    }
    ended = wait_for_all(&r); /* also after a failure: the memory is theirs */
    rc = rc < 0 ? rc : ended;
    io_uring_queue_exit(&r.uring);
    if (rc == 0 && even_of(s, last) < bytes_of(s, last)) {
        rc = write_rest(s, last, even_of(s, last), true);
    }
    return rc;
}

#else

static int write_ring(struct stream *s)
{
    return write_plain(s, 0, true);
}

#endif

static int write_blocks(struct io *io, int fd, const struct io_blocks *b)
{
    const struct direct_io *d = (const struct direct_io *)io;
    struct stream s = {.io = io, .fd = fd, .b = b};
    bool is_even = (uintptr_t)b->data % IO_DIRECT_ALIGN == 0 &&
                   b->block_bytes % IO_DIRECT_ALIGN == 0 &&
                   b->block_bytes <= UINT32_MAX;

    if (d->no_direct || b->len < IO_DIRECT_ALIGN || !is_even ||
        !set_direct(fd, true)) {
        return write_plain(&s, 0, false);
    }
    return d->no_ring ? write_plain(&s, 0, true) : write_ring(&s);
}

#define WAY(...) {.io = {&io_system_ops, write_blocks, true}, __VA_ARGS__}

struct io *io_direct_without(bool ring, bool direct)
{
    static struct direct_io ways[2][2] = {
        {WAY(.no_ring = false), WAY(.no_direct = true)},
        {WAY(.no_ring = true), WAY(.no_ring = true, .no_direct = true)},
    };

    return &ways[ring][direct].io;
}

struct io *io_direct(void)
{
    return io_direct_without(false, false);
}
