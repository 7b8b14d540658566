/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/fs.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fs_path(char *to, size_t size, struct error *e, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(to, size, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= size) {
        return error_set(e, ENAMETOOLONG, "path %.80s...", to);
    }
    return 0;
}

int fs_read_fd(int fd, const char *name, size_t max, char **ret,
               size_t *ret_len, struct error *e)
{
    _free_ char *data = NULL;
    size_t cap = 0, len = 0;

    for (;;) {
        ssize_t n;

        if (len == cap) {
            char *grown = realloc(data, (cap ? 2 * cap : 4096) + 1);

            if (!grown) {
                return error_set(e, ENOMEM, "read %s", name);
            }
            data = grown;
            cap = cap ? 2 * cap : 4096;
        }
        n = read(fd, data + len, cap - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_set(e, errno, "read %s", name);
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
        if (len > max) {
            return error_text(e, EFBIG, "%s is larger than %zu bytes", name,
                              max);
        }
    }
    data[len] = '\0';
    *ret = take_ptr(&data);
    if (ret_len) {
        *ret_len = len;
    }
    return 0;
}

int fs_read(const char *path, size_t max, char **ret, size_t *ret_len,
            struct error *e)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    return fs_read_fd(fd, path, max, ret, ret_len, e);
}

int fs_read_regular(const char *path, size_t max, char **ret, size_t *ret_len,
                    struct error *e)
{
    _close_ int fd = open(path,
                          O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return error_set(e, errno, "open %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return error_text(e, EINVAL, "%s: expected a regular file", path);
    }
    return fs_read_fd(fd, path, max, ret, ret_len, e);
}

int fs_write_all(int fd, const void *data, size_t len)
{
    const char *from = data;

    while (len) {
        ssize_t n = write(fd, from, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO; /* of 0 it would be tried for ever */
        }
        from += n;
        len -= (size_t)n;
    }
    return 0;
}

enum write_how {
    WRITE_DURABLE, /* over what is there, on the disk when it is done */
    WRITE_NEW,     /* the same where nothing is there */
    WRITE_FAST,    /* whenever it comes to the disk */
};

static int sync_parent(const char *path)
{
    char dir[PATH_MAX];
    char *slash;
    int fd, rc;

    str_copy(dir, sizeof(dir), path);
    slash = strrchr(dir, '/');
    if (!slash) {
        str_copy(dir, sizeof(dir), ".");
    } else {
        slash[slash == dir] = '\0';
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    rc = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    /* Some filesystems cannot sync a directory; the rename is then as durable
     * as they make it. */
    return rc == -EINVAL || rc == -EROFS ? 0 : rc;
}

static int write_temporary(const char *temporary, int fd, const void *data,
                           size_t len, bool durable, struct error *e)
{
    int rc = fs_write_all(fd, data, len);

    if (rc == 0 && durable && fsync(fd) < 0) {
        rc = -errno;
    }
    if (close(fd) < 0 && rc == 0) {
        rc = -errno;
    }
    return rc == 0 ? 0 : error_set(e, -rc, "write %s", temporary);
}

/* NFS has no rename that replaces nothing, and some filesystems have no links; where there
 * is neither, who comes second a moment later replaces the file. */
static int take_new_name(const char *temporary, const char *path)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EEXIST && link(temporary, path) == 0) {
        unlink(temporary);
        return 0;
    }
    if (errno == EEXIST || access(path, F_OK) == 0) {
        return -EEXIST;
    }
    return rename(temporary, path) < 0 ? -errno : 0;
}

static int take_name(const char *temporary, const char *path, enum write_how how)
{
    if (how == WRITE_NEW) {
        return take_new_name(temporary, path);
    }
    return rename(temporary, path) < 0 ? -errno : 0;
}

static int write_whole(const char *path, const void *data, size_t len,
                       enum write_how how, struct error *e)
{
    bool durable = how != WRITE_FAST;
    char temporary[PATH_MAX];
    int fd, rc;

