/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of a watch share: a directory with files that are whole or not, and who looks
 * at it. Who looks and chooses makes cases of it, too. */
#ifndef MUSTER_CKPT_WATCH_BED_H
#define MUSTER_CKPT_WATCH_BED_H

#include "ckpt/found_bed.h"
#include "ckpt/watch.h"

struct watch_bed {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
    struct watch w;
    char passed[1024]; /* names, each with a blank behind it; or what watch_bed_told() says */
};

void watch_bed_open(struct watch_bed *b);
void watch_bed_close(struct watch_bed *b);

/* A safetensors file without its last `cut` bytes; a file of any bytes; the files of a
 * checkpoint of the Trainer. */
void watch_bed_put(const struct watch_bed *b, const char *name, size_t cut);
void watch_bed_put_text(const struct watch_bed *b, const char *name, const char *text);
void watch_bed_put_trainer(struct watch_bed *b, unsigned step, bool has_state);

/* It looks, and finds so many. */
void watch_bed_look(struct watch_bed *b, size_t want);
/* The name of what is chosen, or ""; what was passed is in `passed`. */
const char *watch_bed_choose(struct watch_bed *b);
/* What is said of those that were passed; a ? is before what was not read. */
const char *watch_bed_told(struct watch_bed *b);
/* By a new look: which of those that were passed may be set aside, and what is chosen. */
void watch_bed_broken(struct watch_bed *b, const char *want, const char *chosen,
                      const char *what);
/* For watch_retain(): into `passed`. */
void watch_bed_count(void *arg, const struct watch_entry *entry);

#endif
