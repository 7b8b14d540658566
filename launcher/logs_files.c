/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/logs_files.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "launcher/log_reader.h"
#include "spec/rank_set.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDS = 65536, MAX_LINE = 256 << 10 };

enum kind { OUT, ERR, NODE };

static const char node_prefix[] = "node-";

/* One log, and how much of it was shown. */
struct logs_file {
    enum kind kind;
    unsigned id;     /* of the rank or node */
    struct log_reader reader;
    struct buf rest; /* of a node's: not yet a line */
};

bool logs_is_wanted(const struct logs_choice *c, unsigned rank)
{
    for (size_t i = 0; i < c->ranks.n; i++) {
        if (rank_set_has(c->ranks.items[i], rank)) {
            return true;
        }
    }
    return c->ranks.n == 0;
}

static bool wants(const struct logs_choice *c, unsigned rank, bool is_err)
{
    return !(is_err ? c->only_stdout : c->only_stderr) &&
           logs_is_wanted(c, rank);
}

int64_t logs_newest_generation(const struct rundir *dir, int64_t below)
{
    char path[PATH_MAX];
    int64_t newest = 0, n;
    struct dirent *d;
    DIR *logs;

    if (rundir_path(dir, path, sizeof(path), NULL, "logs") < 0) {
        return 0;
    }
    logs = opendir(path);
    while (logs && (d = readdir(logs))) {
        if (str_to_i64(d->d_name, &n) == 0 && n > newest && n < below) {
            newest = n;
        }
    }
    if (logs) {
        closedir(logs);
    }
    return newest;
}

/* --- which there are --- */

/* Ranks first, each with standard output before standard error. */
static int by_source(const void *left, const void *right)
{
    const struct logs_file *a = left, *b = right;

    if ((a->kind == NODE) != (b->kind == NODE)) {
        return a->kind == NODE ? 1 : -1;
    }
    return a->id != b->id ? (a->id < b->id ? -1 : 1)
                          : (int)a->kind - (int)b->kind;
}

/* Adds one behind the `n_known` that are sorted, unless it is one of them. */
static int add(struct logs_files *f, size_t n_known, enum kind kind, unsigned id)
{
    struct logs_file key = {.kind = kind, .id = id}, *more;

    if (n_known &&
        bsearch(&key, f->items, n_known, sizeof(key), by_source)) {
        return 0;
    }
    more = reallocarray(f->items, f->n + 1, sizeof(*more));
    if (!more) {
        return -ENOMEM;
    }
    f->items = more;
    more[f->n++] = key;
    return 0;
}

static int add_named(struct logs_files *f, size_t n_known, const char *name)
{
    bool is_node = str_starts(name, node_prefix);
    uint64_t id;
    int rc = 0;

    if (str_to_u64(is_node ? name + strlen(node_prefix) : name, &id) < 0 ||
        id >= MAX_IDS) {
        return 0;
    }
    if (is_node) {
        return add(f, n_known, NODE, (unsigned)id);
    }
    for (enum kind k = OUT; k <= ERR && rc == 0; k++) {
        if (wants(f->choice, (unsigned)id, k == ERR)) {
            rc = add(f, n_known, k, (unsigned)id);
        }
    }
    return rc;
}

int logs_files_find(struct logs_files *f)
{
    size_t n_known = f->n;
    char path[PATH_MAX];
    struct dirent *d;
    DIR *dir;
    int rc = 0;

    if (rundir_path(f->dir, path, sizeof(path), NULL, "logs/%" PRId64,
                    f->generation) < 0) {
        return 0;
    }
    dir = opendir(path);
    while (dir && rc == 0 && (d = readdir(dir))) {
        rc = add_named(f, n_known, d->d_name);
    }
    if (dir) {
        closedir(dir);
    }
    if (f->n > n_known) {
        qsort(f->items, f->n, sizeof(*f->items), by_source);
    }
    return rc;
}

void logs_files_release(struct logs_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        buf_release(&f->items[i].rest);
    }
    free(f->items);
    f->items = NULL;
    f->n = 0;
}

