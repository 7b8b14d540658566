/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass against finite differences, and the shares of N workers
 * against one worker. Built twice: with float as it is used, and with double,
 * where a difference finds any wrong term of any tensor.
 */
#include <config.h>

#include "batch.h"
#include "random.h"
#include "tests/lib/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef CHARLM_DOUBLE
static const double distance = 1e-5;
static const double tolerance = 1e-7;
static const double rounding = 1e-13;
#else
static const double distance = 2e-3;
static const double tolerance = 1e-2;
static const double rounding = 2e-6;
#endif

static const struct shape shape = {
    .vocab = 11,
    .context = 7,
    .width = 8,
    .heads = 2,
    .layers = 2,
};

struct fixture {
    struct text text;
    struct pass *pass;
    size_t n;
    real *values;
    real *grads;
};

static void setup(struct fixture *x)
{
    x->n = weights_count(shape);
    x->values = calloc(x->n, sizeof(real));
    x->grads = calloc(x->n, sizeof(real));
    x->pass = pass_create(shape, 4);
    x->text = (struct text){.length = 500, .n_symbols = shape.vocab};
    x->text.codes = calloc(1, x->text.length);
    if (!x->values || !x->grads || !x->pass || !x->text.codes) {
        bail_out("no memory");
    }
    for (size_t i = 0; i < x->text.length; i++) {
        x->text.codes[i] = (uint8_t)(random_u64(3, RANDOM_TEST, i) %
                                     shape.vocab);
    }
    /* Larger than at the start of training, and no gain 1 or bias 0: with
     * those a wrong term can hide. */
    weights_init(shape, x->values, 5);
    for (size_t i = 0; i < x->n; i++) {
        x->values[i] += (real)(0.2 * random_normal(6, RANDOM_TEST, i));
    }
}

static void teardown(struct fixture *x)
{
    pass_destroy(x->pass);
    free(x->values);
    free(x->grads);
    free(x->text.codes);
}

static struct batch batch_of(const struct fixture *x)
{
    return (struct batch){
        .text = &x->text,
        .seed = 9,
        .step = 4,
        .n_sequences = 10,
        .length = shape.context,
    };
}

/* Adds the gradient of the share to `grads`; returns its loss. */
static double gradient(struct fixture *x, struct share share, real *grads)
{
    struct weights w = weights_map(shape, x->values);
    struct weights g = weights_map(shape, grads);

    return batch_gradient(batch_of(x), share, x->pass, &w, &g);
}

/* What is differentiated: two sequences are enough, and quick. */
static const struct share few = {.first = 3, .count = 2};

static double loss_of(struct fixture *x)
{
    real *unused = calloc(x->n, sizeof(real));
    double loss = unused ? gradient(x, few, unused) : NAN;

    free(unused);
    return loss;
}

/* The slope of the loss along a direction in one tensor: from its gradient, and
 * from the loss on both sides. */
static void check_direction(struct fixture *x, const struct tensor *t,
                            uint64_t seed)
{
    size_t n = t->rows * t->cols;
    real *at = x->values + t->offset;
    real *saved = malloc(n * sizeof(*saved));
    double slope = 0, scale = 0, measured, difference;
    double side[2];

    if (!saved) {
        bail_out("no memory");
    }
    memcpy(saved, at, n * sizeof(*saved));
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < n; i++) {
            double d = random_normal(seed, RANDOM_TEST, i);

            at[i] = (real)((double)saved[i] + (s ? d : -d) * distance);
        }
        side[s] = loss_of(x);
    }
    for (size_t i = 0; i < n; i++) {
        double g = (double)x->grads[t->offset + i];

        slope += random_normal(seed, RANDOM_TEST, i) * g;
        scale += g * g;
    }
    memcpy(at, saved, n * sizeof(*saved));
    free(saved);
    measured = (side[1] - side[0]) / (2 * distance);
    difference = fabs(measured - slope);
    ok(scale > 0 && difference < tolerance * (sqrt(scale) + 0.01),
       "%s: slope %.6g, measured %.6g", t->name, slope, measured);
}

