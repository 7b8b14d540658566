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

#include <inttypes.h>
#include <stdio.h>

struct list_options {
    enum show_format format;
    int64_t limit;
};

static const struct option_def table[] = {
    {"limit", "N", "show at most N runs (50); 0 shows all", OPTION_INT,
     offsetof(struct list_options, limit), NULL, 'n'},
    SHOW_OPTION(struct list_options, format),
    {0},
};

static const struct options options = {
    .command = "list",
    .usage = "[NAME] [-n N] [-o json|yaml|wide]",
    .about = "Lists the runs of this user, the newest first, or those of one "
             "name. Runs whose directory is gone are left out.",
    .table = table,
    .max_args = 1,
};

struct listing {
    struct strlist cells;
    struct jsonw json;
    bool is_wide;
};

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

/* A run that cannot be read is named on stderr and passed over. */
static void add_run(struct listing *l, const struct rundir_entry *entry)
{
    _run_view_ struct run_view v = {0};
    struct error e = {0};

    if (run_view_open(entry->path, &v, &e) < 0) {
        fprintf(stderr, "muster: %s\n", e.text);
        return;
    }
    add_row(l, &v);
    add_json(&l->json, &v);
}

int cmd_list(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct list_options set = {.limit = 50};
    _free_ struct rundir_entry *entries = NULL;
    _buf_ struct buf json = {0}, text = {0};
    struct listing l = {.json = jsonw_start(&json)};
    struct error e = {0};
    size_t n = 0, n_shown = 0;
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    l.is_wide = set.format == SHOW_WIDE;
    if (rundir_index(args.words.n ? args.words.items[0] : NULL, &entries, &n,
                     &e) < 0) {
        return command_fail(&e);
    }
    add_head(&l);
    jsonw_array(&l.json, NULL);
    for (size_t i = 0; i < n; i++) {
        if (rundir_is_current(&entries[i]) &&
            (set.limit <= 0 || n_shown < (size_t)set.limit)) {
            add_run(&l, &entries[i]);
            n_shown++;
        }
    }
    jsonw_end_array(&l.json);
    if (set.format == SHOW_JSON || set.format == SHOW_YAML) {
        rc = show_json(&json, set.format);
    } else {
        show_table(&l.cells, l.is_wide ? 9 : 8, &text);
        fputs(n_shown ? buf_str(&text) : "", stdout);
        if (!n_shown) {
            fputs("muster: no runs\n", stderr);
        }
        rc = EXIT_OK;
    }
    strlist_release(&l.cells);
    return rc;
}
