/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that save through the C API are killed, or lose power, at every call to the
 * filesystem, and every call fails with everything that it may. Whatever comes: what
 * all of them load afterwards is the last checkpoint that they were told of, or a
 * newer one, and every byte is right.
 *
 *   ckpt_crash_test [SEEDS]      losses of power at each call
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/disk_model.h"
#include "ckpt/model_bed.h"
#include "ckpt/save_priv.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>

enum { WORLD = 2, SEEDS = 2, SOME = 9 };

/* Of the calls all are looked at, or, by slow instruments, some. */
static uint64_t stride = 1;

struct play {
    struct disk *disk;
    int64_t first, last; /* steps that are saved; none: it is loaded */
    int64_t told;        /* the last that was said to be saved */
    int64_t loaded[WORLD];
    uint64_t n_wrong[WORLD];
    int rc[WORLD];
};

static void body(void *arg, const struct muster_ckpt_group *group)
{
    struct play *p = arg;
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 2,
                                    .n_threads = 1};
    struct muster_ckpt *ck = NULL;
    struct model *m;
    int r = group->rank;

    if (ckpt_create(NULL, group, disk_io(p->disk), disk_root(p->disk), "model",
                    &o, &ck) < 0) {
        abort();
    }
    m = model_create(ck, (uint32_t)r, WORLD, p->last ? 1 : 2);
    for (int64_t step = p->first; step <= p->last && p->last; step++) {
        model_set(m, step);
        p->rc[r] = muster_ckpt_save(ck, step, 0, NULL);
        if (p->rc[r] == 0) {
            p->told = step;
        }
    }
    if (!p->last) {
        model_set(m, 0);
        p->rc[r] = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &p->loaded[r]);
        p->n_wrong[r] = p->rc[r] < 0 ? 0 : model_wrong(m, p->loaded[r]);
    }
    model_destroy(m);
    muster_ckpt_close(ck);
}

static int64_t save(struct disk *d, int64_t first, int64_t last)
{
    struct play p = {.disk = d, .first = first, .last = last};

    team_run(WORLD, true, body, &p);
    return p.told;
}

/* Nothing that is damaged is passed over: what a crash leaves is never taken for a
 * checkpoint in the first place. */
static bool is_kept(struct disk *d, int64_t told)
{
    struct play p = {.disk = d};

    team_run(WORLD, true, body, &p);
    for (int r = 0; r < WORLD; r++) {
        bool is_none = told == 0 && p.rc[r] == -ENOENT;

        if (!is_none && (p.rc[r] != 0 || p.loaded[r] < told ||
                         p.loaded[r] != p.loaded[0] || p.n_wrong[r] != 0)) {
            return false;
        }
    }
    return true;
}

static uint64_t count_calls(void)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);

    is_int(save(d, 1, 4), 4, "four saves, of which two are kept");
    ok(is_kept(d, 4), "the last one is right");
    is_int((int)disk_n_open(d), 0, "nothing is left open");
    return disk_n_calls(d);
}

static void test_kills(uint64_t n_calls)
{
    unsigned n_wrong = 0;

    for (uint64_t at = 1; at <= n_calls; at += stride) {
        _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
        int64_t told;

        disk_stop_at(d, at);
        told = save(d, 1, 4);
        disk_restart(d);
        n_wrong += !is_kept(d, told);
        n_wrong += save(d, 5, 5) != 5 || !is_kept(d, 5);
    }
    is_int((int)n_wrong, 0, "killed at %llu of %llu calls",
           (unsigned long long)((n_calls + stride - 1) / stride),
           (unsigned long long)n_calls);
}

static unsigned lose_power(enum disk_plant plant, uint64_t n_calls,
                           unsigned n_seeds, unsigned *ret_n)
{
    unsigned n_wrong = 0;

    *ret_n = 0;
    for (uint64_t at = 1; at <= n_calls + 1; at += stride) {
        for (unsigned seed = 0; seed < n_seeds; seed++) {
            _cleanup_(disk) struct disk *d = disk_create(plant);
            int64_t told;

            disk_stop_at(d, at);
            told = save(d, 1, 3);
            disk_lose_power(d, at * 1000 + seed);
            n_wrong += !is_kept(d, told);
            ++*ret_n;
        }
    }
    return n_wrong;
}

static void test_power(uint64_t n_calls, unsigned n_seeds)
{
    unsigned n, n_wrong = lose_power(DISK_SOUND, n_calls, n_seeds, &n);

    is_int((int)n_wrong, 0, "%u losses of power, all kept", n);
    n_wrong = lose_power(DISK_NO_FILE_SYNC, n_calls, 2, &n);
    ok(n_wrong > 0, "files that are not synced: %u of %u losses show it",
       n_wrong, n);
    n_wrong = lose_power(DISK_NO_DIR_SYNC, n_calls, 2, &n);
    ok(n_wrong > 0, "directories that are not synced: %u of %u losses show it",
       n_wrong, n);
}

static void test_errors(uint64_t n_calls)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS, ENOMEM, ESTALE};
    unsigned n_wrong = 0, n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        for (uint64_t at = 1; at <= n_calls; at += stride) {
            bool stays = (at / stride + i) % 2;
            _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
            int64_t told;

            disk_fail_at(d, at, errors[i], stays);
            told = save(d, 1, 4);
            n_wrong += disk_n_open(d) != 0;
            disk_restart(d);
            n_wrong += !is_kept(d, told);
            n++;
        }
    }
    is_int((int)n_wrong, 0, "%u failing calls", n);
}

int main(int argc, char **argv)
{
    unsigned n_seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : SEEDS;
    uint64_t n_calls = count_calls();

    if (tap_valgrind()) {
        skip("what takes long there");
        return tap_done();
    }
    stride = getenv("MUSTER_INSTRUMENTED") ? SOME : 1;
    test_kills(n_calls);
    test_power(n_calls, n_seeds);
    test_errors(n_calls);
    return tap_done();
}
