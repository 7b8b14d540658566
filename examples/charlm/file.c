/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY_PREFIX ".charlm-"
#define TEMPORARY_SUFFIX ".tmp"

/* The directory of `path`, into `to` (of PATH_MAX). */
static int directory_of(const char *path, char *to, struct failure *f)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    if (len >= PATH_MAX) {
        return failure_errno(f, ENAMETOOLONG, "%.80s...", path);
    }
    memcpy(to, path, len);
    to[len] = '\0';
    if (!slash || slash == path) {
        memcpy(to, slash ? "/" : ".", 2);
    }
    return 0;
}

/* A new temporary file, locked. A sweeper that comes between making it and
 * locking it may remove it: then it has no name left, and another is made. */
static int open_temporary(const char *dir, char *ret_path, int *ret_fd,
                          struct failure *f)
{
    struct stat st = {0};
    int fd;

    do {
        if (snprintf(ret_path, PATH_MAX,
                     "%s/" TEMPORARY_PREFIX "XXXXXX" TEMPORARY_SUFFIX, dir) >=
            PATH_MAX) {
            return failure_errno(f, ENAMETOOLONG, "%.80s...", dir);
        }
        fd = mkostemps(ret_path, sizeof(TEMPORARY_SUFFIX) - 1, O_CLOEXEC);
        if (fd < 0) {
            return failure_errno(f, errno, "make a temporary file in %s",
                                 dir);
        }
        /* Where locks are not supported, sweeping does nothing either. */
        if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 &&
            st.st_nlink == 0) {
            close(fd);
            fd = -1;
        }
    } while (fd < 0);
    *ret_fd = fd;
    return 0;
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int flush_directory(const char *dir, struct failure *f)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) < 0 ? errno : 0;

    if (fd >= 0) {
        close(fd);
    }
    /* Some filesystems cannot flush a directory, and need not. */
    if (rc == 0 || rc == EINVAL || rc == EROFS) {
        return 0;
    }
    return failure_errno(f, rc, "flush directory %s", dir);
}

int file_write(const char *path, const void *data, size_t len,
               struct failure *f)
{
    char dir[PATH_MAX], temporary[PATH_MAX];
    int fd = -1;
    int rc = directory_of(path, dir, f);

    if (rc < 0) {
        return rc;
    }
    rc = open_temporary(dir, temporary, &fd, f);
    if (rc < 0) {
        return rc;
    }
    rc = write_all(fd, data, len);
    if (rc < 0) {
        failure_errno(f, -rc, "write %s", temporary);
    } else if (rename(temporary, path) < 0) {
        rc = failure_errno(f, errno, "rename %s to %s", temporary, path);
    }
    if (rc < 0) {
        unlink(temporary);
    }
    close(fd);
    return rc < 0 ? rc : flush_directory(dir, f);
}

static int read_open_file(int fd, uint8_t *to, size_t len, size_t *ret_len)
{
    size_t have = 0;

    while (have < len) {
        ssize_t n = read(fd, to + have, len - have);

        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        have += n > 0 ? (size_t)n : 0;
    }
    *ret_len = have;
    return 0;
}

int file_read(const char *path, size_t max, uint8_t **ret, size_t *ret_len,
              struct failure *f)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    uint8_t *data = NULL;
    int rc = 0;

    if (fd < 0) {
        return failure_errno(f, errno, "open %s", path);
    }
    if (fstat(fd, &st) < 0) {
        rc = failure_errno(f, errno, "look at %s", path);
    } else if (!S_ISREG(st.st_mode) || (uintmax_t)st.st_size > max) {
        rc = failure_set(f, "%s: expected a file of at most %zu bytes", path,
                         max);
    } else {
        data = malloc((size_t)st.st_size + 1);
        rc = data ? read_open_file(fd, data, (size_t)st.st_size, ret_len)
                  : -ENOMEM;
        if (rc < 0) {
            failure_errno(f, -rc, "read %s", path);
        }
    }
    close(fd);
    if (rc < 0) {
        free(data);
        return rc;
    }
    *ret = data;
    return 0;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t len = strlen(name), suffix_len = strlen(suffix);

    return len >= suffix_len && !strcmp(name + len - suffix_len, suffix);
}

static int is_temporary(const struct dirent *entry)
{
    return strncmp(entry->d_name, TEMPORARY_PREFIX,
                   sizeof(TEMPORARY_PREFIX) - 1) == 0 &&
           ends_in(entry->d_name, TEMPORARY_SUFFIX);
}

/* By bytes, so that the order does not depend on the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void free_entries(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++) {
        free(entries[i]);
    }
    free(entries);
}

/* A file that somebody else removed, or holds, is none of ours. */
static void remove_unlocked(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name,
                    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlinkat(dir_fd, name, 0);
        }
        close(fd);
    }
}

int file_sweep(const char *dir, struct failure *f)
{
    struct dirent **entries;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int n;

    if (dir_fd < 0) {
        return failure_errno(f, errno, "open directory %s", dir);
    }
    n = scandirat(dir_fd, ".", &entries, is_temporary, compare_names);
    if (n < 0) {
        n = failure_errno(f, errno, "read directory %s", dir);
        close(dir_fd);
        return n;
    }
    for (int i = 0; i < n; i++) {
        remove_unlocked(dir_fd, entries[i]->d_name);
    }
    free_entries(entries, n);
    close(dir_fd);
    return 0;
}

/* Of sorted names, those that end in `suffix` and lie before `newest`: removes
 * all but the last keep - 1. */
static int remove_oldest(int dir_fd, struct dirent **entries, int n,
                         const char *newest, const char *suffix, size_t keep)
{
    size_t kept = 1;
    int rc = 0;

    for (int i = n - 1; i >= 0; i--) {
        const char *name = entries[i]->d_name;

        if (name[0] == '.' || !ends_in(name, suffix) ||
            strcmp(name, newest) >= 0) {
            continue;
        }
        if (kept < keep) {
            kept++;
        } else if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT) {
            rc = -errno;
        }
    }
    return rc;
}

int file_keep(const char *newest, const char *suffix, size_t keep,
              struct failure *f)
{
    const char *slash = strrchr(newest, '/');
    struct dirent **entries;
    char dir[PATH_MAX];
    int dir_fd, n;
    int rc = directory_of(newest, dir, f);

    if (rc < 0) {
        return rc;
    }
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return failure_errno(f, errno, "open directory %s", dir);
    }
    n = scandirat(dir_fd, ".", &entries, NULL, compare_names);
    if (n < 0) {
        rc = -errno;
    } else {
        rc = remove_oldest(dir_fd, entries, n, slash ? slash + 1 : newest,
                           suffix, keep);
        free_entries(entries, n);
    }
    close(dir_fd);
    return rc < 0 ? failure_errno(f, -rc, "remove old files in %s", dir) : 0;
}

int file_make_directory(const char *path, struct failure *f)
{
    char partial[PATH_MAX];
    size_t len = strlen(path);
    struct stat st;

    if (len == 0 || len >= sizeof(partial)) {
        return failure_errno(f, len ? ENAMETOOLONG : ENOENT,
                             "make directory %.80s", path);
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(partial, path, i);
        partial[i] = '\0';
        if (mkdir(partial, 0700) < 0 && errno != EEXIST) {
            return failure_errno(f, errno, "make directory %s", partial);
        }
    }
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        return failure_errno(f, ENOTDIR, "make directory %s", path);
    }
    return 0;
}
