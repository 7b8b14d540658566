/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/limits.h"

#include "base/clock.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/io_direct.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4 << 20 };

struct work {
    char *to;
    const char *from; /* NULL: it is read */
    uint64_t len;
    int fd;
    _Atomic uint64_t next;
    _Atomic int rc;
};

static int do_block(const struct work *w, uint64_t at, size_t n)
{
    ssize_t got;

    if (w->from) {
        memcpy(w->to + at, w->from + at, n);
        return 0;
    }
    got = pread(w->fd, w->to + at, n, (off_t)at);
    return got < 0 ? -errno : (size_t)got == n ? 0 : -ENODATA;
}

static void *do_blocks(void *arg)
{
    struct work *w = arg;
    uint64_t at;

    while ((at = BLOCK * atomic_fetch_add(&w->next, 1)) < w->len) {
        int rc = do_block(w, at, w->len - at < BLOCK ? w->len - at : BLOCK);

        if (rc < 0) {
            w->rc = rc;
        }
    }
    return NULL;
}

static uint64_t do_work(struct work *w, unsigned n_threads)
{
    pthread_t threads[LIMITS_READERS];
    uint64_t begin = clock_mono_ns();
    unsigned n = 0;

    while (n + 1 < n_threads && n < LIMITS_READERS &&
           thread_start_beside(&threads[n], do_blocks, w) == 0) {
        n++;
    }
    do_blocks(w);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
    return clock_mono_ns() - begin;
}

uint64_t limits_copy(char *to, const char *from, uint64_t len, unsigned n_threads)
{
    struct work w = {.to = to, .from = from, .len = len, .fd = -1};

    return do_work(&w, n_threads);
}

int limits_read(int fd, char *to, uint64_t len, uint64_t *ret_ns)
{
    struct work w = {.to = to, .len = len - len % IO_DIRECT_ALIGN, .fd = fd};

    *ret_ns = do_work(&w, LIMITS_READERS);
    return w.rc;
}

int limits_write(struct io *io, int dir, const char *name, const void *data,
                 uint64_t len, uint64_t *ret_ns, struct error *e)
{
    struct io_blocks b = {.data = data, .len = len,
                          .block_bytes = DIGEST_BLOCK_BYTES};
    uint64_t begin = clock_mono_ns();
    int fd = io->ops->create(io, dir, name);
    int rc = fd < 0 ? fd : io->ops->allocate(io, fd, len);

    rc = rc < 0 ? rc : io_write_blocks(io, fd, &b);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    *ret_ns = clock_mono_ns() - begin;
    if (fd >= 0) {
        io->ops->close(io, fd);
        io->ops->unlink(io, dir, name);
        io->ops->sync(io, dir);
    }
    return rc < 0 ? error_set(e, -rc, "write %llu bytes", (unsigned long long)len)
                  : 0;
}
