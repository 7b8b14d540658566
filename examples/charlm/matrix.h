/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of matrices, and their product. A view owns nothing: it says where
 * numbers lie and how far apart, so that transposing, taking some columns or
 * one attention head of a larger matrix copies nothing.
 */
#ifndef CHARLM_MATRIX_H
#define CHARLM_MATRIX_H

#include "real.h"

#include <stdbool.h>
#include <stddef.h>

struct matrix {
    real *data;
    size_t rows;
    size_t cols;
    size_t row_step; /* from an element to the one below it */
    size_t col_step; /* from an element to the one right of it */
};

/* All of `data`, stored row by row. */
struct matrix matrix_of(real *data, size_t rows, size_t cols);

struct matrix matrix_transposed(struct matrix a);

/* A block of `a` that begins at (row, col). */
struct matrix matrix_block(struct matrix a, size_t row, size_t rows,
                           size_t col, size_t cols);

/* c = a b, or c += a b. The sizes must agree; the columns of `c` must lie next
 * to each other; `c` must not overlap `a` or `b`. The terms of each sum are
 * added in the same order whatever the machine's vectors: the result is the
 * same bits everywhere. */
void matrix_multiply(struct matrix c, struct matrix a, struct matrix b,
                     bool add);

#endif
