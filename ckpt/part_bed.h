/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of parts share: one of some pieces, a blob and a state, and its arrays. */
#ifndef MUSTER_CKPT_PART_BED_H
#define MUSTER_CKPT_PART_BED_H

#include "base/buf.h"
#include "ckpt/arrays.h"
#include "ckpt/part.h"

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

enum { PART_BED_N_PIECES = 3, PART_BED_N_FIELDS = 8 };

/* Of a tensor half of it, of a point all, and a blob of the rank. */
extern const struct part_piece part_bed_pieces[PART_BED_N_PIECES];

/* The part of rank 1 of two, which borrows all that is in it. */
struct part part_bed_example(void);
void part_bed_encode(const struct part *p, struct buf *b);

/* The arrays of an encoded one, in the order in which they lie. */
void part_bed_list(void *data[PART_BED_N_FIELDS], struct array fields[PART_BED_N_FIELDS]);

#endif
