/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster logs: what workers printed, from <run dir>/logs/GENERATION/RANK/. The
 * files carry no times, so that a finished generation is shown rank by rank; with
 * -f lines come as they are written, those of all ranks together. Files are
 * looked at again by a timer: a run directory on NFS sends no notifications, and
 * thousands of open files are no way to wait.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/options.h"
#include "launcher/progress.h"
#include "launcher/runview.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { CHUNK = 65536, LOOK_MS = 200, LOOK_STATUS_EVERY = 5, MAX_RANKS = 65536 };

struct logs_options {
    struct strlist ranks;
    int64_t generation;
    bool only_stdout, only_stderr;
    bool follow, no_label;
};

static const struct option_def table[] = {
    {"rank", "R", "only this rank; may be repeated", OPTION_LIST,
     offsetof(struct logs_options, ranks), NULL, 'r'},
    {"generation", "G", "of this generation; the newest without it",
     OPTION_INT, offsetof(struct logs_options, generation), NULL, 'g'},
    {"stdout", NULL, "only standard output", OPTION_FLAG,
     offsetof(struct logs_options, only_stdout), NULL, 0},
    {"stderr", NULL, "only standard error", OPTION_FLAG,
     offsetof(struct logs_options, only_stderr), NULL, 0},
    {"follow", NULL, "go on as more is written, until the run is over",
     OPTION_FLAG, offsetof(struct logs_options, follow), NULL, 'f'},
    {"no-label", NULL, "do not put the rank before each line", OPTION_FLAG,
     offsetof(struct logs_options, no_label), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "logs",
    .usage = "[RUN] [-r R]... [-g G] [--stdout|--stderr] [-f]",
    .about = "Prints what the workers of a run printed, each line behind its "
             "rank. RUN is a run directory, a run id or a name; without it, "
             "the newest run.",
    .table = table,
    .max_args = 1,
};

/* One file, and how much of it was shown. */
struct source {
    unsigned rank;
    bool is_err;
    off_t at;
};

struct logs {
    const struct logs_options *set;
    struct run_view *run;
    struct progress *out;
    int64_t generation;
    struct source *sources;
    size_t n_sources;
    unsigned n_looks;
    uv_timer_t timer;
    int rc;
};

static bool is_wanted(const struct logs_options *set, const char *rank)
{
    for (size_t i = 0; i < set->ranks.n; i++) {
        if (strcmp(set->ranks.items[i], rank) == 0) {
            return true;
        }
    }
    return set->ranks.n == 0;
}

/* The newest number that is the name of a directory below logs/, or 0. */
static int64_t newest_generation(const struct logs *l)
{
    char path[PATH_MAX];
    int64_t newest = 0, n;
    struct dirent *d;
    DIR *dir;

    if (rundir_path(l->run->dir, path, sizeof(path), NULL, "logs") < 0) {
        return 0;
    }
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        if (str_to_i64(d->d_name, &n) == 0 && n > newest) {
            newest = n;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return newest;
}

static int by_rank(const void *left, const void *right)
{
    const struct source *a = left, *b = right;

    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1)
                              : a->is_err - b->is_err;
}

static bool has_source(const struct logs *l, unsigned rank, bool is_err)
{
    struct source key = {.rank = rank, .is_err = is_err};

    return l->n_sources && bsearch(&key, l->sources, l->n_sources, sizeof(key),
                                   by_rank);
}

/* Adds those of one rank that are new; the array stays unsorted until the end of
 * the scan, whose new part starts at `n_known`. */
static int add_sources(struct logs *l, struct source **grown, size_t *n,
                       unsigned rank)
{
    for (int is_err = 0; is_err < 2; is_err++) {
        struct source *more;

        if ((is_err ? l->set->only_stdout : l->set->only_stderr) ||
            has_source(l, rank, is_err)) {
            continue;
        }
        more = reallocarray(*grown, *n + 1, sizeof(*more));
        if (!more) {
            return -ENOMEM;
        }
        more[(*n)++] = (struct source){.rank = rank, .is_err = is_err};
        *grown = more;
    }
    return 0;
}

static int merge_sources(struct logs *l, struct source *more, size_t n)
{
    struct source *all = reallocarray(l->sources, l->n_sources + n,
                                      sizeof(*all));

    if (!all) {
        return -ENOMEM;
    }
    memcpy(all + l->n_sources, more, n * sizeof(*more));
    l->sources = all;
    l->n_sources += n;
    qsort(all, l->n_sources, sizeof(*all), by_rank);
    return 0;
}

/* Looks for ranks that have come since. */
static int find_sources(struct logs *l)
{
    char path[PATH_MAX];
    _free_ struct source *more = NULL;
    size_t n = 0;
    struct dirent *d;
    uint64_t rank;
    DIR *dir;
    int rc = 0;

    if (rundir_path(l->run->dir, path, sizeof(path), NULL, "logs/%" PRId64,
                    l->generation) < 0) {
        return 0;
    }
    dir = opendir(path);
    while (dir && rc == 0 && (d = readdir(dir))) {
        if (str_to_u64(d->d_name, &rank) == 0 && rank < MAX_RANKS &&
            is_wanted(l->set, d->d_name)) {
            rc = add_sources(l, &more, &n, (unsigned)rank);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return rc < 0 || n == 0 ? rc : merge_sources(l, more, n);
}

/* Prints what is new in one file. 1 if there was something. */
static int show_source(struct logs *l, struct source *s)
{
    char path[PATH_MAX], label[32] = "";
    _free_ char *data = NULL;
    _close_ int fd = -1;
    ssize_t n;
    int shown = 0;

    if (rundir_path(l->run->dir, path, sizeof(path), NULL,
                    "logs/%" PRId64 "/%u/%s", l->generation, s->rank,
                    s->is_err ? "stderr" : "stdout") < 0) {
        return 0;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    data = fd < 0 ? NULL : malloc(CHUNK);
    if (!l->set->no_label) {
        snprintf(label, sizeof(label), "[%u] ", s->rank);
    }
    while (data && (n = pread(fd, data, CHUNK, s->at)) > 0) {
        progress_output(l->out, 2 * s->rank + s->is_err, false, label, data,
                        (size_t)n);
        s->at += n;
        shown = 1;
    }
    return shown;
}

static int show_all(struct logs *l)
{
    int shown = 0;

    for (size_t i = 0; i < l->n_sources; i++) {
        shown |= show_source(l, &l->sources[i]);
        if (!l->set->follow) {
            progress_flush(l->out);
        }
    }
    return shown;
}

/* Goes on with the next generation once the one shown has nothing more. */
static void next_generation(struct logs *l)
{
    int64_t newest = l->set->generation ? l->generation : newest_generation(l);

    if (newest > l->generation) {
        progress_flush(l->out);
        if (l->generation) {
            fprintf(stderr, "muster: generation %" PRId64 "\n", newest);
        }
        l->generation = newest;
        free(l->sources);
        l->sources = NULL;
        l->n_sources = 0;
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
    int shown;

    if (find_sources(l) < 0) {
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
    if (find_sources(l) < 0) {
        return EXIT_FAILED;
    }
    show_all(l);
    return EXIT_OK;
}

static bool has_log(const struct logs *l, size_t rank)
{
    char path[PATH_MAX];

    return rundir_path(l->run->dir, path, sizeof(path), NULL,
                       "logs/%" PRId64 "/%zu", l->generation, rank) == 0 &&
           access(path, F_OK) == 0;
}

/* Ranks whose logs are elsewhere: each node keeps its own where the run directory
 * is not shared. A rank without a log on a node that has others was silent. */
static void note_missing(const struct logs *l)
{
    const struct run_status *s = l->run->status;
    _free_ bool *here = calloc(s->n_nodes + 1, sizeof(*here));
    size_t n_missing = 0, first = 0;

    if (!here || l->generation != s->generation) {
        return;
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        size_t node = (size_t)s->workers[i].node;

        here[node < s->n_nodes ? node : s->n_nodes] |= has_log(l, i);
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        size_t node = (size_t)s->workers[i].node;
        char rank[24];

        snprintf(rank, sizeof(rank), "%zu", i);
        if (s->workers[i].state != STATUS_WORKER_WAITING &&
            is_wanted(l->set, rank) &&
            !here[node < s->n_nodes ? node : s->n_nodes]) {
            first = n_missing++ ? first : i;
        }
    }
    if (n_missing) {
        fprintf(stderr, "muster: no log of %zu rank%s here (rank %zu first): "
                "where the run directory is not shared, look on their hosts\n",
                n_missing, n_missing == 1 ? "" : "s", first);
    }
}

static int check_options(const struct logs_options *set, struct error *e)
{
    uint64_t rank;

    for (size_t i = 0; i < set->ranks.n; i++) {
        if (str_to_u64(set->ranks.items[i], &rank) < 0 || rank >= MAX_RANKS) {
            return error_text(e, ERR_USAGE, "option --rank: expected a rank, "
                              "found '%.100s'", set->ranks.items[i]);
        }
    }
    if (set->generation < 0 || (set->only_stdout && set->only_stderr)) {
        return error_text(e, ERR_USAGE, "expected a generation from 1 on, and "
                          "one of --stdout and --stderr at most");
    }
    return 0;
}

static int show_logs(const struct logs_options *set, const char *run)
{
    _run_view_ struct run_view v = {0};
    struct logs l = {.set = set, .run = &v};
    struct error e = {0};
    int rc;

    if (check_options(set, &e) < 0 || run_view_load(run, &v, &e) < 0) {
        return command_fail(&e);
    }
    l.out = progress_create(STDOUT_FILENO, -1);
    l.generation = set->generation ? set->generation : newest_generation(&l);
    if (!l.out) {
        return EXIT_FAILED;
    }
    if (!set->follow && !l.generation) {
        fprintf(stderr, "muster: run %s has no logs yet\n", v.dir->id);
    }
    rc = set->follow ? follow(&l) : show_once(&l);
    progress_flush(l.out);
    if (progress_error(l.out) && progress_error(l.out) != EPIPE) {
        error_set(&e, progress_error(l.out), "write to standard output");
        rc = command_fail(&e);
    } else if (rc == EXIT_OK && !set->follow) {
        note_missing(&l);
    }
    progress_destroy(l.out);
    free(l.sources);
    return rc;
}

int cmd_logs(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct logs_options set = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        rc = show_logs(&set, args.words.n ? args.words.items[0] : NULL);
    }
    strlist_release(&set.ranks);
    return rc;
}
