/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number that the model is made of: float in the program. The gradient
 * check also builds the same sources with double, where finite differences are
 * exact enough to find any wrong term.
 */
#ifndef CHARLM_REAL_H
#define CHARLM_REAL_H

#ifdef CHARLM_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#endif
