/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts: numbers, text, options, schedule, sampling. */
#include <config.h>

#include "adam.h"
#include "batch.h"
#include "digest.h"
#include "gelu.h"
#include "matrix.h"
#include "options.h"
#include "random.h"
#include "sample.h"
#include "tests/lib/tap.h"
#include "vector.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static void test_digest(void)
{
    ok(digest_of("123456789", 9) == 0x995dc9bbdf1939fa, "published vector");
    ok(digest_of("", 0) == 0, "nothing");
}

static void fill(real *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (real)random_normal(seed, RANDOM_TEST, i);
    }
}

static double at(struct matrix a, size_t row, size_t col)
{
    return (double)a.data[row * a.row_step + col * a.col_step];
}

/* The largest difference to the sums as they are written in books. */
static double product_error(struct matrix c, struct matrix a, struct matrix b,
                            double before)
{
    double worst = 0;

    for (size_t i = 0; i < c.rows; i++) {
        for (size_t j = 0; j < c.cols; j++) {
            double sum = before;

            for (size_t k = 0; k < a.cols; k++) {
                sum += at(a, i, k) * at(b, k, j);
            }
            worst = fmax(worst, fabs(sum - at(c, i, j)));
        }
    }
    return worst;
}

static void test_multiply(void)
{
    static const struct {
        size_t m, k, n;
    } sizes[] = {
        {1, 1, 1},  {4, 8, 16},   {5, 7, 17},    {3, 300, 15},
        {9, 1, 33}, {64, 16, 64}, {13, 513, 31}, {4, 256, 16},
    };

    for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
        size_t m = sizes[s].m, k = sizes[s].k, n = sizes[s].n;
        real *a = malloc(m * k * sizeof(*a));
        real *b = malloc(k * n * sizeof(*b));
        real *c = malloc(m * (n + 2) * sizeof(*c));
        struct matrix wide, to;

        if (!a || !b || !c) {
            bail_out("no memory");
        }
        fill(a, m * k, 1);
        fill(b, k * n, 2);
        for (size_t i = 0; i < m * (n + 2); i++) {
            c[i] = 3;
        }
        wide = matrix_of(c, m, n + 2);
        to = matrix_block(wide, 0, m, 1, n);
        matrix_multiply(to, matrix_of(a, m, k), matrix_of(b, k, n), false);
        ok(product_error(to, matrix_of(a, m, k), matrix_of(b, k, n), 0) < 1e-4,
           "%zu x %zu x %zu", m, k, n);
        ok(c[0] == 3 && c[n + 1] == 3 && c[m * (n + 2) - 1] == 3,
           "and nothing beside it");
        for (size_t i = 0; i < m * (n + 2); i++) {
            c[i] = 3;
        }
        matrix_multiply(to, matrix_transposed(matrix_of(a, k, m)),
                        matrix_transposed(matrix_of(b, n, k)), true);
        ok(product_error(to, matrix_transposed(matrix_of(a, k, m)),
                         matrix_transposed(matrix_of(b, n, k)), 3) < 1e-4,
           "transposed and added");
        free(a);
        free(b);
        free(c);
    }
}

static void test_exp(void)
{
    double worst = 0;
    real limits[] = {-1000, 1000, 0};

    for (double x = -86; x < 88; x += 0.003) {
        real value = (real)x;

        vector_exp(&value, 1);
        worst = fmax(worst, fabs((double)value / exp((double)(real)x) - 1));
    }
    ok(worst < 2.5e-7, "e^x: relative error %.2g", worst);
    vector_exp(limits, 3);
    ok(limits[0] >= 0 && limits[0] < 1e-37, "far below: nearly 0");
    ok(limits[1] > 1e38 && isfinite(limits[1]), "far above: large, finite");
    ok(limits[2] == 1, "e^0");
}

static void test_sums(void)
{
    real x[100];

    for (size_t n = 0; n <= ARRAY_SIZE(x); n++) {
        double sum = 0, dot = 0;

        fill(x, n, n);
        for (size_t i = 0; i < n; i++) {
            sum += (double)x[i];
            dot += (double)x[i] * (double)x[i];
        }
        if (fabs(sum - (double)vector_sum(x, n)) > 1e-4 ||
            fabs(dot - (double)vector_dot(x, x, n)) > 1e-4) {
            ok(false, "sums of %zu numbers", n);
        }
    }
    ok(true, "sums of 0 to 100 numbers");
    x[0] = 500;
    x[1] = 500;
    x[2] = -500;
    vector_softmax(x, 3);
    ok(x[0] == 0.5f && x[1] == 0.5f && x[2] < 1e-30f, "softmax far from 0");
}

