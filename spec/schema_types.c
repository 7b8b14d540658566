/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/schema_types.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/job.h"
#include "spec/value.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_TEXT = 1 << 17 };

bool schema_mismatch(struct reader *r, const struct field *f,
                     const struct node *n)
{
    _buf_ struct buf want = {0};

    schema_describe(f, &want);
    if (n->kind == NODE_SCALAR && !node_is_null(n)) {
        report_error(r->report, &n->place, "%s is \"%.60s\"; expected %s",
                     r->path, n->text, buf_str(&want));
    } else {
        report_error(r->report, &n->place, "%s is %s; expected %s", r->path,
                     node_noun(n), buf_str(&want));
    }
    return false;
}

/* Text of a scalar, or NULL after reporting. */
static const char *scalar(struct reader *r, const struct field *f,
                          const struct node *n)
{
    if (n->kind != NODE_SCALAR) {
        schema_mismatch(r, f, n);
        return NULL;
    }
    return n->text;
}

const char *schema_text(struct reader *r, const struct field *f,
                        const struct node *n)
{
    const char *s = scalar(r, f, n);

    if (!s) {
        return NULL;
    }
    if (strlen(s) > MAX_TEXT) {
        report_error(r->report, &n->place,
                     "%s has %zu bytes; expected at most %d", r->path,
                     strlen(s), MAX_TEXT);
        return NULL;
    }
    if (n->plain && r->notes && value_is_ambiguous(s)) {
        report_warn(r->report, &n->place,
                    "%s is %s without quotes, which some YAML readers take for "
                    "something else; taken as the text \"%s\"",
                    r->path, s, s);
    }
    return s;
}

bool schema_keep_string(struct reader *r, const char *s, void *at)
{
    char *copy;

    if (!at) {
        return true;
    }
    copy = strdup(s);
    if (!copy) {
        r->report->failed = true;
        return false;
    }
    free(*(char **)at);
    *(char **)at = copy;
    return true;
}

static bool read_any(struct reader *r, const struct field *f, struct node *n,
                     void *at)
{
    (void)r;
    (void)f;
    (void)n;
    (void)at;
    return true;
}

static json_t *write_null(const struct field *f, const void *at)
{
    (void)f;
    (void)at;
    return json_null();
}

static void release_none(const struct field *f, void *at)
{
    (void)f;
    (void)at;
}

static bool read_string(struct reader *r, const struct field *f,
                        struct node *n, void *at)
{
    const char *s = schema_text(r, f, n);

    if (!s) {
        return false;
    }
    /* "store: none", "container: none" */
    if ((f->flags & FIELD_TAKES_OFF) && n->plain &&
        (strcmp(s, "none") == 0 || strcmp(s, "off") == 0)) {
        if (at) {
            free(*(char **)at);
            *(char **)at = NULL;
        }
        return true;
    }
    if (!s[0]) {
        return schema_mismatch(r, f, n);
    }
    return schema_keep_string(r, s, at);
}

static json_t *write_string(const struct field *f, const void *at)
{
    const char *s = *(const char *const *)at;

    (void)f;
    return s ? json_string(s) : json_null();
}

static void release_string(const struct field *f, void *at)
{
    (void)f;
    free(*(char **)at);
    *(char **)at = NULL;
}

static bool read_label(struct reader *r, const struct field *f,
                       struct node *n, void *at)
{
    const char *s = scalar(r, f, n);

    if (!s) {
        return false;
    }
    if (!str_is_label(s)) {
        return schema_mismatch(r, f, n);
    }
    return schema_keep_string(r, s, at);
}

static bool read_bool(struct reader *r, const struct field *f, struct node *n,
                      void *at)
{
    const char *s = scalar(r, f, n);
    bool v;

    if (!s) {
        return false;
    }
    if (value_bool(s, &v) < 0) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(bool *)at = v;
    }
    return true;
}

static json_t *write_bool(const struct field *f, const void *at)
{
    (void)f;
    return json_boolean(*(const bool *)at);
}

static bool read_count(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    const char *s = scalar(r, f, n);
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
    const char *s = scalar(r, f, n);
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
    const char *s = scalar(r, f, n);
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
    const char *s = scalar(r, f, n);
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
    const char *s = scalar(r, f, n);
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
    const char *s = scalar(r, f, n), *sep;
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

static int find_word(const struct field *f, const char *s)
{
    for (int i = 0; f->words[i]; i++) {
        if (strcasecmp(f->words[i], s) == 0) {
            return i;
        }
    }
    return -1;
}

static bool read_enum(struct reader *r, const struct field *f, struct node *n,
                      void *at)
{
    const char *s = scalar(r, f, n);
    int i;

    if (!s) {
        return false;
    }
    i = find_word(f, s);
    if (i < 0) {
        return schema_mismatch(r, f, n);
    }
    if (at) {
        *(unsigned *)at = (unsigned)i;
    }
    return true;
}

static json_t *write_enum(const struct field *f, const void *at)
{
    return json_string(f->words[*(const unsigned *)at]);
}

static bool read_flags(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    unsigned v = 0;

    if (n->kind != NODE_LIST) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; i < n->n; i++) {
        const struct node *item = n->items[i];
        int bit = item->kind == NODE_SCALAR ? find_word(f, item->text) : -1;

        if (bit < 0) {
            return schema_mismatch(r, f, item);
        }
        v |= 1u << bit;
    }
    if (at) {
        *(unsigned *)at = v;
    }
    return true;
}

