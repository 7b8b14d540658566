/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short form itself. What it writes in more than one way (env, args,
 * envFrom, parameters) is brought to one; the rest is checked and kept.
 */
#include <config.h>

#include "spec/form.h"

#include <string.h>

static void take_parameters(struct reader *r, const struct field *f,
                            struct node *n)
{
    (void)f;
    form_set_parameters(form_context(r), r->out, n);
}

static void take_stdin(struct reader *r, const struct field *f, struct node *n)
{
    (void)f;
    if (n->kind != NODE_SCALAR || strcmp(n->text, "none") != 0) {
        report_error(r->report, &n->place,
                     "stdin is %s; expected none: workers read nothing",
                     n->kind == NODE_SCALAR ? n->text : node_noun(n));
    }
}

static const struct field extra_fields[] = {
    {"apiVersion", .type = FIELD_ANY},
    {"kind", .type = FIELD_ANY},
    {"args", .type = FIELD_LIST, .to = "args"},
    {"env", .type = FIELD_ANY, .to = "env", .take = form_take_env},
    {"envFrom", .type = FIELD_ANY, .take = form_take_env_from},
    {"stdin", .type = FIELD_ANY, .take = take_stdin},
    {0},
};

static const struct field *find_extra(const char *key)
{
    for (const struct field *f = extra_fields; f->name; f++) {
        if (strcmp(f->name, key) == 0) {
            return f;
        }
    }
    return NULL;
}

static struct node *read_search(struct reader *r, struct node *search)
{
    static const struct field parameters = {
        "parameters", .type = FIELD_ANY, .take = take_parameters};
    struct node *rest = node_map(r->arena, &search->place);

    for (size_t i = 0; i < search->n; i++) {
        const struct pair *p = &search->pairs[i];

        if (strcmp(p->key, "parameters") == 0 && !node_is_null(p->value)) {
            schema_read_field(r, &parameters, p->value, NULL);
        } else {
            node_add(r->arena, rest, p->key, &p->place, p->value);
        }
    }
    rest = node_merge(r->arena, rest, node_get(r->out, "search"));
    if (rest) {
        rest->place = search->place;
    }
    return rest;
}

/* args is no key of a job: it becomes a part of command. */
static void check_keys(struct reader *r, const struct node *out)
{
    struct node *rest = node_map(r->arena, &out->place);

    for (size_t i = 0; rest && i < out->n; i++) {
        const struct pair *p = &out->pairs[i];

        if (strcmp(p->key, "args") != 0) {
            node_add(r->arena, rest, p->key, &p->place, p->value);
        }
    }
    if (rest) {
        schema_read(r, job_fields, rest, NULL);
    }
}

/* A runtime stands on no other one. */
static void check_runtime(const struct context *c, const struct node *doc,
                          const struct node *out)
{
    const struct node *other = node_given(out, "runtime");

    if (strcmp(node_get(doc, "kind")->text, "Runtime") == 0 && other &&
        other->kind == NODE_SCALAR && strcmp(other->text, "none") != 0) {
        report_error(c->report, &other->place,
                     "runtime %.60s of a runtime; expected none", other->text);
    }
}

struct node *form_job_read(const struct context *c, struct node *doc)
{
    struct node *out = node_map(c->arena, &doc->place);
    struct reader r = form_reader(c, out);
    struct reader check = {.arena = c->arena, .report = c->report};

    if (!out) {
        return NULL;
    }
    for (size_t i = 0; i < doc->n; i++) {
        const struct pair *p = &doc->pairs[i];
        const struct field *f = find_extra(p->key);

        if (f && !node_is_null(p->value)) {
            schema_read_field(&r, f, p->value, NULL);
        } else if (f && f->to && !node_get(out, f->to)) {
            node_set(c->arena, out, f->to, p->value);
        } else if (!f && strcmp(p->key, "search") == 0 &&
                   p->value->kind == NODE_MAP) {
            node_set(c->arena, out, p->key, read_search(&r, p->value));
        } else if (!f) {
            node_add(c->arena, out, p->key, &p->place, p->value);
        }
    }
    check_keys(&check, out);
    check_runtime(c, doc, out);
    return c->report->n_errors || c->arena->failed ? NULL : out;
}
