/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run in words, for people: the blocks that `muster status` and `muster
 * describe` are made of. What came from outside is made harmless for terminals.
 */
#ifndef MUSTER_LAUNCHER_RUN_TEXT_H
#define MUSTER_LAUNCHER_RUN_TEXT_H

#include "base/buf.h"
#include "launcher/runview.h"

/* State, progress, verdict, first failure, and where things are. */
void run_text_head(struct buf *to, const struct run_view *v);

/* A table of its nodes; nothing while there are none. */
void run_text_nodes(struct buf *to, const struct run_status *s);

/* A table of its workers. */
void run_text_workers(struct buf *to, const struct run_status *s);

#endif
