/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workers do together. Each call is a collective: all workers make it,
 * in the same order. A failure says which worker met it, and in what.
 */
#ifndef CHARLM_GROUP_H
#define CHARLM_GROUP_H

#include "failure.h"
#include "text.h"

#include <muster.h>
#include <stddef.h>
#include <stdint.h>

/* Adds up n floats over all workers, in place. `what` is for the message. */
int group_sum(struct muster *m, float *values, size_t n, const char *what,
              struct failure *f);

/* The largest of all workers' values, for each of n, in place. */
int group_max(struct muster *m, int32_t *values, size_t n, const char *what,
              struct failure *f);

/* Worker 0's bytes for everybody. */
int group_copy(struct muster *m, void *data, size_t len, const char *what,
               struct failure *f);

/* Fails on all workers, with the text of worker 0, if `rc` < 0 there: for what
 * worker 0 does alone and everybody needs. */
int group_agree(struct muster *m, int rc, struct failure *f);

/* Fails on all workers unless all read the same text. */
int group_check_text(struct muster *m, const struct text *text,
                     struct failure *f);

#endif
