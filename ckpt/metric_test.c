/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/metric.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

struct one {
    enum found_kind kind;
    const char *text, *name, *want; /* NULL: there is none */
};

static const struct one cases[] = {
    {FOUND_MUSTER, "{\"state\":{\"loss\":0.5}}", "loss", "0.5"},
    {FOUND_MUSTER, "{\"state\":{\"loss\":3}}", "loss", "3"},
    {FOUND_MUSTER, "{\"state\":{\"m\":{\"loss\":2}}}", "m.loss", "2"},
    {FOUND_MUSTER, "{\"state\":{\"m\":{\"a.b\":2}}}", "m.a.b", "2"},
    {FOUND_MUSTER, "{\"state\":{\"m.a\":{\"b\":4},\"m\":{\"a.b\":2}}}", "m.a.b", "4"},
    {FOUND_MUSTER, "{\"state\":{\"m.loss\":1,\"m\":{\"loss\":2}}}", "m.loss", "1"},
    {FOUND_MUSTER, "{\"state\":{\"m\":{\"loss\":2}}}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":\"0.5\"}}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":true}}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":[1]}}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":[]}", "loss", NULL},
    {FOUND_MUSTER, "{\"loss\":1}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"\":1}}", ".", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":1e999}}", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":NaN}}", "loss", NULL},
    {FOUND_MUSTER, "[1]", "loss", NULL},
    {FOUND_MUSTER, "{\"state\":{\"loss\":1}", "loss", NULL},
    {FOUND_MUSTER, "", "loss", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},{\"l\":2},{\"x\":3}]}", "l", "2"},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},7,{\"x\":null}]}", "l", "1"},
    /* What Python writes where a loss is no number; it is the last that counts. */
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},7,{\"l\":null}]}", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},{\"l\":NaN}]}", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},{\"l\":-Infinity}]}", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":NaN,\"x\":Infinity},{\"l\":2}]}", "l",
     "2"},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":36893488147419103232}]}", "l",
     "3.68935e+19"},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":-123456789012345678}]}", "l",
     "-1.23457e+17"},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1.12345678901234567890e2}]}", "l",
     "112.346"},
    {FOUND_TRAINER, "{\"a\":\"\\\"NaN\",\"log_history\":[{\"NaN\":3}]}", "NaN", "3"},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":NaN1}]}", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1},{\"l", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":[{\"l\":1}]}\"\\", "l", NULL},
    {FOUND_TRAINER, "", "l", NULL},
    {FOUND_TRAINER, "{\"log_history\":{\"l\":1}}", "l", NULL},
    {FOUND_TRAINER, "{\"state\":{\"l\":1}}", "l", NULL},
    {FOUND_TORCH, "{\"state\":{\"l\":1}}", "l", NULL},
};

static void test_cases(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct one *c = &cases[i];
        char got[32] = "none";
        double v = 0;

        if (metric_parse(c->kind, c->text, strlen(c->text), c->name, &v) > 0) {
            snprintf(got, sizeof(got), "%g", v);
        }
        is_str(got, c->want ? c->want : "none", "%s of %s", c->name, c->text);
    }
}

static void test_hostile(void)
{
    enum { DEEP = 100000 };
    _buf_ struct buf deep = {0};
    char name[METRIC_NAME_BYTES + 8];
    double v;

    buf_puts(&deep, "{\"state\":");
    for (size_t i = 0; i < DEEP; i++) {
        buf_puts(&deep, "[");
    }
    is_int(metric_parse(FOUND_MUSTER, buf_str(&deep), deep.len, "x", &v), -ERR_FORMAT,
           "deep nesting");
    memset(name, '.', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    ok(!metric_parse(FOUND_MUSTER, "{\"state\":{}}", 12, name, &v), "a long name");
    ok(!metric_of_state(NULL, "x", &v) && !metric_of_state("[]", "x", &v) &&
       metric_of_state("{\"x\":1}", "x", &v) && v == 1, "of values alone");
}

int main(void)
{
    test_cases();
    test_hostile();
    return tap_done();
}
