/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of the model, and where each of its tensors lies. All weights are
 * one array, and so is anything that has a number for each weight (gradient,
 * moments): it is reduced, broadcast and saved in one piece.
 */
#ifndef CHARLM_WEIGHTS_H
#define CHARLM_WEIGHTS_H

#include "failure.h"
#include "real.h"

#include <stddef.h>
#include <stdint.h>

enum { MAX_LAYERS = 32, MAX_WIDTH = 1024, MAX_CONTEXT = 1024, MAX_VOCAB = 256 };

struct shape {
    uint32_t vocab;   /* different characters */
    uint32_t context; /* characters that the model sees at once */
    uint32_t width;   /* numbers that stand for one position */
    uint32_t heads;
    uint32_t layers;
};

/* 0, or what is wrong with it. */
int shape_check(struct shape s, struct failure *f);

struct layer_weights {
    real *norm1_gain, *norm1_bias;
    real *qkv, *qkv_bias;
    real *mix, *mix_bias;
    real *norm2_gain, *norm2_bias;
    real *grow, *grow_bias;
    real *shrink, *shrink_bias;
};

/* Pointers into an array of weights_count() numbers that somebody else owns. */
struct weights {
    real *tokens; /* vocab x width; also the output layer, transposed */
    real *positions;
    struct layer_weights layers[MAX_LAYERS];
    real *final_gain, *final_bias;
};

size_t weights_count(struct shape s);

struct weights weights_map(struct shape s, real *all);

/* One tensor, for listings, tests and dumps. */
struct tensor {
    char name[32];
    size_t offset; /* in the array */
    size_t rows;
    size_t cols;
};

enum { MAX_TENSORS = 4 + 12 * MAX_LAYERS };

/* Fills `to`, of MAX_TENSORS. Returns how many there are. */
size_t weights_list(struct shape s, struct tensor *to);

/* The start of training, the same for the same seed. */
void weights_init(struct shape s, real *all, uint64_t seed);

#endif
