/* SPDX-License-Identifier: Apache-2.0 */
/* muster list: the runs of this user, newest first. */
#include <config.h>

#include "launcher/commands.h"

#include "base/clock.h"
#include "base/fs.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "launcher/runview.h"
#include "launcher/show.h"
#include "launcher/live.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct list_options {
    enum show_format format;
    int64_t limit;
    bool watch;
    const char *name; /* of runs, or NULL */
};

static const struct option_def table[] = {
    {"limit", "N", "show at most N runs (50); 0 shows all", OPTION_INT,
     offsetof(struct list_options, limit), NULL, 'n'},
    SHOW_OPTION(struct list_options, format),
    WATCH_OPTION(struct list_options, watch, "go on showing what changes"),
    {0},
};

static const struct options options = {
    .command = "list",
    .usage = "[NAME] [-n N] [-w] [-o json|yaml|wide]",
    .about = "Lists the runs of this user, the newest first, or those of one "
             "name. Runs whose directory is gone are left out.",
    .table = table,
    .max_args = 1,
};

enum { N_COLUMNS = 8, ID_COLUMN = 1, AGE_COLUMN = 3, PERIOD_MS = 2000, SLOW_MS = 100 };

struct listing {
    struct strlist cells;
    struct buf json;
    struct jsonw w; /* into it */
    bool is_wide;
    bool is_slow;   /* a directory did not answer */
    size_t n;       /* runs */
};

static void listing_release(struct listing *l)
{
    strlist_release(&l->cells);
    buf_release(&l->json);
}

static size_t n_columns(const struct listing *l)
{
    return N_COLUMNS + l->is_wide;
}

static void add_head(struct listing *l)
{
    strlist_add(&l->cells, "NAME");
    strlist_add(&l->cells, "ID");
    strlist_add(&l->cells, "STATE");
    strlist_add(&l->cells, "AGE");
    strlist_add(&l->cells, "NODES");
    strlist_add(&l->cells, "WORKERS");
    strlist_add(&l->cells, "STEP");
    strlist_add(&l->cells, "RESTARTS");
    if (l->is_wide) {
        strlist_add(&l->cells, "DIRECTORY");
    }
}

static void add_row(struct listing *l, const struct run_view *v)
{
    const struct run_status *s = v->status;
    uint64_t now = clock_wall_ns();
    char age[32];

    clock_format_span(now > v->dir->created_ns
                          ? (now - v->dir->created_ns) / 1000000u : 0,
                      age, sizeof(age));
    strlist_add(&l->cells, v->dir->name);
    strlist_add(&l->cells, v->dir->id);
    strlist_addf(&l->cells, "%s%s", status_run_name(s->state),
                 v->is_stale ? " (stale)" : "");
    strlist_add(&l->cells, age);
    strlist_addf(&l->cells, "%zu", s->n_nodes);
    strlist_addf(&l->cells, "%zu", s->n_workers);
    if (s->step >= 0) {
        strlist_addf(&l->cells, "%" PRId64, s->step);
    } else {
        strlist_add(&l->cells, "-");
    }
    strlist_addf(&l->cells, "%d", s->restarts);
    if (l->is_wide) {
        strlist_add(&l->cells, v->dir->path);
    }
}

static void add_json(struct jsonw *w, const struct run_view *v)
{
    const struct run_status *s = v->status;

    jsonw_object(w, NULL);
    jsonw_str(w, "name", v->dir->name);
    jsonw_str(w, "id", v->dir->id);
    jsonw_str(w, "state", status_run_name(s->state));
    jsonw_bool(w, "stale", v->is_stale);
    jsonw_bool(w, "locked", v->is_locked);
    jsonw_time(w, "created", v->dir->created_ns);
    jsonw_int(w, "n_nodes", (int64_t)s->n_nodes);
    jsonw_int(w, "n_workers", (int64_t)s->n_workers);
    if (s->step >= 0) {
        jsonw_int(w, "step", s->step);
    }
    jsonw_int(w, "restarts", s->restarts);
    if (s->verdict.is_set) {
        jsonw_int(w, "exit_status", s->verdict.exit_status);
    }
    jsonw_str(w, "run_dir", v->dir->path);
    jsonw_end_object(w);
}

/* A run that cannot be read is named on stderr and passed over; false where it is
 * gone. Once one did not answer, others are not waited for that long. */
static bool add_run(struct listing *l, const struct rundir_entry *entry)
{
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int rc = run_view_entry(entry, l->is_slow ? SLOW_MS : RUN_VIEW_BRIEF_MS, &v,
                            &e);

    if (rc == 0) {
        add_row(l, &v);
        add_json(&l->w, &v);
        l->n++;
    } else if (rc != -ENOENT) {
        fprintf(stderr, "muster: %s\n", e.text);
    }
    l->is_slow = l->is_slow || rc == -ETIMEDOUT;
    return rc != -ENOENT;
}

static int list_runs(const struct list_options *set, struct listing *l,
                     struct error *e)
{
    _free_ struct rundir_entry *entries = NULL;
    size_t n = 0, n_tried = 0;
    int rc = rundir_index(set->name, &entries, &n, e);

    l->w = jsonw_start(&l->json);
    l->is_wide = set->format == SHOW_WIDE;
    add_head(l);
    jsonw_array(&l->w, NULL);
    for (size_t i = 0; i < n; i++) {
        if (set->limit == 0 || n_tried < (size_t)set->limit) {
            n_tried += add_run(l, &entries[i]);
        }
    }
    jsonw_end_array(&l->w);
    return rc;
}

static int show_once(const struct list_options *set, struct error *e)
{
    __attribute__((cleanup(listing_release))) struct listing l = {0};
    _buf_ struct buf text = {0};

    if (list_runs(set, &l, e) < 0) {
        return command_fail(e);
    }
    if (set->format == SHOW_JSON || set->format == SHOW_YAML) {
        return show_json(&l.json, set->format);
    }
    show_table(&l.cells, n_columns(&l), &text);
    fputs(l.n ? buf_str(&text) : "", stdout);
    if (!l.n) {
        show_no_runs(set->name);
    }
    return EXIT_OK;
}

/* Age is no news, and runs come and go: this is never over. */
static int look(void *arg, struct live_look *ret, struct error *e)
{
    static const char *const restless[] = {NULL};
    __attribute__((cleanup(listing_release))) struct listing l = {0};
    const struct list_options *set = arg;
    int rc = list_runs(set, &l, e);

    if (set->format == SHOW_JSON) {
        live_add_objects(ret, &l.json, "id", restless);
    } else {
        live_add_table(ret, &l.cells, n_columns(&l), ID_COLUMN,
                        1u << AGE_COLUMN);
    }
    return rc;
}

int cmd_list(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct list_options set = {.limit = 50};
    struct live w = {.look = look, .arg = &set, .period_ms = PERIOD_MS};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    set.name = args.words.n ? args.words.items[0] : NULL;
    if (set.limit < 0) {
        error_text(&e, ERR_USAGE, "option --limit: expected a number of runs, "
                   "or 0 for all, found %lld", (long long)set.limit);
        return command_fail(&e);
    }
    if (show_check_watch(set.watch, set.format, &e) < 0) {
        return command_fail(&e);
    }
    w.has_lines = set.format == SHOW_JSON;
    return !set.watch ? show_once(&set, &e)
           : live_run(&w, &e) < 0 ? command_fail(&e) : EXIT_OK;
}
