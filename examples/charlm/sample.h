/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from the model: each next character is drawn from what the model
 * expects after those before it.
 */
#ifndef CHARLM_SAMPLE_H
#define CHARLM_SAMPLE_H

#include "model.h"
#include "text.h"

/* Writes `n` characters and a zero byte to `to`, which has n + 1 bytes. Bytes
 * that a terminal would not show as text are written as '?'. The same seed
 * gives the same characters. */
void sample_text(struct pass *p, const struct weights *w,
                 const struct text *text, uint64_t seed, char *to, size_t n);

#endif
