/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks are meant: all, lead (rank 0), none, or ranks and ranges such as
 * 0,3-5.
 */
#ifndef MUSTER_SPEC_RANK_SET_H
#define MUSTER_SPEC_RANK_SET_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the text says so. */
bool rank_set_is_valid(const char *text);

/* Whether a rank is one of them; `text` is valid. */
bool rank_set_has(const char *text, uint32_t rank);

#endif
