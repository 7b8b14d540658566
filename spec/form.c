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

/* Training kinds of others, so that the error does not call them something
 * else. Two of TrainJob's are called as OME's. */
static const char *const planned[] = {
    "PyTorchJob",        "TFJob",
    "XGBoostJob",        "JAXJob",
    "PaddleJob",         "MPIJob",
    "TrainJob",          "TrainingRuntime",
    "JobSet",            "ClusterTrainingRuntime",
    "Experiment",        "OptimizationJob",
    "GenericJob",        "PyTorchTrainingJob",
    "DeepSpeedJob",      "TensorFlowTrainingJob",
    "XGBoostTrainingJob", "ColossalAIJob",
    "BeamJob",           "AutoTuneExperiment",
    NULL,
};

static const char *text_at(const struct node *map, const char *key)
{
    const struct node *n = node_given(map, key);

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

/* The part of "ome.io/v1beta1" before the slash. */
static bool has_group(const char *version, const char *of)
{
    size_t len = strcspn(of, "/");

    return strncmp(version, of, len) == 0 && version[len] == '/';
}

static bool is_planned(const char *kind)
{
    for (size_t i = 0; planned[i]; i++) {
        if (strcmp(planned[i], kind) == 0) {
            return true;
        }
    }
    return false;
}

const struct form *form_nearest(const struct node *doc)
{
    const char *version = text_at(doc, "apiVersion");
    const char *kind = text_at(doc, "kind");
    const char *names[16] = {NULL};
    const char *near;

    for (size_t i = 0; version && kind && i < n_forms; i++) {
        names[i] = forms[i].kind;
        if (has_group(version, forms[i].api_version) &&
            strcmp(kind, forms[i].kind) == 0) {
            return strcmp(version, forms[i].api_version) ? &forms[i] : NULL;
        }
    }
    near = kind && !is_planned(kind) ? str_nearest(kind, names) : NULL;
    for (size_t i = 0; near && i < n_forms; i++) {
        if (strcmp(near, forms[i].kind) == 0 && strcmp(near, kind) != 0) {
            return &forms[i];
        }
    }
    return NULL;
}

const char *form_why_not(const struct node *doc)
{
    const char *kind = text_at(doc, "kind");

    return kind && is_planned(kind) ? "cannot be run yet"
                                    : "is no training job that muster knows";
}

static void report_unknown_kind(const struct context *c,
                                const struct node *doc, const char *version,
                                const char *kind)
{
    const struct form *near = form_nearest(doc);
    const struct place *at = &node_get(doc, "kind")->place;
    _buf_ struct buf known = {0};

    for (size_t i = 0; i < n_forms; i++) {
        buf_printf(&known, "%s%s of %s", i ? ", " : "", forms[i].kind,
                   forms[i].api_version);
    }
    if (near && strcmp(near->kind, kind) == 0) {
        report_error(c->report, &node_get(doc, "apiVersion")->place,
                     "apiVersion %.60s of a %.60s; expected %s", version, kind,
                     near->api_version);
    } else if (near) {
        report_error(c->report, at,
                     "kind %.60s of %.60s; did you mean %s? expected one of %s",
                     kind, version, near->kind, buf_str(&known));
    } else {
        report_error(c->report, at, "kind %.60s of %.60s %s; expected one of %s",
                     kind, version, form_why_not(doc), buf_str(&known));
    }
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
    } else if (!lenient || has_group(version, "muster/")) {
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

/* "NAME", or one key of it: "NAME.min". A name may have dots. */
static void set_parameter(const struct context *c, struct node *out,
                          const char *path, struct node *value)
{
    const struct field *fields =
        schema_find(job_fields, "search.parameters")->fields;
    struct node *map = node_map(c->arena, &value->place);
    struct node *inner = node_map(c->arena, &value->place);
    const char *dot = strrchr(path, '.');

    for (; dot && fields->name; fields++) {
        if (strcmp(fields->name, dot + 1) == 0) {
            node_set(c->arena, inner, fields->name, value);
            node_set(c->arena, map,
                     arena_printf(c->arena, "%.*s", (int)(dot - path), path),
                     inner);
            node_set_path(c->arena, out, "search.parameters",
                          node_merge(c->arena,
                                     node_get_path(out, "search.parameters"),
                                     map));
            return;
        }
    }
    node_set(c->arena, map, path, value);
    form_set_parameters(c, out, map);
}

static void set_parsed(const struct context *c, struct node *out,
                       const char *path, const char *text,
                       const struct place *at)
{
    struct node *value = yaml_load_value(c->arena, text, at, c->report);

    if (!value) {
        return;
    }
    if (node_is_null(value)) {
        node_set_path(c->arena, out, path, value);
    } else if (strcmp(path, "env") == 0) {
        form_set_env(c, out, value);
    } else if (strcmp(path, "search.parameters") == 0) {
        form_set_parameters(c, out, value);
    } else if (str_starts(path, "search.parameters.")) {
        set_parameter(c, out, path + strlen("search.parameters."), value);
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
