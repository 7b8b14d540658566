/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/tree.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 32

/* The directory of the last part of `path`, which *ret_name points to then. Makes
 * those that are missing, syncs each, where asked. */
static int enter(int dir, const char *path, bool makes, bool syncs,
                 const char **ret_name)
{
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    const char *slash;

    while (at >= 0 && (slash = strchr(path, '/'))) {
        char name[NAME_MAX + 1];
        int next;

        if (slash == path || slash - path > NAME_MAX) {
            close(at);
            return -ENAMETOOLONG;
        }
        memcpy(name, path, (size_t)(slash - path));
        name[slash - path] = '\0';
        if ((makes && mkdirat(at, name, 0700) < 0 && errno != EEXIST) ||
            (syncs && fsync(at) < 0)) {
            int code = errno;

            close(at);
            return -code;
        }
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        next = next < 0 ? -errno : next;
        close(at);
        if (next < 0) {
            return next;
        }
        at = next;
        path = slash + 1;
    }
    *ret_name = path;
    return at < 0 ? -errno : at;
}

int tree_open(int dir, const char *path)
{
    const char *name;
    _close_ int at = enter(dir, path, false, false, &name);
    struct stat st;
    _close_ int fd = at < 0 ? -1
                            : openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC |
                                                   O_NONBLOCK);

    if (at < 0) {
        return at;
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) ? take_fd(&fd) : -EINVAL;
}

int tree_create_file(int dir, const char *path)
{
    const char *name;
    _close_ int at = enter(dir, path, true, false, &name);
    int fd;

    if (at < 0) {
        return at;
    }
    fd = openat(at, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                0600);
    return fd < 0 ? -errno : fd;
}

int tree_unlink(int dir, const char *path)
{
    const char *name;
    _close_ int at = enter(dir, path, false, false, &name);

    if (at < 0) {
        return at == -ENOENT ? 0 : at;
    }
    return unlinkat(at, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int tree_sync(int dir, const char *path)
{
    const char *name;
    _close_ int at = enter(dir, path, false, true, &name);

    if (at < 0) {
        return at;
    }
    return fsync(at) < 0 ? -errno : 0;
}

int tree_digest(struct io *io, int fd, uint64_t bytes, struct digest *ret)
{
    uint64_t n = digest_n_blocks(bytes);
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));
    _free_ char *block = malloc(DIGEST_BLOCK_BYTES);

    if (!blocks || !block) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = i * DIGEST_BLOCK_BYTES;
        size_t len = bytes - at < DIGEST_BLOCK_BYTES ? bytes - at
                                                     : DIGEST_BLOCK_BYTES;
        int rc = io_read_all(io, fd, block, len, at);

        if (rc < 0) {
            return rc;
        }
        blocks[i] = digest_short_of(block, len);
    }
    *ret = digest_of_blocks(blocks, bytes);
    return 0;
}

/* --- all below --- */

struct walk {
    tree_f *each;
    void *arg;
    char path[PATH_MAX];
};

static int walk(struct walk *w, int dir, size_t len, int depth, struct error *e);

static int look(struct walk *w, int dir, const char *name, size_t len, int depth,
                struct error *e)
{
    struct stat st;
    _close_ int sub = -1;
    size_t n = strlen(name);

    if (len + n + 2 > sizeof(w->path) || depth > MAX_DEPTH) {
        return error_set(e, ENAMETOOLONG, "%s/%s", w->path, name);
    }
    memcpy(w->path + len, name, n + 1);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set(e, errno, "look at %s", w->path);
    }
    if (S_ISREG(st.st_mode)) {
        return w->each(w->arg, w->path, (uint64_t)st.st_size, e);
    }
    if (!S_ISDIR(st.st_mode)) {
        return error_text(e, ENOTSUP, "%s is neither file nor directory: it cannot "
                          "be copied", w->path);
    }
    sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
        return error_set(e, errno, "open %s", w->path);
    }
    w->path[len + n] = '/';
    return walk(w, sub, len + n + 1, depth + 1, e);
}

static int walk(struct walk *w, int dir, size_t len, int depth, struct error *e)
{
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int rc = 0;

    if (!d) {
        rc = error_set(e, errno, "read the directory %s", w->path);
        close_fd(&copy);
        return rc;
    }
    rewinddir(d);
    while (rc == 0 && (errno = 0, entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = look(w, dir, entry->d_name, len, depth, e);
        }
    }
    if (rc == 0 && errno) {
        rc = error_set(e, errno, "read the directory %s", w->path);
    }
    closedir(d);
    return rc;
}

int tree_walk(int dir, tree_f *each, void *arg, struct error *e)
{
    struct walk w = {.each = each, .arg = arg};

    return walk(&w, dir, 0, 0, e);
}

static int remove_all(int dir, const char *name, int depth)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc = 0;

    if (!d) {
        rc = errno == ENOENT ? 0 : -errno;
        close_fd(&fd);
        return rc;
    }
    while (rc == 0 && depth <= MAX_DEPTH && (entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(dirfd(d), entry->d_name, 0) < 0) {
            rc = errno == EISDIR ? remove_all(dirfd(d), entry->d_name, depth + 1)
                                 : -errno;
        }
    }
    closedir(d);
    return rc < 0 ? rc : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int tree_remove(int dir, const char *name)
{
    return remove_all(dir, name, 0);
}
