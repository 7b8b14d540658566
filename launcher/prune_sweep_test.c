/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `muster ckpt prune` does, in a directory and in a store that is one
 * (ckpt/store_bed.h): killed at every system call, and every call fails with everything that
 * it may. Whatever comes: those that are to stay are there with all of their bytes, of the
 * others nothing passes for a checkpoint that is none, and a second prune comes to the end.
 *
 *   prune_sweep_test [STRIDE [CASE]]      as ckpt/sweep_test
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/held.h"
#include "ckpt/io.h"
#include "ckpt/saver.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "ckpt/sweep_bed.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/commands.h"
#include "launcher/store_verbs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USUAL_STRIDE = 41, DONE = 1 };

/* Of what is there: what stays and what goes, by name; "own 40" is muster's of that step. */
struct world {
    const char *stay[8], *go[8];
    const char *newest; /* that is whole, of all */
};

/* --- what is there --- */

static const char weights[] = "\2\0\0\0\0\0\0\0{}";

static int open_dir(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put(const char *path, const char *name, const void *data, size_t len)
{
    char whole[PATH_MAX];

    snprintf(whole, sizeof(whole), "%.3000s/%s", path, name);
    if (fs_write_replace(whole, data, len, NULL) < 0) {
        bail_out("no %s", whole);
    }
}

static void put_own(const char *path, uint64_t step)
{
    _close_ int dir = open_dir(path);

    if (bed_save(io_system(), dir, step, step, NULL) < 0) {
        bail_out("no checkpoint in %s", path);
    }
}

/* One of the Trainer; `loss` in tenths. */
static void put_trainer(const char *path, unsigned step, unsigned loss)
{
    char whole[PATH_MAX], state[128];

    snprintf(whole, sizeof(whole), "%.3000s/checkpoint-%u", path, step);
    if (mkdir(whole, 0700) < 0) {
        bail_out("no %s", whole);
    }
    put(whole, "model.safetensors", weights, sizeof(weights) - 1);
    snprintf(state, sizeof(state), "{\"global_step\": %u, \"log_history\": [{\"step\": %u, "
             "\"eval_loss\": 0.%u}]}", step, step, loss);
    put(whole, "trainer_state.json", state, strlen(state));
}

static void real_name(const char *name, char to[FOUND_NAME_BYTES])
{
    uint64_t step;

    if (str_starts(name, "own ") && str_to_u64(name + 4, &step) == 0) {
        bed_name(step, step, to);
    } else {
        snprintf(to, FOUND_NAME_BYTES, "%s", name);
    }
}

/* --- what is left --- */

/* With all of its bytes; -ENOENT also for one that was never finished. */
static int check(int dir, const char *name)
{
    struct found_facts facts;
    struct found f;
    char real[FOUND_NAME_BYTES];

    real_name(name, real);
    return found_one(io_system(), dir, real, &f)
               ? found_check(io_system(), dir, &f, true, &facts, NULL) : -ENOENT;
}

static bool is_newest(int dir, const char *name)
{
    _free_ struct found *all = NULL;
    char real[FOUND_NAME_BYTES];
    size_t n = 0, i = 0;

    real_name(name, real);
    if (found_list(io_system(), dir, &all, &n, NULL) < 0) {
        return false;
    }
    while (i < n && check(dir, all[i].name) < 0) {
        i++;
    }
    return i < n && strcmp(all[i].name, real) == 0;
}

static int look_for_old(void *arg, const char *name)
{
    *(bool *)arg = *(bool *)arg || str_starts(name, ".muster-old-");
    return 0;
}

static int count(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
    return 0;
}

/* Of muster's own the directory may stay without anything in it: somebody may have made it
 * just now to save there. */
static bool is_gone(int dir, const char *name)
{
    char real[FOUND_NAME_BYTES];
    _close_ int sub = -1;
    unsigned n = 0;

    real_name(name, real);
    if (faccessat(dir, real, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        return true;
    }
    sub = openat(dir, real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return sub >= 0 && io_system()->ops->list(io_system(), sub, count, &n) == 0 && n == 0;
}

static bool is_done(int dir, const struct world *w)
{
    bool has_old = false;

    for (size_t i = 0; i < ARRAY_SIZE(w->go) && w->go[i]; i++) {
        if (!is_gone(dir, w->go[i])) {
            return false;
        }
    }
    return io_system()->ops->list(io_system(), dir, look_for_old, &has_old) == 0 && !has_old;
}

static bool is_kept(const char *path, const struct sweep_told *told, const struct world *w)
{
    _close_ int dir = open_dir(path);

    for (size_t i = 0; i < ARRAY_SIZE(w->stay) && w->stay[i]; i++) {
        if (check(dir, w->stay[i]) < 0) {
            diag("%s is not whole", w->stay[i]);
            return false;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(w->go) && w->go[i]; i++) {
        int rc = check(dir, w->go[i]);

        if (rc < 0 && rc != -ENOENT) {
            diag("of %s something is left", w->go[i]);
            return false;
        }
    }
    return is_newest(dir, w->newest) && (told->newest < DONE || is_done(dir, w));
}

/* --- the command --- */

/* What it prints is nobody's: half of it is there when it is killed. */
static void be_quiet(void)
{
    _close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
}

/* What could not be looked at is left alone, which is no failure: so it says that all is
 * done where all is. */
static void prune(const char *path, struct sweep_told *told, const struct ckpt_options *o,
                  const struct world *w)
{
    _close_ int dir = open_dir(path);

    be_quiet();
    if (ckpt_verb_prune(o, path) == EXIT_OK && is_done(dir, w)) {
        sweep_tell(told, DONE);
    }
}

/* --- of two programs, one damaged, one named, one that was killed as it saved, and half of
 * one that was removed --- */

static const struct world mixed = {
    .stay = {"own 40", "own 30", "checkpoint-15"},
    .go = {"checkpoint-25", "own 50", "own 20", "own 10"}, .newest = "own 40",
};

static void put_killed(const char *path, uint64_t step)
{
    _close_ int dir = open_dir(path), held = -1;
    _cleanup_(step_save) struct step_save *s = NULL;
    char name[STEP_NAME_BYTES], boot[SAVER_BOOT_BYTES] = "";

    bed_name(step, step, name);
    if (mkdirat(dir, name, 0700) < 0 ||
        step_save_join(io_system(), dir, name, &s, NULL) < 0) {
        bail_out("no %s", name);
    }
    held = held_take(dir, name);
    saver_mark(s, held, boot);
    if (step_save_file(s, "r00000.safetensors", weights, sizeof(weights) - 1, NULL) < 0) {
        bail_out("nothing in %s", name);
    }
}

static void make_mixed(const char *path, struct sweep_told *told)
{
    char sub[PATH_MAX];

    for (uint64_t step = 10; step <= 40; step += 10) {
        put_own(path, step);
    }
    put_killed(path, 50);
    put_trainer(path, 15, 5);
    put_trainer(path, 25, 5);
    put_trainer(path, 60, 5);
    snprintf(sub, sizeof(sub), "%.3000s/checkpoint-60", path);
    put(sub, "model.safetensors", weights, 5);
    put(path, "latest", "checkpoint-15", 13);
    snprintf(sub, sizeof(sub), "%.3000s/.muster-old-checkpoint-5", path);
    if (mkdir(sub, 0700) < 0) {
        bail_out("no %s", sub);
    }
    put(sub, "model.safetensors", weights, sizeof(weights) - 1);
    told->newest = 0;
}

static void prune_mixed(const char *path, unsigned run, struct sweep_told *told)
{
    const struct ckpt_options o = {.keep = 2};

    (void)run;
    prune(path, told, &o, &mixed);
}

static bool mixed_is_kept(const char *path, const struct sweep_told *told)
{
    char damaged[PATH_MAX];

    snprintf(damaged, sizeof(damaged), "%.3000s/checkpoint-60/trainer_state.json", path);
    return access(damaged, F_OK) == 0 && is_kept(path, told, &mixed);
}

/* --- the best --- */

static const struct world best = {
    .stay = {"checkpoint-40", "checkpoint-20"}, .go = {"checkpoint-30", "checkpoint-10"},
    .newest = "checkpoint-40",
};

static void make_best(const char *path, struct sweep_told *told)
{
    put_trainer(path, 10, 4);
    put_trainer(path, 20, 1);
    put_trainer(path, 30, 3);
    put_trainer(path, 40, 2);
    told->newest = 0;
}

static void prune_best(const char *path, unsigned run, struct sweep_told *told)
{
    const struct ckpt_options o = {.keep = 1, .best = "eval_loss:min"};

    (void)run;
    prune(path, told, &o, &best);
}

static bool best_is_kept(const char *path, const struct sweep_told *told)
{
    return is_kept(path, told, &best);
}

/* --- files of ranks, which are one checkpoint together; the newest lacks one --- */

static const struct world ranks = {
    .stay = {"step40_rank1.safetensors", "step30_rank0.safetensors",
             "step30_rank1.safetensors"},
    .go = {"step20_rank0.safetensors", "step20_rank1.safetensors",
           "step10_rank0.safetensors", "step10_rank1.safetensors"},
    .newest = "step40_rank1.safetensors",
};

static void make_ranks(const char *path, struct sweep_told *told)
{
    for (unsigned i = 2; i < 9; i++) {
        char name[64];

        snprintf(name, sizeof(name), "step%u_rank%u.safetensors", 10 * (i / 2),
                 i == 8 ? 1 : i % 2);
        put(path, name, weights, sizeof(weights) - 1);
    }
    told->newest = 0;
}

static void prune_ranks(const char *path, unsigned run, struct sweep_told *told)
{
    const struct ckpt_options o = {.keep = 1};

    (void)run;
    prune(path, told, &o, &ranks);
}

static bool ranks_are_kept(const char *path, const struct sweep_told *told)
{
    return is_kept(path, told, &ranks);
}

/* --- a store --- */

static char store_path[PATH_MAX]; /* of the process that plays */

int store_place_open(const struct ckpt_options *o, const char *text, struct store_place *ret,
                     struct error *e)
{
    (void)o, (void)text;
    return store_bed_open(store_path, &ret->store) ? 0 : error_set(e, ENOMEM, "open a store");
}

void store_place_close(struct store_place *p)
{
    store_bed_close(&p->store);
}

/* There is no terminal here. */
void store_progress_end(void)
{
}

int store_fail(const struct error *e)
{
    return command_fail(e);
}

static bool open_store(const char *path, struct store *ret)
{
    snprintf(store_path, sizeof(store_path), "%.4000s/store", path);
    return store_bed_open(store_path, ret);
}

static void make_store(const char *path, struct sweep_told *told)
{
    _close_ int dir = open_dir(path);
    _store_bed_ struct store st = {0};
    _free_ struct found *all = NULL;
    size_t n = 0;

    for (uint64_t step = 10; step <= 40; step += 10) {
        put_own(path, step);
    }
    put_trainer(path, 15, 5);
    if (!open_store(path, &st) || found_list(io_system(), dir, &all, &n, NULL) < 0) {
        bail_out("no store in %s", path);
    }
    for (size_t i = 0; i < n; i++) {
        if (store_bed_put(&st, dir, &all[i]) < 0) {
            bail_out("no %s in the store", all[i].name);
        }
    }
    told->newest = 0;
}

/* What has a seal is whole; how many have one is in *ret. What has none any more stays: it
 * may be on its way there. */
static bool store_is_right(const char *path, unsigned *ret)
{
    _store_bed_ struct store st = {0};
    _free_ struct store_entry *all = NULL;
    bool is_right, has_newest = false, has_multiple = false;
    size_t n = 0;

    *ret = 0;
    is_right = open_store(path, &st) && store_list(&st, true, &all, &n, NULL) == 0;
    for (size_t i = 0; i < n && is_right; i++) {
        if (all[i].has_seal) {
            is_right = all[i].rc == 0;
            has_newest = has_newest || all[i].found.step == 40;
            has_multiple = has_multiple || all[i].found.step == 20;
            ++*ret;
        }
    }
    return is_right && has_newest && has_multiple;
}

/* 20 stays as well. */
static void prune_store(const char *path, unsigned run, struct sweep_told *told)
{
    const struct ckpt_options o = {.keep = 1, .every = 20};
    unsigned n;

    (void)run;
    snprintf(store_path, sizeof(store_path), "%.4000s/store", path);
    be_quiet();
    if (store_verb_prune(&o, "s3://bucket") == EXIT_OK && store_is_right(path, &n) && n == 2) {
        sweep_tell(told, DONE);
    }
}

static bool store_is_kept(const char *path, const struct sweep_told *told)
{
    unsigned n;

    return store_is_right(path, &n) && (told->newest < DONE || n == 2);
}

int main(int argc, char **argv)
{
    static const struct sweep_case cases[] = {
        {.name = "prune", .prepare = make_mixed, .play = prune_mixed,
         .is_kept = mixed_is_kept, .newest = DONE},
        {.name = "prune, the best stays", .prepare = make_best, .play = prune_best,
         .is_kept = best_is_kept, .newest = DONE},
        {.name = "prune, files of ranks", .prepare = make_ranks, .play = prune_ranks,
         .is_kept = ranks_are_kept, .newest = DONE},
        {.name = "prune a store", .prepare = make_store, .play = prune_store,
         .is_kept = store_is_kept, .newest = DONE},
    };
    unsigned stride = sweep_stride(argc, argv, USUAL_STRIDE);
    uint64_t kills = 0, n_errors = 0;
    size_t n_run = 0;
    const char *why = sweep_why_not(true), *only = argc > 2 ? argv[2] : NULL;

    if (why) {
        skip("%s", why);
        return tap_done();
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (!only || strcmp(cases[i].name, only) == 0) {
            sweep_run(&cases[i], stride, &kills, &n_errors);
            n_run++;
        }
    }
    if (n_run == 0) {
        bail_out("no case is called '%s'", only);
    }
    diag("under ptrace: %llu kills, %llu failing calls",
         (unsigned long long)kills, (unsigned long long)n_errors);
    return tap_done();
}
