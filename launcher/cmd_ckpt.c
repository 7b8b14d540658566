/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt: checkpoints in a directory, whoever wrote them, and which of them
 * are whole. Nothing in them is run.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "ckpt/found.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "launcher/show.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ckpt_options {
    enum show_format format;
};

static const struct option_def table[] = {
    SHOW_OPTION(struct ckpt_options, format),
    {0},
};

static const struct options options = {
    .command = "ckpt",
    .usage = "ls DIRECTORY [-o json|yaml]\n"
             "verify DIRECTORY [NAME...] [-o json|yaml]\n"
             "last-valid DIRECTORY",
    .about = "Looks at the checkpoints in a directory: those of torch.save, the "
             "Hugging Face Trainer, torch.distributed.checkpoint and "
             "safetensors, without running what is in them. ls looks at their "
             "structure; verify reads every byte that has a checksum, of all or "
             "of those named; last-valid prints the path of the newest, by its "
             "step, that verifies.",
    .table = table,
    .min_args = 2,
    .max_args = SIZE_MAX,
};

enum { N_COLUMNS = 6 };

/* What became of one. */
struct look {
    const struct found *found;
    struct found_facts facts;
    int rc;
    struct error why;
};

struct report {
    struct strlist cells;
    struct buf json;
    struct jsonw w; /* into it */
    size_t n, n_bad;
};

static void report_release(struct report *r)
{
    strlist_release(&r->cells);
    buf_release(&r->json);
}

static const char *state_of(const struct look *l)
{
    switch (l->rc) {
    case 0:
        return "whole";
    case -ENOENT:
        return "unfinished";
    case -ERR_FORMAT:
        return "damaged";
    default:
        return "unreadable";
    }
}

static void format_bytes(uint64_t bytes, char *to, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t i = 0;

    while (n >= 1024 && i + 1 < ARRAY_SIZE(units)) {
        n /= 1024;
        i++;
    }
    snprintf(to, size, i ? "%.1f %s" : "%.0f %s", n, units[i]);
}

/* --- reports --- */

static void start_report(struct report *r)
{
    static const char *const head[N_COLUMNS] = {"NAME", "KIND", "STEP", "SIZE",
                                                "STATE", "WHY"};

    for (size_t i = 0; i < N_COLUMNS; i++) {
        strlist_add(&r->cells, head[i]);
    }
    r->w = jsonw_start(&r->json);
    jsonw_array(&r->w, NULL);
}

static const char *why_of(const struct look *l)
{
    return l->rc < 0                      ? l->why.text
           : l->facts.is_structure_only ? "structure only: no checksums" : "";
}

static void add_row(struct report *r, const struct look *l)
{
    char size[32];

    format_bytes(l->facts.bytes, size, sizeof(size));
    strlist_add(&r->cells, l->found->name);
    strlist_add(&r->cells, found_kind_name(l->found->kind));
    if (l->found->has_step) {
        strlist_addf(&r->cells, "%" PRIu64, l->found->step);
    } else {
        strlist_add(&r->cells, "-");
    }
    strlist_add(&r->cells, l->rc < 0 ? "-" : size);
    strlist_add(&r->cells, state_of(l));
    strlist_add(&r->cells, why_of(l));
}

static void add_json(struct jsonw *w, const struct look *l)
{
    jsonw_object(w, NULL);
    jsonw_str(w, "name", l->found->name);
    jsonw_str(w, "kind", found_kind_name(l->found->kind));
    if (l->found->has_step) {
        jsonw_int(w, "step", (int64_t)l->found->step);
    }
    jsonw_str(w, "state", state_of(l));
    if (l->rc < 0) {
        jsonw_str(w, "why", l->why.text);
    } else {
        jsonw_int(w, "bytes", (int64_t)l->facts.bytes);
        jsonw_int(w, "files", (int64_t)l->facts.n_files);
        jsonw_bool(w, "structure_only", l->facts.is_structure_only);
    }
    jsonw_end_object(w);
}

static int finish_report(const struct ckpt_options *o, struct report *r)
{
    _buf_ struct buf text = {0};

    jsonw_end_array(&r->w);
    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        return show_json(&r->json, o->format);
    }
    show_table(&r->cells, N_COLUMNS, &text);
    fputs(r->n ? buf_str(&text) : "", stdout);
    if (!r->n) {
        fputs("muster: no checkpoints\n", stderr);
    }
    return EXIT_OK;
}

