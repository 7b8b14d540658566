/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints by muster_ckpt.h (--save-together): all workers save and load, each
 * writes a share, and muster sees to it that one is whole, verified and durable.
 * Every call is made by all workers, at the same step.
 */
#ifndef CHARLM_TOGETHER_H
#define CHARLM_TOGETHER_H

#include "failure.h"
#include "options.h"
#include "state.h"

#include <muster.h>
#include <stdbool.h>

struct together;

/* `m` and `s` are borrowed until together_close(), and `s` stays in its place.
 * On failure, too, *ret is closed by the caller, if it is not NULL. */
int together_open(struct muster *m, const char *dir, const struct options *o,
                  struct state *s, struct together **ret, struct failure *f);
void together_close(struct together *t);

/* Fills the state from the newest checkpoint that is whole; *ret_found is false
 * where there is none. Fails if it is of another model, text or seed. */
int together_load(struct together *t, bool *ret_found, struct failure *f);

/* Whether to save after this step, and whether to stop then. */
int together_ask(struct together *t, bool *ret_save, bool *ret_stop,
                 struct failure *f);
int together_save(struct together *t, struct failure *f);

#endif
