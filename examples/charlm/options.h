/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line.
 */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include "failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_DATA_PATHS = 64 };

struct options {
    char *data[MAX_DATA_PATHS]; /* borrowed from argv */
    size_t n_data;
    uint32_t steps;
    uint32_t batch;
    uint32_t context;
    uint32_t width;
    uint32_t heads;
    uint32_t layers;
    uint32_t warmup;
    uint32_t sample;
    uint32_t step_time;        /* ms, at least */
    uint32_t checkpoint_every; /* 0: only when asked */
    uint32_t keep;             /* 0: all */
    uint64_t seed;
    double rate;
    const char *checkpoint_dir; /* NULL: where the run says */
    const char *resume;         /* NULL: what the run says */
    const char *dump_gradients; /* NULL: no */
    const char *history;        /* NULL: no */
    const char *evaluate;       /* NULL: no */
    bool save_together;
    bool help;
};

/* Fills `ret` from the defaults and the arguments. 0, or what is wrong. */
int options_parse(int argc, char **argv, struct options *ret,
                  struct failure *f);

/* What --help prints. */
const char *options_help(void);

#endif
