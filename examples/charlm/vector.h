/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops over rows of numbers. Everything here is written so that a compiler
 * turns it into vector instructions without being allowed to reorder sums:
 * sums are kept in a fixed number of lanes, so their bits do not depend on the
 * width of the machine's vectors.
 */
#ifndef CHARLM_VECTOR_H
#define CHARLM_VECTOR_H

#include "real.h"

#include <stddef.h>

/* On a function: also compile it for the wider vectors of newer x86 machines,
 * to be chosen when the program starts. Not with sanitizers, which are not
 * ready when that choice is made. */
#if defined(__x86_64__) && defined(__OPTIMIZE__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VECTOR_CLONES
#endif

real vector_sum(const real *x, size_t n);
real vector_dot(const real *x, const real *y, size_t n);

/* to += x */
void vector_add(real *restrict to, const real *restrict x, size_t n);

/* x *= factor */
void vector_scale(real *x, real factor, size_t n);

/* x = e^x, to within 2 units in the last place of a float. */
void vector_exp(real *x, size_t n);

/* Turns scores into probabilities in place. */
void vector_softmax(real *x, size_t n);

#endif
