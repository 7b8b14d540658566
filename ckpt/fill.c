/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/fill.h"

#include "base/hugepages.h"
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STAGE_BYTES = 256 << 10 }; /* stays in a processor's cache */

struct fill {
    int fd;
    char *map;
    uint64_t len;
    bool may_write;
    struct hugepages huge;
    pthread_mutex_t writing; /* of `stage`, too */
    char *stage;
};

/* A limit of the size of files that this process writes is not meant for memory, and the
 * kernel kills who writes behind it, but not who touches a mapping there. */
static bool may_write(uint64_t len)
{
    struct rlimit l;

    return getrlimit(RLIMIT_FSIZE, &l) < 0 || l.rlim_cur >= len;
}

struct fill *fill_create(int fd, char *map, uint64_t len)
{
    struct fill *f = calloc(1, sizeof(*f));

    if (f && !(f->stage = malloc(STAGE_BYTES))) {
        free(f);
        return NULL;
    }
    if (f) {
        f->fd = fd;
        f->map = map;
        f->len = len;
        f->may_write = may_write(len);
        hugepages_look(&f->huge, len);
        pthread_mutex_init(&f->writing, NULL);
    }
    return f;
}

void fill_destroy(struct fill *f)
{
    if (f) {
        pthread_mutex_destroy(&f->writing);
        free(f->stage);
        free(f);
    }
}

int fill_take(int fd, char *map, uint64_t at, size_t len)
{
    int rc;

    if (pages_take(map, len) == 0) {
        return 0;
    }
    do { /* where the kernel is old; or it says what is the matter */
        rc = fallocate(fd, 0, (off_t)at, (off_t)len) < 0 ? -errno : 0;
    } while (rc == -EINTR);
    return rc;
}

static int write_all(int fd, uint64_t at, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)at);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0) {
            data += n;
            at += (uint64_t)n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Not from the source's own memory: the kernel would miss each line of it while it holds
 * the file, which others wait for; of what is warm it takes no longer with this copy. */
static int write_piece(struct fill *f, uint64_t at, size_t len,
                       const struct fill_source *from, int *ret_failed, struct error *e)
{
    int rc = 0;

    while (len > 0 && rc == 0 && *ret_failed == 0) {
        size_t n = len < STAGE_BYTES ? len : STAGE_BYTES;

        rc = from->read(from->arg, at, n, f->stage, e);
        *ret_failed = rc < 0 ? 0 : write_all(f->fd, at, f->stage, n);
        at += n;
        len -= n;
    }
    return rc;
}

static int map_piece(struct fill *f, uint64_t at, size_t len,
                     const struct fill_source *from, int *ret_failed, struct error *e)
{
    uint64_t huge = f->huge.bytes;

    for (uint64_t h = huge ? (at + huge - 1) / huge * huge : at;
         !f->huge.is_over && h < at + len && h + huge <= f->len; h += huge) {
        hugepages_make(&f->huge, f->map + h);
    }
    *ret_failed = fill_take(f->fd, f->map + at, at, len);
    return *ret_failed ? 0 : from->read(from->arg, at, len, f->map + at, e);
}

int fill_piece(struct fill *f, uint64_t at, size_t len, const struct fill_source *from,
               struct error *e)
{
    int failed = 0, rc;

    if (!from->is_far && f->may_write && f->huge.is_over &&
        pthread_mutex_trylock(&f->writing) == 0) {
        rc = write_piece(f, at, len, from, &failed, e);
        pthread_mutex_unlock(&f->writing);
    } else {
        rc = map_piece(f, at, len, from, &failed, e);
    }
    return failed ? error_text(e, ENOMEM, "take shared memory for a snapshot: %s",
                               strerror(-failed))
                  : rc;
}