static json_t *write_flags(const struct field *f, const void *at)
{
    unsigned v = *(const unsigned *)at;
    json_t *list = json_array();

    for (int i = 0; list && f->words[i]; i++) {
        if (v & 1u << i) {
            json_array_append_new(list, json_string(f->words[i]));
        }
    }
    return list;
}

static void set_code(uint8_t *set, uint64_t code)
{
    set[code / 8] |= (uint8_t)(1u << code % 8);
}

/* The two sets that users of Kubernetes know by the name of ExitCode. */
static bool preset_codes(const char *s, uint8_t *set)
{
    static const uint8_t t9k[] = {130, 137, 138, 143};

    if (strcmp(s, "kubeflow") == 0) {
        for (unsigned c = 128; c < 256; c++) {
            set_code(set, c);
        }
        return true;
    }
    if (strcmp(s, "t9k") == 0) {
        for (size_t i = 0; i < ARRAY_SIZE(t9k); i++) {
            set_code(set, t9k[i]);
        }
        return true;
    }
    return false;
}

static bool read_codes(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    uint8_t set[32] = {0};
    uint64_t c;

    if (n->kind == NODE_MAP ||
        (n->kind == NODE_SCALAR && !preset_codes(n->text, set))) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; n->kind == NODE_LIST && i < n->n; i++) {
        const struct node *item = n->items[i];

        if (item->kind != NODE_SCALAR || value_count(item->text, &c) < 0 ||
            c < 1 || c > 255) {
            return schema_mismatch(r, f, item);
        }
        set_code(set, c);
    }
    if (at) {
        memcpy(at, set, sizeof(set));
    }
    return true;
}

static json_t *write_codes(const struct field *f, const void *at)
{
    static const char *const presets[] = {"kubeflow", "t9k"};
    const uint8_t *set = at;
    json_t *list;

    (void)f;
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        uint8_t preset[32] = {0};

        preset_codes(presets[i], preset);
        if (memcmp(preset, set, sizeof(preset)) == 0) {
            return json_string(presets[i]);
        }
    }
    list = json_array();
    for (unsigned c = 0; list && c < 256; c++) {
        if (set[c / 8] & 1u << c % 8) {
            json_array_append_new(list, json_integer(c));
        }
    }
    return list;
}

static bool read_quantity(struct reader *r, const struct field *f,
                          struct node *n, double most, double *ret)
{
    const char *s = scalar(r, f, n);

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
    double v;

    if (!read_quantity(r, f, n, 0x1p60, &v)) {
        return false;
    }
    if (at) {
        *(uint64_t *)at = (uint64_t)v;
    }
    return true;
}

static json_t *write_bytes(const struct field *f, const void *at)
{
    uint64_t v = *(const uint64_t *)at;

    (void)f;
    if (v == 0) {
        return json_null();
    }
    return v % (1 << 20) ? json_integer((json_int_t)v)
                         : json_sprintf("%lluMi", (unsigned long long)v >> 20);
}

const struct type_ops field_types[] = {
    [FIELD_ANY] = {"any", read_any, write_null, release_none},
    [FIELD_STRING] = {"text", read_string, write_string, release_string},
    [FIELD_LABEL] = {"name", read_label, write_string, release_string},
    [FIELD_BOOL] = {"true, false", read_bool, write_bool, release_none},
    [FIELD_COUNT] = {"number", read_count, write_count, release_none},
    [FIELD_NUMBER] = {"number", read_number, write_number, release_none},
    [FIELD_NODES] = {"N or A..B", read_nodes, write_nodes, release_none},
    [FIELD_PROCS] = {"auto, cpu, gpu, N", read_procs, write_procs,
                     release_none},
    [FIELD_SPAN] = {"time", read_span, write_span, release_none},
    [FIELD_BACKOFF] = {"time..time", read_backoff, write_backoff,
                       release_none},
    [FIELD_ENUM] = {"word", read_enum, write_enum, release_none},
    [FIELD_FLAGS] = {"list", read_flags, write_flags, release_none},
    [FIELD_CODES] = {"kubeflow, t9k, list", read_codes, write_codes,
                     release_none},
    [FIELD_CPUS] = {"quantity", read_cpus, write_cpus, release_none},
    [FIELD_BYTES] = {"quantity", read_bytes, write_bytes, release_none},
    [FIELD_LIST] = {"list", schema_read_list, schema_write_list,
                    schema_release_list},
    [FIELD_PAIRS] = {"map", schema_read_pairs, schema_write_pairs,
                     schema_release_list},
    [FIELD_MAP] = {"map", schema_read_map, schema_write_map,
                   schema_release_map},
    [FIELD_ITEMS] = {"list of maps", schema_read_items, schema_write_items,
                     schema_release_items},
    [FIELD_NAMED] = {"map of maps", schema_read_named, schema_write_named,
                     schema_release_items},
};
