/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the C API share: a directory for checkpoints, and files in it. */
#ifndef MUSTER_CKPT_API_BED_H
#define MUSTER_CKPT_API_BED_H

#include "ckpt/team.h"
#include "muster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { API_BED_ROOT_BYTES = 4096 };

/* Makes a directory, with all places of checkpoints; it goes with api_bed_end(). */
void api_bed_begin(char root[API_BED_ROOT_BYTES]);
/* Returns what main() does. */
int api_bed_end(const char *root);

/* A place of that name, as it is now. */
struct muster_ckpt *api_bed_open(const char *root, const char *name,
                                 const struct muster_ckpt_group *group,
                                 const struct muster_ckpt_options *options);
/* The file of the only checkpoint in `name`, or of the one that is not `other`. */
void api_bed_find_file(const char *root, const char *name, const char *other, char *to,
                       size_t size);
/* Changes that bit; false where there is no such byte. */
bool api_bed_flip(const char *path, long byte, int bit);
/* In bytes; -1: there is no such file. */
long api_bed_length(const char *path);

/* What each rank of a team does with the model (ckpt/model_bed.h), and what came of it:
 * saves that step, or loads it. */
struct api_trip {
    const char *root, *name;
    int64_t step;
    uint64_t seed;
    bool is_save;
    uint64_t n_wrong[TEAM_MAX];
    int rc[TEAM_MAX];
    int64_t got[TEAM_MAX];
    char text[TEAM_MAX][512];
};

/* For team_run(); `arg` is the trip. */
void api_bed_travel(void *arg, const struct muster_ckpt_group *group);

#endif