static void test_gelu(void)
{
    real in[1000], out[1000], grad[1000];
    double worst = 0, worst_grad = 0;

    for (size_t i = 0; i < 1000; i++) {
        in[i] = (real)(-20 + 0.04 * (double)i);
        grad[i] = 2;
    }
    gelu_forward(out, in, 1000);
    gelu_backward(grad, in, 1000);
    for (size_t i = 0; i < 1000; i++) {
        double x = (double)in[i], c = sqrt(2 / 3.14159265358979324);
        double t = tanh(c * (x + 0.044715 * x * x * x));
        double slope = (1 + t) / 2 +
                       x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);

        worst = fmax(worst, fabs(x / 2 * (1 + t) - (double)out[i]));
        worst_grad = fmax(worst_grad, fabs(2 * slope - (double)grad[i]));
    }
    ok(worst < 2e-6, "values: error %.2g", worst);
    ok(worst_grad < 2e-5, "slopes: error %.2g", worst_grad);
}

static void test_random(void)
{
    double sum = 0, square = 0;

    ok(random_u64(1, RANDOM_BATCH, 2) == random_u64(1, RANDOM_BATCH, 2),
       "the same again");
    ok(random_u64(1, RANDOM_BATCH, 2) != random_u64(2, RANDOM_BATCH, 2) &&
           random_u64(1, RANDOM_BATCH, 2) != random_u64(1, RANDOM_TEST, 2) &&
           random_u64(1, RANDOM_BATCH, 2) != random_u64(1, RANDOM_BATCH, 3),
       "another with another seed, stream or index");
    for (uint64_t i = 0; i < 20000; i++) {
        double x = random_normal(4, RANDOM_TEST, i);

        sum += x;
        square += x * x;
    }
    ok(fabs(sum / 20000) < 0.03 && fabs(square / 20000 - 1) < 0.05,
       "mean 0, variance 1 (%.3f, %.3f)", sum / 20000, square / 20000);
}

static void test_share(void)
{
    for (uint32_t world = 1; world <= 40; world++) {
        uint32_t next = 0;
        bool fits = true;

        for (uint32_t rank = 0; rank < world; rank++) {
            struct share s = batch_share(32, rank, world);

            fits = fits && s.first == next && s.count >= 32 / world &&
                   s.count <= 32 / world + 1;
            next += s.count;
        }
        if (!fits || next != 32) {
            ok(false, "shares of %u workers", world);
        }
    }
    ok(true, "shares are even and cover the batch");
}

static void test_adam(void)
{
    static const struct schedule schedule = {
        .peak = 1,
        .warmup_steps = 10,
        .n_steps = 110,
    };
    real weights[2] = {1, 1}, mean[2] = {0}, square[2] = {0};
    struct adam a = {weights, mean, square, 2};
    real grad[2] = {3, 4};

    ok(fabs(schedule_rate(schedule, 0) - 0.1) < 1e-12, "first step");
    ok(fabs(schedule_rate(schedule, 10) - 1) < 1e-12, "peak");
    ok(fabs(schedule_rate(schedule, 60) - 0.55) < 1e-12, "half way");
    ok(fabs(schedule_rate(schedule, 500) - 0.1) < 1e-12, "after the end");
    ok(fabs(gradient_clip(grad, 2, 1) - 5) < 1e-6, "length of a gradient");
    ok(fabsf(grad[0] - 0.6f) < 1e-6f && fabsf(grad[1] - 0.8f) < 1e-6f,
       "cut to the limit");
    gradient_clip(grad, 2, 2);
    ok(fabsf(grad[0] - 0.6f) < 1e-6f, "below the limit it stays");
    grad[1] = -1e-3f;
    adam_step(a, grad, 0.01, 0);
    ok(fabsf(weights[0] - 0.99f) < 1e-5f && fabsf(weights[1] - 1.01f) < 1e-5f,
       "the first step has the length of the rate, whatever the gradient");
}

static void put_file(const char *dir, const char *name, const char *content)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    if (!f || fputs(content, f) < 0 || fclose(f) != 0) {
        bail_out("cannot write %s", path);
    }
}

