/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt: checkpoints in a directory, whoever wrote them, and which of them
 * are whole. Nothing in them is run. What has to do with object stores is done by
 * muster-store (launcher/store_main.c).
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/found.h"
#include "ckpt/saver.h"
#include "launcher/ckpt_progress.h"
#include "launcher/ckpt_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NONE_VALID = -1, /* no exit code */
    MAX_LOOKS = 8,   /* of last-valid, where others save, and remove, as fast as it reads */
};

/* --- verbs --- */

int ckpt_check(int dir, const struct found *f, bool is_deep,
               struct found_facts *facts, struct error *e)
{
    struct ckpt_progress p;
    int rc = found_check(io_system(), dir, f, false, facts, e);

    if (rc < 0 || !is_deep) {
        return rc;
    }
    rc = found_check(ckpt_progress_start(&p, "reading", f->name, facts->bytes), dir, f, true,
                     facts, e);
    ckpt_progress_end(&p);
    return rc;
}

static void look_at(int dir, const struct found *f, bool is_deep,
                    struct ckpt_look *ret)
{
    struct found_facts facts = {0};

    *ret = (struct ckpt_look){.name = f->name, .kind = found_kind_name(f->kind),
                              .has_step = f->has_step, .step = f->step};
    ret->rc = ckpt_check(dir, f, is_deep, &facts, &ret->why);
    ret->bytes = facts.bytes;
    ret->n_files = facts.n_files;
    ret->is_structure_only = facts.is_structure_only;
    ret->is_unknown = ckpt_is_unknown(dir, f->name, ret->rc, &facts);
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

/* Which are one together, and which are short, by what lies beside them. The caller frees
 * it. */
static struct found_set *sets_of(const char *path, int dir, struct found *all, size_t n,
                                 struct error *e)
{
    _free_ size_t *series = found_series(all, sizeof(*all), n);
    struct found_set *sets = series ? found_sets_in(io_system(), dir, all, n, series) : NULL;

