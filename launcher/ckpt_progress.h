/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far reading a checkpoint is, on a terminal: a line on stderr that is written again
 * and again, and is gone at the end. Elsewhere nothing is said.
 */
#ifndef MUSTER_LAUNCHER_CKPT_PROGRESS_H
#define MUSTER_LAUNCHER_CKPT_PROGRESS_H

#include "ckpt/io.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_progress {
    struct io io;
    struct io_ops ops;
    const char *name;
    uint64_t done, of, shown_ms;
    bool is_open; /* there is a line */
};

/* What to read with, up to the end: `name` is borrowed, `of` is about how many bytes it
 * has. */
struct io *ckpt_progress_start(struct ckpt_progress *p, const char *name, uint64_t of);
void ckpt_progress_end(struct ckpt_progress *p);

#endif
