/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON into a buffer. Any bytes may be given as a string: what is not
 * UTF-8 becomes U+FFFD. Numbers that JSON lacks become the strings "NaN",
 * "Infinity" and "-Infinity". A failed allocation is remembered by the buffer.
 * Nesting is at most 15 deep.
 */
#ifndef MUSTER_LAUNCHER_JSONW_H
#define MUSTER_LAUNCHER_JSONW_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct jsonw {
    struct buf *to; /* borrowed */
    unsigned depth;
    uint16_t filled; /* bit d: something was written at depth d */
};

struct jsonw jsonw_start(struct buf *to);

/* `key` is NULL inside an array and for the outermost value. */
void jsonw_object(struct jsonw *w, const char *key);
void jsonw_array(struct jsonw *w, const char *key);
/* Closes the object or array opened last. */
void jsonw_end_object(struct jsonw *w);
void jsonw_end_array(struct jsonw *w);

void jsonw_str(struct jsonw *w, const char *key, const char *s);
/* As jsonw_str(); nothing is written for "". */
void jsonw_opt_str(struct jsonw *w, const char *key, const char *s);
void jsonw_bytes(struct jsonw *w, const char *key, const char *s, size_t len);
void jsonw_int(struct jsonw *w, const char *key, int64_t v);
void jsonw_num(struct jsonw *w, const char *key, double v);
/* What jsonw_num() wrote, read back: a number or one of the three strings.
 * False, and *ret is not written, for anything else. */
bool jsonw_read_num(const json_t *v, double *ret);
void jsonw_bool(struct jsonw *w, const char *key, bool v);
/* Seconds since 1970 with six digits behind the point. */
void jsonw_time(struct jsonw *w, const char *key, uint64_t wall_ns);
/* Reads such a time, to the microsecond. False, without a value, for what is no
 * number or beyond the year 2286. */
bool jsonw_read_time(const json_t *v, uint64_t *ret);

#endif
