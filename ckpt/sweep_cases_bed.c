/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/sweep_cases_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/convert.h"
#include "ckpt/copy.h"
#include "ckpt/keep.h"
#include "ckpt/model_bed.h"
#include "ckpt/step_bed.h"
#include "ckpt/sweep_pull_bed.h"
#include "ckpt/watch.h"
#include "muster_ckpt.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_root(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* --- what is there --- */

/* What says that it is a checkpoint is one. */
static bool is_whole(int root)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    if (step_list(io_system(), root, &entries, &n, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        _step_ struct step s = {0};
        int rc = step_open(io_system(), root, entries[i].name, &s, NULL);

        if (rc != -ENOENT && (rc < 0 || !bed_is_right(&s))) {
            return false;
        }
    }
    return true;
}

static bool is_kept(const char *path, const struct sweep_told *told)
{
    _close_ int root = open_root(path);
    _step_ struct step s = {0};
    int rc = step_find_newest(io_system(), root, true, NULL, NULL, &s, NULL);

    if (rc < 0) {
        return rc == -ENOENT && told->newest == 0 && is_whole(root);
    }
    return s.commit.step >= told->newest && bed_is_right(&s) && is_whole(root);
}

/* --- save and commit; each takes the place of the one before --- */

void sweep_play_steps(struct io *io, const char *path, unsigned run,
                      struct sweep_told *told)
{
    const struct ckpt_keep keep = {.rule.keep = 1};
    _close_ int root = open_root(path);

    for (uint64_t step = 10; step <= 30 && root >= 0; step += 10) {
        char name[STEP_NAME_BYTES];

        if (bed_save(io, root, step, run * 100 + step, NULL) < 0) {
            continue;
        }
        sweep_tell(told, step);
        bed_name(step, run * 100 + step, name);
        keep_apply(io, root, &keep, name, NULL, NULL, NULL);
    }
}

static void play_steps(const char *path, unsigned run, struct sweep_told *told)
{
    sweep_play_steps(io_system(), path, run, told);
}

/* --- pruning --- */

static void make_four(const char *path, struct sweep_told *told)
{
    _close_ int root = open_root(path);

    for (uint64_t step = 10; step <= 40; step += 10) {
        if (bed_save(io_system(), root, step, step, NULL) < 0) {
            bail_out("no checkpoint in %s", path);
        }
    }
    told->newest = 40;
}

static void prune_by(struct retain_rule rule, const char *path, struct sweep_told *told)
{
    const struct ckpt_keep keep = {.rule = rule};
    _close_ int root = open_root(path);

    if (keep_apply(io_system(), root, &keep, NULL, NULL, NULL, NULL) == 0) {
        sweep_tell(told, 40);
    }
}

static void prune(const char *path, unsigned run, struct sweep_told *told)
{
    (void)run;
    prune_by((struct retain_rule){.keep = 1}, path, told);
}

/* 20 stays, too. */
static void prune_some(const char *path, unsigned run, struct sweep_told *told)
{
    (void)run;
    prune_by((struct retain_rule){.keep = 1, .every = 20}, path, told);
}

static bool multiples_are_kept(const char *path, const struct sweep_told *told)
{
    _close_ int root = open_root(path);
    _step_ struct step s = {0};
    char name[STEP_NAME_BYTES];

    bed_name(20, 20, name);
    return step_open(io_system(), root, name, &s, NULL) == 0 && bed_is_right(&s) &&
           is_kept(path, told);
}

/* --- the C API --- */

static struct muster_ckpt *open_api(const char *path)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 2,
                                    .n_threads = 1};
    struct muster_ckpt *ck = NULL;

    if (muster_ckpt_open(NULL, NULL, path, &o, &ck) < 0) {
        muster_ckpt_close(ck);
        return NULL;
    }
    return ck;
}

