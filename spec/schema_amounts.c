/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of fields that are amounts: counts, numbers, nodes, processes, times,
 * CPUs and memory.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/job.h"
#include "spec/schema_types.h"
#include "spec/value.h"

#include <string.h>

static bool read_count(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    const char *s = schema_scalar(r, f, n);
    uint64_t v = 0;

    if (!s) {
        return false;
    }
    if (!((f->flags & FIELD_TAKES_AUTO) && strcmp(s, "auto") == 0) &&
        (value_count(s, &v) < 0 || v < f->min || v > f->max)) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(uint32_t *)at = (uint32_t)v;
    }
    return true;
}

static json_t *write_count(const struct field *f, const void *at)
{
    uint32_t v = *(const uint32_t *)at;

    if (v == 0 && (f->flags & FIELD_TAKES_AUTO)) {
        return json_string("auto");
    }
    return v < f->min ? json_null() : json_integer(v);
}

static bool read_number(struct reader *r, const struct field *f,
                        struct node *n, void *at)
{
    const char *s = schema_scalar(r, f, n);
    double v;

    if (!s) {
        return false;
    }
    if (value_number(s, &v) < 0) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(double *)at = v;
    }
    return true;
}

static json_t *write_number(const struct field *f, const void *at)
{
    (void)f;
    return json_real(*(const double *)at);
}

static bool read_nodes(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    const char *s = schema_scalar(r, f, n);
    struct job_nodes v;

    if (!s) {
        return false;
    }
    if (value_range(s, (uint32_t)f->max, &v) < 0) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(struct job_nodes *)at = v;
    }
    return true;
}

static json_t *write_nodes(const struct field *f, const void *at)
{
    const struct job_nodes *v = at;

    (void)f;
    return v->min == v->max ? json_integer(v->min)
                            : json_sprintf("%u..%u", v->min, v->max);
}

static bool read_procs(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    const char *s = schema_scalar(r, f, n);
    struct job_procs v;

    if (!s) {
        return false;
    }
    if (value_procs(s, (uint32_t)f->max, &v) < 0) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(struct job_procs *)at = v;
    }
    return true;
}

static json_t *write_procs(const struct field *f, const void *at)
{
    static const char *const words[] = {
        [JOB_PROCS_AUTO] = "auto",
        [JOB_PROCS_CPU] = "cpu",
        [JOB_PROCS_GPU] = "gpu",
    };
    const struct job_procs *v = at;

    (void)f;
    return v->mode == JOB_PROCS_FIXED ? json_integer(v->n)
                                      : json_string(words[v->mode]);
}

static bool is_off(const char *s)
{
    return strcmp(s, "off") == 0 || strcmp(s, "none") == 0;
}

static bool read_span(struct reader *r, const struct field *f, struct node *n,
                      void *at)
{
    const char *s = schema_scalar(r, f, n);
    uint64_t v = 0;

    if (!s) {
        return false;
    }
    if ((f->flags & FIELD_TAKES_AUTO) && strcmp(s, "auto") == 0) {
        v = JOB_AUTO;
    } else if ((f->flags & FIELD_TAKES_NEVER) && strcmp(s, "never") == 0) {
        v = JOB_NEVER;
    } else if ((f->flags & FIELD_TAKES_OFF) && is_off(s)) {
        v = JOB_OFF;
    } else if (value_span(s, &v) < 0 || v < f->min ||
               (f->max && v > f->max)) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(uint64_t *)at = v;
    }
    return true;
}

static json_t *span_json(const struct field *f, uint64_t v)
{
    _buf_ struct buf text = {0};

    if ((f->flags & FIELD_TAKES_AUTO) && v == JOB_AUTO) {
        return json_string("auto");
    }
    if ((f->flags & FIELD_TAKES_NEVER) && v == JOB_NEVER) {
        return json_string("never");
    }
    if ((f->flags & FIELD_TAKES_OFF) && v == JOB_OFF) {
        return json_string("off");
    }
    value_write_span(&text, v);
    return json_string(buf_str(&text));
}

static json_t *write_span(const struct field *f, const void *at)
{
    return span_json(f, *(const uint64_t *)at);
}

static bool read_backoff(struct reader *r, const struct field *f,
                         struct node *n, void *at)
{
    const char *s = schema_scalar(r, f, n), *sep;
    uint64_t v[2];
    char first[32];

    if (!s) {
        return false;
    }
    sep = strstr(s, "..");
    if (sep && (size_t)(sep - s) >= sizeof(first)) {
        return schema_mismatch(r, f, n);
    }
    str_copy(first, sep ? (size_t)(sep - s) + 1 : sizeof(first), s);
    if (value_span(first, &v[0]) < 0 ||
        value_span(sep ? sep + 2 : first, &v[1]) < 0 || v[1] < v[0] ||
        v[1] > f->max) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        memcpy(at, v, sizeof(v));
    }
    return true;
}

static json_t *write_backoff(const struct field *f, const void *at)
{
    const uint64_t *v = at;
    _buf_ struct buf text = {0};

    (void)f;
    value_write_span(&text, v[0]);
    buf_puts(&text, "..");
    value_write_span(&text, v[1]);
    return json_string(buf_str(&text));
}

static bool read_quantity(struct reader *r, const struct field *f,
                          struct node *n, double most, double *ret)
{
    const char *s = schema_scalar(r, f, n);

    if (!s) {
        return false;
    }
    if (value_quantity(s, ret) < 0 || *ret > most) {
        return schema_mismatch(r, f, n);
    }
    return true;
}

static bool read_cpus(struct reader *r, const struct field *f, struct node *n,
                      void *at)
{
    double v;

    if (!read_quantity(r, f, n, 1e6, &v)) {
        return false;
    }
    if (at) {
        *(uint32_t *)at = (uint32_t)(v * 1000 + 0.5);
    }
    return true;
}

static json_t *write_cpus(const struct field *f, const void *at)
{
    uint32_t v = *(const uint32_t *)at;

    (void)f;
    if (v == 0) {
        return json_null();
    }
    return v % 1000 ? json_sprintf("%um", v) : json_integer(v / 1000);
}

static bool read_bytes(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    double v = 0;
    bool none = (f->flags & FIELD_TAKES_OFF) && n->kind == NODE_SCALAR &&
                is_off(n->text);

    if (!none && !read_quantity(r, f, n, 0x1p60, &v)) {
        return false;
    }
    if (!none && v < (double)f->min) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(uint64_t *)at = (uint64_t)v;
    }
    return true;
}

static json_t *write_bytes(const struct field *f, const void *at)
{
    uint64_t v = *(const uint64_t *)at;

    if (v == 0) {
        return f->flags & FIELD_TAKES_OFF ? json_string("off") : json_null();
    }
    return v % (1 << 20) ? json_integer((json_int_t)v)
                         : json_sprintf("%lluMi", (unsigned long long)v >> 20);
}

const struct type_ops schema_count = {"number", read_count, write_count, NULL};
const struct type_ops schema_number = {"number", read_number,
                                       write_number, NULL};
const struct type_ops schema_nodes = {"N or A..B", read_nodes,
                                      write_nodes, NULL};
const struct type_ops schema_procs = {"auto, cpu, gpu, N", read_procs,
                                      write_procs, NULL};
const struct type_ops schema_span = {"time", read_span, write_span, NULL};
const struct type_ops schema_backoff = {"time..time", read_backoff,
                                        write_backoff, NULL};
const struct type_ops schema_cpus = {"quantity", read_cpus, write_cpus, NULL};
const struct type_ops schema_bytes = {"quantity", read_bytes,
                                      write_bytes, NULL};
