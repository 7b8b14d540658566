/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state as a file.
 *
 *   8 bytes  "CHARLM\r\n" (a transfer as text would change it)
 *   u32      version, 2
 *   u32 x 5  vocab, context, width, heads, layers
 *   u32      sequences in a batch
 *   u64 x 2  seed, steps done
 *   256      the characters, the rest 0
 *   u64 x 2  number of weights, of stretches
 *   f32 ...  weights, averages of the gradient, averages of its square
 *   stretches: u32 x 2, u64 x 3  generation, workers, first and last step,
 *            sequences
 *   u64      digest (CRC-64) of all before it
 *
 * Numbers are little-endian. A file is either whole or refused.
 */
#ifndef CHARLM_CHECKPOINT_H
#define CHARLM_CHECKPOINT_H

#include "state.h"

/* Prepares DIR: makes it if it is missing, and removes what a writer that was
 * killed left behind. */
int checkpoint_directory(const char *dir, struct failure *f);

/* Writes DIR/charlm-<step>.ckpt, whole and durable, or nothing; its name goes
 * to `ret_path` (of PATH_MAX). */
int checkpoint_save(const char *dir, const struct state *s, char *ret_path,
                    struct failure *f);

/* Reads into `s`, which was created for the same shape and characters; on
 * failure it is as it was. */
int checkpoint_load(const char *path, struct state *s, struct failure *f);

/* Reads nothing but the history, of a checkpoint of any model; the caller
 * releases it. */
int checkpoint_history(const char *path, struct history *ret,
                       struct failure *f);

/* Removes checkpoints of earlier steps than `newest` beside it, but for the
 * last keep - 1; none if `keep` is 0. */
int checkpoint_tidy(const char *newest, size_t keep, struct failure *f);

#endif
