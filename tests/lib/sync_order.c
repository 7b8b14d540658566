/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/sync_order.h"

#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_OWED = 256 };

/* What is not on the disk: bytes of a file, or (is_name) a name, by its path. */
struct owed {
    char path[PATH_MAX];
    bool is_name, is_renamed, is_removal;
    bool is_left; /* by an earlier program */
};

struct sync_order {
    char root[PATH_MAX];
    const char *except, *last;
    struct owed owed[MAX_OWED];
    size_t n;
    unsigned n_faults, n_renames;
    char first[2 * PATH_MAX];
};

/* --- paths of the traced process --- */

static bool path_of_fd(const struct tracer_call *c, int fd, char *to)
{
    char link[64];
    ssize_t n;

    if (fd == AT_FDCWD) {
        snprintf(link, sizeof(link), "/proc/%d/cwd", (int)c->tid);
    } else {
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)c->tid, fd);
    }
    n = readlink(link, to, PATH_MAX - 1);
    if (n < 0) {
        return false;
    }
    to[n] = '\0';
    return true;
}

static bool read_text(const struct tracer_call *c, uint64_t at, char *to)
{
    struct iovec here = {to, PATH_MAX - 1};
    struct iovec there = {(void *)(uintptr_t)at, PATH_MAX - 1};
    ssize_t n;

    /* A page that is not there ends it, not the whole reading. */
    if ((at & 4095) + PATH_MAX > 8192) {
        there.iov_len = 8192 - (at & 4095);
    }
    n = process_vm_readv(c->tid, &here, 1, &there, 1, 0);
    if (n <= 0) {
        there.iov_len = 4096 - (at & 4095);
        n = process_vm_readv(c->tid, &here, 1, &there, 1, 0);
    }
    if (n <= 0) {
        return false;
    }
    to[n] = '\0';
    return true;
}

static bool path_at(const struct tracer_call *c, int fd, uint64_t name, char *to)
{
    char dir[PATH_MAX], text[PATH_MAX];

    if (!read_text(c, name, text)) {
        return false;
    }
    if (text[0] == '/') {
        str_copy(to, PATH_MAX, text);
        return true;
    }
    return path_of_fd(c, fd, dir) &&
           (size_t)snprintf(to, PATH_MAX, "%s/%s", dir, text) < PATH_MAX;
}

/* --- what is owed --- */

static bool is_in(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static void parent_of(const char *path, char *to)
{
    char *slash;

    str_copy(to, PATH_MAX, path);
    slash = strrchr(to, '/');
    if (slash) {
        *slash = '\0';
    }
}

static bool is_direct_child(const char *path, const char *dir)
{
    char parent[PATH_MAX];

    parent_of(path, parent);
    return strcmp(parent, dir) == 0;
}

static bool is_excepted(const struct sync_order *o, const char *path)
{
    const char *end = strrchr(path, '.'), *at = end && o->except ? strstr(o->except, end) : NULL;
    size_t n = end ? strlen(end) : 0;

    return at && (at[n] == '\0' || at[n] == ' ');
}

static void blame(struct sync_order *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void blame(struct sync_order *o, const char *fmt, ...)
{
    va_list ap;

    if (o->n_faults++ == 0) {
        va_start(ap, fmt);
        vsnprintf(o->first, sizeof(o->first), fmt, ap);
        va_end(ap);
    }
}

static void drop(struct sync_order *o, size_t i)
{
    o->owed[i] = o->owed[--o->n];
}

static struct owed *owe(struct sync_order *o, const char *path, bool is_name)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->owed[i].is_name == is_name &&
            strcmp(o->owed[i].path, path) == 0) {
            return &o->owed[i];
        }
    }
    if (o->n == MAX_OWED) {
        abort();
    }
    o->owed[o->n] = (struct owed){.is_name = is_name};
    str_copy(o->owed[o->n].path, PATH_MAX, path);
    return &o->owed[o->n++];
}

/* --- calls --- */

/* Whether it has to be there before something in `scope` is called `to`. What leaves a
 * directory needs no name of that. */
static bool is_for(const struct owed *w, const char *scope, const char *to)
{
    bool is_scope = w->is_name && strcmp(w->path, scope) == 0;

    return is_in(w->path, scope) && !w->is_renamed && (!is_scope || is_in(to, scope));
}

static void wrote(struct sync_order *o, const char *path)
{
    if (is_in(path, o->root)) {
        owe(o, path, false);
    }
}

static void synced(struct sync_order *o, const char *path)
{
    for (size_t i = o->n; i-- > 0;) {
        if (o->owed[i].is_name ? is_direct_child(o->owed[i].path, path)
                               : strcmp(o->owed[i].path, path) == 0) {
            drop(o, i);
        }
    }
}

/* Whether the removal of `path` has to wait for that. */
static bool is_before(const struct sync_order *o, const struct owed *w,
                      const char *path, const char *parent)
{
    bool is_hidden = strstr(path + strlen(o->root), "/.") != NULL;

    return is_hidden ? w->is_renamed && is_in(parent, w->path)
                     : w->is_removal && is_direct_child(w->path, parent);
}

