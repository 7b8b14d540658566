/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   .muster-copy-NAME   is written, file by file, each on the disk
 *                       is verified, and the source is still what it was
 *   NAME                by a rename, and the directory is on the disk
 */
#include <config.h>

#include "ckpt/copy_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/dirlock.h"
#include "ckpt/held.h"
#include "ckpt/tree.h"
#include "ckpt/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PIECE_BYTES = 4 << 20, MAX_DEPTH = 16 };

static int copy_bytes(struct io *io, int from, int to)
{
    _free_ char *piece = malloc(PIECE_BYTES);
    uint64_t at = 0;
    ssize_t n = 1;
    int rc = piece ? 0 : -ENOMEM;

    while (rc == 0 && n > 0) {
        n = io->ops->read(io, from, piece, PIECE_BYTES, at);
        rc = n < 0 ? (int)n : fs_write_all(to, piece, (size_t)n);
        at += n > 0 ? (uint64_t)n : 0;
    }
    return rc < 0 ? rc : fsync(to) < 0 ? -errno : 0;
}

int copy_file(struct io *io, int from, const char *name, int to,
              const char *to_name, struct error *e)
{
    _close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _close_ int out = in < 0 ? -1
                             : openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL |
                                                       O_NOFOLLOW | O_CLOEXEC,
                                      0600);
    int rc = out < 0 ? -errno : copy_bytes(io, in, out);

    return rc < 0 ? error_set(e, -rc, "copy %s", name) : 0;
}

static int copy_any(struct io *io, int from, const char *name, int to,
                    const char *to_name, unsigned depth, struct error *e);

static int copy_names(struct io *io, DIR *d, int to, unsigned depth, struct error *e)
{
    struct dirent *entry;
    int rc = 0;

    while (rc == 0 && (errno = 0, entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            rc = copy_any(io, dirfd(d), entry->d_name, to, entry->d_name, depth, e);
        }
    }
    return rc < 0 || entry ? rc : errno ? error_set(e, errno, "list it") : 0;
}

static int copy_directory(struct io *io, int from, const char *name, int to,
                          const char *to_name, unsigned depth, struct error *e)
{
    _close_ int in = openat(from, name,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _close_ int out = -1;
    DIR *d;
    int rc;

    if (in < 0) {
        return error_set(e, errno, "copy %s", name);
    }
    if (mkdirat(to, to_name, 0700) < 0) {
        return error_set(e, errno, "make the copy of %s", name);
    }
    out = openat(to, to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = out < 0 ? NULL : fdopendir(in);
    if (!d) {
        return error_set(e, errno, "copy %s", name);
    }
    take_fd(&in);
    rc = copy_names(io, d, out, depth + 1, e);
    closedir(d);
    return rc < 0 ? rc : fsync(out) < 0 ? error_set(e, errno, "sync %s", name)
                                        : 0;
}

static int copy_any(struct io *io, int from, const char *name, int to,
                    const char *to_name, unsigned depth, struct error *e)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set(e, errno, "look at %s", name);
    }
    if (S_ISREG(st.st_mode)) {
        return copy_file(io, from, name, to, to_name, e);
    }
    if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH) {
        return copy_directory(io, from, name, to, to_name, depth, e);
    }
    return error_text(e, EINVAL, "%s is neither a file nor a directory: it is not "
                      "copied", name);
}

/* --- where --- */

