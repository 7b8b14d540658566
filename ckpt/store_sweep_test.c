/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that pushes checkpoints to an object store and prunes there is killed at
 * every system call, and every call to the disk fails with everything that it may.
 * What has a seal is whole, the newest is the last that was told, or a newer one.
 *
 *   store_sweep_test BUCKET [STRIDE]      the store is that of the environment (AWS_*)
 *
 * Run by tests/t4202-store-sweep.t, which brings a store. One at a time: each point
 * has a prefix of its own.
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/step_bed.h"
#include "ckpt/store.h"
#include "ckpt/sweep_bed.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USUAL_STRIDE = 40, PART_BYTES = 5 << 20, LOOKS = 20 };

static const char *bucket;

/* A prefix that is the directory's name. */
static int open_store(const char *path, struct store *ret)
{
    _s3_config_ struct s3_config config = {0};
    const struct s3_limits limits = {.max_tries = 2, .stall_s = 20};

    *ret = (struct store){.bucket = bucket, .prefix = strrchr(path, '/') + 1,
                          .n_threads = 2, .part_bytes = PART_BYTES};
    if (s3_config_load(&config, NULL) < 0) {
        return -1;
    }
    return s3_open(&config, bucket, &limits, &ret->s3, NULL);
}

static void make_three(const char *path, struct sweep_told *told)
{
    _close_ int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (uint64_t step = 10; step <= 30; step += 10) {
        if (bed_save(io_system(), root, step, step, NULL) < 0) {
            bail_out("no checkpoint in %s", path);
        }
    }
    told->newest = 0;
}

static int push(const struct store *st, int root, const struct found *f)
{
    _parcel_ struct parcel p = {0};
    struct store_facts facts;
    int rc = parcel_pack(io_system(), root, f, &p, NULL);

    return rc < 0 ? rc : store_push(st, root, &p, &facts, NULL);
}

/* The oldest first; each takes the place of the one before. */
static void play(const char *path, unsigned run, struct sweep_told *told)
{
    _close_ int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _free_ struct found *all = NULL;
    struct store st;
    size_t n = 0;

    (void)run;
    if (root < 0 || open_store(path, &st) < 0) {
        return;
    }
    found_list(io_system(), root, &all, &n, NULL);
    for (size_t i = n; i-- > 0;) {
        if (push(&st, root, &all[i]) < 0) {
            continue;
        }
        told->newest = all[i].step > told->newest ? all[i].step : told->newest;
        if (i + 1 < n) {
            store_remove(&st, all[i + 1].name, NULL);
        }
    }
    s3_destroy(st.s3);
}

static bool looks_right(const struct store *st, uint64_t newest_told,
                        struct error *why)
{
    _free_ struct store_entry *all = NULL;
    uint64_t newest = 0;
    size_t n = 0;
    int rc = store_list(st, true, &all, &n, why);

    for (size_t i = 0; i < n && rc == 0; i++) {
        if (all[i].has_seal) {
            rc = all[i].rc;
            *why = all[i].why;
            newest = all[i].found.step > newest ? all[i].found.step : newest;
        }
    }
    return rc == 0 && newest >= newest_told;
}

/* A request of a program that was killed may still be at work in the store: the seal
 * that is listed is gone when it is read. So it is looked at again; what stays wrong is
 * wrong. */
static bool is_kept(const char *path, const struct sweep_told *told)
{
    struct error why = {0};
    struct store st;
    bool is_right = false;

    if (open_store(path, &st) < 0) {
        return false;
    }
    for (unsigned i = 0; i < LOOKS && !is_right; i++) {
        if (i > 0) {
            poll(NULL, 0, 100);
        }
        is_right = looks_right(&st, told->newest, &why);
    }
    if (!is_right) {
        diag("%s: %s", st.prefix, why.text);
    }
    s3_destroy(st.s3);
    return is_right;
}

int main(int argc, char **argv)
{
    static const struct sweep_case c = {
        .name = "push to a store", .prepare = make_three, .play = play,
        .is_kept = is_kept, .newest = 30, .is_threaded = true,
    };
    unsigned stride = sweep_stride(argc - 1, argv + 1, USUAL_STRIDE);
    uint64_t kills = 0, n_errors = 0;
    const char *why = sweep_why_not(false);

    if (argc < 2) {
        bail_out("usage: store_sweep_test BUCKET [STRIDE]");
    }
    bucket = argv[1];
    if (why) {
        skip("%s", why);
        return tap_done();
    }
    sweep_run(&c, stride, &kills, &n_errors);
    diag("under ptrace: %llu kills, %llu failing calls",
         (unsigned long long)kills, (unsigned long long)n_errors);
    return tap_done();
}
