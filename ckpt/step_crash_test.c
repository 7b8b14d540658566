/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that saves and removes checkpoints is killed, or loses power, at every
 * call to the filesystem, and every call fails with everything that it may.
 * Whatever comes: the newest checkpoint is the last that was told to be one, or a
 * newer, and has all of its bytes.
 *
 *   step_crash_test [SEEDS]      losses of power at each call
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/disk_model.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 150 };

/* What the program was told. */
struct told {
    uint64_t newest; /* step of the last commit that succeeded; 0: none yet */
};

/* Three checkpoints, each of which takes the place of the one before; the tokens
 * say which run of the program it is. */
static void play(struct disk *d, uint64_t run, struct told *told)
{
    struct io *io = disk_io(d);
    int root = disk_root(d);
    char name[STEP_NAME_BYTES];

    told->newest = 0;
    for (uint64_t step = 10; step <= 30; step += 10) {
        if (bed_save(io, root, step, run * 100 + step, NULL) < 0) {
            continue;
        }
        told->newest = step;
        if (step > 10) {
            bed_name(step - 10, run * 100 + step - 10, name);
            step_remove(io, root, name, NULL);
        }
    }
}

/* What says that it is a checkpoint is one. */
static bool is_whole(struct disk *d)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    step_list(disk_io(d), disk_root(d), &entries, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        _step_ struct step s = {0};
        int rc = step_open(disk_io(d), disk_root(d), entries[i].name, &s, NULL);

        if (rc != -ENOENT && (rc < 0 || !bed_is_right(&s))) {
            return false;
        }
    }
    return true;
}

/* Whether what can be found now keeps what was told. */
static bool is_kept(struct disk *d, const struct told *told)
{
    _step_ struct step s = {0};
    int rc = step_find_newest(disk_io(d), disk_root(d), true, NULL, NULL, &s,
                              NULL);

    if (rc < 0) {
        return rc == -ENOENT && told->newest == 0 && is_whole(d);
    }
    return s.commit.step >= told->newest && bed_is_right(&s) && is_whole(d);
}

static uint64_t count_calls(void)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct told told;

    play(d, 1, &told);
    ok(told.newest == 30 && is_kept(d, &told), "undisturbed: the last one");
    is_int((int)disk_n_open(d), 0, "nothing is left open");
    return disk_n_calls(d);
}

/* After a kill, another program goes on in the same directory. */
static void test_kills(uint64_t n_calls)
{
    unsigned n_wrong = 0;

    for (uint64_t at = 1; at <= n_calls; at++) {
        _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
        struct told told, again;

        disk_stop_at(d, at);
        play(d, 1, &told);
        disk_restart(d);
        n_wrong += !is_kept(d, &told);
        play(d, 2, &again);
        n_wrong += !is_kept(d, &told) || !is_kept(d, &again);
    }
    is_int((int)n_wrong, 0, "killed at each of %llu calls",
           (unsigned long long)n_calls);
}

static unsigned lose_power(enum disk_plant plant, unsigned n_seeds,
                           uint64_t *ret_n)
{
    unsigned n_wrong = 0;
    uint64_t n_calls;
    struct told told;
    struct disk *whole = disk_create(plant);

    play(whole, 1, &told);
    n_calls = disk_n_calls(whole);
    disk_destroy(whole);
    *ret_n = (n_calls + 1) * n_seeds;
    for (uint64_t at = 1; at <= n_calls + 1; at++) {
        for (unsigned seed = 0; seed < n_seeds; seed++) {
            _cleanup_(disk) struct disk *d = disk_create(plant);

            disk_stop_at(d, at);
            play(d, 1, &told);
            disk_lose_power(d, seed * 7919 + at);
            n_wrong += !is_kept(d, &told);
        }
    }
    return n_wrong;
}

static void test_power(unsigned n_seeds)
{
    uint64_t n;
    unsigned n_wrong = lose_power(DISK_SOUND, n_seeds, &n);

    is_int((int)n_wrong, 0, "%llu losses of power, all kept",
           (unsigned long long)n);
}

/* The sweep finds what it is there for. */
static void test_plants(void)
{
    static const struct {
        enum disk_plant plant;
        const char *what;
    } cases[] = {
        {DISK_NO_FILE_SYNC, "files that are not synced"},
        {DISK_NO_DIR_SYNC, "directories that are not synced"},
        {DISK_RENAME_FIRST, "a rename before the sync"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t n;
        unsigned n_wrong = lose_power(cases[i].plant, 20, &n);

        ok(n_wrong > 0, "%s: %u of %llu losses show it", cases[i].what, n_wrong,
           (unsigned long long)n);
    }
}

/* Every call fails, once or from then on. What was told stays true, and a failed
 * save has left no file where it could remove them. */
static void test_errors(uint64_t n_calls)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS, ENOMEM, ESTALE,
                                 EACCES, EFBIG};
    unsigned n_wrong = 0, n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        for (uint64_t at = 1; at <= n_calls; at++) {
            for (int stays = 0; stays < 2; stays++) {
                _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
                struct told told, again;

                disk_fail_at(d, at, errors[i], stays);
                play(d, 1, &told);
                n_wrong += disk_n_open(d) != 0;
                disk_restart(d);
                n_wrong += !is_kept(d, &told);
                play(d, 2, &again);
                n_wrong += !is_kept(d, &again) || again.newest != 30;
                n++;
            }
        }
    }
    is_int((int)n_wrong, 0, "%u failing calls", n);
}

int main(int argc, char **argv)
{
    unsigned n_seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : SEEDS;
    uint64_t n_calls = count_calls();

    test_kills(n_calls);
    test_power(tap_valgrind() ? 2 : n_seeds);
    test_plants();
    test_errors(n_calls);
    return tap_done();
}