/* One that was killed before there was a file may leave its directory. */
static bool api_is_tidy(const char *path)
{
    _close_ int root = open_root(path);
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;
    bool is = step_list(io_system(), root, &entries, &n, NULL) == 0;

    for (size_t i = 0; i < n && is; i++) {
        char name[STEP_NAME_BYTES + 32];

        snprintf(name, sizeof(name), "%s/COMMIT", entries[i].name);
        if (faccessat(root, name, F_OK, 0) == 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%s/r00000.safetensors", entries[i].name);
        is = faccessat(root, name, F_OK, 0) < 0;
    }
    return is;
}

/* Started again it goes on from what there is, as programs do. */
static void play_api(const char *path, unsigned run, struct sweep_told *told)
{
    struct muster_ckpt *ck = open_api(path);
    struct model *m;

    if (!ck) {
        return;
    }
    m = model_create(ck, 0, 1, 2);
    for (int64_t step = 1; step <= 3; step++) {
        model_set(m, step);
        if (muster_ckpt_save(ck, step, 0, NULL) == 0) {
            sweep_tell(told, (uint64_t)step);
        }
    }
    (void)run;
    model_destroy(m);
    muster_ckpt_close(ck);
}

/* Nothing that is damaged is passed over: what a crash leaves is never taken for a
 * checkpoint in the first place. */
static bool api_is_kept(const char *path, const struct sweep_told *told)
{
    struct muster_ckpt *ck = open_api(path);
    struct model *m = model_create(ck, 0, 1, 2);
    int64_t step = 0;
    int rc;
    bool is_right;

    model_set(m, 0);
    rc = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step);
    is_right = rc == -ENOENT ? told->newest == 0
                             : rc == 0 && (uint64_t)step >= told->newest &&
                                   model_wrong(m, step) == 0;
    model_destroy(m);
    muster_ckpt_close(ck);
    return is_right;
}

/* --- files of it for others --- */

static void make_model(const char *path, struct sweep_told *told)
{
    play_api(path, 1, told);
    told->newest = 0;
}

/* Twice: in one file, and in several. */
static const struct {
    const char *name;
    uint64_t shard_bytes;
} outs[] = {{"out.safetensors", 0}, {"checkpoint-3", 2000}};

static int open_newest(int root, struct contents *ret)
{
    _free_ struct step_entry *entries = NULL;
    struct found f;
    size_t n = 0;

    if (step_list(io_system(), root, &entries, &n, NULL) < 0 || n == 0 ||
        !found_one(io_system(), root, entries[0].name, &f)) {
        return -ENOENT;
    }
    return contents_open(io_system(), root, &f, ret, NULL);
}

static void convert(const char *path, unsigned run, struct sweep_told *told)
{
    _close_ int root = open_root(path);
    _contents_ struct contents c = {0};
    bool is_well = root >= 0 && open_newest(root, &c) == 0;

    (void)run;
    for (size_t i = 0; i < ARRAY_SIZE(outs) && is_well; i++) {
        struct convert job = {.from = &c, .shard_bytes = outs[i].shard_bytes};
        struct convert_facts facts;
        int rc = convert_run(&job, root, outs[i].name, &facts, NULL);

        is_well = rc == 0 || rc == -EEXIST;
        if (is_well) {
            sweep_tell(told, i + 1);
        }
    }
}

static bool is_same(const struct contents *a, const struct contents *b)
{
    bool is_right = a->n_tensors == b->n_tensors && a->n_tensors > 0;

    for (size_t i = 0; i < a->n_tensors && is_right; i++) {
        const struct contents_tensor *t = &a->tensors[i], *u = &b->tensors[i];
        _free_ char *one = malloc(t->bytes + 1), *two = malloc(t->bytes + 1);
        uint64_t n = contents_elements(t);

        is_right = strcmp(t->name, u->name) == 0 && t->bytes == u->bytes &&
                   contents_read(a, t, 0, n, one, NULL) == 0 &&
                   contents_read(b, u, 0, n, two, NULL) == 0 &&
                   memcmp(one, two, t->bytes) == 0;
    }
    return is_right;
}

/* What has its name is all there. */
static bool is_converted(const char *path, const struct sweep_told *told)
{
    static const char state[] = "{\"global_step\": 3}";
    _close_ int root = open_root(path);
    _contents_ struct contents c = {0};
    char name[PATH_MAX];
    bool is_right = open_newest(root, &c) == 0;

    for (size_t i = 0; i < ARRAY_SIZE(outs) && is_right; i++) {
        _contents_ struct contents out = {0};
        struct found f;

        if (faccessat(root, outs[i].name, F_OK, 0) < 0) {
            is_right = told->newest <= i;
            continue;
        }
        snprintf(name, sizeof(name), "%.4000s/%s/trainer_state.json", path,
                 outs[i].name);
        if (outs[i].shard_bytes) {
            fs_write_atomic(name, state, sizeof(state) - 1, NULL);
        }
        is_right = found_one(io_system(), root, outs[i].name, &f) &&
                   contents_open(io_system(), root, &f, &out, NULL) == 0 &&
                   is_same(&c, &out);
    }
    return is_right;
}

/* --- copies in another directory --- */

