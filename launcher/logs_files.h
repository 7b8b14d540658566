/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files in which agents keep what workers print, below logs/GENERATION/ of a
 * run directory: RANK/stdout and RANK/stderr, or node-N with the lines of all
 * workers of a node (see output_lines.c). Read from outside, while they may grow.
 */
#ifndef MUSTER_LAUNCHER_LOGS_FILES_H
#define MUSTER_LAUNCHER_LOGS_FILES_H

#include "base/str.h"
#include "launcher/rundir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose output is wanted. */
struct logs_choice {
    struct strlist ranks; /* each as in spec/rank_set.h; none: all */
    bool only_stdout, only_stderr;
};

bool logs_is_wanted(const struct logs_choice *c, unsigned rank);

struct logs_file;

struct logs_files {
    const struct rundir *dir;          /* borrowed, as is the choice */
    const struct logs_choice *choice;
    int64_t generation;
    uint64_t since_ns; /* only what was written from then on; 0: all */
    struct logs_file *items;
    size_t n;
};

/* Adds those that have come since; -ENOMEM without memory. */
int logs_files_find(struct logs_files *f);
void logs_files_release(struct logs_files *f);

/* Gets bytes of a stream, in order; not always whole lines. */
typedef void logs_show_f(void *arg, unsigned rank, bool is_err,
                         const char *data, size_t len);

/* Shows what is new in file `i`. True if there was something. */
bool logs_files_show(struct logs_files *f, size_t i, logs_show_f *show,
                     void *arg);

/* What could not be shown as it was asked for. */
struct logs_flaws {
    size_t n_without_times; /* logs without an index of times: shown whole */
    size_t n_with_gaps;     /* logs that were removed before they were read */
};
struct logs_flaws logs_files_flaws(const struct logs_files *f);

/* Whether a rank or a node has files of its own there. */
bool logs_files_has_rank(const struct logs_files *f, size_t rank);
bool logs_files_has_node(const struct logs_files *f, size_t node);

/* The generation with the greatest number below `below` that has files, or 0. */
int64_t logs_newest_generation(const struct rundir *dir, int64_t below);

#endif
