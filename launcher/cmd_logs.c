/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster logs: what workers printed, from the files of logs_files.h. Lines carry
 * no times, so that a finished generation is shown rank by rank, or node by node; with
 * -f lines come as they are written, those of all ranks together. Files are
 * looked at again by a timer: a run directory on NFS sends no notifications, and
 * thousands of open files are no way to wait.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/logs_files.h"
#include "launcher/options.h"
#include "launcher/progress.h"
#include "launcher/runview.h"
#include "launcher/since.h"
#include "spec/rank_set.h"
#include "spec/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { LOOK_MS = 200, LOOK_STATUS_EVERY = 5 };

#define NEWEST INT64_MAX

struct logs_options {
    struct logs_choice choice;
    int64_t generation; /* 0: the newest */
    const char *since;
    bool follow, no_label, previous;
};

static const struct option_def table[] = {
    {"rank", "R", "only this rank, or those of a list such as 0,3-5; may be "
     "repeated", OPTION_LIST, offsetof(struct logs_options, choice.ranks), NULL,
     'r'},
    {"generation", "G", "of this generation; the newest without it",
     OPTION_INT, offsetof(struct logs_options, generation), NULL, 'g'},
    {"previous", NULL, "of the generation before the newest", OPTION_FLAG,
     offsetof(struct logs_options, previous), NULL, 'p'},
    {"stdout", NULL, "only standard output", OPTION_FLAG,
     offsetof(struct logs_options, choice.only_stdout), NULL, 0},
    {"stderr", NULL, "only standard error", OPTION_FLAG,
     offsetof(struct logs_options, choice.only_stderr), NULL, 0},
    {"since", "DURATION|TIME", "only what was printed in so long (5m), or from "
     "then on (2026-11-22T08:00:00)", OPTION_STR,
     offsetof(struct logs_options, since), NULL, 0},
    {"follow", NULL, "go on as more is written, until the run is over",
     OPTION_FLAG, offsetof(struct logs_options, follow), NULL, 'f'},
    {"no-label", NULL, "do not put the rank before each line", OPTION_FLAG,
     offsetof(struct logs_options, no_label), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "logs",
    .usage = "[RUN] [-r R]... [-g G|-p] [--since T] [-f] [OPTION...]",
    .about = "Prints what the workers of a run printed, each line behind its "
             "rank. RUN is a run directory, a run id or a name; without it, "
             "the newest run.",
    .table = table,
    .max_args = 1,
};

struct logs {
    const struct logs_options *set;
    struct run_view *run;
    struct progress *out;
    struct logs_files files;
    unsigned n_looks;
    uv_timer_t timer;
    int rc;
};

static int64_t newest_generation(const struct logs *l)
{
    return logs_newest_generation(l->run->dir, INT64_MAX);
}

/* The same, also where its workers have printed nothing. */
static int64_t newest_begun(const struct logs *l)
{
    int64_t newest = newest_generation(l);

    return l->run->status->generation > newest ? l->run->status->generation
                                               : newest;
}

static void show_piece(void *arg, unsigned rank, bool is_err, const char *data,
                       size_t len)
{
    struct logs *l = arg;
    const struct progress_source from = {
        .generation = (uint32_t)l->files.generation,
        .stream = 2 * rank + is_err,
    };
    char label[32] = "";

    if (!l->set->no_label) {
        snprintf(label, sizeof(label), "[%u] ", rank);
    }
    progress_output(l->out, &from, label, data, len);
}

static bool show_all(struct logs *l)
{
    bool shown = false;

    for (size_t i = 0; i < l->files.n; i++) {
        shown |= logs_files_show(&l->files, i, show_piece, l);
        if (!l->set->follow) {
            progress_flush(l->out);
        }
    }
    return shown;
}

static void note_flaws(const struct logs *l)
{
    struct logs_flaws flaws = logs_files_flaws(&l->files);

    if (flaws.n_without_times) {
        fprintf(stderr, "muster: %zu log%s no times (NAME.times): shown "
                "whole\n", flaws.n_without_times,
                flaws.n_without_times == 1 ? " has" : "s have");
    }
    if (flaws.n_with_gaps) {
        fprintf(stderr, "muster: of %zu log%s a part was removed before it was "
                "shown (logs.maxSize, logs.keep)\n", flaws.n_with_gaps,
                flaws.n_with_gaps == 1 ? "" : "s");
    }
}

/* Goes on with the next generation once the one shown has nothing more. */
static void next_generation(struct logs *l)
{
    int64_t newest = l->set->generation ? l->files.generation
                                        : newest_generation(l);

    if (newest > l->files.generation) {
        progress_flush(l->out);
        note_flaws(l);
        if (l->files.generation) {
            fprintf(stderr, "muster: generation %" PRId64 "\n", newest);
        }
        logs_files_release(&l->files);
        l->files.generation = newest;
    }
}

/* Whether there will be nothing more. */
static bool is_over(struct logs *l)
{
    struct error e = {0};

    if (run_view_refresh(l->run, &e) < 0) {
        l->rc = command_fail(&e);
        return true;
    }
    if (status_run_is_over(l->run->status->state)) {
        return true;
    }
    if (!run_view_is_alive(l->run)) {
        fprintf(stderr, "muster: run %s is not alive: nothing more will come\n",
                l->run->dir->id);
        return true;
    }
    return false;
}

static void look(uv_timer_t *t)
{
    struct logs *l = t->data;
    bool over = l->n_looks++ % LOOK_STATUS_EVERY == 0 && is_over(l);
    bool shown;

    if (logs_files_find(&l->files) < 0) {
        l->rc = EXIT_FAILED;
        over = true;
    }
    shown = show_all(l);
    if (!shown) {
        next_generation(l);
    }
    if (progress_error(l->out) || (over && !shown)) {
        uv_close((uv_handle_t *)t, NULL);
    } else if (over) {
        l->n_looks = 0; /* until a look finds nothing new */
    }
}

static int follow(struct logs *l)
{
    uv_loop_t loop;

    if (uv_loop_init(&loop) < 0) {
        return EXIT_FAILED;
    }
    uv_timer_init(&loop, &l->timer);
    l->timer.data = l;
    uv_timer_start(&l->timer, look, 0, LOOK_MS);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return l->rc;
}

static int show_once(struct logs *l)
{
    if (logs_files_find(&l->files) < 0) {
        return EXIT_FAILED;
    }
    show_all(l);
    return EXIT_OK;
}

/* That there is no such generation, or that none of the ranks is there. True if so. */
static bool note_wrong_choice(const struct logs *l)
{
    const struct run_status *s = l->run->status;
    int64_t newest = newest_begun(l);

    if (newest && l->files.generation > newest) {
        fprintf(stderr, "muster: run %s has no generation %" PRId64 ": %" PRId64
                " is the newest\n", l->run->dir->id, l->files.generation,
                newest);
        return true;
    }
    if (l->files.generation != s->generation || s->n_workers == 0) {
        return false;
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        if (logs_is_wanted(&l->set->choice, (unsigned)i)) {
            return false;
        }
    }
    fprintf(stderr, "muster: run %s has no such rank: it has %zu worker%s, from "
            "rank 0 on\n", l->run->dir->id, s->n_workers,
            s->n_workers == 1 ? "" : "s");
    return true;
}

/* That the newest generation has printed nothing on hosts whose logs are here. */
static void note_silent(const struct logs *l)
{
    const struct run_status *s = l->run->status;
    bool shows_older = !l->set->generation && !l->set->previous &&
                       l->files.generation < s->generation;

    if (shows_older || (l->files.generation == s->generation &&
                        newest_generation(l) < s->generation)) {
        fprintf(stderr, "muster: run %s: generation %d has printed nothing "
                "here%s", l->run->dir->id, s->generation,
                status_run_is_over(s->state) ? "" : " yet");
        if (shows_older) {
            fprintf(stderr, ": this is generation %" PRId64,
                    l->files.generation);
        }
        fputc('\n', stderr);
    }
}

/* Ranks whose logs are elsewhere: each node keeps its own where the run directory
 * is not shared. A rank without a log on a node that has others, or on this machine,
 * was silent. True if there are any. */
static bool note_missing(const struct logs *l)
{
    const struct run_status *s = l->run->status;
    char own[256] = "";
    _free_ bool *here = calloc(s->n_nodes + 1, sizeof(*here));
    size_t n_missing = 0, first = 0;

    if (l->files.generation > 0 && l->files.generation < s->generation &&
        logs_newest_generation(l->run->dir, l->files.generation + 1) !=
            l->files.generation) {
        fprintf(stderr, "muster: run %s has no logs of generation %lld here; of "
                "older ones logs.generations says how many are kept\n",
                l->run->dir->id, (long long)l->files.generation);
    }
    if (!here || l->files.generation != s->generation) {
        return false;
    }
    gethostname(own, sizeof(own) - 1);
    for (size_t i = 0; i < s->n_nodes; i++) {
        here[i] = logs_files_has_node(&l->files, i) ||
                  strcmp(s->nodes[i].host, own) == 0;
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        size_t node = (size_t)s->workers[i].node;

        here[node < s->n_nodes ? node : s->n_nodes] |=
            logs_files_has_rank(&l->files, i);
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        size_t node = (size_t)s->workers[i].node;

        if (s->workers[i].state != STATUS_WORKER_WAITING &&
            logs_is_wanted(&l->set->choice, (unsigned)i) &&
            !here[node < s->n_nodes ? node : s->n_nodes]) {
            first = n_missing++ ? first : i;
        }
    }
    if (n_missing) {
        fprintf(stderr, "muster: no log of %zu rank%s here (rank %zu first): "
                "where the run directory is not shared, look on their hosts\n",
                n_missing, n_missing == 1 ? "" : "s", first);
    }
    return n_missing > 0;
}

static int check_options(const struct logs_options *set, struct error *e)
{
    const struct logs_choice *c = &set->choice;

    for (size_t i = 0; i < c->ranks.n; i++) {
        if (!rank_set_is_valid(c->ranks.items[i])) {
            return error_text(e, ERR_USAGE, "option --rank: expected a rank, "
                              "or ranks such as 0,3-5, found '%.100s'",
                              c->ranks.items[i]);
        }
    }
    if (set->generation < 0 || (c->only_stdout && c->only_stderr) ||
        (set->previous && (set->generation || set->follow))) {
        return error_text(e, ERR_USAGE, "expected a generation from 1 on, one "
                          "of --stdout and --stderr at most, and --previous "
                          "without --generation and --follow");
    }
    return 0;
}

/* By the spec that the run keeps. */
static bool keeps_no_files(const struct rundir *dir)
{
    static const struct place at = {.file = "spec.yaml"};
    struct arena arena = {0};
    struct report report = {0};
    const struct node *files = NULL;
    _free_ char *text = NULL;
    char path[PATH_MAX];
    bool none;

    if (rundir_path(dir, path, sizeof(path), NULL, "spec.yaml") == 0 &&
        fs_read_regular(path, YAML_MAX_BYTES, &text, NULL, NULL) == 0) {
        files = node_get_path(yaml_load_value(&arena, text, &at, &report),
                              "logs.files");
    }
    none = files && files->kind == NODE_SCALAR &&
           strcmp(files->text, "none") == 0;
    report_release(&report);
    arena_release(&arena);
    return none;
}

static void choose_generation(struct logs *l)
{
    int64_t newest = newest_generation(l);

    if (newest == 0 && !l->set->follow) {
        newest = l->run->status->generation; /* to say who was silent */
    }
    l->files.generation = l->set->generation ? l->set->generation
                          : l->set->previous
                          ? logs_newest_generation(l->run->dir, newest_begun(l))
                          : newest;
}

/* Over, or one whose nodes never came: it has no status, and no front end. */
static bool starts_no_more(const struct run_view *v)
{
    return status_run_is_over(v->status->state) ||
           (v->status->state == STATUS_CREATED && !v->is_locked);
}

/* Says what is not there, and why. False if it never will be. */
static bool note_none(const struct logs *l)
{
    const char *id = l->run->dir->id;

    if (keeps_no_files(l->run->dir)) {
        fprintf(stderr, "muster: run %s keeps no files of what its workers "
                "print (logs.files is none)\n", id);
        return false;
    }
    if (l->files.generation == 0 && !l->set->follow) {
        fprintf(stderr, "muster: run %s has no logs%s\n", id,
                l->set->previous ? " of an earlier generation"
                : starts_no_more(l->run)
                    ? ": none of its workers was started" : " yet");
    }
    return true;
}

static int show_run(struct logs *l)
{
    struct error e = {0};
    int rc;

    choose_generation(l);
    if ((l->files.generation == 0 || newest_generation(l) == 0 ||
         l->set->generation) && !note_none(l)) {
        return EXIT_OK;
    }
    rc = l->set->follow ? follow(l) : show_once(l);
    progress_flush(l->out);
    note_flaws(l);
    if (progress_error(l->out) && progress_error(l->out) != EPIPE) {
        error_set(&e, progress_error(l->out), "write to standard output");
        rc = command_fail(&e);
    } else if (rc == EXIT_OK && !l->set->follow && l->files.generation > 0 &&
               !note_wrong_choice(l) && !note_missing(l)) {
        note_silent(l);
    }
    return rc;
}

static int show_logs(const struct logs_options *set, const char *run)
{
    _run_view_ struct run_view v = {0};
    struct logs l = {.set = set, .run = &v, .files.choice = &set->choice};
    struct error e = {0};
    int rc = EXIT_FAILED;

    if (check_options(set, &e) < 0 ||
        (set->since && since_parse(set->since, clock_wall_ns(),
                                   &l.files.since_ns, &e) < 0) ||
        run_view_load(run, &v, &e) < 0) {
        return command_fail(&e);
    }
    l.files.dir = v.dir;
    l.out = progress_create(STDOUT_FILENO, -1);
    if (l.out) {
        rc = show_run(&l);
    }
    progress_destroy(l.out);
    logs_files_release(&l.files);
    return rc;
}

int cmd_logs(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct logs_options set = {.generation = NEWEST};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        set.generation = set.generation == NEWEST ? 0
                         : set.generation ? set.generation : -1;
        rc = show_logs(&set, args.words.n ? args.words.items[0] : NULL);
    }
    strlist_release(&set.choice.ranks);
    return rc;
}