    rc = fs_path(temporary, sizeof(temporary), e, "%s.XXXXXX", path);
    if (rc < 0) {
        return rc;
    }
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return error_set(e, errno, "make a temporary file for %s", path);
    }
    rc = write_temporary(temporary, fd, data, len, durable, e);
    if (rc == 0) {
        rc = take_name(temporary, path, how);
        rc = rc < 0 ? error_set(e, -rc, "rename %s to %s", temporary, path) : 0;
    }
    if (rc < 0) {
        unlink(temporary);
        return rc;
    }
    if (durable) {
        rc = sync_parent(path);
        if (rc < 0) {
            return error_set(e, -rc, "sync the directory of %s", path);
        }
    }
    return 0;
}

int fs_write_atomic(const char *path, const void *data, size_t len,
                    struct error *e)
{
    return write_whole(path, data, len, WRITE_DURABLE, e);
}

int fs_write_replace(const char *path, const void *data, size_t len,
                     struct error *e)
{
    return write_whole(path, data, len, WRITE_FAST, e);
}

int fs_write_new(const char *path, const void *data, size_t len, struct error *e)
{
    return write_whole(path, data, len, WRITE_NEW, e);
}

void fs_tidy(char *path)
{
    const char *from = path;
    size_t len = 0, n; /* of what is right already */

    if (*from == '/') {
        path[len++] = '/';
    }
    for (from += strspn(from, "/"); (n = strcspn(from, "/")) > 0; from += strspn(from, "/")) {
        if (n > 1 || *from != '.') {
            if (len > 0 && path[len - 1] != '/') {
                path[len++] = '/';
            }
            memmove(path + len, from, n);
            len += n;
        }
        from += n;
    }
    if (len == 0 && *path) {
        path[len++] = '.';
    }
    path[len] = '\0';
}

int fs_mkdirs(const char *path, struct error *e)
{
    char partial[PATH_MAX];
    struct stat st;
    int rc = fs_path(partial, sizeof(partial), e, "%s", path);

    if (rc < 0) {
        return rc;
    }
    for (char *p = partial + 1; *partial; p++) {
        char at = *p;

        if (at != '/' && at != '\0') {
            continue;
        }
        *p = '\0';
        if (mkdir(partial, 0700) < 0 && errno != EEXIST) {
            return error_set(e, errno, "make directory %s", partial);
        }
        *p = at;
        if (at == '\0') {
            break;
        }
    }
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        return error_set(e, ENOTDIR, "make directory %s", path);
    }
    return 0;
}

/* Some filesystems say that nothing can be removed before they look what there is. */
static bool is_gone(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* `stuck` gets the path of what cannot be removed, from the inside out; of one that is too
 * long its end. */
static void put_before(char stuck[PATH_MAX], const char *name)
{
    char path[PATH_MAX];

    if (fs_path(path, sizeof(path), NULL, "%s%s%s", name, *stuck ? "/" : "", stuck) == 0) {
        str_copy(stuck, PATH_MAX, path);
    }
}

static int remove_at(int dir_fd, const char *name, int depth, char stuck[PATH_MAX]);

static int remove_names(int dir_fd, int depth, char stuck[PATH_MAX])
{
    struct dirent *d;
    DIR *dir = fdopendir(dir_fd);
    int rc = 0;

    if (!dir) {
        close(dir_fd);
        return -ENOMEM;
    }
    while (rc == 0 && (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..")) {
            rc = remove_at(dirfd(dir), d->d_name, depth + 1, stuck);
        }
    }
    closedir(dir);
    return rc;
}

/* Of a directory unlinkat() says EISDIR here, and EPERM elsewhere, as it does of a file that
 * nobody may remove. */
static int remove_one(int dir_fd, const char *name, int depth, char stuck[PATH_MAX])
{
    int code, fd, rc;

    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    code = errno;
    if (code == EROFS && is_gone(dir_fd, name)) {
        return 0;
    }
    if (code != EISDIR && code != EPERM) {
        return -code;
    }
    if (depth > 64) {
        return -ELOOP;
    }
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOTDIR || errno == ELOOP ? -code : -errno;
    }
    rc = remove_names(fd, depth, stuck);
    return rc < 0 || unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? rc : -errno;
}

static int remove_at(int dir_fd, const char *name, int depth, char stuck[PATH_MAX])
{
    int rc = remove_one(dir_fd, name, depth, stuck);

    if (rc < 0) {
        put_before(stuck, name);
    }
    return rc;
}

