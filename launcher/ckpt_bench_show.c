/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_bench.h"

#include "base/cleanup.h"
#include "launcher/ckpt_report.h"
#include "launcher/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_COLUMNS = 6, MAX_ROUNDS = 100 };

/* What the workers call it, what people do, and what nothing can be faster than. */
static const struct figure {
    const char *key, *name, *limit;
} figures[] = {
    {"first", "the first save blocks", "copy into fresh shared memory"},
    {"eager", "a save blocks", "copy"},
    {"lazy", "a lazy save blocks", "copy"},
    {"durable", "a save is durable", "write and sync"},
    {"restore", "load from memory", "copy into fresh memory"},
    {"cold", "load from the disk", "read into fresh memory"},
};

struct measured {
    double ns, limit_ns, ratio; /* medians */
};

/* Rounds of the line KEY NS NS ...: how many. */
static size_t rounds_of(const char *text, const char *key, double *ret)
{
    size_t len = strlen(key), n = 0;

    while (strncmp(text, key, len) != 0 || text[len] != ' ') {
        text += strcspn(text, "\n");
        if (*text == '\0') {
            return 0;
        }
        text++;
    }
    for (text += len; *text == ' ' && n < MAX_ROUNDS; n++) {
        char *end;

        ret[n] = strtod(text + 1, &end);
        text = end;
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* A round is compared with its own limit: what else the machine does changes. */
static int take(const char *text, const struct figure *f, struct measured *ret,
                struct error *e)
{
    double ns[MAX_ROUNDS], limits[MAX_ROUNDS], ratios[MAX_ROUNDS];
    char key[32];
    size_t n = rounds_of(text, f->key, ns);

    snprintf(key, sizeof(key), "%s-limit", f->key);
    if (n == 0 || rounds_of(text, key, limits) != n) {
        return error_text(e, ERR_FORMAT, "ckpt bench: its workers did not say how long "
                          "%s", f->key);
    }
    for (size_t i = 0; i < n; i++) {
        ratios[i] = ns[i] / (limits[i] > 0 ? limits[i] : 1);
    }
    *ret = (struct measured){.ratio = median(ratios, n), .ns = median(ns, n),
                             .limit_ns = median(limits, n)};
    return 0;
}

/* --- for people --- */

static void add_time(struct strlist *cells, double ns)
{
    bool is_long = ns >= 1e9;

    strlist_addf(cells, is_long ? "%.2f s" : "%.1f ms", ns / (is_long ? 1e9 : 1e6));
}

static double rate(const struct ckpt_bench *b, double ns)
{
    return (double)b->bytes * b->ranks / (ns > 0 ? ns : 1) * 1e9;
}

static void show_as_table(const struct ckpt_bench *b, const struct measured *got)
{
    static const char *const head[N_COLUMNS] = {"FIGURE", "TIME", "LIMIT", "RATIO",
                                                "LIMIT'S RATE", "LIMIT IS"};
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf text = {0};
    char one[32];

    for (size_t i = 0; i < N_COLUMNS; i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
        strlist_add(&cells, figures[i].name);
        add_time(&cells, got[i].ns);
        add_time(&cells, got[i].limit_ns);
        strlist_addf(&cells, "%.2f", got[i].ratio);
        strlist_addf(&cells, "%.2f GB/s", rate(b, got[i].limit_ns) / 1e9);
        strlist_add(&cells, figures[i].limit);
    }
    ckpt_format_bytes(b->bytes, one, sizeof(one));
    show_table(&cells, N_COLUMNS, &text);
    printf("%u rank%s, %s in %u tensor%s each, %u round%s\n\n%s", b->ranks,
           b->ranks == 1 ? "" : "s", one, b->tensors, b->tensors == 1 ? "" : "s",
           b->rounds, b->rounds == 1 ? "" : "s", buf_str(&text));
}

/* --- for programs --- */

static int show_as_json(const struct ckpt_bench *b, const struct measured *got,
                        enum show_format format)
{
    _buf_ struct buf text = {0};
    struct jsonw w = jsonw_start(&text);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "directory", b->dir);
    jsonw_int(&w, "ranks", b->ranks);
    jsonw_int(&w, "bytes_per_rank", (int64_t)b->bytes);
    jsonw_int(&w, "tensors_per_rank", b->tensors);
    jsonw_int(&w, "rounds", b->rounds);
    jsonw_array(&w, "figures");
    for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
        jsonw_object(&w, NULL);
        jsonw_str(&w, "name", figures[i].key);
        jsonw_str(&w, "about", figures[i].name);
        jsonw_num(&w, "seconds", got[i].ns / 1e9);
        jsonw_str(&w, "limit", figures[i].limit);
        jsonw_num(&w, "limit_seconds", got[i].limit_ns / 1e9);
        jsonw_num(&w, "limit_bytes_per_second", rate(b, got[i].limit_ns));
        jsonw_num(&w, "ratio", got[i].ratio);
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    return show_json(&text, format);
}

int ckpt_bench_show(const struct ckpt_bench *b, const char *text,
                    enum show_format format, struct error *e)
{
    struct measured got[ARRAY_SIZE(figures)];

    for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
        int rc = take(text, &figures[i], &got[i], e);

        if (rc < 0) {
            return rc;
        }
    }
    if (format == SHOW_JSON || format == SHOW_YAML) {
        return show_as_json(b, got, format);
    }
    show_as_table(b, got);
    return EXIT_OK;
}
