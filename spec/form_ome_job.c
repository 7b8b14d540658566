/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OME TrainingJob, ome.io/v1beta1. Upstream requires runtimeRef, modelConfig
 * and datasets; here a job may do without them. Of the two spellings of a
 * credential both are read.
 */
#include <config.h>

#include "spec/form.h"

#include <string.h>

static const char *const runtime_kinds[] = {"TrainingRuntime",
                                            "ClusterTrainingRuntime", NULL};
static const char *const runtime_groups[] = {"ome.io", NULL};

static const struct field runtime_ref_fields[] = {
    {"name", .type = FIELD_STRING, .flags = FIELD_REQUIRED, .to = "runtime"},
    {"kind", .type = FIELD_ENUM, .words = runtime_kinds, .to = "runtimeKind"},
    {"apiGroup", .type = FIELD_ENUM, .words = runtime_groups},
    {0},
};

static const struct field trainer_fields[] = {
    {"image", .type = FIELD_STRING, .to = "container"},
    {"command", .type = FIELD_LIST, .to = "command"},
    {"args", .type = FIELD_LIST, .to = "args"},
    {"env", .type = FIELD_ANY, .take = form_take_env},
    {"numNodes", .type = FIELD_COUNT, .min = 1, .max = 65536, .to = "nodes"},
    {"numProcPerNode", .type = FIELD_PROCS, .max = JOB_PROCS_MAX,
     .to = "procsPerNode"},
    {"resourcesPerNode", .type = FIELD_ANY, .take = form_take_resources},
    {0},
};

static const struct field storage_fields[] = {
    {"storageUri", .type = FIELD_STRING},
    {"path", .type = FIELD_STRING},
    {"schemaPath", .type = FIELD_STRING,
     .unused = "the program reads the schema itself"},
    {"parameters", .type = FIELD_PAIRS},
    {"storageKey", .type = FIELD_STRING},
    {"key", .type = FIELD_STRING},
    {"nodeSelector", .type = FIELD_PAIRS,
     .unused = "every node of the job gets the data"},
    {"nodeAffinity", .type = FIELD_ANY,
     .unused = "every node of the job gets the data"},
    {0},
};

static struct node *append_transfer(struct reader *r, const char *list_name,
                                    const struct place *at)
{
    struct node *list = node_get(r->out, list_name);
    struct node *item = node_map(r->arena, at);

    if (!list) {
        list = node_list(r->arena, at);
        node_set(r->arena, r->out, list_name, list);
    }
    node_append(r->arena, list, item);
    return item;
}

/* A StorageSpec: where it is, what it is called here, and in which list. */
static void add_storage(struct reader *r, struct node *n, const char *list,
                        const char *remote, const char *local,
                        const char *local_name)
{
    struct node *uri = node_given(n, "storageUri");
    struct node *key = node_given(n, "storageKey");
    struct node *old = node_given(n, "key");
    struct node *parameters = node_given(n, "parameters"), *item;

    uri = uri ? uri : node_given(n, "path");
    if (!uri) {
        report_error(r->report, &n->place,
                     "%s has neither storageUri nor path; expected one of them",
                     r->path);
        return;
    }
    if (key && old) {
        report_warn(r->report, &old->place,
                    "%s has both storageKey and key; storageKey counts",
                    r->path);
    }
    key = key ? key : old;
    item = append_transfer(r, list, &n->place);
    node_set(r->arena, item, remote, uri);
    node_set(r->arena, item, local,
             node_scalar(r->arena, &n->place, local_name, true));
    node_set(r->arena, item, "credential", key);
    node_set(r->arena, item, "parameters", parameters);
}

static void take_dataset(struct reader *r, const struct field *f,
                         struct node *n)
{
    (void)f;
    add_storage(r, n, "inputs", "from", "to", "dataset");
}

static void take_output(struct reader *r, const struct field *f,
                        struct node *n)
{
    (void)f;
    add_storage(r, n, "outputs", "to", "from", "output");
}

static void take_input_model(struct reader *r, const struct field *f,
                             struct node *n)
{
    struct node *item = append_transfer(r, "inputs", &n->place);

    (void)f;
    node_set(r->arena, item, "from", n);
    node_set(r->arena, item, "to",
             node_scalar(r->arena, &n->place, "model", true));
}

static const struct field model_fields[] = {
    {"inputModel", .type = FIELD_STRING, .take = take_input_model},
    {"outputModel", .type = FIELD_MAP, .fields = storage_fields,
     .take = take_output},
    {0},
};

static const char *const method_words[] = {"grid", "random", "bayes", NULL};
static const char *const goal_words[] = {"minimize", "maximize", NULL};

static const struct field metric_fields[] = {
    {"name", .type = FIELD_STRING, .to = "search.metric.name"},
    {"goal", .type = FIELD_ENUM, .words = goal_words,
     .to = "search.metric.goal"},
    {0},
};

static void take_parameters(struct reader *r, const struct field *f,
                            struct node *n)
{
    (void)f;
    form_set_parameters(form_context(r), r->out, n);
}

static const struct field tuning_fields[] = {
    {"method", .type = FIELD_ENUM, .flags = FIELD_REQUIRED,
     .words = method_words, .to = "search.method"},
    {"metric", .type = FIELD_MAP, .fields = metric_fields},
    {"parameters", .type = FIELD_ANY, .take = take_parameters},
    {"maxTrials", .type = FIELD_COUNT, .min = 1, .max = 1000000,
     .to = "search.maxTrials"},
    {0},
};

static const struct field spec_fields[] = {
    {"runtimeRef", .type = FIELD_MAP, .fields = runtime_ref_fields},
    {"trainer", .type = FIELD_MAP, .fields = trainer_fields},
    {"modelConfig", .type = FIELD_MAP, .fields = model_fields},
    {"datasets", .type = FIELD_MAP, .fields = storage_fields,
     .take = take_dataset},
    {"hyperParameterTuningConfig", .type = FIELD_MAP,
     .fields = tuning_fields},
    {"suspend", .type = FIELD_BOOL, .to = "suspend"},
    {"labels", .type = FIELD_PAIRS, .to = "labels", .take = form_take_pairs},
    {"annotations", .type = FIELD_PAIRS, .to = "annotations",
     .take = form_take_pairs},
    {"compartmentID", .type = FIELD_STRING, .to = "labels.compartmentID"},
    {0},
};

static const struct field doc_fields[] = {
    {"apiVersion", .type = FIELD_ANY},
    {"kind", .type = FIELD_ANY},
    {"metadata", .type = FIELD_MAP, .flags = FIELD_REQUIRED,
     .fields = form_job_metadata},
    {"spec", .type = FIELD_MAP, .flags = FIELD_REQUIRED,
     .fields = spec_fields},
    {"status", .type = FIELD_ANY, .unused = "a cluster wrote it"},
    {0},
};

struct node *form_ome_job_read(const struct context *c, struct node *doc)
{
    struct node *out = node_map(c->arena, &doc->place);
    struct reader r = form_reader(c, out);

    if (!out || !schema_read(&r, doc_fields, doc, NULL)) {
        return NULL;
    }
    return c->report->n_errors || c->arena->failed ? NULL : out;
}
