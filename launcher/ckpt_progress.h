/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far something is that takes long. On a terminal it is a line on stderr that is
 * written again and again, and is gone at the end. Elsewhere, as in the log of a batch
 * job, it is a line of its own after 10 s, 20 s more and so on, at most every 10 minutes:
 * what takes no time says nothing there, and what takes a day says little.
 */
#ifndef MUSTER_LAUNCHER_CKPT_PROGRESS_H
#define MUSTER_LAUNCHER_CKPT_PROGRESS_H

#include "ckpt/io.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero to begin with. One thread at a time. */
struct ckpt_line {
    bool is_begun, is_terminal;
    bool is_open; /* there is a line */
    uint64_t began_ms, next_ms, pause_ms;
};

/* Whether it is time to say something: for who has to find out what. */
bool ckpt_line_is_due(struct ckpt_line *l);
/* "muster: reading NAME: 1.0 GiB of 4.0 GiB, 25%, 350.0 MiB/s", where it is time to;
 * `name` may be NULL, and has any characters. */
void ckpt_line_bytes(struct ckpt_line *l, const char *doing, const char *name,
                     uint64_t done, uint64_t of);
/* The same of anything: "muster: measuring eager: 2 of 12". */
void ckpt_line_count(struct ckpt_line *l, const char *doing, uint64_t done, uint64_t of);
/* And of what has no number. */
void ckpt_line_text(struct ckpt_line *l, const char *text);
/* Takes it away until it is due again, as something else is to be told. */
void ckpt_line_hide(struct ckpt_line *l);
/* It is over. */
void ckpt_line_end(struct ckpt_line *l);

/* Reading, with such a line. */
struct ckpt_progress {
    struct io io;
    struct io_ops ops;
    struct ckpt_line line;
    const char *doing, *name;
    uint64_t done, of;
};

/* What to read with, up to the end: `doing` and `name` are borrowed, `of` is about how
 * many bytes there are; 0: nobody knows. Reading fails with -ECANCELED once a signal has
 * come for which ckpt_stop_begin() waits. */
struct io *ckpt_progress_start(struct ckpt_progress *p, const char *doing,
                               const char *name, uint64_t of);
void ckpt_progress_end(struct ckpt_progress *p);

#endif