static void test_text(void)
{
    char dir[] = "charlm_test.XXXXXX", path[PATH_MAX], link[PATH_MAX];
    char *paths[] = {dir, path};
    struct failure f = {{0}};
    struct text t = {0};

    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    snprintf(path, sizeof(path), "%s/b", dir);
    snprintf(link, sizeof(link), "%s/a", dir);
    put_file(dir, "c", "ca\n");
    put_file(dir, "b", "bb");
    ok(symlink("c", link) == 0, "(a link a -> c)");
    is_int(text_load(paths, 2, &t, &f), 0, "a directory and a file of it");
    is_int((intmax_t)t.length, 5, "each file once");
    is_int(t.n_symbols, 4, "with four characters");
    ok(memcmp(t.symbols, "\nabc", 4) == 0, "in order");
    ok(memcmp(t.codes, "\3\1\0\2\2", 5) == 0, "by name: a (-> c), then b");
    is_int(text_code(&t, 'b'), 2, "code of a byte");
    is_int(text_code(&t, 'x'), -1, "that does not occur");
    text_release(&t);
    unlink(link);
    is_int(text_load(paths + 1, 1, &t, &f), -EINVAL, "one character only");
    like(f.text, "2 bytes and 1 different", "said so");
    unlink(path);
    ok(text_load(paths + 1, 1, &t, &f) < 0, "no file");
    like(f.text, path, "named");
    ok(symlink("nowhere", link) == 0 && text_load(paths, 1, &t, &f) < 0,
       "a link to nothing");
    like(f.text, link, "named");
    unlink(link);
    snprintf(path, sizeof(path), "%s/c", dir);
    unlink(path);
    rmdir(dir);
}

static void test_options(void)
{
    static const struct {
        const char *args[4];
        const char *message; /* NULL: accepted */
    } cases[] = {
        {{"--steps", "5"}, NULL},
        {{"--steps=0", "--keep=0"}, NULL},
        {{"--help"}, NULL},
        {{"--seed", "18446744073709551615"}, NULL},
        {{"--seed", "18446744073709551616"}, "--seed"},
        {{"--steps", "-1"}, "--steps -1: expected a whole number"},
        {{"--steps", "5x"}, "--steps 5x: expected"},
        {{"--steps", ""}, "--steps : expected"},
        {{"--steps"}, "--steps: expected a value"},
        {{"--stops", "5"}, "--stops: no such option"},
        {{"-x"}, "no such option"},
        {{"more"}, "unexpected argument 'more'"},
        {{"--batch", "0"}, "--batch 0: expected 1"},
        {{"--keep", "1"}, "--keep 1: expected 0 or at least 2"},
        {{"--rate", "0"}, "--rate 0: expected a number above 0"},
        {{"--rate", "nan"}, "--rate nan: expected"},
        {{"--rate", "1e999"}, "--rate 1e999: expected"},
        {{"--heads", "5"}, "heads 5: expected a divisor of width 96"},
        {{"--heads", "0"}, "heads 0: expected a divisor"},
        {{"--context", "1"}, "context 1: expected 2"},
        {{"--width", "4096"}, "width 4096: expected 1 to 1024"},
        {{"--layers", "33"}, "layers 33: expected 1 to 32"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *argv[6] = {(char *)"charlm"};
        struct options o;
        struct failure f = {{0}};
        int argc = 1, rc;

        while (argc < 5 && cases[i].args[argc - 1]) {
            argv[argc] = (char *)cases[i].args[argc - 1];
            argc++;
        }
        rc = options_parse(argc, argv, &o, &f);
        if (cases[i].message) {
            ok(rc < 0, "refused: %s", argv[1]);
            like(f.text, cases[i].message, "for the right reason");
        } else {
            is_int(rc, 0, "accepted: %s", argv[1]);
        }
    }
}

static void test_sample(void)
{
    static const struct shape shape = {
        .vocab = 3, .context = 8, .width = 4, .heads = 2, .layers = 1};
    struct text text = {.n_symbols = 3, .symbols = {'\n', 'a', 0xff}};
    size_t n = weights_count(shape);
    real *values = calloc(n, sizeof(*values));
    struct pass *p = pass_create(shape, 1);
    char one[101], two[101];
    struct weights w;

    if (!values || !p) {
        bail_out("no memory");
    }
    weights_init(shape, values, 1);
    w = weights_map(shape, values);
    sample_text(p, &w, &text, 1, one, 100);
    sample_text(p, &w, &text, 1, two, 100);
    is_int((intmax_t)strlen(one), 100, "as long as asked");
    is_str(one, two, "the same for the same seed");
    is_int((intmax_t)strspn(one, "\na?"), 100, "and printable");
    ok(strchr(one, '\n') && strchr(one, 'a') && strchr(one, '?'),
       "with all characters of a model that knows nothing");
    sample_text(p, &w, &text, 2, two, 100);
    ok(strcmp(one, two) != 0, "another for another seed");
    pass_destroy(p);
    free(values);
}

int main(void)
{
    test_digest();
    test_multiply();
    test_exp();
    test_sums();
    test_gelu();
    test_random();
    test_share();
    test_adam();
    test_text();
    test_options();
    test_sample();
    return tap_done();
}
