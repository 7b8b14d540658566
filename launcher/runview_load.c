/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a run whose directory may answer nobody. A thread does it, with what it
 * reads in memory of its own: one that is left behind has that for good.
 */
#include <config.h>

#include "launcher/runview.h"

#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "launcher/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reading {
    int (*read)(struct reading *r);
    char *arg; /* NULL: the newest run of all */
    struct rundir_entry entry;
    struct run_view view;
    struct error e;
    int rc;
};

static void run_reading(void *arg)
{
    struct reading *r = arg;

    r->rc = r->read(r);
}

static struct reading *reading_create(int (*read)(struct reading *r),
                                      const char *arg)
{
    struct reading *r = calloc(1, sizeof(*r));

    if (r) {
        r->read = read;
        r->arg = arg ? strdup(arg) : NULL;
    }
    if (r && arg && !r->arg) {
        free(r);
        return NULL;
    }
    return r;
}

/* Takes `r`. `what` names the run in the error. */
static int finish(struct reading *r, const char *what, unsigned ms,
                  struct run_view *ret, struct error *e)
{
    int rc;

    if (!r) {
        return error_set(e, ENOMEM, "read a run");
    }
    if (!thread_call_within(run_reading, r, ms)) {
        return error_text(e, ETIMEDOUT, "the directory of %.150s has not "
                          "answered for %u s: is its file server there?", what,
                          (ms + 999) / 1000);
    }
    rc = r->rc;
    if (rc == 0) {
        *ret = r->view;
    } else if (e) {
        *e = r->e;
    }
    free(r->arg);
    free(r);
    return rc;
}

static int read_found(struct reading *r)
{
    char path[PATH_MAX];
    int rc = rundir_resolve(r->arg, path, sizeof(path), &r->e);

    return rc < 0 ? rc : run_view_read(path, &r->view, &r->e);
}

int run_view_load_within(const char *arg, unsigned ms, struct run_view *ret,
                         struct error *e)
{
    return finish(reading_create(read_found, arg), arg ? arg : "a run", ms, ret,
                  e);
}

int run_view_load(const char *arg, struct run_view *ret, struct error *e)
{
    return run_view_load_within(arg, RUN_VIEW_PATIENCE_MS, ret, e);
}

static int read_path(struct reading *r)
{
    return run_view_read(r->arg, &r->view, &r->e);
}

int run_view_open(const char *path, struct run_view *ret, struct error *e)
{
    return finish(reading_create(read_path, path), path, RUN_VIEW_PATIENCE_MS,
                  ret, e);
}

static int read_entry(struct reading *r)
{
    if (!rundir_is_current(&r->entry)) {
        return error_text(&r->e, ENOENT, "the run in %s is gone",
                          r->entry.path);
    }
    return run_view_read(r->entry.path, &r->view, &r->e);
}

int run_view_entry(const struct rundir_entry *entry, unsigned ms,
                   struct run_view *ret, struct error *e)
{
    struct reading *r = reading_create(read_entry, NULL);

    if (r) {
        r->entry = *entry;
    }
    return finish(r, entry->path, ms, ret, e);
}

static int look_for_entry(struct reading *r)
{
    return rundir_is_current(&r->entry) ? -EEXIST : -ENOENT;
}

bool run_view_entry_is_gone(const struct rundir_entry *entry, unsigned ms)
{
    struct reading *r = reading_create(look_for_entry, NULL);

    if (r) {
        r->entry = *entry;
    }
    return finish(r, entry->path, ms, NULL, NULL) == -ENOENT;
}

/* `arg` as an absolute path, by its words alone: whoever follows a link asks the
 * filesystem. */
static int make_absolute(const char *arg, char *to, size_t size)
{
    char whole[PATH_MAX], here[PATH_MAX], *rest = NULL;
    size_t n = 0;

    if (!getcwd(here, sizeof(here)) ||
        fs_path(whole, sizeof(whole), NULL, "%s/%s", arg[0] == '/' ? "" : here,
                arg) < 0) {
        return -ENOENT;
    }
    to[0] = '\0';
    for (char *part = strtok_r(whole, "/", &rest); part;
         part = strtok_r(NULL, "/", &rest)) {
        if (strcmp(part, "..") == 0) {
            while (n > 0 && to[--n] != '/') {
            }
            to[n] = '\0';
        } else if (strcmp(part, ".") != 0) {
            if (n + strlen(part) + 2 > size) {
                return -ENOENT;
            }
            to[n++] = '/';
            str_copy(to + n, size - n, part);
            n += strlen(part);
        }
    }
    return 0;
}

static bool is_meant(const struct rundir_entry *entry, const char *arg,
                     const char *path)
{
    return strcmp(entry->id, arg) == 0 || strcmp(entry->name, arg) == 0 ||
           strcmp(entry->path, path) == 0;
}

static int make_heard(const struct rundir_entry *entry, struct run_view *ret,
                      struct error *e)
{
    struct run_view v = {.is_silent = true};
    int rc;

    v.dir = calloc(1, sizeof(*v.dir));
    if (!v.dir) {
        return error_set(e, ENOMEM, "ask a run");
    }
    str_copy(v.dir->path, sizeof(v.dir->path), entry->path);
    str_copy(v.dir->id, sizeof(v.dir->id), entry->id);
    str_copy(v.dir->name, sizeof(v.dir->name), entry->name);
    v.dir->created_ns = entry->entered_ns;
    v.dir->lock_fd = -1;
    rc = run_view_make_fresh(&v, e);
    if (rc < 0) {
        run_view_release(&v);
        return rc;
    }
    *ret = v;
    return 0;
}

int run_view_heard(const char *arg, struct run_view *ret, struct error *e)
{
    _free_ struct rundir_entry *entries = NULL;
    char path[PATH_MAX] = "";
    size_t n = 0;
    int rc = rundir_index(NULL, &entries, &n, e);

    if (arg && rc == 0) {
        rc = make_absolute(arg, path, sizeof(path));
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if ((!arg || is_meant(&entries[i], arg, path)) &&
            control_is_heard(entries[i].id)) {
            return make_heard(&entries[i], ret, e);
        }
    }
    return error_text(e, ENOENT, "nobody of that run is on this host");
}
