/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/io.h"

#include "base/cleanup.h"
#include "base/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest write that Linux makes at once is a little smaller. */
#define MAX_AT_ONCE (UINT64_C(1) << 30)

static int result(int rc)
{
    return rc < 0 ? -errno : rc;
}

static int open_dir(struct io *io, int dir, const char *name)
{
    (void)io;
    return result(openat(dir, name,
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* Nobody's FIFO or device is opened and waited for; a socket, or a device that nobody
 * drives, is told of as ENXIO. */
static int open_file(struct io *io, int dir, const char *name)
{
    _close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK |
                                           O_NOCTTY | O_CLOEXEC);
    struct stat st;

    (void)io;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return errno == ENXIO ? -EINVAL : -errno;
    }
    return S_ISREG(st.st_mode) ? take_fd(&fd) : -EINVAL;
}

static int create(struct io *io, int dir, const char *name)
{
    (void)io;
    return result(openat(dir, name,
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         0600));
}

static int make_dir(struct io *io, int dir, const char *name)
{
    (void)io;
    return result(mkdirat(dir, name, 0700));
}

/* What close() has to say of a write that failed, on NFS, counts. */
static int close_file(struct io *io, int fd)
{
    (void)io;
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

static int allocate(struct io *io, int fd, uint64_t len)
{
    struct rlimit limit;
    int rc;

    (void)io;
    if (len == 0 || len > INT64_MAX) {
        return len ? -EFBIG : 0;
    }
    /* The kernel kills who does not expect to be told of it. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < len) {
        return -EFBIG;
    }
    do {
        rc = fallocate(fd, 0, 0, (off_t)len) < 0 ? -errno : 0;
    } while (rc == -EINTR);
    return rc == -EOPNOTSUPP || rc == -ENOSYS ? 0 : rc;
}

static ssize_t write_at(struct io *io, int fd, const void *data, size_t len,
                        uint64_t at)
{
    ssize_t n;

    (void)io;
    do {
        n = pwrite(fd, data, len < MAX_AT_ONCE ? len : MAX_AT_ONCE, (off_t)at);
    } while (n < 0 && errno == EINTR);
    if (n == 0 && len > 0) {
        return -EIO; /* it would be tried for ever */
    }
    return n < 0 ? -errno : n;
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    ssize_t n;

    (void)io;
    do {
        n = pread(fd, to, len < MAX_AT_ONCE ? len : MAX_AT_ONCE, (off_t)at);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int size(struct io *io, int fd, uint64_t *ret)
{
    struct stat st;

    (void)io;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    *ret = (uint64_t)st.st_size;
    return 0;
}

/* Numbers of files are given anew, so with the time that it was made at. */
static int identity(struct io *io, int fd, const char *name, uint64_t *ret)
{
    struct statx st;

    (void)io;
    if (statx(fd, name ? name : "", name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH,
              STATX_INO | STATX_BTIME, &st) < 0) {
        return -errno;
    }
    *ret = st.stx_ino;
    if (st.stx_mask & STATX_BTIME) {
        *ret ^= (uint64_t)st.stx_btime.tv_sec << 40 ^ (uint64_t)st.stx_btime.tv_nsec << 16;
    }
    return 0;
}

/* Never again after a failure: the kernel has forgotten the pages then. Of a
 * directory, -EINVAL says that the filesystem knows no such thing. */
static int sync_fd(struct io *io, int fd)
{
    struct stat st;
    int rc = fsync(fd) < 0 ? -errno : 0;

    (void)io;
    if (rc == -EINVAL && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        return 0;
    }
    return rc;
}

static int rename_in(struct io *io, int dir, const char *from, const char *to)
{
    (void)io;
    return result(renameat(dir, from, dir, to));
}

static int unlink_in(struct io *io, int dir, const char *name)
{
    (void)io;
    return result(unlinkat(dir, name, 0));
}

static int remove_dir(struct io *io, int dir, const char *name)
{
    (void)io;
    return result(unlinkat(dir, name, AT_REMOVEDIR));
}

static int list(struct io *io, int dir,
                int (*each)(void *arg, const char *name), void *arg)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int rc = 0;

    (void)io;
    if (!d) {
        rc = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    while (rc >= 0) {
        struct dirent *entry;

        errno = 0;
        entry = readdir(d);
        if (!entry) {
            rc = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = each(arg, entry->d_name);
        }
    }
    closedir(d);
    return rc;
}

/* A server takes its own clock for "now". */
static int touch(struct io *io, int fd)
{
    (void)io;
    return result(futimens(fd, NULL));
}

static int changed(struct io *io, int fd, int64_t *ret_ns)
{
    struct stat st;

    (void)io;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (__builtin_mul_overflow((int64_t)st.st_mtim.tv_sec, INT64_C(1000000000), ret_ns) ||
        __builtin_add_overflow(*ret_ns, (int64_t)st.st_mtim.tv_nsec, ret_ns)) {
        return -EOVERFLOW;
    }
    return 0;
}

const struct io_ops io_system_ops = {
    .open_dir = open_dir,
    .open_file = open_file,
    .create = create,
    .make_dir = make_dir,
    .close = close_file,
    .allocate = allocate,
    .write = write_at,
    .read = read_at,
    .size = size,
    .identity = identity,
    .changed = changed,
    .touch = touch,
    .sync = sync_fd,
    .rename = rename_in,
    .unlink = unlink_in,
    .remove_dir = remove_dir,
    .list = list,
};

struct io *io_system(void)
{
    static struct io io = {.ops = &io_system_ops, .is_shared = true};

    return &io;
}

int io_write_all(struct io *io, int fd, const void *data, size_t len,
                 uint64_t at)
{
    while (len > 0) {
        ssize_t n = io->ops->write(io, fd, data, len, at);

        if (n < 0) {
            return (int)n;
        }
        data = (const char *)data + n;
        len -= (size_t)n;
        at += (size_t)n;
    }
    return 0;
}

static int write_each(struct io *io, int fd, const struct io_blocks *b)
{
    int rc = 0;

    for (uint64_t at = 0; at < b->len && rc >= 0; at += b->block_bytes) {
        uint64_t n = b->len - at < b->block_bytes ? b->len - at
                                                  : b->block_bytes;

        rc = b->before ? b->before(b->arg, at / b->block_bytes) : 0;
        if (rc >= 0) {
            rc = io_write_all(io, fd, (const char *)b->data + at, n, at);
        }
        if (rc >= 0 && b->after) {
            rc = b->after(b->arg, at / b->block_bytes);
        }
    }
    return rc < 0 ? rc : 0;
}

int io_write_blocks(struct io *io, int fd, const struct io_blocks *b)
{
    return io->write_blocks ? io->write_blocks(io, fd, b)
                            : write_each(io, fd, b);
}

int io_read_all(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = io->ops->read(io, fd, to, len, at);

        if (n <= 0) {
            return n < 0 ? (int)n : -ENODATA;
        }
        to = (char *)to + n;
        len -= (size_t)n;
        at += (size_t)n;
    }
    return 0;
}

int io_read_file(struct io *io, int dir, const char *name, size_t max,
                 char **ret, size_t *ret_len)
{
    int fd = io->ops->open_file(io, dir, name);
    _free_ char *data = NULL;
    uint64_t len = 0;
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = io->ops->size(io, fd, &len);
    if (rc == 0 && len > max) {
        rc = -EFBIG;
    }
    data = rc == 0 ? malloc(len + 1) : NULL;
    pages_expect(data, len);
    if (rc == 0) {
        rc = data ? io_read_all(io, fd, data, len, 0) : -ENOMEM;
    }
    io->ops->close(io, fd);
    if (rc == 0) {
        data[len] = '\0';
        *ret = take_ptr(&data);
        *ret_len = len;
    }
    return rc;
}