static bool has(const struct logs_files *f, const char *prefix, size_t id)
{
    char path[PATH_MAX];

    return rundir_path(f->dir, path, sizeof(path), NULL,
                       "logs/%" PRId64 "/%s%zu", f->generation, prefix, id) ==
               0 &&
           access(path, F_OK) == 0;
}

bool logs_files_has_rank(const struct logs_files *f, size_t rank)
{
    return has(f, "", rank);
}

bool logs_files_has_node(const struct logs_files *f, size_t node)
{
    return has(f, node_prefix, node);
}

/* --- what is in them --- */

static int path_of(const struct logs_files *f, const struct logs_file *s,
                   char *to, size_t size)
{
    static const char *const names[] = {[OUT] = "/stdout", [ERR] = "/stderr",
                                        [NODE] = ""};

    return rundir_path(f->dir, to, size, NULL, "logs/%" PRId64 "/%s%u%s",
                       f->generation, s->kind == NODE ? node_prefix : "",
                       s->id, names[s->kind]);
}

/* "[RANK out] " or the like; returns its length, or 0. */
static size_t read_label(const char *line, size_t len, unsigned *ret_rank,
                         bool *ret_is_err, bool *ret_is_cut)
{
    const char *end = memchr(line, ']', len < 24 ? len : 24);
    char label[24], stream[4], plus[2] = "";
    int n;

    if (!end || line[0] != '[') {
        return 0;
    }
    memcpy(label, line, (size_t)(end - line));
    label[end - line] = '\0';
    n = sscanf(label, "[%5u %3[a-z]%1[+]", ret_rank, stream, plus);
    *ret_is_err = n >= 2 && strcmp(stream, "err") == 0;
    *ret_is_cut = n == 3;
    return n >= 2 && (*ret_is_err || strcmp(stream, "out") == 0)
               ? (size_t)(end - line) + 2
               : 0;
}

/* A line of a node's file, with its newline. */
static void show_line(const struct logs_files *f, const char *line, size_t len,
                      logs_show_f *show, void *arg)
{
    unsigned rank;
    bool is_err, is_cut;
    size_t skip = read_label(line, len, &rank, &is_err, &is_cut);

    if (skip && skip < len && wants(f->choice, rank, is_err)) {
        show(arg, rank, is_err, line + skip, len - skip - is_cut);
    }
}

static void show_lines(const struct logs_files *f, struct logs_file *s,
                       logs_show_f *show, void *arg)
{
    size_t at = 0;
    const char *end;

    while (s->rest.len > at &&
           (end = memchr(s->rest.data + at, '\n', s->rest.len - at))) {
        size_t len = (size_t)(end - s->rest.data) + 1 - at;

        show_line(f, s->rest.data + at, len, show, arg);
        at += len;
    }
    buf_consume(&s->rest, at);
}

/* One call of logs_files_show(). */
struct showing {
    const struct logs_files *files;
    struct logs_file *file;
    logs_show_f *show;
    void *arg;
};

static void take(void *arg, const char *data, size_t len)
{
    struct showing *w = arg;
    struct logs_file *s = w->file;

    if (s->kind != NODE) {
        w->show(w->arg, s->id, s->kind == ERR, data, len);
        return;
    }
    buf_append(&s->rest, data, len);
    show_lines(w->files, s, w->show, w->arg);
    if (s->rest.len > MAX_LINE) {
        buf_clear(&s->rest); /* nothing that an agent wrote */
    }
}

bool logs_files_show(struct logs_files *f, size_t i, logs_show_f *show,
                     void *arg)
{
    struct showing w = {.files = f, .file = &f->items[i], .show = show,
                        .arg = arg};
    char path[PATH_MAX];

    return path_of(f, w.file, path, sizeof(path)) == 0 &&
           log_reader_read(&w.file->reader, path, f->since_ns, take, &w);
}

struct logs_flaws logs_files_flaws(const struct logs_files *f)
{
    struct logs_flaws flaws = {0};

    for (size_t i = 0; i < f->n; i++) {
        flaws.n_without_times += f->items[i].reader.has_no_times;
        flaws.n_with_gaps += f->items[i].reader.has_gap;
    }
    return flaws;
}
