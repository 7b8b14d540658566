/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: bounded reading, whole-or-nothing writing, private directories. Paths
 * that are built here are checked against PATH_MAX; every file made is 0600 and
 * every directory 0700.
 */
#ifndef MUSTER_BASE_FS_H
#define MUSTER_BASE_FS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Formats a path into `to`. 0, or -ENAMETOOLONG. */
int fs_path(char *to, size_t size, struct error *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The whole file, followed by a zero byte; at most `max` bytes, else -EFBIG.
 * The caller frees *ret. */
int fs_read(const char *path, size_t max, char **ret, size_t *ret_len,
            struct error *e);
/* The same of a regular file alone, for a directory of somebody who might put a
 * FIFO there for us to wait for: -EINVAL for anything else. */
int fs_read_regular(const char *path, size_t max, char **ret, size_t *ret_len,
                    struct error *e);
/* The rest of an open file, which messages call `name`. */
int fs_read_fd(int fd, const char *name, size_t max, char **ret,
               size_t *ret_len, struct error *e);

/* Writes all or nothing: a temporary beside it, fsync, rename, fsync of the
 * directory. On failure the old file is as it was and no temporary is left. */
int fs_write_atomic(const char *path, const void *data, size_t len,
                    struct error *e);
/* The same where there is no such file: else -EEXIST, and it is as it was. So of several
 * that make it, whoever comes first does. */
int fs_write_new(const char *path, const void *data, size_t len, struct error *e);

/* As fs_write_atomic() without the fsyncs: for files that a crash may lose. */
int fs_write_replace(const char *path, const void *data, size_t len,
                     struct error *e);

/* Takes away what says nothing in a path: slashes that are there twice or at its end, and
 * parts that are ".". */
void fs_tidy(char *path);

/* All of it, through EINTR and short writes. 0, or -errno. */
int fs_write_all(int fd, const void *data, size_t len);

/* Makes a directory and its missing parents. Those made are 0700. */
int fs_mkdirs(const char *path, struct error *e);

/* Removes a tree. A missing one is no error. Never follows a link. Ends at the first that
 * cannot be removed, whose path the error has. */
int fs_remove_tree(const char *path, struct error *e);

/* The private directory of this user for sockets and locks, made if missing:
 * $XDG_RUNTIME_DIR/muster, else muster-<uid> in $TMPDIR or /tmp; one of them that
 * is too long for names of sockets does not count. A directory that belongs to
 * somebody else is refused. */
int fs_runtime_dir(char *to, size_t size, struct error *e);

/* Where a helper program (muster-exec, ...) lies: beside this program in a
 * build tree, else ../libexec/muster of it, else where it was configured. */
int fs_helper(const char *name, char *to, size_t size, struct error *e);

/* Where the program `muster` itself lies, by the same rule. */
int fs_program(char *to, size_t size, struct error *e);

/* Finds `name` as execvp would, in `path_env` (a $PATH). 0, or -ENOENT,
 * -EACCES. A name with a slash is checked as it is. */
int fs_which(const char *name, const char *path_env, char *to, size_t size);

#endif
