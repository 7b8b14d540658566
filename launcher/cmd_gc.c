/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster gc: removes what dead runs left. Without options only what nobody can
 * use any more: on this host the sockets, locks and processes of agents that
 * were killed together with their watch, and entries of runs whose directory is
 * gone. With --older-than or --keep also the directories of runs that are over.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/proc_env.h"
#include "base/str.h"
#include "launcher/gc_memory.h"
#include "launcher/options.h"
#include "launcher/runindex.h"
#include "launcher/runview.h"
#include "launcher/show.h"
#include "launcher/snap_budget.h"
#include "spec/value.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* A directory without anybody in it may be that of a run that starts. */
    LEAST_AGE_MS = 60 * 1000,
    SWEEP_ROUNDS = 50,
    SWEEP_PAUSE_MS = 10,
    MAX_AGENTS = 1024,
};

struct gc_options {
    uint64_t older_ms; /* 0: not given */
    int64_t keep;      /* -1: not given */
    bool with_stopped;
    bool dry_run;
};

static int take_span(void *into, const struct option_def *def,
                     const char *value, struct error *e)
{
    struct gc_options *o = into;

    (void)def;
    if (value_span(value, &o->older_ms) < 0 || o->older_ms == 0) {
        return error_text(e, ERR_USAGE, "expected a time such as 12h or 30d, "
                          "found '%.100s'", value);
    }
    return 0;
}

static int take_keep(void *into, const struct option_def *def,
                     const char *value, struct error *e)
{
    struct gc_options *o = into;

    (void)def;
    if (str_to_i64(value, &o->keep) < 0 || o->keep < 0) {
        return error_text(e, ERR_USAGE, "expected a number of runs, found "
                          "'%.100s'", value);
    }
    return 0;
}

static const struct option_def table[] = {
    {"older-than", "TIME", "remove runs that ended longer ago, e.g. 30d",
     OPTION_CALL, 0, take_span, 0},
    {"keep", "N", "remove runs that are over, but the N newest of each name",
     OPTION_CALL, 0, take_keep, 0},
    {"stopped", NULL, "also runs that were stopped and could be resumed",
     OPTION_FLAG, offsetof(struct gc_options, with_stopped), NULL, 0},
    {"dry-run", NULL, "only show what would be removed", OPTION_FLAG,
     offsetof(struct gc_options, dry_run), NULL, 'n'},
    {0},
};

static const struct options options = {
    .command = "gc",
    .usage = "[NAME] [OPTION...]",
    .about = "Removes what runs left that were killed on this host, and "
             "entries of runs whose directory is gone. Directories of runs "
             "are removed only where --older-than or --keep asks for it, and "
             "only once the run is over; with both a run must meet both. With "
             "NAME only runs of that name are looked at.",
    .table = table,
    .max_args = 1,
};

struct gc {
    const struct gc_options *o;
    const char *name; /* NULL: all */
    size_t n_removed, n_failed;
    struct proc_env env; /* who asks processes whose they are */
};

static void tell(struct gc *gc, const char *what, const char *path)
{
    _buf_ struct buf text = {0};

    show_clean(&text, path, strlen(path));
    printf("%s%s %s\n", gc->o->dry_run ? "would remove " : "removed ", what,
           buf_str(&text));
    gc->n_removed++;
}

static void fail(struct gc *gc, const struct error *e)
{
    command_fail(e);
    gc->n_failed++;
}

static void tell_silent(void *arg, const struct proc *p)
{
    char text[256];

    (void)arg;
    proc_env_word(p, text, sizeof(text));
    fprintf(stderr, "muster: %s; it is left alone\n", text);
}

/* --- what killed agents left on this host --- */

/* The processes of the agents that had a lock in there. */
static void sweep_workers(struct gc *gc, const char *dir, const char *run)
{
    char path[PATH_MAX], entry[RUNDIR_ID_SIZE + 64];

    for (unsigned i = 0; i < MAX_AGENTS; i++) {
        if (fs_path(path, sizeof(path), NULL, "%s/agent-%u.lock", dir, i) < 0 ||
            access(path, F_OK) < 0) {
            continue;
        }
        snprintf(entry, sizeof(entry), "MUSTER_AGENT=%.*s.%u", RUNDIR_ID_SIZE,
                 run, i);
        for (int round = 0;
             round < SWEEP_ROUNDS && proc_sweep_env(&gc->env, entry, NULL) > 0;
             round++) {
            poll(NULL, 0, SWEEP_PAUSE_MS);
        }
    }
}

static bool is_young(const char *path)
{
    struct stat st;
    uint64_t now_s = clock_wall_ns() / 1000000000u;

    return stat(path, &st) < 0 ||
           (uint64_t)st.st_mtim.tv_sec + LEAST_AGE_MS / 1000 > now_s;
}

