/* SPDX-License-Identifier: Apache-2.0 */
/* muster status: one run, from its status.json. */
#include <config.h>

#include "launcher/commands.h"

#include "base/clock.h"
#include "launcher/options.h"
#include "launcher/progress.h"
#include "launcher/run_text.h"
#include "launcher/runview.h"
#include "launcher/show.h"
#include "launcher/live.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FEW_WORKERS = 16, PERIOD_MS = 1000, LINE_COLUMNS = 200 };

struct status_options {
    enum show_format format;
    bool watch;
};

static const struct option_def table[] = {
    SHOW_OPTION(struct status_options, format),
    WATCH_OPTION(struct status_options, watch, "go on showing what changes, "
                 "until the run is over"),
    {0},
};

static const struct options options = {
    .command = "status",
    .usage = "[RUN] [-w] [-o json|yaml|wide]",
    .about = "Shows the state of a run: its nodes, workers, progress, and the "
             "first failure. RUN is a run directory, a run id or a name (its "
             "newest run); without it the newest run is shown.",
    .table = table,
    .max_args = 1,
};

static void put_text(const struct run_view *v, enum show_format format,
                     struct buf *to)
{
    run_text_head(to, v);
    run_text_nodes(to, v->status);
    if (v->status->n_workers &&
        (format == SHOW_WIDE || v->status->n_workers <= FEW_WORKERS)) {
        run_text_workers(to, v->status);
    }
}

static int show_once(const struct run_view *v, enum show_format format)
{
    _buf_ struct buf text = {0};

    if (format == SHOW_JSON || format == SHOW_YAML) {
        run_view_json(v, &text);
        return show_json(&text, format);
    }
    put_text(v, format, &text);
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}

/* --- watching --- */

struct watched {
    struct run_view *view;
    enum show_format format;
    struct stat seen; /* of status.json, when it was read */
    uint64_t read_ns;
};

/* Asking for the times of a file costs next to nothing, reading the status of a
 * large run does not. Who holds the lock is asked now and then. */
static int refresh(struct watched *w, struct error *e)
{
    char path[PATH_MAX];
    struct stat st = {0};
    uint64_t now = clock_wall_ns();
    int rc = rundir_path(w->view->dir, path, sizeof(path), e, "status.json");

    if (rc < 0) {
        return rc;
    }
    if (stat(path, &st) == 0 && st.st_ino == w->seen.st_ino &&
        st.st_mtim.tv_sec == w->seen.st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == w->seen.st_mtim.tv_nsec &&
        now - w->read_ns < STATUS_REFRESH_MS * 1000000ull) {
        return 0;
    }
    w->seen = st;
    w->read_ns = now;
    return run_view_refresh(w->view, e);
}

static void put_progress(const struct run_view *v, uint64_t elapsed_ms,
                         struct buf *to)
{
    struct progress_view p = progress_view(v->status, elapsed_ms);

    progress_line(&p, LINE_COLUMNS, to);
    buf_puts(to, v->is_stale ? ", stale" : "");
}

static void add_line(const struct run_view *v, struct live_look *ret)
{
    const struct run_status *s = v->status;
    _buf_ struct buf line = {0}, mark = {0};

    put_progress(v, 0, &mark);
    put_progress(v, run_status_elapsed_ms(s, clock_wall_ns()), &line);
    live_add(ret, s->id, buf_str(&mark), buf_str(&line));
}

static void add_json(const struct run_view *v, struct live_look *ret)
{
    static const char *const restless[] = {"updated", "ran", "elapsed", NULL};
    _buf_ struct buf text = {0};

    buf_putc(&text, '[');
    run_view_json(v, &text);
    buf_putc(&text, ']');
    live_add_objects(ret, &text, "id", restless);
}

static int look(void *arg, struct live_look *ret, struct error *e)
{
    struct watched *w = arg;
    int rc = refresh(w, e);

    if (rc < 0) {
        return rc;
    }
    if (w->format == SHOW_JSON) {
        add_json(w->view, ret);
    } else {
        put_text(w->view, w->format, &ret->screen);
        add_line(w->view, ret);
    }
    ret->is_over = !run_view_is_alive(w->view);
    return 0;
}

static int watch(struct run_view *v, enum show_format format)
{
    struct watched watched = {.view = v, .format = format};
    struct live w = {.look = look, .arg = &watched, .period_ms = PERIOD_MS,
                      .dir = v->dir->path, .has_lines = format == SHOW_JSON};
    struct error e = {0};

    return live_run(&w, &e) < 0 ? command_fail(&e) : EXIT_OK;
}

int cmd_status(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct status_options set = {0};
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (show_check_watch(set.watch, set.format, &e) < 0 ||
        run_view_load(args.words.n ? args.words.items[0] : NULL, &v, &e) < 0) {
        return command_fail(&e);
    }
    return set.watch ? watch(&v, set.format) : show_once(&v, set.format);
}
