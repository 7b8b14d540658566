/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of saves that become checkpoints share: a directory of them, the files that
 * agents have written of a save of two ranks, and the lead that makes a checkpoint of it.
 */
#ifndef MUSTER_LAUNCHER_COMMIT_BED_H
#define MUSTER_LAUNCHER_COMMIT_BED_H

#include "ckpt/step.h"
#include "launcher/snap_commit.h"

#include <stdbool.h>
#include <stdint.h>

enum { COMMIT_BED_RANKS = 2, COMMIT_BED_BYTES = 8 /* of each rank */ };

struct commit_bed {
    char top[256];
    int root;
    unsigned nth;      /* save of a step, below 16; what its directory is called by */
    const char *state; /* JSON values in what is written, or NULL; borrowed */
    char uuid[COMMIT_UUID_BYTES]; /* that was asked for last */
};

/* Gives up where something that is part of no case fails. */
void commit_bed_must(int rc, const struct error *e);

/* Zeroed before. In a directory of its own, which is named after the test; or in one that
 * is there. It goes in the end, either way. */
void commit_bed_make(struct commit_bed *b, const char *name);
void commit_bed_open(struct commit_bed *b, const char *dir);
void commit_bed_close(struct commit_bed *b);
/* Nothing is in it any more. */
void commit_bed_clear(struct commit_bed *b);

/* The 32 digits of a save, until they are asked for again; and its directory's name. */
const char *commit_bed_uuid(struct commit_bed *b, uint64_t step);
void commit_bed_name(struct commit_bed *b, uint64_t step, char name[STEP_NAME_BYTES]);
/* Whether it has that file; "": whether anything is left of it. */
bool commit_bed_has(struct commit_bed *b, uint64_t step, const char *file);
/* Of a checkpoint. */
uint64_t commit_bed_token(struct commit_bed *b, uint64_t step);
void commit_bed_remove(struct commit_bed *b, uint64_t step);

/* What agents have written, of the first `n` ranks. */
void commit_bed_write(struct commit_bed *b, uint64_t step, uint32_t n);
/* How a lead commits it of which all was written, where two are kept and nobody is busy.
 * Borrows b->top and `uuid`, which it fills. */
struct snap_commit commit_bed_facts(const struct commit_bed *b, uint64_t step,
                                    char uuid[COMMIT_UUID_BYTES]);
/* As the lead does it: once it is a checkpoint, what is not wanted any more goes. */
int commit_bed_run(const struct snap_commit *c, struct io *io, const struct error *why,
                   struct error *e);
/* The facts with these changed; *e is cleared before. */
int commit_bed_commit(struct commit_bed *b, uint64_t step, uint32_t n_written,
                      uint64_t busy_from, const struct error *why, struct error *e);
/* Written and committed; checks in TAP. */
void commit_bed_save(struct commit_bed *b, uint64_t step);

#endif