int fs_remove_tree(const char *path, struct error *e)
{
    char stuck[PATH_MAX] = "";
    int rc = remove_at(AT_FDCWD, path, 0, stuck);

    return rc == 0 ? 0 : error_set(e, -rc, "remove %s", stuck);
}

/* Of a directory for sockets: their names may have 107 bytes, and "muster-<uid>",
 * a run id and the name of one follow. */
enum { RUNTIME_BASE_MAX = 40 };

/* One that is set for another host may not be there. */
static bool is_for_sockets(const char *dir)
{
    return dir && dir[0] == '/' && strlen(dir) <= RUNTIME_BASE_MAX &&
           access(dir, W_OK | X_OK) == 0;
}

int fs_runtime_dir(char *to, size_t size, struct error *e)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    const char *tmp = getenv("TMPDIR");
    struct stat st;
    int rc;

    if (is_for_sockets(xdg)) {
        rc = fs_path(to, size, e, "%s/muster", xdg);
    } else {
        rc = fs_path(to, size, e, "%s/muster-%lu",
                     is_for_sockets(tmp) ? tmp : "/tmp",
                     (unsigned long)geteuid());
    }
    if (rc < 0) {
        return rc;
    }
    if (mkdir(to, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make directory %s", to);
    }
    if (lstat(to, &st) < 0) {
        return error_set(e, errno, "look at %s", to);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
        return error_text(e, EPERM, "%s is not a directory of this user: "
                          "remove it or set XDG_RUNTIME_DIR", to);
    }
    if ((st.st_mode & 077) && chmod(to, 0700) < 0) {
        return error_set(e, errno, "make %s private", to);
    }
    return 0;
}

/* The directory of the running program. */
static int self_dir(char *to, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", to, size - 1);

    if (n < 0) {
        return -errno;
    }
    to[n] = '\0';
    *strrchr(to, '/') = '\0';
    return 0;
}

static bool is_program(char *to, size_t size, const char *dir,
                       const char *between, const char *name)
{
    return (size_t)snprintf(to, size, "%s%s/%s", dir, between, name) < size &&
           access(to, X_OK) == 0;
}

int fs_helper(const char *name, char *to, size_t size, struct error *e)
{
    char dir[PATH_MAX] = "";

    if (self_dir(dir, sizeof(dir)) == 0 &&
        (is_program(to, size, dir, "", name) ||
         is_program(to, size, dir, "/../libexec/muster", name))) {
        return 0;
    }
    if (is_program(to, size, PKGLIBEXECDIR, "", name)) {
        return 0;
    }
    return error_text(e, ENOENT, "helper program %s not found beside %s nor in "
                      "%s: is muster installed whole?", name, dir,
                      PKGLIBEXECDIR);
}

int fs_program(char *to, size_t size, struct error *e)
{
    char dir[PATH_MAX] = "";

    if (self_dir(dir, sizeof(dir)) == 0 &&
        (is_program(to, size, dir, "", "muster") ||
         is_program(to, size, dir, "/../../bin", "muster"))) {
        return 0;
    }
    if (is_program(to, size, BINDIR, "", "muster")) {
        return 0;
    }
    return error_text(e, ENOENT, "the program muster is not beside %s nor in "
                      "%s: is muster installed whole?", dir, BINDIR);
}

static int check_executable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0) {
        return -EACCES;
    }
    return 0;
}

int fs_which(const char *name, const char *path_env, char *to, size_t size)
{
    int rc = -ENOENT;

    if (strchr(name, '/')) {
        str_copy(to, size, name);
        return check_executable(name);
    }
    for (const char *p = path_env ? path_env : ""; *name;) {
        size_t len = strcspn(p, ":");
        int one;

        if ((size_t)snprintf(to, size, "%.*s%s%s", (int)len, p,
                             len ? "/" : "", name) < size) {
            one = check_executable(to);
            if (one == 0) {
                return 0;
            }
            rc = one == -EACCES ? one : rc;
        }
        if (!p[len]) {
            break;
        }
        p += len + 1;
    }
    return rc;
}
