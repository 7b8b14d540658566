/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good a model is: its mean loss over all of the text. That of one step is of
 * few sequences, and tells little of it.
 */
#ifndef CHARLM_EVALUATE_H
#define CHARLM_EVALUATE_H

#include "options.h"

/* Of the model in the checkpoint `o->evaluate`. */
int evaluate(const struct options *o, double *ret_loss, struct failure *f);

#endif
