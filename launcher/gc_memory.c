/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/gc_memory.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "launcher/control.h"
#include "launcher/rundir.h"
#include "launcher/runview.h"
#include "launcher/snap_budget.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* An agent makes its memory before it is heard. */
enum { LEAST_AGE_S = 60 };

struct search {
    const struct gc_memory *gc;
    struct rundir_entry *entries;
    size_t n;
};

static bool is_young(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) ||
           (uint64_t)st.st_mtim.tv_sec + LEAST_AGE_S >
               clock_wall_ns() / 1000000000u;
}

/* Where its agents of this host have their locks. */
static bool is_inhabited(const char *id)
{
    char base[PATH_MAX], dir[PATH_MAX];

    return control_is_heard(id) ||
           fs_runtime_dir(base, sizeof(base), NULL) < 0 ||
           fs_path(dir, sizeof(dir), NULL, "%s/%s", base, id) < 0 ||
           leftover_is_inhabited(dir, NULL) > 0;
}

static bool is_over(const struct search *s, const struct rundir_entry *entry)
{
    _run_view_ struct run_view v = {0};
    int rc = run_view_entry(entry, RUN_VIEW_BRIEF_MS, &v, NULL);

    if (rc < 0) {
        return rc == -ENOENT;
    }
    if (v.is_locked || !v.has_status) {
        return false;
    }
    return v.status->state == STATUS_SUCCEEDED ||
           v.status->state == STATUS_FAILED ||
           (v.status->state == STATUS_STOPPED && s->gc->with_stopped);
}

static bool is_stale(const struct search *s, const char *id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->entries[i].id, id) == 0) {
            return is_over(s, &s->entries[i]);
        }
    }
    return false; /* of another home, or another runtime directory */
}

static void collect(void *arg, const char *id)
{
    const struct search *s = arg;
    struct error e = {0};
    char path[PATH_MAX];

    if (snap_dir(id, path, sizeof(path), NULL) < 0 || is_young(path) ||
        is_inhabited(id) || !is_stale(s, id)) {
        return;
    }
    if (!s->gc->dry_run && snap_dir_remove(id, &e) < 0) {
        s->gc->fail(s->gc->arg, &e);
        return;
    }
    s->gc->tell(s->gc->arg, path);
}

void gc_memory_collect(const struct gc_memory *gc)
{
    _free_ struct rundir_entry *entries = NULL;
    struct search s = {.gc = gc};
    struct error e = {0};

    if (rundir_index(NULL, &entries, &s.n, &e) < 0) {
        gc->fail(gc->arg, &e);
        return;
    }
    s.entries = entries;
    snap_dir_each(collect, &s);
}