    if (!sets) {
        error_set(e, ENOMEM, "look at %s", path);
    }
    return sets;
}

/* Of several files that are one each is told by itself, but where one is missing none of
 * them is whole. */
static void look_beside(int dir, const struct found *all, size_t n,
                        const struct found_set *sets, size_t i, struct ckpt_look *l)
{
    if (l->rc == 0 && sets[i].is_short) {
        l->rc = found_tell_short_in(io_system(), dir, all, n, sets, i, &l->why);
    }
}

/* Where it is known whether somebody is at it. */
static void look_for_saver(int dir, const struct found *f, struct ckpt_look *l)
{
    enum saver_state state = l->rc == -ENOENT && f->kind == FOUND_MUSTER
                                 ? saver_look(io_system(), dir, f->name, SAVER_NO_TIME)
                                 : SAVER_UNKNOWN;

    if (state != SAVER_UNKNOWN) {
        error_text(&l->why, ENOENT, "%s has no COMMIT: %s", f->name,
                   state == SAVER_AT_IT ? "it is being saved" : "who saved it has ended");
    }
}

/* A run, or a prune, may have removed it since the directory was listed. Who is told that it
 * is unfinished looks for what is wrong. */
static bool has_gone(int dir, const struct ckpt_look *l)
{
    return l->rc < 0 && faccessat(dir, l->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
           errno == ENOENT;
}

static size_t count_others(int dir)
{
    size_t n = 0, n_likely;

    return found_count_names(io_system(), dir, &n, &n_likely) < 0 ? 0 : n;
}

static int report(const struct ckpt_options *o, const struct option_args *args,
                  int dir, struct found *all, size_t n, bool is_deep)
{
    __attribute__((cleanup(ckpt_report_release))) struct ckpt_report r = {0};
    _free_ struct found_set *sets = NULL;
    struct error e = {0};

    if (check_wanted(args, all, n, &e) < 0) {
        return command_fail(&e);
    }
    sets = sets_of(args->words.items[1], dir, all, n, &e);
    if (!sets) {
        return command_fail(&e);
    }
    ckpt_report_start(&r);
    for (size_t i = 0; i < n; i++) {
        struct ckpt_look l;

        if (!is_wanted(args, all[i].name)) {
            continue;
        }
        look_at(dir, &all[i], is_deep, &l);
        look_beside(dir, all, n, sets, i, &l);
        look_for_saver(dir, &all[i], &l);
        /* One by its path, or by its name, is told whatever has become of it. */
        if (n == 1 || args->words.n > 2 || !has_gone(dir, &l)) {
            ckpt_report_add(&r, &l);
        }
    }
    r.n_others = n == 0 ? count_others(dir) : 0;
    return is_deep ? ckpt_report_verdict(&r, o->format)
                   : ckpt_report_print(&r, o->format);
}

/* One that lacks a file need not be read; of several files that are one the first that is
 * not whole is told. */
static int check_set(int dir, const struct found *all, size_t n, const struct found_set *sets,
                     size_t first, struct ckpt_look *ret)
{
    *ret = (struct ckpt_look){.name = all[first].name};
    if (sets[first].is_short) {
        ret->rc = found_tell_short_in(io_system(), dir, all, n, sets, first, &ret->why);
        return ret->rc;
    }
    look_at(dir, &all[first], true, ret);
    for (size_t i = first + 1; sets[first].first && ret->rc == 0 && i < n &&
                               all[i].step == all[first].step; i++) {
        if (sets[i].first == sets[first].first) {
            look_at(dir, &all[i], true, ret);
        }
    }
    return ret->rc;
}

/* Those that are passed over are told: whoever starts from an older one wants to
 * know why. NONE_VALID: there is none. */
static int look_for_valid(const char *path, bool is_itself, int dir,
                          struct found *all, size_t n)
{
    struct error e = {0};
    _free_ struct found_set *sets = sets_of(path, dir, all, n, &e);

    if (!sets) {
        return command_fail(&e);
    }
    for (size_t i = 0; i < n; i++) {
        struct ckpt_look l;

        if ((all[i].is_part && !is_itself) || (sets[i].first && sets[i].first != i + 1)) {
            continue;
        }
        if (check_set(dir, all, n, sets, i, &l) == 0) {
            if (is_itself) {
                printf("%s\n", path);
            } else {
                ckpt_print_name(path, all[i].name);
            }
            return EXIT_OK;
        }
        if (is_itself || !has_gone(dir, &l)) {
            ckpt_tell("passed over", ckpt_state_name(l.rc, l.is_unknown), &l.why);
        }
    }
    return NONE_VALID;
}

/* Lists the directory again; whether there are other names in it now. */
static bool has_changed(int dir, struct found **all, size_t *n)
{
    _free_ struct found *before = *all;
    size_t n_before = *n;
    bool is_same;

    *all = NULL;
    *n = 0;
    if (found_list(io_system(), dir, all, n, NULL) < 0) {
        return false;
    }
    is_same = *n == n_before;
    for (size_t i = 0; i < *n && is_same; i++) {
        is_same = strcmp((*all)[i].name, before[i].name) == 0;
    }
    return !is_same;
}

/* Who saves meanwhile, and keeps few, may have removed the whole one while it was read, after
 * a newer one was there. */
static int last_valid(const char *path, bool is_itself, int dir, struct found **all, size_t *n)
{
    int rc, n_looks = 0;

    do {
        rc = look_for_valid(path, is_itself, dir, *all, *n);
    } while (rc == NONE_VALID && !is_itself && ++n_looks < MAX_LOOKS && has_changed(dir, all, n));
    if (rc == NONE_VALID) {
        _buf_ struct buf none = {0};

        buf_printf(&none, "no valid checkpoint in %s", path);
        ckpt_tell_none(buf_str(&none), *n == 0 ? count_others(dir) : 0);
        rc = EXIT_FAILED;
    }
    return rc;
}

/* Those in a directory, or, where the path is one itself, that: 1 then. With names they
 * are in the directory. */
static int list(const char *path, bool has_names, int *ret_dir,
                struct found **ret, size_t *ret_n, struct error *e)
{
    _free_ struct found *one = calloc(1, sizeof(*one));
    int rc = !one       ? error_set(e, ENOMEM, "look at %s", path)
             : has_names ? 0 : ckpt_place_itself(path, ret_dir, one, e);

    if (rc != 0) {
        *ret = rc > 0 ? take_ptr(&one) : NULL;
        *ret_n = rc > 0;
        return rc;
    }
    *ret_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_dir < 0) {
        return error_set(e, errno, "open %s", path);
    }
    rc = found_list(io_system(), *ret_dir, ret, ret_n, e);
    return rc < 0 ? error_wrap(e, "%s", path) : 0;
}

static int run_verb(const struct ckpt_options *o, const struct option_args *args,
                    struct error *e)
{
    const char *verb = args->words.items[0], *path = args->words.items[1];
    _free_ struct found *all = NULL;
    _close_ int dir = -1;
    size_t n = 0;
    int rc = list(path, args->words.n > 2, &dir, &all, &n, e);