/* --- verbs --- */

/* On a terminal people see what takes so long. */
static void tell_progress(const struct found *f, bool is_deep)
{
    _buf_ struct buf text = {0};

    if (is_deep && isatty(STDERR_FILENO)) {
        show_clean(&text, f->name, strlen(f->name));
        fprintf(stderr, "muster: reading %s\n", buf_str(&text));
    }
}

static void look_at(int dir, const struct found *f, bool is_deep,
                    struct look *ret)
{
    *ret = (struct look){.found = f};
    tell_progress(f, is_deep);
    ret->rc = found_check(io_system(), dir, f, is_deep, &ret->facts, &ret->why);
}

static bool is_wanted(const struct option_args *args, const char *name)
{
    for (size_t i = 2; i < args->words.n; i++) {
        if (strcmp(args->words.items[i], name) == 0) {
            return true;
        }
    }
    return args->words.n == 2;
}

/* Names that are not there are errors, not silence. */
static int check_wanted(const struct option_args *args, const struct found *all,
                        size_t n, struct error *e)
{
    for (size_t i = 2; i < args->words.n; i++) {
        size_t k = 0;

        while (k < n && strcmp(all[k].name, args->words.items[i]) != 0) {
            k++;
        }
        if (k == n) {
            return error_text(e, ENOENT, "no checkpoint '%s' in %s",
                              args->words.items[i], args->words.items[1]);
        }
    }
    return 0;
}

static int report(const struct ckpt_options *o, const struct option_args *args,
                  int dir, const struct found *all, size_t n, bool is_deep)
{
    __attribute__((cleanup(report_release))) struct report r = {0};
    struct error e = {0};
    int status;

    if (check_wanted(args, all, n, &e) < 0) {
        return command_fail(&e);
    }
    start_report(&r);
    for (size_t i = 0; i < n; i++) {
        struct look l;

        if (!is_wanted(args, all[i].name)) {
            continue;
        }
        look_at(dir, &all[i], is_deep, &l);
        add_row(&r, &l);
        add_json(&r.w, &l);
        r.n++;
        r.n_bad += l.rc < 0;
    }
    status = finish_report(o, &r);
    return is_deep && r.n_bad ? EXIT_FAILED : status;
}

/* Those that are passed over are told: whoever starts from an older one wants to
 * know why. */
static int last_valid(const char *path, int dir, const struct found *all,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct look l;

        look_at(dir, &all[i], true, &l);
        if (l.rc == 0) {
            printf("%s/%s\n", path, all[i].name);
            return EXIT_OK;
        }
        fprintf(stderr, "muster: passed over, %s: %s\n", state_of(&l),
                l.why.text);
    }
    fprintf(stderr, "muster: no valid checkpoint in %s\n", path);
    return EXIT_FAILED;
}

static int run_verb(const struct ckpt_options *o, const struct option_args *args,
                    struct error *e)
{
    const char *verb = args->words.items[0], *path = args->words.items[1];
    _close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _free_ struct found *all = NULL;
    size_t n = 0;

    if (dir < 0) {
        error_set(e, errno, "open %s", path);
        return command_fail(e);
    }
    if (found_list(io_system(), dir, &all, &n, e) < 0) {
        error_wrap(e, "%s", path);
        return command_fail(e);
    }
    if (strcmp(verb, "last-valid") == 0) {
        return last_valid(path, dir, all, n);
    }
    return report(o, args, dir, all, n, strcmp(verb, "verify") == 0);
}

int cmd_ckpt(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct ckpt_options set = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);
    const char *verb;

    if (rc >= 0) {
        return rc;
    }
    verb = args.words.items[0];
    if (strcmp(verb, "ls") != 0 && strcmp(verb, "verify") != 0 &&
        strcmp(verb, "last-valid") != 0) {
        error_text(&e, ERR_USAGE, "ckpt: unknown '%.60s', expected ls, verify or "
                   "last-valid", verb);
        return command_fail(&e);
    }
    if (strcmp(verb, "verify") != 0 && args.words.n > 2) {
        error_text(&e, ERR_USAGE, "ckpt %s: one directory, and nothing else",
                   verb);
        return command_fail(&e);
    }
    return run_verb(&set, &args, &e);
}