static void make_source(const char *path, struct sweep_told *told)
{
    static const char file[] = "\2\0\0\0\0\0\0\0{}";
    char from[PATH_MAX], to[PATH_MAX], name[2 * PATH_MAX];

    snprintf(from, sizeof(from), "%.4000s/from", path);
    snprintf(to, sizeof(to), "%.4000s/to", path);
    snprintf(name, sizeof(name), "%s/model-50.safetensors", from);
    if (mkdir(from, 0700) < 0 || mkdir(to, 0700) < 0 ||
        fs_write_atomic(name, file, sizeof(file) - 1, NULL) < 0) {
        bail_out("no %s", name);
    }
    make_four(from, told);
    told->newest = 0;
}

/* All of them, the oldest first, of which the last two stay. */
static void copy_all(const char *path, unsigned run, struct sweep_told *told)
{
    char from_path[PATH_MAX], to_path[PATH_MAX];
    _close_ int from = -1, to = -1;
    _free_ struct found *all = NULL;
    size_t n = 0;

    (void)run;
    snprintf(from_path, sizeof(from_path), "%.4000s/from", path);
    snprintf(to_path, sizeof(to_path), "%.4000s/to", path);
    from = open_root(from_path);
    to = open_root(to_path);
    if (from < 0 || to < 0 ||
        found_list(io_system(), from, &all, &n, NULL) < 0) {
        return;
    }
    (void)watch_sweep(to, to_path, NULL);
    for (size_t i = n; i-- > 0;) {
        struct found_facts facts;

        if (copy_checkpoint(io_system(), from, &all[i], to, to_path, &facts, NULL) < 0) {
            continue;
        }
        sweep_tell(told, all[i].step);
        if (i + 2 < n) {
            watch_remove(to, to_path, all[i + 2].name, NULL);
        }
    }
}

/* Of muster's own one may be there that was never finished. */
static bool all_are_whole(const char *path, bool is_target, uint64_t newest)
{
    _close_ int dir = open_root(path);
    _free_ struct found *all = NULL;
    size_t n = 0;
    bool has_newest = newest == 0;
    int rc = found_list(io_system(), dir, &all, &n, NULL);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct found_facts facts;
        struct error e = {0};

        rc = found_check(io_system(), dir, &all[i], true, &facts, &e);
        has_newest = has_newest || (rc == 0 && all[i].step >= newest);
        if (rc == -ENOENT && is_target && all[i].kind == FOUND_MUSTER) {
            rc = 0;
        } else if (rc < 0) {
            diag("%s: %s", all[i].name, e.text);
        }
    }
    return rc == 0 && has_newest;
}

static bool copies_are_kept(const char *path, const struct sweep_told *told)
{
    char sub[PATH_MAX];

    snprintf(sub, sizeof(sub), "%.4000s/from", path);
    if (!all_are_whole(sub, false, 50)) {
        return false;
    }
    snprintf(sub, sizeof(sub), "%.4000s/to", path);
    return all_are_whole(sub, true, told->newest);
}

const struct sweep_case *sweep_cases(size_t *ret_n)
{
    static const struct sweep_case cases[] = {
        {.name = "save and commit", .play = play_steps, .is_kept = is_kept,
         .newest = 30},
        {.name = "prune", .prepare = make_four, .play = prune,
         .is_kept = is_kept, .newest = 40},
        {.name = "prune, multiples stay", .prepare = make_four, .play = prune_some,
         .is_kept = multiples_are_kept, .newest = 40},
        {.name = "the C API", .play = play_api, .is_kept = api_is_kept, .is_tidy = api_is_tidy,
         .newest = 3, .except = ".part .saver"},
        {.name = "copy", .prepare = make_source, .play = copy_all,
         .is_kept = copies_are_kept, .newest = 50},
        {.name = "convert", .prepare = make_model, .play = convert,
         .is_kept = is_converted, .newest = ARRAY_SIZE(outs),
         .is_threaded = true},
        {.name = "pull", .prepare = sweep_pull_prepare, .play = sweep_pull_play,
         .is_kept = sweep_pull_is_kept, .newest = SWEEP_PULL_NEWEST},
        {.name = "pull, resumed", .prepare = sweep_pull_prepare_left,
         .play = sweep_pull_play, .is_kept = sweep_pull_is_kept,
         .newest = SWEEP_PULL_NEWEST, .left = SWEEP_PULL_TO},
    };

    *ret_n = ARRAY_SIZE(cases);
    return cases;
}