    if (rc == -ERR_FORMAT && strcmp(verb, "verify") == 0) {
        command_fail(e);
        return CKPT_EXIT_UNKNOWN;
    }
    if (rc < 0) {
        return command_fail(e);
    }
    if (strcmp(verb, "last-valid") == 0) {
        return last_valid(path, rc > 0, dir, &all, &n);
    }
    return report(o, args, dir, all, n, strcmp(verb, "verify") == 0);
}

/* Stores are another program's affair: whoever has none needs no libcurl. */
static int become_store(char **argv)
{
    struct error e = {0};
    char helper[PATH_MAX];

    if (fs_helper("muster-store", helper, sizeof(helper), &e) == 0) {
        execv(helper, argv);
        error_set(&e, errno, "run %s", helper);
    } else {
        error_wrap(&e, "object stores: this muster was built without libcurl");
    }
    return command_fail(&e);
}

/* One checkpoint, or one directory. */
static int on_one(const struct ckpt_options *o, const struct strlist *words,
                  char **argv)
{
    const char *verb = words->items[0];
    bool is_show = strcmp(verb, "show") == 0, is_bench = strcmp(verb, "bench") == 0;
    struct error e = {0};

    if (words->n != (is_show || is_bench ? 2 : 3)) {
        error_text(&e, ERR_USAGE, "ckpt %s: expected %s, and nothing else", verb,
                   is_bench  ? "a directory"
                   : is_show ? "a checkpoint"
                             : "a checkpoint and what to make of it");
        return command_fail(&e);
    }
    if (is_bench && str_starts(words->items[1], "s3://")) {
        error_text(&e, ERR_USAGE, "ckpt bench: expected a directory here: stores are "
                   "not measured");
        return command_fail(&e);
    }
    if (words->n == 3 && str_starts(words->items[2], "s3://")) {
        error_text(&e, ERR_USAGE, "ckpt convert: %.100s is in a store: expected a name "
                   "here, and muster ckpt push brings it there", words->items[2]);
        return command_fail(&e);
    }
    if (str_starts(words->items[1], "s3://")) {
        return become_store(argv);
    }
    return is_bench  ? ckpt_verb_bench(o, words->items[1])
           : is_show ? ckpt_verb_show(o, words->items[1])
                     : ckpt_verb_convert(o, words->items[1], words->items[2]);
}

/* Whether what stores are copied to and from, and tidied, for once is none. */
static bool is_here(const struct strlist *words)
{
    const char *verb = words->items[0];
    bool is_prune = strcmp(verb, "prune") == 0;

    for (size_t i = 1; i < words->n; i++) {
        if (str_starts(words->items[i], "s3://")) {
            return false;
        }
    }
    return is_prune || (strcmp(verb, "cp") == 0 && words->n == 3);
}

static int in_directory(const struct ckpt_options *o, const struct strlist *words)
{
    struct error e = {0};

    if (strcmp(words->items[0], "cp") == 0) {
        return ckpt_verb_cp(o, words->items[1], words->items[2]);
    }
    if (words->n != 2) {
        error_text(&e, ERR_USAGE, "ckpt prune: expected one directory, or "
                   "s3://BUCKET/PREFIX, and nothing else");
        return command_fail(&e);
    }
    return ckpt_verb_prune(o, words->items[1]);
}

int cmd_ckpt(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct ckpt_options set = {0};
    struct error e = {0};
    int rc = options_start(&ckpt_options, argc, argv, &set, &args);
    enum ckpt_verb_kind kind;
    const char *verb;

    if (rc >= 0) {
        return rc;
    }
    verb = args.words.items[0];
    kind = ckpt_verb_kind(verb);
    if (kind == CKPT_NO_VERB) {
        error_text(&e, ERR_USAGE, "ckpt: unknown '%.60s', expected ls, verify, "
                   "last-valid, show, convert, push, pull, cp, prune or bench", verb);
        return command_fail(&e);
    }
    if (ckpt_options_check(&set, &args.words, &e) < 0) {
        return command_fail(&e);
    }
    if (kind == CKPT_ON_ONE) {
        return on_one(&set, &args.words, argv);
    }
    if (kind == CKPT_CHANGES && is_here(&args.words)) {
        return in_directory(&set, &args.words);
    }
    if (kind == CKPT_CHANGES || str_starts(args.words.items[1], "s3://")) {
        return become_store(argv);
    }
    if (strcmp(verb, "verify") != 0 && args.words.n > 2) {
        error_text(&e, ERR_USAGE, "ckpt %s: one directory, and nothing else",
                   verb);
        return command_fail(&e);
    }
    return run_verb(&set, &args, &e);
}
