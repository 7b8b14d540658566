/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which streams of which workers of a node are meant: both, stdout, stderr or
 * none, and behind it exceptions by local rank: "none,0:both" is all of local
 * rank 0, and "0:stderr" is all but the standard output of local rank 0.
 */
#ifndef MUSTER_SPEC_STREAM_SET_H
#define MUSTER_SPEC_STREAM_SET_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum stream_bits { STREAM_STDOUT = 1 << 0, STREAM_STDERR = 1 << 1 };

/* Local ranks are below this. */
enum { STREAM_SET_RANKS = 65536 };

/* Whether the text says so. */
bool stream_set_is_valid(const char *text);

/* The bits of a local rank; `text` is valid. */
unsigned stream_set_of(const char *text, uint32_t local_rank);

/* The word for such bits. */
const char *stream_set_word(unsigned bits);

#endif
