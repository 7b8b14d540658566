/* SPDX-License-Identifier: Apache-2.0 */
/*
 * $(NAME) in a job (base/dollar.h). Some names (RANK, MASTER_ADDR) are known only
 * where a worker starts, so it is done in two steps: here names that the job
 * itself sets are replaced and everything else stays a template;
 * launcher/contract.h does the rest and turns $$ into $.
 */
#ifndef MUSTER_SPEC_EXPAND_H
#define MUSTER_SPEC_EXPAND_H

#include "base/buf.h"

#include <stddef.h>

/* The value of a name (`len` bytes at `name`) as a template that came from one
 * of the functions below, or NULL. */
typedef const char *expand_lookup_f(const void *ctx, const char *name,
                                    size_t len);

/* Appends `s` with known names replaced, as a template; stops when more than
 * `max` bytes would have been appended. 0 or -E2BIG. */
int expand_known(struct buf *to, const char *s, size_t max,
                 expand_lookup_f *lookup, const void *ctx);

/* Appends a template that becomes `s` whatever is known. */
void expand_escape(struct buf *to, const char *s);

#endif
