/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of fields that are words: text, names, true and false, enumerations; and
 * the table of all types.
 */
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

const char *schema_scalar(struct reader *r, const struct field *f,
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
    const char *s = n->text;

    if (n->kind != NODE_SCALAR || node_is_null(n)) {
        schema_mismatch(r, f, n);
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

static bool read_string(struct reader *r, const struct field *f,
                        struct node *n, void *at)
{
    const char *s;

    /* "store: none", "container: off" */
    if ((f->flags & FIELD_TAKES_OFF) && n->kind == NODE_SCALAR && n->plain &&
        (strcmp(n->text, "none") == 0 || strcmp(n->text, "off") == 0)) {
        if (at) {
            free(*(char **)at);
            *(char **)at = NULL;
        }
        return true;
    }
    s = schema_text(r, f, n);
    if (!s) {
        return false;
    }
    return s[0] ? schema_keep_string(r, s, at) : schema_mismatch(r, f, n);
}

json_t *schema_write_string(const struct field *f, const void *at)
{
    const char *s = *(const char *const *)at;

    (void)f;
    return s ? json_string(s) : json_null();
}

void schema_release_string(const struct field *f, void *at)
{
    (void)f;
    free(*(char **)at);
    *(char **)at = NULL;
}

static bool read_label(struct reader *r, const struct field *f,
                       struct node *n, void *at)
{
    const char *s = schema_scalar(r, f, n);

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
    const char *s = schema_scalar(r, f, n);
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

int schema_word(const struct field *f, const char *s)
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
    const char *s = schema_scalar(r, f, n);
    int i;

    if (!s) {
        return false;
    }
    i = schema_word(f, s);
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

static const struct type_ops any = {"any", read_any, write_null, NULL};
static const struct type_ops string = {"text", read_string,
                                       schema_write_string,
                                       schema_release_string};
static const struct type_ops label = {"name", read_label, schema_write_string,
                                      schema_release_string};
static const struct type_ops boolean = {"true, false", read_bool, write_bool,
                                        NULL};
static const struct type_ops enumerated = {"word", read_enum, write_enum,
                                           NULL};

const struct type_ops *const field_types[] = {
    [FIELD_ANY] = &any,
    [FIELD_STRING] = &string,
    [FIELD_LABEL] = &label,
    [FIELD_BOOL] = &boolean,
    [FIELD_COUNT] = &schema_count,
    [FIELD_NUMBER] = &schema_number,
    [FIELD_NODES] = &schema_nodes,
    [FIELD_PROCS] = &schema_procs,
    [FIELD_SPAN] = &schema_span,
    [FIELD_BACKOFF] = &schema_backoff,
    [FIELD_ENUM] = &enumerated,
    [FIELD_FLAGS] = &schema_flags,
    [FIELD_CODES] = &schema_codes,
    [FIELD_RANKS] = &schema_ranks,
    [FIELD_STREAMS] = &schema_streams,
    [FIELD_PREFIX] = &schema_prefix,
    [FIELD_INTERFACE] = &schema_interface,
    [FIELD_CPUS] = &schema_cpus,
    [FIELD_BYTES] = &schema_bytes,
    [FIELD_LIST] = &schema_list,
    [FIELD_PAIRS] = &schema_pairs,
    [FIELD_MAP] = &schema_map,
    [FIELD_ITEMS] = &schema_items,
    [FIELD_NAMED] = &schema_named,
};
