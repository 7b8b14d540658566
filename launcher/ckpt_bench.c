/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_bench.h"

#include "base/cleanup.h"
#include "launcher/bench_place.h"
#include "launcher/ckpt_verbs.h"
#include "launcher/commands.h"
#include "launcher/snap_budget.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>

enum {
    RANKS = 1,
    ROUNDS = 5,
    TENSORS = 64,
    MAX_RANKS = 1024,
    MAX_ROUNDS = 100, /* the workers' own */
    MAX_TENSORS = 1000000,
    /* The checkpoint that is there, the one that comes, the file that says what the disk
     * can do. */
    ON_DISK = 3,
    IN_MEMORY = 2, /* snapshots; what the budget leaves the workers have */
};
#define BYTES (UINT64_C(256) << 20)
#define LEAST_BYTES (UINT64_C(1) << 20)

static int take_count(int64_t given, unsigned def, unsigned max, const char *name,
                      unsigned *ret, struct error *e)
{
    if (given < 0 || given > max) {
        return error_text(e, ERR_USAGE, "option --%s: expected 1 to %u", name, max);
    }
    *ret = given ? (unsigned)given : def;
    return 0;
}

static int take_options(const struct ckpt_options *o, struct ckpt_bench *b,
                        struct error *e)
{
    int rc = take_count(o->ranks, RANKS, MAX_RANKS, "ranks", &b->ranks, e);

    rc = rc < 0 ? rc : take_count(o->rounds, ROUNDS, MAX_ROUNDS, "rounds",
                                  &b->rounds, e);
    rc = rc < 0 ? rc : take_count(o->tensors, TENSORS, MAX_TENSORS, "tensors",
                                  &b->tensors, e);
    b->bytes = o->bytes ? o->bytes : BYTES;
    if (rc == 0 && (b->bytes < LEAST_BYTES || b->bytes < b->tensors)) {
        return error_text(e, ERR_USAGE, "option --size: expected at least 1Mi, and a "
                          "byte a tensor");
    }
    return rc;
}

/* Before anything is written: a disk that is full is in the way of others. */
static int check_disk(const struct ckpt_bench *b, struct error *e)
{
    uint64_t wanted = b->bytes * b->ranks * ON_DISK, there;
    char one[32], many[32], have[32];
    struct statvfs st;

    if (statvfs(b->dir, &st) < 0) {
        return error_set(e, errno, "look at %s", b->dir);
    }
    there = (uint64_t)st.f_bavail * st.f_frsize;
    if (wanted <= there) {
        return 0;
    }
    ckpt_format_bytes(b->bytes, one, sizeof(one));
    ckpt_format_bytes(wanted, many, sizeof(many));
    ckpt_format_bytes(there, have, sizeof(have));
    return error_text(e, ENOSPC, "%s has %s free, and %u rank%s of %s need%s %s there, "
                      "%d times what they save: choose a smaller --size", b->dir,
                      have, b->ranks, b->ranks == 1 ? "" : "s", one,
                      b->ranks == 1 ? "s" : "", many, ON_DISK);
}

static int check_memory(const struct ckpt_bench *b, struct error *e)
{
    uint64_t wanted = b->bytes * b->ranks * IN_MEMORY;
    char one[32], many[32], have[32];
    struct snap_budget budget;

    snap_budget_find(0, &budget);
    if (wanted <= budget.bytes) {
        return 0;
    }
    ckpt_format_bytes(b->bytes, one, sizeof(one));
    ckpt_format_bytes(wanted, many, sizeof(many));
    ckpt_format_bytes(budget.bytes, have, sizeof(have));
    return error_text(e, ENOMEM, "snapshots may have %s, %s, and %u rank%s of %s "
                      "need%s %s: choose a smaller --size", have, budget.why,
                      b->ranks, b->ranks == 1 ? "" : "s", one,
                      b->ranks == 1 ? "s" : "", many);
}

/* The place goes before anything is told. */
static int measure(const struct ckpt_bench *b, const char *dir, char **ret,
                   struct error *e)
{
    struct bench_place place;
    struct error later = {0};
    int rc = bench_place_make(dir, &place, e);

    if (rc < 0) {
        return rc;
    }
    rc = ckpt_bench_run(b, place.path, place.held, ret, e);
    if (bench_place_remove(&place, &later) < 0 && rc == 0) {
        *e = later;
        return -later.code;
    }
    return rc;
}

int ckpt_verb_bench(const struct ckpt_options *o, const char *dir)
{
    struct ckpt_bench b = {.dir = dir};
    _free_ char *figures = NULL, *whole = NULL;
    struct error e = {0};
    int rc = take_options(o, &b, &e);

    if (rc == 0 && !(whole = realpath(dir, NULL))) {
        rc = error_set(&e, errno, "open %s", dir);
    }
    rc = rc < 0 ? rc : check_disk(&b, &e);
    rc = rc < 0 ? rc : check_memory(&b, &e);
    rc = rc < 0 ? rc : measure(&b, whole, &figures, &e);
    rc = rc < 0 ? rc : ckpt_bench_show(&b, figures, o->format, &e);
    if (rc == -ECANCELED) {
        command_fail(&e);
        return EXIT_CANCELLED;
    }
    return rc < 0 ? command_fail(&e) : rc;
}
