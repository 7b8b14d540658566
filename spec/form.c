/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/form.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/value.h"
#include "spec/yaml.h"

#include <string.h>

const struct form forms[] = {
    {"muster/v1", "Job", false, form_job_read},
    {"muster/v1", "Runtime", true, form_job_read},
    {"ome.io/v1beta1", "TrainingJob", false, form_ome_job_read},
    {"ome.io/v1beta1", "TrainingRuntime", true, form_ome_runtime_read},
    {"ome.io/v1beta1", "ClusterTrainingRuntime", true, form_ome_runtime_read},
};
const size_t n_forms = ARRAY_SIZE(forms);

/* Training kinds that are planned, so that the error does not call them
 * unknown. */
static const char *const planned[] = {
    "PyTorchJob",  "TrainJob",   "MPIJob",          "JobSet",
    "Experiment",  "GenericJob", "OptimizationJob", "PyTorchTrainingJob",
    "DeepSpeedJob", NULL,
};

static const char *text_at(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);

    return n && n->kind == NODE_SCALAR && n->text[0] ? n->text : NULL;
}

static void report_not_a_document(const struct context *c,
                                  const struct node *doc, const char *version,
                                  const char *kind)
{
    const char *missing = !version && !kind ? "apiVersion and kind are"
                          : version         ? "kind is"
                                            : "apiVersion is";

    if (doc->kind != NODE_MAP) {
        report_error(c->report, &doc->place,
                     "%s; expected a job, which is a map that begins with "
                     "apiVersion: muster/v1 and kind: Job",
                     node_noun(doc));
        return;
    }
    report_error(c->report, &doc->place,
                 "%s missing, so this is only a part of a job; expected a "
                 "whole one, such as apiVersion: muster/v1 and kind: Job",
                 missing);
}

static void report_unknown_kind(const struct context *c,
                                const struct node *doc, const char *version,
                                const char *kind)
{
    const char *names[16] = {NULL};
    _buf_ struct buf known = {0};
    bool later = false;

    for (size_t i = 0; i < n_forms; i++) {
        names[i] = forms[i].kind;
        buf_printf(&known, "%s%s of %s", i ? ", " : "", forms[i].kind,
                   forms[i].api_version);
    }
    for (size_t i = 0; planned[i]; i++) {
        later |= strcmp(planned[i], kind) == 0;
    }
    if (!later && str_nearest(kind, names)) {
        report_error(c->report, &node_get(doc, "kind")->place,
                     "kind %.60s of %.60s; did you mean %s? expected one of %s",
                     kind, version, str_nearest(kind, names), buf_str(&known));
        return;
    }
    report_error(c->report, &node_get(doc, "kind")->place,
                 "kind %.60s of %.60s %s; expected one of %s", kind, version,
                 later ? "cannot be run yet" : "is no training job",
                 buf_str(&known));
}

const struct form *form_of(const struct context *c, const struct node *doc,
                           bool lenient)
{
    const char *version = text_at(doc, "apiVersion");
    const char *kind = text_at(doc, "kind");

    for (size_t i = 0; version && kind && i < n_forms; i++) {
        if (strcmp(forms[i].api_version, version) == 0 &&
            strcmp(forms[i].kind, kind) == 0) {
            return &forms[i];
        }
    }
    if (!version || !kind) {
        report_not_a_document(c, doc, version, kind);
    } else if (!lenient) {
        report_unknown_kind(c, doc, version, kind);
    }
    return NULL;
}

const char *form_doc_name(const struct node *doc)
{
    const char *name = text_at(node_get(doc, "metadata"), "name");

    return name ? name : text_at(doc, "name");
}

struct reader form_reader(const struct context *c, struct node *out)
{
    return (struct reader){.arena = c->arena,
                           .report = c->report,
                           .out = out,
                           .notes = true,
                           .user = (void *)c};
}

const struct context *form_context(const struct reader *r)
{
    return r->user;
}

static void report_unknown_path(const struct context *c, const char *path,
                                const struct place *at)
{
    const char *names[64] = {NULL};
    const char *near, *head;
    size_t n = 0;

    for (; n + 1 < ARRAY_SIZE(names) && job_fields[n].name; n++) {
        names[n] = job_fields[n].name;
    }
    head = arena_printf(c->arena, "%.*s", (int)strcspn(path, "."), path);
    near = head ? str_nearest(head, names) : NULL;
    if (near && strcmp(near, head) == 0) {
        report_error(c->report, at,
                     "unknown key \"%.80s\"; expected a key under %s as in "
                     "muster-job(5)",
                     path, near);
        return;
    }
    report_error(c->report, at, "unknown key \"%.80s\"; %s%s", path,
                 near ? "did you mean " : "expected one as in muster-job(5)",
                 near ? near : "");
}

/* True for types that one scalar gives, so that no YAML is read from it. */
static bool is_scalar_type(enum field_type type)
{
    return type < FIELD_FLAGS || type == FIELD_CPUS || type == FIELD_BYTES;
}

static void set_parsed(const struct context *c, struct node *out,
                       const char *path, const char *text,
                       const struct place *at)
{
    struct node *value = yaml_load_value(c->arena, text, at, c->report);

    if (!value) {
        return;
    }
    if (strcmp(path, "env") == 0) {
        form_set_env(c, out, value);
    } else if (strcmp(path, "search.parameters") == 0) {
        form_set_parameters(c, out, value);
    } else if (str_starts(path, "search.parameters.")) {
        struct node *map = node_map(c->arena, at);

        node_set(c->arena, map, path + strlen("search.parameters."), value);
        form_set_parameters(c, out, map);
    } else {
        node_set_path(c->arena, out, path, value);
    }
}

void form_set_text(const struct context *c, struct node *out, const char *path,
                   const char *text, const struct place *at)
{
    const struct field *f = schema_find(job_fields, path);

    if (strcmp(path, "args") == 0) {
        set_parsed(c, out, path, text, at);
    } else if (!f) {
        report_unknown_path(c, path, at);
    } else if (f->type == FIELD_PAIRS && strcmp(f->name, path) != 0) {
        node_set_path(c->arena, out, path,
                      node_scalar(c->arena, at, text, false));
    } else if (is_scalar_type(f->type)) {
        node_set_path(c->arena, out, path,
                      node_scalar(c->arena, at, text, true));
    } else {
        set_parsed(c, out, path, text, at);
    }
}
