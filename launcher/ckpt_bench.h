/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt bench: what saving and loading take in one directory.
 *
 *   ckpt_bench.c        what is asked for, and whether there is room
 *   ckpt_bench_run.c    the run whose workers measure (ckpt/ckpt_bench.c)
 *   ckpt_bench_show.c   what they have measured
 *   bench_place.c       where, and how that goes away
 */
#ifndef MUSTER_LAUNCHER_CKPT_BENCH_H
#define MUSTER_LAUNCHER_CKPT_BENCH_H

#include "base/error.h"
#include "launcher/show.h"

#include <stdint.h>

struct ckpt_bench {
    const char *dir;
    uint64_t bytes; /* of a rank */
    unsigned ranks, rounds, tensors;
};

/* Runs it in `place`, whose descriptor `held` the run inherits. *ret is what the
 * workers have written, for ckpt_bench_show(); the caller frees it. -ECANCELED: a signal
 * has ended it; others, after what the run said of them. */
int ckpt_bench_run(const struct ckpt_bench *b, const char *place, int held,
                   char **ret, struct error *e);

/* Prints it. The exit status; -ERR_FORMAT: a figure is missing. */
int ckpt_bench_show(const struct ckpt_bench *b, const char *figures,
                    enum show_format format, struct error *e);

#endif