static void removed(struct sync_order *o, const char *path)
{
    char parent[PATH_MAX];

    if (!is_in(path, o->root)) {
        return;
    }
    parent_of(path, parent);
    for (size_t i = o->n; i-- > 0;) {
        struct owed *w = &o->owed[i];

        if (is_before(o, w, path, parent)) {
            blame(o, "%s is removed before the %s of %s is on the disk", path,
                  w->is_renamed ? "name" : "removal", w->path);
        } else if (is_in(w->path, path)) {
            drop(o, i);
        }
    }
    if (o->last && strcmp(path + strlen(parent) + 1, o->last) == 0) {
        owe(o, path, true)->is_removal = true;
    }
}

static void renamed(struct sync_order *o, const char *from, const char *to)
{
    char scope[PATH_MAX];
    struct stat st;

    if (!is_in(from, o->root)) {
        return;
    }
    o->n_renames++;
    if (o->last && strcmp(strrchr(from, '/') + 1, o->last) == 0) {
        struct owed *w = owe(o, to, true);

        w->is_renamed = w->is_removal = true;
        return;
    }
    str_copy(scope, sizeof(scope), from);
    if (lstat(to, &st) == 0 && !S_ISDIR(st.st_mode)) {
        parent_of(from, scope);
    }
    for (size_t i = o->n; i-- > 0;) {
        struct owed *w = &o->owed[i];

        if (strcmp(w->path, w->is_name ? from : to) == 0) {
            drop(o, i); /* or it is replaced, whatever was in it */
        } else if (is_for(w, scope, to) && !is_excepted(o, w->path)) {
            blame(o, "%s gets the name %s before %s %s is on the disk", from,
                  to, w->is_name ? "the name" : "what is in", w->path);
        }
    }
    owe(o, to, true)->is_renamed = true;
}

void sync_order_promise(struct sync_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->owed[i].is_renamed) {
            blame(o, "it is promised before the name %s is on the disk",
                  o->owed[i].path);
        }
    }
}

void sync_order_end(struct sync_order *o)
{
    sync_order_promise(o);
    for (size_t i = 0; i < o->n; i++) {
        if (o->owed[i].is_left) {
            blame(o, "it has come to its end before %s %s, which was left there, is on the disk",
                  o->owed[i].is_name ? "the name" : "what is in", o->owed[i].path);
        }
    }
}

static void leave(struct sync_order *o, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        char path[PATH_MAX];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
                sizeof(path)) {
            continue;
        }
        owe(o, path, true)->is_left = true;
        if (entry->d_type == DT_DIR) {
            leave(o, path);
        } else {
            owe(o, path, false)->is_left = true;
        }
    }
    if (d) {
        closedir(d);
    }
}

void sync_order_left(struct sync_order *o, const char *path)
{
    char real[PATH_MAX];

    if (!realpath(path, real)) {
        abort();
    }
    leave(o, real);
}

static void made(struct sync_order *o, const char *path)
{
    if (is_in(path, o->root)) {
        owe(o, path, true);
    }
}

void sync_order_call(struct sync_order *o, const struct tracer_call *c)
{
    char path[PATH_MAX], to[PATH_MAX];
    const uint64_t *a = c->args;

    if (!c->is_done || c->result < 0) {
        return;
    }
    switch (c->number) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_ftruncate:
        if (path_of_fd(c, (int)a[0], path)) {
            wrote(o, path);
        }
        break;
    case SYS_fsync:
    case SYS_fdatasync:
        if (path_of_fd(c, (int)a[0], path)) {
            synced(o, path);
        }
        break;
    case SYS_openat:
        if (a[2] & O_CREAT && path_at(c, (int)a[0], a[1], path)) {
            made(o, path);
        }
        break;
    case SYS_mkdirat:
        if (path_at(c, (int)a[0], a[1], path)) {
            made(o, path);
        }
        break;
    case SYS_unlinkat:
        if (path_at(c, (int)a[0], a[1], path)) {
            removed(o, path);
        }
        break;
    case SYS_renameat:
    case SYS_renameat2:
        if (path_at(c, (int)a[0], a[1], path) &&
            path_at(c, (int)a[2], a[3], to)) {
            renamed(o, path, to);
        }
        break;
    default:
        break;
    }
}

/* --- life --- */

struct sync_order *sync_order_create(const char *root, const char *except,
                                     const char *last)
{
    struct sync_order *o = calloc(1, sizeof(*o));

    if (!o || !realpath(root, o->root)) {
        abort();
    }
    o->except = except;
    o->last = last;
    return o;
}

void sync_order_destroy(struct sync_order *o)
{
    free(o);
}

unsigned sync_order_faults(const struct sync_order *o, const char **ret_first)
{
    *ret_first = o->first;
    return o->n_faults;
}

unsigned sync_order_renames(const struct sync_order *o)
{
    return o->n_renames;
}
