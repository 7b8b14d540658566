/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/runindex.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/rundir_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_ENTRIES = 100000,
    GUARD_TRIES = 100,
    GUARD_PAUSE_MS = 50,
};

struct entries {
    struct rundir_entry *items;
    size_t n, cap;
};

static int index_dir(char *to, size_t size, struct error *e)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");

    if (state && state[0] == '/') {
        return fs_path(to, size, e, "%s/muster/runs", state);
    }
    if (home && home[0] == '/') {
        return fs_path(to, size, e, "%s/.local/state/muster/runs", home);
    }
    return error_text(e, ENOENT, "neither XDG_STATE_HOME nor HOME is set");
}

void runindex_add(const struct rundir *r)
{
    char dir[PATH_MAX], link[PATH_MAX], temporary[PATH_MAX];

    if (index_dir(dir, sizeof(dir), NULL) < 0 ||
        fs_path(link, sizeof(link), NULL, "%s/%s/%s", dir, r->name,
                r->id) < 0 ||
        fs_path(temporary, sizeof(temporary), NULL, "%s/%s/.%s.%ld", dir,
                r->name, r->id, (long)getpid()) < 0) {
        return;
    }
    strrchr(link, '/')[0] = '\0';
    if (fs_mkdirs(link, NULL) < 0) {
        return;
    }
    link[strlen(link)] = '/';
    unlink(temporary);
    if (symlink(r->path, temporary) < 0 || rename(temporary, link) < 0) {
        unlink(temporary);
    }
}

void runindex_remove(const struct rundir_entry *entry)
{
    char dir[PATH_MAX], link[PATH_MAX];

    if (index_dir(dir, sizeof(dir), NULL) == 0 &&
        fs_path(link, sizeof(link), NULL, "%s/%s/%s", dir, entry->name,
                entry->id) == 0) {
        unlink(link);
        strrchr(link, '/')[0] = '\0';
        rmdir(link); /* with the last one of the name */
    }
}

