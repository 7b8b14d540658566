/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the text of a scalar means. All functions take text and return 0 and the
 * value, or -EINVAL (not such a thing) or -ERANGE (too large), without words:
 * the caller knows what was expected.
 */
#ifndef MUSTER_SPEC_VALUE_H
#define MUSTER_SPEC_VALUE_H

#include "base/buf.h"
#include "spec/job.h"

#include <stdbool.h>
#include <stdint.h>

/* true, false; and the words that YAML 1.1 readers take for them: yes, no, on,
 * off. */
int value_bool(const char *s, bool *ret);

/* A whole decimal number. One with a leading zero is refused: it is octal to
 * some readers and decimal to others. */
int value_count(const char *s, uint64_t *ret);

/* A finite number, as 10, 0.5, 1e-4. */
int value_number(const char *s, double *ret);

/* 10s, 250ms, 5m, 2h, 1d, 1h30m, 1.5h; 0 needs no unit. -EINVAL, or -ERANGE. */
#define VALUE_MAX_SPAN_MS (UINT64_C(100) * 366 * 86400 * 1000)
int value_span(const char *s, uint64_t *ret_ms);
/* The shortest exact form of it. */
void value_write_span(struct buf *to, uint64_t ms);

/* N, A..B, or A:B with 1 <= A <= B <= max. */
int value_range(const char *s, uint32_t max, struct job_nodes *ret);

/* auto, cpu, gpu or a number up to max. */
int value_procs(const char *s, uint32_t max, struct job_procs *ret);

/* A Kubernetes quantity, in thousandths: 500m, 2, 0.5, 4Gi, 1e3. */
int value_quantity(const char *s, double *ret);

/* A plain scalar that readers of YAML 1.1 and 1.2 take for different things:
 * yes, off, 0755, 0o17, 1_000, 12:30. */
bool value_is_ambiguous(const char *s);

/* A plain scalar that some reader takes for something that is not text. */
bool value_needs_quotes(const char *s);

/* As text in double quotes that YAML (and, where ASCII, JSON) reads back. */
void value_write_quoted(struct buf *to, const char *s);

#endif
