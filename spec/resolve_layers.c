/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtime, job and command line, each a tree of the short form, as one tree.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "spec/command.h"
#include "spec/resolve.h"
#include "spec/runtimes.h"
#include "spec/value.h"

#include <string.h>

static struct node *read_argv(struct resolving *s)
{
    static const struct place at = {.file = "command line"};
    struct node *map = node_map(&s->arena, &at);
    struct node *list = node_list(&s->arena, &at);

    for (char *const *arg = s->c.request->argv; *arg; arg++) {
        struct node *n = node_scalar(&s->arena, &at, *arg, false);

        if (!utf8_is_valid(*arg)) {
            report_error(&s->report, &at,
                         "argument %zu is not UTF-8; expected text",
                         (size_t)(arg - s->c.request->argv) + 1);
        }
        if (n) {
            n->literal = true;
        }
        node_append(&s->arena, list, n);
    }
    node_set(&s->arena, map, "command", list);
    return map;
}

static struct node *read_overrides(struct resolving *s)
{
    static const struct place at = {.file = "command line"};
    struct node *map = node_map(&s->arena, &at);

    for (size_t i = 0; map && i < s->c.request->n_overrides; i++) {
        const struct spec_override *o = &s->c.request->overrides[i];
        struct place place = {.file = arena_strdup(
                                  &s->arena, o->origin ? o->origin : "--set")};

        if (!utf8_is_valid(o->value)) {
            report_error(&s->report, &place, "%s is not UTF-8; expected text",
                         o->path);
            continue;
        }
        form_set_text(&s->c, map, o->path, o->value, &place);
    }
    if (map && s->c.request->torch_options) {
        command_torch_options(&s->c, map, s->c.request->torch_options);
    }
    return map;
}

struct node *resolve_without(struct resolving *s, const struct node *tree,
                             const char *a, const char *b)
{
    struct node *rest = node_map(&s->arena, &tree->place);

    for (size_t i = 0; i < tree->n; i++) {
        const struct pair *p = &tree->pairs[i];

        if (strcmp(p->key, a) != 0 && strcmp(p->key, b) != 0) {
            node_add(&s->arena, rest, p->key, &p->place, p->value);
        }
    }
    return rest;
}

/* A job that says N takes the range of its runtime away. */
static void note_fixed_size(struct resolving *s, const struct node *runtime,
                            const struct node *job)
{
    const struct node *range = node_get(runtime, "nodes");
    const struct node *own = node_get(job, "nodes");
    struct job_nodes a, b;

    if (range && own && range->kind == NODE_SCALAR &&
        own->kind == NODE_SCALAR && value_range(range->text, 65536, &a) == 0 &&
        value_range(own->text, 65536, &b) == 0 && a.min != a.max &&
        b.min == b.max) {
        report_note(&s->report, &own->place,
                    "the job has %s nodes, so the runtime's %s does not count",
                    own->text, range->text);
    }
}

/* A job adds to the secrets of its runtime: it cannot make one public by having
 * one of its own. */
static struct node *join_secrets(struct resolving *s,
                                 const struct node *runtime,
                                 struct node *job)
{
    const struct node *first = node_get(runtime, "secrets");
    const struct node *second = node_get(job, "secrets");
    struct node *own = node_map(&s->arena, &job->place), *all;

    if (!first || !second || first->kind != NODE_LIST ||
        second->kind != NODE_LIST) {
        return job;
    }
    all = node_list(&s->arena, &second->place);
    for (size_t i = 0; i < first->n; i++) {
        node_append(&s->arena, all, first->items[i]);
    }
    for (size_t i = 0; i < second->n; i++) {
        node_append(&s->arena, all, second->items[i]);
    }
    node_set(&s->arena, own, "secrets", all);
    return node_merge(&s->arena, job, own);
}

/* The runtime that the job or the command line names, under the job. */
static struct node *add_runtime(struct resolving *s, struct node *job,
                                const struct node *over)
{
    const struct node *ref = node_get(over, "runtime");
    const struct node *kind = NULL;
    struct node *runtime;

    if (!ref) {
        ref = node_get(job, "runtime");
        kind = node_get(job, "runtimeKind");
    }
    if (!ref || ref->kind != NODE_SCALAR || node_is_null(ref) ||
        strcmp(ref->text, "none") == 0) {
        return job;
    }
    runtime = runtimes_load(&s->c, s->form ? &s->docs : NULL, ref->text,
                            kind ? kind->text : NULL, &ref->place);
    if (!runtime) {
        return NULL;
    }
    note_fixed_size(s, runtime, job);
    job = join_secrets(s, runtime, job);
    return node_merge(&s->arena, resolve_without(s, runtime, "name", "runtime"), job);
}

struct node *resolve_layers(struct resolving *s)
{
    struct node *job, *over;

    job = s->document ? s->form->read(&s->c, s->document) : read_argv(s);
    over = read_overrides(s);
    if (!job || !over || s->report.n_errors) {
        return NULL;
    }
    job = add_runtime(s, job, over);
    if (!job || s->report.n_errors) {
        return NULL;
    }
    job = resolve_without(s, node_merge(&s->arena, job, over), "runtimeKind", "");
    return job ? node_copy(&s->arena, job) : NULL;
}
