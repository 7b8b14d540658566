/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "weights.h"

#include "random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum extent { ONE, VOCAB, CONTEXT, WIDTH, WIDTH_3, WIDTH_4 };

enum start {
    ZEROS,
    ONES,
    NORMAL,
    NORMAL_RESIDUAL, /* smaller with depth, as it is added once a layer */
};

/* What a tensor is; `field` is the place of its pointer in its struct. */
struct description {
    const char *name;
    size_t field;
    enum extent rows;
    enum extent cols;
    enum start start;
};

#define FIELD(name) offsetof(struct weights, name)
#define LAYER_FIELD(name) offsetof(struct layer_weights, name)

static const struct description first_tensors[] = {
    {"tokens", FIELD(tokens), VOCAB, WIDTH, NORMAL},
    {"positions", FIELD(positions), CONTEXT, WIDTH, NORMAL},
};

static const struct description layer_tensors[] = {
    {"norm1.gain", LAYER_FIELD(norm1_gain), ONE, WIDTH, ONES},
    {"norm1.bias", LAYER_FIELD(norm1_bias), ONE, WIDTH, ZEROS},
    {"qkv", LAYER_FIELD(qkv), WIDTH, WIDTH_3, NORMAL},
    {"qkv.bias", LAYER_FIELD(qkv_bias), ONE, WIDTH_3, ZEROS},
    {"mix", LAYER_FIELD(mix), WIDTH, WIDTH, NORMAL_RESIDUAL},
    {"mix.bias", LAYER_FIELD(mix_bias), ONE, WIDTH, ZEROS},
    {"norm2.gain", LAYER_FIELD(norm2_gain), ONE, WIDTH, ONES},
    {"norm2.bias", LAYER_FIELD(norm2_bias), ONE, WIDTH, ZEROS},
    {"grow", LAYER_FIELD(grow), WIDTH, WIDTH_4, NORMAL},
    {"grow.bias", LAYER_FIELD(grow_bias), ONE, WIDTH_4, ZEROS},
    {"shrink", LAYER_FIELD(shrink), WIDTH_4, WIDTH, NORMAL_RESIDUAL},
    {"shrink.bias", LAYER_FIELD(shrink_bias), ONE, WIDTH, ZEROS},
};

static const struct description last_tensors[] = {
    {"final.gain", FIELD(final_gain), ONE, WIDTH, ONES},
    {"final.bias", FIELD(final_bias), ONE, WIDTH, ZEROS},
};

enum {
    N_FIRST = sizeof(first_tensors) / sizeof(first_tensors[0]),
    N_LAYER = sizeof(layer_tensors) / sizeof(layer_tensors[0]),
    N_LAST = sizeof(last_tensors) / sizeof(last_tensors[0]),
};

_Static_assert(N_FIRST + N_LAST + N_LAYER * MAX_LAYERS == MAX_TENSORS,
               "MAX_TENSORS has room for every tensor");
_Static_assert(sizeof(struct layer_weights) == N_LAYER * sizeof(real *),
               "every tensor of a layer is described");

int shape_check(struct shape s, struct failure *f)
{
    if (s.vocab < 2 || s.vocab > MAX_VOCAB) {
        return failure_set(f, "%u different characters: expected 2 to %d",
                           s.vocab, MAX_VOCAB);
    }
    if (s.context < 2 || s.context > MAX_CONTEXT) {
        return failure_set(f, "context %u: expected 2 to %d", s.context,
                           MAX_CONTEXT);
    }
    if (s.width < 1 || s.width > MAX_WIDTH) {
        return failure_set(f, "width %u: expected 1 to %d", s.width,
                           MAX_WIDTH);
    }
    if (s.heads < 1 || s.width % s.heads) {
        return failure_set(f, "heads %u: expected a divisor of width %u",
                           s.heads, s.width);
    }
    if (s.layers < 1 || s.layers > MAX_LAYERS) {
        return failure_set(f, "layers %u: expected 1 to %d", s.layers,
                           MAX_LAYERS);
    }
    return 0;
}

static size_t extent_of(struct shape s, enum extent extent)
{
    const size_t sizes[] = {
        [ONE] = 1,
        [VOCAB] = s.vocab,
        [CONTEXT] = s.context,
        [WIDTH] = s.width,
        [WIDTH_3] = 3 * (size_t)s.width,
        [WIDTH_4] = 4 * (size_t)s.width,
    };

    return sizes[extent];
}

/* The i-th tensor in the order of the array; *ret_layer is its layer or -1. */
static const struct description *describe(struct shape s, size_t i,
                                          int *ret_layer)
{
    size_t in_layers = (size_t)s.layers * N_LAYER;

    *ret_layer = -1;
    if (i < N_FIRST) {
        return &first_tensors[i];
    }
    i -= N_FIRST;
    if (i < in_layers) {
        *ret_layer = (int)(i / N_LAYER);
        return &layer_tensors[i % N_LAYER];
    }
    return &last_tensors[i - in_layers];
}

static size_t tensor_count(struct shape s)
{
    return N_FIRST + (size_t)s.layers * N_LAYER + N_LAST;
}

size_t weights_count(struct shape s)
{
    size_t count = 0;

    for (size_t i = 0; i < tensor_count(s); i++) {
        int layer;
        const struct description *d = describe(s, i, &layer);

        count += extent_of(s, d->rows) * extent_of(s, d->cols);
    }
    return count;
}

size_t weights_list(struct shape s, struct tensor *to)
{
    size_t offset = 0;

    for (size_t i = 0; i < tensor_count(s); i++) {
        int layer;
        const struct description *d = describe(s, i, &layer);

        if (layer < 0) {
            snprintf(to[i].name, sizeof(to[i].name), "%s", d->name);
        } else {
            snprintf(to[i].name, sizeof(to[i].name), "layer%d.%s", layer,
                     d->name);
        }
        to[i].rows = extent_of(s, d->rows);
        to[i].cols = extent_of(s, d->cols);
        to[i].offset = offset;
        offset += to[i].rows * to[i].cols;
    }
    return tensor_count(s);
}

struct weights weights_map(struct shape s, real *all)
{
    struct weights w = {0};

    for (size_t i = 0; i < tensor_count(s); i++) {
        int layer;
        const struct description *d = describe(s, i, &layer);
        char *base = layer < 0 ? (char *)&w : (char *)&w.layers[layer];

        memcpy(base + d->field, &all, sizeof(all));
        all += extent_of(s, d->rows) * extent_of(s, d->cols);
    }
    return w;
}

void weights_init(struct shape s, real *all, uint64_t seed)
{
    const double deviation = 0.02;
    uint64_t index = 0;

    for (size_t i = 0; i < tensor_count(s); i++) {
        int layer;
        const struct description *d = describe(s, i, &layer);
        size_t n = extent_of(s, d->rows) * extent_of(s, d->cols);
        double scale = d->start == NORMAL_RESIDUAL
                           ? deviation / sqrt(2.0 * s.layers)
                           : deviation;

        for (size_t j = 0; j < n; j++, index++) {
            double value = d->start == ZEROS  ? 0
                           : d->start == ONES ? 1
                           : scale * random_normal(seed, RANDOM_WEIGHTS, index);

            all[index] = (real)value;
        }
    }
}
