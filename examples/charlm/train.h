/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: the loop over steps, and what comes before and after it.
 */
#ifndef CHARLM_TRAIN_H
#define CHARLM_TRAIN_H

#include "options.h"

#include <muster.h>

/* Trains as the options say, as one worker of `m`; worker 0 writes progress to
 * the standard output and checkpoints to files. Returns 0 when it is done or
 * was asked to stop (and has saved its state), else what went wrong. */
int train(struct muster *m, const struct options *o, struct failure *f);

#endif