/* Of a path what is there of it: its own directory, or one above. True: all is. */
static bool find_real(const char *path, char real[PATH_MAX])
{
    char begin[PATH_MAX];
    bool is_all = true;

    str_copy(begin, sizeof(begin), path);
    while (!realpath(begin[0] ? begin : ".", real)) {
        char *slash = strrchr(begin, '/');

        is_all = false;
        if (!slash && !begin[0]) {
            str_copy(real, PATH_MAX, "/");
            return false;
        }
        begin[!slash ? 0 : slash == begin && slash[1] ? 1 : slash - begin] = '\0';
    }
    return is_all;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* Whether a directory is that one, or below it. */
static bool is_in(char real[PATH_MAX], const struct stat *dir)
{
    struct stat st;

    for (;;) {
        char *slash = strrchr(real, '/');

        if (stat(real[0] ? real : "/", &st) == 0 && is_same(&st, dir)) {
            return true;
        }
        if (!slash) {
            return false;
        }
        *slash = '\0';
    }
}

bool copy_is_inside(int from, const struct found *f, const char *path)
{
    char real[PATH_MAX];
    struct stat own;

    find_real(path, real);
    return fstatat(from, f->name, &own, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(own.st_mode) &&
           is_in(real, &own);
}

int copy_check_place(int from, const struct found *f, const char *to_path,
                     struct error *e)
{
    char real[PATH_MAX];
    struct stat own, above, to;
    bool is_there = find_real(to_path, real);

    if (fstat(from, &above) < 0 ||
        fstatat(from, f->name, &own, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set(e, errno, "look at %s", f->name);
    }
    if (is_there && stat(real, &to) == 0 && is_same(&to, &above)) {
        return error_text(e, EINVAL, "%s lies in %s already: it would be copied onto "
                          "itself", f->name, to_path);
    }
    if (S_ISDIR(own.st_mode) && is_in(real, &own)) {
        return error_text(e, EINVAL, "%s is %s itself, or lies in it: expected another "
                          "directory to copy it into", to_path, f->name);
    }
    return 0;
}

/* --- one whole --- */

static int check_as(struct io *io, int dir, const struct found *f, const char *name,
                    struct found_facts *ret, struct error *e)
{
    struct found as = *f;

    str_copy(as.name, sizeof(as.name), name);
    return found_check(io, dir, &as, true, ret, e);
}

/* It is not there, not finished, or damaged. What could not be looked at, for a signal, a
 * disk or want of memory, may be whole: it stays. */
static bool may_be_replaced(int rc)
{
    return rc == -ENOENT || rc == -ERR_FORMAT;
}

/* What is there under its name: a directory that is no checkpoint goes out of the
 * way, a file is replaced. */
static int clear_way(int to, const struct found *f, struct error *e)
{
    char aside[FOUND_NAME_BYTES];
    struct stat st;

    if (fstatat(to, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode)) {
        return 0;
    }
    return watch_set_aside(to, f->name, "a copy of it was found damaged", aside,
                           e);
}

/* The copy is all that was read, and is not whole: either that was not, or it was another one
 * that was written. The name of the copy, which goes, says nothing to anybody. */
static int blame(struct io *io, int from, const struct found *f, int rc, struct error *e)
{
    struct found_facts facts;
    struct error why = {0};
    int source = found_check(io, from, f, true, &facts, &why);

    if (source < 0) {
        return error_text(e, why.code, "%s", why.text);
    }
    return error_text(e, -rc, "%s is whole, and its copy is not what was written", f->name);
}

static int copy_over(struct io *io, int from, const struct found *f, int to,
                     const char *temp, struct found_facts *ret, struct error *e)
{
    uint64_t before = 0, after = 0;
    int rc = watch_mark(from, f->name, &before), is;

    if (rc < 0) {
        return error_set(e, -rc, "look at %s", f->name);
    }
    rc = copy_any(io, from, f->name, to, temp, 0, e);
    is = watch_mark(from, f->name, &after);
    if (is < 0 && is != -ENOENT) {
        return error_set(e, -is, "look at %s", f->name);
    }
    if (is < 0 || after != before) {
        return error_text(e, EAGAIN, "%s was written to while it was copied",
                          f->name);
    }
    if (rc == 0) {
        rc = check_as(io, to, f, temp, ret, e);
        rc = may_be_replaced(rc) ? blame(io, from, f, rc, e) : rc;
    }
    return rc;
}

/* There is one under its name at any moment; the older one is called as the copy was then. */
static int exchange(int to, const char *to_path, const char *name, const char *temp,
                    struct error *e)
{
    int rc = renameat2(to, temp, to, name, RENAME_EXCHANGE) < 0 ? -errno : 0;

    if (rc == -EINVAL || rc == -ENOSYS) { /* not there, as on NFS */
        rc = watch_remove(to, to_path, name, e);
        rc = rc < 0 ? rc : renameat(to, temp, to, name) < 0 ? -errno : 0;
    }
    return rc;
}

static int give_name(int to, const char *to_path, const struct found *f, const char *temp,
                     bool is_grown, struct error *e)
{
    int rc = is_grown ? exchange(to, to_path, f->name, temp, e) : clear_way(to, f, e);

    if (rc == 0 && !is_grown && renameat(to, temp, to, f->name) < 0) {
        rc = -errno;
    }
    if (rc == 0 && fsync(to) < 0) {
        rc = -errno;
    }
    return rc < 0 ? error_set(e, -rc, "name the copy %s", f->name) : 0;
}

/* --- room --- */

static int add_file(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    struct found_facts *sum = arg;

    (void)path, (void)e;
    sum->bytes += bytes;
    sum->n_files++;
    return 0;
}

void copy_count(int dir, const struct found *f, struct found_facts *facts)
{
    _close_ int fd = openat(dir, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    facts->bytes = facts->n_files = 0;
    if (fd >= 0) {
        (void)tree_walk(fd, add_file, facts, NULL);
    } else if (fstatat(dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
        add_file(facts, f->name, (uint64_t)st.st_size, NULL);
    }
}

/* About how many bytes are there; none where it is not. */
static uint64_t bytes_of(int dir, const struct found *f)
{
    struct found_facts facts;

    copy_count(dir, f, &facts);
    return facts.bytes;
}

/* Told with numbers before anything is written; others may take the room meanwhile. Of
 * muster's own what is there, and is none, goes first. */
static int check_room(int from, const struct found *f, int to, const char *to_path,
                      struct error *e)
{
    uint64_t bytes = bytes_of(from, f), room;
    struct statvfs fs;

    if (fstatvfs(to, &fs) < 0 || fs.f_blocks == 0) {
        return 0;
    }
    room = (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize +
           (f->kind == FOUND_MUSTER ? bytes_of(to, f) : 0);
    return room >= bytes ? 0
                         : error_text(e, ENOSPC, "%s: its filesystem has %llu bytes left, and "
                                      "%s has %llu", to_path, (unsigned long long)room,
                                      f->name, (unsigned long long)bytes);
}

int copy_checkpoint(struct io *io, int from, const struct found *f, int to,
                    const char *to_path, struct found_facts *ret, struct error *e)
{
    _close_ int held = held_take(from, f->name);
    char temp[FOUND_NAME_BYTES + 32], path[PATH_MAX];
    char suffix[DIRLOCK_SUFFIX_BYTES];
    bool is_file = found_is_file(f), is_grown;
    int rc = dirlock_take(to, suffix);

    (void)held; /* until the end */
    if (rc == -EBUSY) {
        return error_text(e, EBUSY, "somebody else copies into %s", to_path);
    }
    if (rc < 0) {
        return error_set(e, -rc, "lock %s", to_path);
    }
    rc = snprintf(temp, sizeof(temp), ".muster-copy-%s%s", f->name, suffix);
    if (rc >= FOUND_NAME_BYTES) {
        return error_set(e, ENAMETOOLONG, "copy %s", f->name);
    }
    rc = fs_path(path, sizeof(path), e, "%s/%s", to_path, temp);
    if (rc < 0) {
        return rc;
    }
    rc = is_file ? -ENOENT : check_as(io, to, f, f->name, ret, e);
    if (rc < 0 && !may_be_replaced(rc)) {
        return error_wrap(e, "what %s has of it", to_path);
    }
    is_grown = rc == 0;
    rc = rc < 0 ? 1 : copy_has_grown(io, from, f, to, to_path, e);
    if (rc <= 0) {
        return rc;
    }
    rc = f->kind == FOUND_MUSTER ? 0 : fs_remove_tree(path, e);
    rc = rc < 0 ? rc : check_room(from, f, to, to_path, e);
    if (rc < 0 || f->kind == FOUND_MUSTER) {
        return rc < 0 ? rc : copy_step(io, from, f->name, to, ret, e);
    }
    rc = copy_over(io, from, f, to, temp, ret, e);
    rc = rc < 0 ? rc : give_name(to, to_path, f, temp, is_grown, e);
    if (rc < 0 || is_grown) {
        fs_remove_tree(path, NULL);
    }
    return rc;
}