static void collect_leftover(struct gc *gc, const char *base, const char *run)
{
    struct error e = {0};
    char dir[PATH_MAX];
    int rc;

    if (fs_path(dir, sizeof(dir), NULL, "%s/%s", base, run) < 0 ||
        is_young(dir)) {
        return;
    }
    rc = leftover_is_inhabited(dir, &e);
    if (rc == 0 && !gc->o->dry_run) {
        sweep_workers(gc, dir, run);
        rc = leftover_remove(dir, &e) - 1;
    }
    if (rc == 0) {
        tell(gc, "what a killed run left in", dir);
    } else if (rc < -1) {
        fail(gc, &e);
    }
}

static void collect_leftovers(struct gc *gc)
{
    struct error e = {0};
    char base[PATH_MAX];
    const struct dirent *d;
    DIR *dir;

    if (fs_runtime_dir(base, sizeof(base), &e) < 0) {
        fail(gc, &e);
        return;
    }
    dir = opendir(base);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] != '.') {
            collect_leftover(gc, base, d->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static void tell_memory(void *arg, const char *path)
{
    tell(arg, "memory of a run in", path);
}

static void fail_memory(void *arg, const struct error *e)
{
    fail(arg, e);
}

static void collect_memory(struct gc *gc)
{
    gc_memory_collect(&(struct gc_memory){
        .dry_run = gc->o->dry_run, .with_stopped = gc->o->with_stopped,
        .tell = tell_memory, .fail = fail_memory, .arg = gc});
}

/* --- runs --- */

static bool may_go(const struct gc *gc, const struct run_view *v,
                   size_t n_newer)
{
    const struct run_status *s = v->status;
    uint64_t ended = s->ended_ns ? s->ended_ns : s->updated_ns;
    uint64_t now = clock_wall_ns();

    if (!v->has_status || v->is_locked || !status_run_is_over(s->state) ||
        s->state == STATUS_SUSPENDED ||
        (s->state == STATUS_STOPPED && !gc->o->with_stopped)) {
        return false;
    }
    if (gc->o->older_ms &&
        (ended > now || (now - ended) / 1000000u < gc->o->older_ms)) {
        return false;
    }
    return gc->o->keep < 0 || n_newer >= (size_t)gc->o->keep;
}

static void collect_run(struct gc *gc, const struct rundir_entry *entry,
                        size_t n_newer)
{
    _run_view_ struct run_view v = {0};
    struct error e = {0};

    if (run_view_entry_is_gone(entry, RUN_VIEW_BRIEF_MS)) {
        if (!gc->o->dry_run) {
            runindex_remove(entry);
        }
        tell(gc, "the entry of a run that is gone,", entry->path);
        return;
    }
    if ((!gc->o->older_ms && gc->o->keep < 0) ||
        run_view_open(entry->path, &v, &e) < 0 || !may_go(gc, &v, n_newer)) {
        return;
    }
    if (!gc->o->dry_run) {
        if (rundir_lock(v.dir, &e) < 0 ||
            fs_remove_tree(entry->path, &e) < 0) {
            fail(gc, &e);
            return;
        }
        runindex_remove(entry);
        snap_dir_remove(v.dir->id, NULL);
    }
    tell(gc, "run", entry->path);
}

/* How many entries before `i` are of its name: they are newer. */
static size_t count_newer(const struct rundir_entry *entries, size_t i)
{
    size_t n = 0;

    for (size_t j = 0; j < i; j++) {
        n += strcmp(entries[j].name, entries[i].name) == 0;
    }
    return n;
}

static void collect_runs(struct gc *gc)
{
    _free_ struct rundir_entry *entries = NULL;
    struct error e = {0};
    size_t n = 0;

    if (rundir_index(gc->name, &entries, &n, &e) < 0) {
        fail(gc, &e);
    } else if (gc->name && n == 0) {
        show_no_runs(gc->name);
    }
    for (size_t i = 0; i < n; i++) {
        collect_run(gc, &entries[i], count_newer(entries, i));
    }
}

int cmd_gc(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct gc_options set = {.keep = -1};
    struct gc gc = {.o = &set, .env.on_silent = tell_silent};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    gc.name = args.words.n ? args.words.items[0] : NULL;
    if (!gc.name) {
        collect_leftovers(&gc);
        collect_memory(&gc);
    }
    collect_runs(&gc);
    proc_env_release(&gc.env);
    if (gc.n_removed == 0) {
        puts("nothing to remove");
    }
    return gc.n_failed ? EXIT_FAILED : EXIT_OK;
}
