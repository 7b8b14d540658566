/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/sweep_pull_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/found.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of muster's own what step has which name is ckpt/step_bed.h's. */
static const uint64_t own_steps[] = {10, 20, 40};
static const char directory[] = "checkpoint-30", file[] = "model-50.safetensors";
static const char part[] = ".checkpoint-30.muster-part";

static const char weights[] = "\2\0\0\0\0\0\0\0{}";

static int open_sub(const char *path, const char *name)
{
    char sub[PATH_MAX];

    snprintf(sub, sizeof(sub), "%.4000s/%s", path, name);
    return open(sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool open_store(const char *path, struct store *ret)
{
    char sub[PATH_MAX];

    snprintf(sub, sizeof(sub), "%.4000s/store", path);
    return store_bed_open(sub, ret);
}

/* --- what there is --- */

static void put_text(int dir, const char *name, const char *text, size_t len)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fs_write_all(fd, text, len) < 0) {
        bail_out("no %s", name);
    }
}

/* With a directory in it. */
static void put_directory(int dir)
{
    static const char state[] = "{\"global_step\": 30}";
    _close_ int at = -1, sub = -1;

    if (mkdirat(dir, directory, 0700) < 0) {
        bail_out("no %s", directory);
    }
    at = openat(dir, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_text(at, "model.safetensors", weights, sizeof(weights) - 1);
    put_text(at, "trainer_state.json", state, sizeof(state) - 1);
    if (mkdirat(at, "logs", 0700) < 0) {
        bail_out("no directory in %s", directory);
    }
    sub = openat(at, "logs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_text(sub, "loss.txt", "0.5", 3);
}

static void put_all(int from)
{
    for (size_t i = 0; i < ARRAY_SIZE(own_steps); i++) {
        if (bed_save(io_system(), from, own_steps[i], own_steps[i], NULL) < 0) {
            bail_out("no checkpoint");
        }
    }
    put_directory(from);
    put_text(from, file, weights, sizeof(weights) - 1);
}

void sweep_pull_prepare(const char *path, struct sweep_told *told)
{
    static const char *const subs[] = {"from", SWEEP_PULL_TO};
    _store_bed_ struct store st = {0};
    _free_ struct found *all = NULL;
    _close_ int from = -1;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(subs); i++) {
        char sub[PATH_MAX];

        snprintf(sub, sizeof(sub), "%.4000s/%s", path, subs[i]);
        if (mkdir(sub, 0700) < 0) {
            bail_out("no %s", sub);
        }
    }
    from = open_sub(path, "from");
    put_all(from);
    if (!open_store(path, &st) || found_list(io_system(), from, &all, &n, NULL) < 0) {
        bail_out("no store in %s", path);
    }
    for (size_t i = 0; i < n; i++) {
        if (store_bed_put(&st, from, &all[i]) < 0) {
            bail_out("no %s in the store", all[i].name);
        }
    }
    told->newest = 0;
}

static int open_step(int dir, uint64_t step)
{
    char name[STEP_NAME_BYTES];

    bed_name(step, step, name);
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* All of the first but its seal, half of the second, half of the directory; the others are
 * there, and what ended the pull came before it was promised. */
void sweep_pull_prepare_left(const char *path, struct sweep_told *told)
{
    _close_ int to = -1, whole = -1, half = -1, at = -1;

    sweep_pull_prepare(path, told);
    sweep_pull_play(path, 1, told);
    to = open_sub(path, SWEEP_PULL_TO);
    whole = open_step(to, 10);
    half = open_step(to, 20);
    if (told->newest != SWEEP_PULL_NEWEST || unlinkat(whole, "COMMIT", 0) < 0 ||
        unlinkat(half, "COMMIT", 0) < 0 || unlinkat(half, "tensors.index", 0) < 0 ||
        renameat(to, directory, to, part) < 0) {
        bail_out("nothing was pulled into %s", path);
    }
    put_text(whole, ".COMMIT.new", "{", 1);
    put_text(half, "r00001.safetensors", "0", 1);
    at = openat(to, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_text(at, "trainer_state.json", "{", 1);
    told->newest = 0;
}

/* --- the program --- */

static int pull(const struct store *st, int to, const char *name)
{
    _parcel_ struct parcel p = {0};
    struct store_facts facts;
    int rc = store_open(st, name, &p, NULL);

    return rc < 0 ? rc : store_pull(st, &p, to, &facts, NULL);
}

/* The oldest first, so that what is told of one is told of those before, too. */
void sweep_pull_play(const char *path, unsigned run, struct sweep_told *told)
{
    _store_bed_ struct store st = {0};
    _free_ struct store_entry *all = NULL;
    _close_ int to = open_sub(path, SWEEP_PULL_TO);
    size_t n = 0;

    (void)run;
    if (to < 0 || !open_store(path, &st) || store_list(&st, false, &all, &n, NULL) < 0) {
        return;
    }
    for (size_t i = n; i-- > 0;) {
        if (!all[i].has_seal || pull(&st, to, all[i].name) < 0) {
            return;
        }
        sweep_tell(told, all[i].found.step);
    }
}

/* --- what is left --- */

/* Of muster's own one may be there that was never finished. */
static bool is_well(int to, const struct found *f, const struct sweep_told *told)
{
    struct found_facts facts;
    struct error e = {0};
    int rc = found_check(io_system(), to, f, true, &facts, &e);

    if (rc == 0 || (rc == -ENOENT && f->kind == FOUND_MUSTER && f->step > told->newest)) {
        return true;
    }
    diag("%s: %s", f->name, e.text);
    return false;
}

/* Whether the bytes are those of what was pushed. */
static bool is_same(int from, int to, const struct found *f)
{
    _parcel_ struct parcel a = {0}, b = {0};

    return parcel_pack(io_system(), from, f, &a, NULL) == 0 &&
           parcel_pack(io_system(), to, f, &b, NULL) == 0 && a.seal.len == b.seal.len &&
           memcmp(a.seal.data, b.seal.data, a.seal.len) == 0;
}

bool sweep_pull_is_kept(const char *path, const struct sweep_told *told)
{
    _close_ int from = open_sub(path, "from"), to = open_sub(path, SWEEP_PULL_TO);
    _free_ struct found *all = NULL, *here = NULL;
    size_t n = 0, n_here = 0;
    bool is_right = found_list(io_system(), from, &all, &n, NULL) == 0 &&
                    found_list(io_system(), to, &here, &n_here, NULL) == 0;

    for (size_t i = 0; i < n_here && is_right; i++) {
        is_right = is_well(to, &here[i], told);
    }
    for (size_t i = 0; i < n && is_right; i++) {
        is_right = all[i].step > told->newest ||
                   (is_well(to, &all[i], told) && is_same(from, to, &all[i]));
    }
    return is_right;
}