static void test_every_tensor(void)
{
    struct tensor tensors[MAX_TENSORS];
    size_t n = weights_list(shape, tensors);
    struct fixture x;

    setup(&x);
    gradient(&x, few, x.grads);
    is_int((intmax_t)n, 4 + 12 * shape.layers, "all tensors are listed");
    is_int((intmax_t)(tensors[n - 1].offset + tensors[n - 1].cols),
           (intmax_t)x.n, "and fill the array");
    for (size_t i = 0; i < n; i++) {
        check_direction(&x, &tensors[i], 100 + i);
        check_direction(&x, &tensors[i], 200 + i);
    }
    teardown(&x);
}

#ifdef CHARLM_DOUBLE
/* Each single weight, too. */
static void test_every_weight(void)
{
    struct fixture x;
    double worst = 0;
    size_t worst_at = 0;

    setup(&x);
    gradient(&x, few, x.grads);
    for (size_t i = 0; i < x.n; i++) {
        real saved = x.values[i];
        double above, below, difference;

        x.values[i] = saved + distance;
        above = loss_of(&x);
        x.values[i] = saved - distance;
        below = loss_of(&x);
        x.values[i] = saved;
        difference = fabs((above - below) / (2 * distance) - x.grads[i]);
        if (difference > worst) {
            worst = difference;
            worst_at = i;
        }
    }
    ok(worst < 1e-8, "each of %zu weights: largest error %.2g at %zu", x.n,
       worst, worst_at);
    teardown(&x);
}
#endif

static void test_shares(void)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 10, 13};
    struct fixture x;
    double loss, norm = 0;
    real *sum;

    setup(&x);
    sum = malloc(x.n * sizeof(*sum));
    if (!sum) {
        bail_out("no memory");
    }
    loss = gradient(&x, batch_share(10, 0, 1), x.grads);
    for (size_t i = 0; i < x.n; i++) {
        norm = fmax(norm, fabs((double)x.grads[i]));
    }
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        double sum_loss = 0, worst = 0;

        memset(sum, 0, x.n * sizeof(*sum));
        for (uint32_t rank = 0; rank < worlds[w]; rank++) {
            sum_loss += gradient(&x, batch_share(10, rank, worlds[w]), sum);
        }
        for (size_t i = 0; i < x.n; i++) {
            worst = fmax(worst, fabs((double)(sum[i] - x.grads[i])));
        }
        ok(worst <= rounding * norm,
           "%u workers: gradient as of one (error %.2g of %.2g)", worlds[w],
           worst, norm);
        ok(fabs(sum_loss - loss) <= rounding * loss, "and the same loss");
    }
    free(sum);
    teardown(&x);
}

/* A position must not see what comes after it. */
static void test_causal(void)
{
    struct fixture x;
    struct weights w;
    uint8_t codes[7] = {1, 2, 3, 4, 5, 6, 7};
    real before[7 * 11];

    setup(&x);
    w = weights_map(shape, x.values);
    model_forward(x.pass, &w, codes, 1, 7);
    memcpy(before, x.pass->scores, sizeof(before));
    codes[4] = 9;
    model_forward(x.pass, &w, codes, 1, 7);
    ok(memcmp(before, x.pass->scores, 4 * 11 * sizeof(real)) == 0,
       "a change at 4 leaves the scores at 0 .. 3 as they were");
    ok(memcmp(before + 4 * 11, x.pass->scores + 4 * 11, 11 * sizeof(real)),
       "and changes those at 4");
    teardown(&x);
}

int main(void)
{
    test_every_tensor();
#ifdef CHARLM_DOUBLE
    test_every_weight();
#endif
    test_shares();
    test_causal();
    return tap_done();
}
