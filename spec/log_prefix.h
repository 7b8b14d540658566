/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before each line of output: rank, host or none, or a template such
 * as "{host} {local_rank}: ". {{ and }} are braces.
 */
#ifndef MUSTER_SPEC_LOG_PREFIX_H
#define MUSTER_SPEC_LOG_PREFIX_H

#include "base/buf.h"

#include <stdbool.h>

enum { LOG_PREFIX_MAX_BYTES = 200 };

enum log_prefix_field {
    LOG_PREFIX_RANK,
    LOG_PREFIX_LOCAL_RANK,
    LOG_PREFIX_HOST,
    LOG_PREFIX_NODE,
    LOG_PREFIX_STREAM,
    LOG_PREFIX_TIME,
    LOG_PREFIX_GENERATION,
    LOG_PREFIX_RUN,
    LOG_PREFIX_N_FIELDS,
};

/* Whether `text` is one. If not, says in `why` what is wrong, e.g. "has the
 * unknown field {rnak}; did you mean {rank}". */
bool log_prefix_is_valid(const char *text, struct buf *why);

/* The same from a template of torchrun, as "[${role_name}${local_rank}]:", with
 * the macros role_name, rank, local_rank and hostname. 1; 0 if it has none but the
 * first; -1 if a $ begins no macro. */
int log_prefix_from_torch(const char *text, const char *role, struct buf *to);

/* Whether the field is in it; `text` is valid. */
bool log_prefix_has(const char *text, enum log_prefix_field field);

/* Appends it with the value of each field in its place ("?" for NULL). */
void log_prefix_write(const char *text,
                      const char *const values[LOG_PREFIX_N_FIELDS],
                      struct buf *to);

#endif
