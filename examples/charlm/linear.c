/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "linear.h"
#include "vector.h"

#include <string.h>

/* A view of weights that are only read. */
static struct matrix weights_of(const real *w, size_t rows, size_t cols)
{
    return matrix_of((real *)w, rows, cols);
}

void linear_forward(struct matrix out, struct matrix in, const real *w,
                    const real *bias, const real *residual)
{
    for (size_t t = 0; t < out.rows; t++) {
        real *row = out.data + t * out.row_step;

        memcpy(row, bias, out.cols * sizeof(*row));
        if (residual) {
            vector_add(row, residual + t * out.cols, out.cols);
        }
    }
    matrix_multiply(out, in, weights_of(w, in.cols, out.cols), true);
}

void linear_backward(struct matrix grad_in, struct matrix grad_out,
                     struct matrix in, const real *w, real *grad_w,
                     real *grad_bias)
{
    struct matrix w_view = weights_of(w, in.cols, grad_out.cols);

    matrix_multiply(grad_in, grad_out, matrix_transposed(w_view), false);
    matrix_multiply(matrix_of(grad_w, in.cols, grad_out.cols),
                    matrix_transposed(in), grad_out, true);
    for (size_t t = 0; t < grad_out.rows; t++) {
        vector_add(grad_bias, grad_out.data + t * grad_out.row_step,
                   grad_out.cols);
    }
}
