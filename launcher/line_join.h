/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole lines from the pieces in which the output of workers comes. A part of a
 * line is held until its rest comes, up to 64 KiB. Pure.
 */
#ifndef MUSTER_LAUNCHER_LINE_JOIN_H
#define MUSTER_LAUNCHER_LINE_JOIN_H

#include "rendezvous/tree_msg.h"

#include <stdbool.h>
#include <stddef.h>

struct line_join;

/* Gets a line without its newline. `from` has no data. Of a part the rest comes
 * next from the same stream, or never came. */
typedef void line_join_f(void *arg, const struct tree_output *from,
                         const char *line, size_t len, bool is_part);

/* NULL without memory. */
struct line_join *line_join_create(line_join_f *take, void *arg);
void line_join_destroy(struct line_join *j);

void line_join_put(struct line_join *j, const struct tree_output *o);

/* Nothing more comes: gives what is held. */
void line_join_flush(struct line_join *j);

#endif
