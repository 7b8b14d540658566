/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers print as JSON lines, one object a line of theirs; see
 * doc/formats.md. A part of a line is held until its rest comes, up to 64 KiB.
 */
#ifndef MUSTER_LAUNCHER_JSON_OUTPUT_H
#define MUSTER_LAUNCHER_JSON_OUTPUT_H

#include "base/buf.h"
#include "rendezvous/tree_msg.h"

#include <stdint.h>

struct json_output;

/* NULL without memory. */
struct json_output *json_output_create(void);
void json_output_destroy(struct json_output *j);

/* A piece that came at `wall_ns`; appends the objects that it completes. */
void json_output_put(struct json_output *j, const struct tree_output *o,
                     uint64_t wall_ns, struct buf *to);

/* Nothing more comes: appends what is held. */
void json_output_flush(struct json_output *j, uint64_t wall_ns, struct buf *to);

#endif
