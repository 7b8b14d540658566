/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of launcher/output.h: an output, and what a test sees of it. */
#ifndef MUSTER_LAUNCHER_OUTPUT_BED_H
#define MUSTER_LAUNCHER_OUTPUT_BED_H

#include "base/buf.h"
#include "launcher/output.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* What a test sees of its output. */
struct view {
    struct output *o;
    struct buf got;     /* all bytes */
    char pieces[4096];  /* L, C or E a call */
    size_t n_pieces;
    size_t largest;
    unsigned pause_after; /* calls; 0: never */
    char troubles[64];
    uint64_t lost;
    char text[512];
    int n_closed;
    int n_done;
    bool all_done;
};

/* First and last of all; in between the current directory is a new one, and all
 * is on the default loop. */
void view_bed_up(void);
void view_bed_down(void);

void view_start(struct view *v, struct output_config c);
/* Destroys the output, and waits for that. */
void view_finish(struct view *v, unsigned deadline_ms);
/* A stream of the output; the write end, which does not block, is returned. */
int view_open(struct view *v, const char *path, struct output_stream **ret);
void view_on_closed(void *arg);

/* Turns the loop for a while. */
void view_turn(unsigned ms);
#define view_turn_until(cond)                                \
    for (int turns_ = 0; turns_ < 5000 && !(cond); turns_++) \
    view_turn(2)

void view_put(int fd, const char *text);
/* What is in that file; the caller frees it. */
char *view_file(const char *name);

#endif