int runindex_guard(void)
{
    static const struct timespec pause = {0, GUARD_PAUSE_MS * 1000000L};
    struct flock want = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char dir[PATH_MAX], path[PATH_MAX];
    _close_ int fd = -1;

    if (index_dir(dir, sizeof(dir), NULL) < 0 || fs_mkdirs(dir, NULL) < 0 ||
        fs_path(path, sizeof(path), NULL, "%s/.guard", dir) < 0) {
        return -1;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    for (int i = 0; fd >= 0 && i < GUARD_TRIES; i++) {
        if (fcntl(fd, F_OFD_SETLK, &want) == 0) {
            return take_fd(&fd);
        }
        if (errno != EAGAIN && errno != EACCES) {
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return -1;
}

static bool is_other(const char *dir, const char *name, const char *id,
                     const char *path)
{
    struct rundir_entry entry = {0};
    char link[PATH_MAX];
    ssize_t n;

    if (fs_path(link, sizeof(link), NULL, "%s/%s/%s", dir, name, id) < 0) {
        return false;
    }
    n = readlink(link, entry.path, sizeof(entry.path) - 1);
    str_copy(entry.id, sizeof(entry.id), id);
    return n > 0 && strcmp(entry.path, path) != 0 && rundir_is_current(&entry);
}

bool runindex_has(const char *id, const char *path)
{
    char dir[PATH_MAX];
    struct dirent *d;
    bool found = false;
    DIR *names = index_dir(dir, sizeof(dir), NULL) < 0 ? NULL : opendir(dir);

    while (names && !found && (d = readdir(names))) {
        found = d->d_name[0] != '.' && is_other(dir, d->d_name, id, path);
    }
    if (names) {
        closedir(names);
    }
    return found;
}

static int add_entry(struct entries *all, int dir_fd, const char *name,
                     const char *id)
{
    struct rundir_entry *entry;
    struct stat st;
    ssize_t n;

    if (strlen(name) >= sizeof(entry->name) || strlen(id) >= sizeof(entry->id) ||
        all->n >= MAX_ENTRIES || fstatat(dir_fd, id, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISLNK(st.st_mode)) {
        return 0;
    }
    if (all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 16;

        entry = reallocarray(all->items, cap, sizeof(*entry));
        if (!entry) {
            return -ENOMEM;
        }
        all->items = entry;
        all->cap = cap;
    }
    entry = &all->items[all->n];
    n = readlinkat(dir_fd, id, entry->path, sizeof(entry->path));
    if (n > 0 && (size_t)n < sizeof(entry->path)) {
        entry->path[n] = '\0';
        str_copy(entry->name, sizeof(entry->name), name);
        str_copy(entry->id, sizeof(entry->id), id);
        entry->entered_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
                            (uint64_t)st.st_mtim.tv_nsec;
        all->n++;
    }
    return 0;
}

static int add_name(struct entries *all, const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct dirent *d;
    DIR *names;
    int rc = 0;

    if (fs_path(path, sizeof(path), NULL, "%s/%s", dir, name) < 0) {
        return 0;
    }
    names = opendir(path);
    while (names && rc == 0 && (d = readdir(names))) {
        if (d->d_name[0] != '.') {
            rc = add_entry(all, dirfd(names), name, d->d_name);
        }
    }
    if (names) {
        closedir(names);
    }
    return rc;
}

static int by_newest(const void *left, const void *right)
{
    const struct rundir_entry *a = left, *b = right;

    if (a->entered_ns != b->entered_ns) {
        return a->entered_ns < b->entered_ns ? 1 : -1;
    }
    return strcmp(b->id, a->id);
}

static int add_all(struct entries *all, const char *dir)
{
    DIR *names = opendir(dir);
    struct dirent *d;
    int rc = 0;

    while (names && rc == 0 && (d = readdir(names))) {
        if (d->d_name[0] != '.') {
            rc = add_name(all, dir, d->d_name);
        }
    }
    if (names) {
        closedir(names);
    }
    return rc;
}

int rundir_index(const char *name, struct rundir_entry **ret, size_t *ret_n,
                 struct error *e)
{
    struct entries all = {0};
    char dir[PATH_MAX];
    int rc = 0;

    /* What is no name leads nowhere, least of all out of the index. */
    if (index_dir(dir, sizeof(dir), NULL) == 0 &&
        (!name || run_file_is_word(name, RUNDIR_NAME_SIZE))) {
        rc = name ? add_name(&all, dir, name) : add_all(&all, dir);
    }
    if (rc < 0) {
        free(all.items);
        return error_set(e, -rc, "read the index of runs");
    }
    if (all.n) {
        qsort(all.items, all.n, sizeof(all.items[0]), by_newest);
    }
    *ret = all.items;
    *ret_n = all.n;
    return 0;
}

bool rundir_is_one(const char *path)
{
    char file[PATH_MAX];

    return fs_path(file, sizeof(file), NULL, "%s/run.json", path) == 0 &&
           access(file, F_OK) == 0;
}

bool rundir_is_current(const struct rundir_entry *entry)
{
    _cleanup_(rundir) struct rundir *r = NULL;

    if (!rundir_is_one(entry->path)) {
        return false;
    }
    return rundir_open(entry->path, &r, NULL) < 0 ||
           strcmp(r->id, entry->id) == 0;
}

/* Whether the three parts together name a run directory; its real path. */
static bool is_run_dir(const char *a, const char *b, const char *c, char *to,
                       size_t size)
{
    char path[PATH_MAX], real[PATH_MAX];

    if (fs_path(path, sizeof(path), NULL, "%s%s%s", a, b, c) < 0 ||
        !rundir_is_one(path) || !realpath(path, real)) {
        return false;
    }
    return fs_path(to, size, NULL, "%s", real) == 0;
}

/* muster-runs/<arg>/latest or muster-runs/<any name>/<arg> here: the index may
 * be that of another host's home directory. */
static bool find_here(const char *arg, char *to, size_t size)
{
    char name[PATH_MAX];
    DIR *dir;
    struct dirent *d;
    bool found = is_run_dir("muster-runs/", arg, "/latest", to, size);

    dir = found ? NULL : opendir("muster-runs");
    while (dir && !found && (d = readdir(dir))) {
        found = d->d_name[0] != '.' &&
                fs_path(name, sizeof(name), NULL, "%s/", d->d_name) == 0 &&
                is_run_dir("muster-runs/", name, arg, to, size);
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

static bool find_in(const struct rundir_entry *entries, size_t n,
                    const char *arg, bool by_id, char *to, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const struct rundir_entry *x = &entries[i];

        if ((!arg || strcmp(by_id ? x->id : x->name, arg) == 0) &&
            rundir_is_current(x) && is_run_dir(x->path, "", "", to, size)) {
            return true;
        }
    }
    return false;
}

/* Somebody else's, as a rule. */
static bool is_closed(const char *arg)
{
    char file[PATH_MAX];
    struct stat st;

    return arg[0] && fs_path(file, sizeof(file), NULL, "%s/run.json", arg) == 0 &&
           stat(file, &st) < 0 && errno == EACCES;
}

static int say_missing(const struct rundir_entry *entries, size_t n,
                       const char *arg, struct error *e)
{
    const char **names = NULL;
    const char *near = NULL;

    if (!arg) {
        return error_text(e, ENOENT, "there is no run yet: muster run starts "
                          "one");
    }
    if (is_closed(arg)) {
        return error_set(e, EACCES, "open run directory %.300s", arg);
    }
    if (strchr(arg, '/') || n == 0) {
        return error_text(e, ENOENT, "no run '%.300s': expected a run "
                          "directory, a run id or a name (muster list shows "
                          "them)", arg);
    }
    names = calloc(2 * n + 1, sizeof(*names));
    for (size_t i = 0; names && i < n; i++) {
        names[2 * i] = entries[i].name;
        names[2 * i + 1] = entries[i].id;
    }
    near = names ? str_nearest(arg, names) : NULL;
    free(names);
    return error_text(e, ENOENT, "no run '%.300s'%s%s%s (muster list shows "
                      "them)", arg, near ? ": did you mean " : "",
                      near ? near : "", near ? "?" : "");
}

int rundir_resolve(const char *arg, char *to, size_t size, struct error *e)
{
    _free_ struct rundir_entry *entries = NULL;
    size_t n = 0;
    int rc;

    if (arg && arg[0] && (is_run_dir(arg, "", "", to, size) ||
                          is_run_dir(arg, "/latest", "", to, size))) {
        return 0;
    }
    rc = rundir_index(NULL, &entries, &n, e);
    if (rc < 0) {
        return rc;
    }
    if (find_in(entries, n, arg, true, to, size) ||
        (arg && find_in(entries, n, arg, false, to, size)) ||
        (arg && arg[0] && !strchr(arg, '/') && find_here(arg, to, size))) {
        return 0;
    }
    return say_missing(entries, n, arg, e);
}
