/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several dialects have in common: metadata, seconds, restart budgets,
 * resources and search parameters of Kubernetes kinds.
 */
#include <config.h>

#include "base/str.h"
#include "spec/form.h"
#include "spec/value.h"
#include "spec/yaml.h"

#include <string.h>

void form_take_pairs(struct reader *r, const struct field *f, struct node *n)
{
    struct node *before = node_get(r->out, f->to);

    before = before ? before : node_map(r->arena, &n->place);
    node_set(r->arena, r->out, f->to, node_merge(r->arena, before, n));
}

static const char setting_prefix[] = "muster/";

/* Annotations muster/PATH, which are as if the job itself had them. */
static void take_settings(struct reader *r, const struct node *annotations)
{
    for (size_t i = 0; i < annotations->n; i++) {
        const struct pair *p = &annotations->pairs[i];

        if (str_starts(p->key, setting_prefix)) {
            form_set_text(form_context(r), r->out,
                          p->key + strlen(setting_prefix), p->value->text,
                          &p->value->place);
        }
    }
}

static void take_annotations(struct reader *r, const struct field *f,
                             struct node *n)
{
    struct node *rest = node_map(r->arena, &n->place);

    take_settings(r, n);
    for (size_t i = 0; i < n->n; i++) {
        if (!str_starts(n->pairs[i].key, setting_prefix)) {
            node_add(r->arena, rest, n->pairs[i].key, &n->pairs[i].place,
                     n->pairs[i].value);
        }
    }
    if (rest && rest->n) {
        form_take_pairs(r, f, rest);
    }
}

static void take_runtime_annotations(struct reader *r, const struct field *f,
                                     struct node *n)
{
    (void)f;
    take_settings(r, n);
}

#define IGNORED(key) {key, .type = FIELD_ANY}

#define METADATA_OF_THE_SERVER                                           \
    {"namespace", .type = FIELD_ANY,                                     \
     .unused = "there is no cluster that would use it"},                 \
        IGNORED("uid"), IGNORED("resourceVersion"),    \
        IGNORED("generation"), IGNORED("creationTimestamp"),             \
        IGNORED("deletionTimestamp"), IGNORED("ownerReferences"),        \
        IGNORED("finalizers"), IGNORED("managedFields"),                 \
        IGNORED("selfLink"), IGNORED("deletionGracePeriodSeconds")

/* generateName ends in a dash that a name may not end in. */
static void take_generated(struct reader *r, const struct field *f,
                           struct node *n)
{
    char *name = arena_strdup(r->arena, n->text);

    (void)f;
    if (name && name[0] && name[strlen(name) - 1] == '-') {
        name[strlen(name) - 1] = '\0';
    }
    if (!node_get(r->out, "name")) {
        node_set(r->arena, r->out, "name",
                 node_scalar(r->arena, &n->place, name, n->plain));
    }
}

const struct field form_job_metadata[] = {
    {"name", .type = FIELD_LABEL, .to = "name"},
    {"generateName", .type = FIELD_STRING, .take = take_generated},
    {"labels", .type = FIELD_PAIRS, .to = "labels", .take = form_take_pairs},
    {"annotations", .type = FIELD_PAIRS, .to = "annotations",
     .take = take_annotations},
    METADATA_OF_THE_SERVER,
    {0},
};

const struct field form_runtime_metadata[] = {
    {"name", .type = FIELD_LABEL, .to = "name"},
    {"generateName", .type = FIELD_STRING},
    {"labels", .type = FIELD_PAIRS},
    {"annotations", .type = FIELD_PAIRS, .take = take_runtime_annotations},
    METADATA_OF_THE_SERVER,
    {0},
};

void form_take_seconds(struct reader *r, const struct field *f,
                       struct node *n)
{
    node_set_path(r->arena, r->out, f->to,
                  node_scalar(r->arena, &n->place,
                              arena_printf(r->arena, "%ss", n->text), true));
}

void form_take_least(struct reader *r, const struct field *f, struct node *n)
{
    const struct node *before = node_get_path(r->out, f->to);
    uint64_t now = 0, then = 0;

    if (before && value_count(before->text, &then) == 0 &&
        value_count(n->text, &now) == 0 && then <= now) {
        return;
    }
    node_set_path(r->arena, r->out, f->to, n);
}

/* nvidia.com/gpu and the like: whole devices. */
static bool is_gpu_name(const char *name)
{
    return str_ends(name, "/gpu") || str_ends(name, "/dcu") ||
           strstr(name, "nvidia.com/mig-");
}

static void take_resource(struct reader *r, const struct pair *p)
{
    static const struct field cpus = {"cpu", .type = FIELD_CPUS,
                                      .to = "resources.cpus"};
    static const struct field memory = {"memory", .type = FIELD_BYTES,
                                        .to = "resources.memory"};
    static const struct field gpus = {"gpu", .type = FIELD_COUNT, .max = 1024,
                                      .to = "resources.gpus"};

    if (node_is_null(p->value)) {
        return;
    }
    if (strcmp(p->key, "cpu") == 0) {
        schema_read_field(r, &cpus, p->value, NULL);
    } else if (strcmp(p->key, "memory") == 0) {
        schema_read_field(r, &memory, p->value, NULL);
    } else if (is_gpu_name(p->key)) {
        schema_read_field(r, &gpus, p->value, NULL);
    } else {
        report_note(r->report, &p->place,
                    "%s.%s has no effect here: muster knows cpu, memory and "
                    "GPUs",
                    r->path, p->key);
    }
}

void form_take_resources(struct reader *r, const struct field *f,
                         struct node *n)
{
    static const char *const parts[] = {"requests", "limits"};

    (void)f;
    if (n->kind != NODE_MAP) {
        report_error(r->report, &n->place,
                     "%s is %s; expected a map of requests and limits",
                     r->path, node_noun(n));
        return;
    }
    /* Limits come last, so they count where both are given. */
    for (size_t part = 0; part < 2; part++) {
        const struct node *map = node_get(n, parts[part]);

        for (size_t i = 0; map && map->kind == NODE_MAP && i < map->n; i++) {
            take_resource(r, &map->pairs[i]);
        }
    }
    for (size_t i = 0; i < n->n; i++) {
        const struct pair *p = &n->pairs[i];

        if (strcmp(p->key, "requests") != 0 && strcmp(p->key, "limits") != 0) {
            report_error(r->report, &p->place,
                         "%s has \"%.60s\"; expected requests and limits",
                         r->path, p->key);
        } else if (p->value->kind != NODE_MAP && !node_is_null(p->value)) {
            report_error(r->report, &p->value->place,
                         "%s.%s is %s; expected a map", r->path, p->key,
                         node_noun(p->value));
        }
    }
}

/* A fixed value is a list of one. */
static struct node *fixed_parameter(const struct context *c,
                                    struct node *value)
{
    struct node *map = node_map(c->arena, &value->place);
    struct node *list = node_list(c->arena, &value->place);

    node_append(c->arena, list, value);
    node_set(c->arena, map, "type",
             node_scalar(c->arena, &value->place, "categorical", true));
    node_set(c->arena, map, "values", list);
    return map;
}

/* Without a type, values are a choice and a range is of real numbers. Katib
 * calls a choice of numbers discrete. */
static struct node *ranged_parameter(const struct context *c,
                                     struct node *given)
{
    struct node *map = node_map(c->arena, &given->place);
    struct node *type = node_given(given, "type");

    for (size_t i = 0; i < given->n; i++) {
        const struct pair *p = &given->pairs[i];

        if (strcmp(p->key, "name") != 0 && !node_is_null(p->value)) {
            node_add(c->arena, map, p->key, &p->place, p->value);
        }
    }
    if (type && type->kind == NODE_SCALAR &&
        strcmp(type->text, "discrete") == 0) {
        type = NULL;
    }
    if (!type && node_get(given, "values")) {
        node_set(c->arena, map, "type",
                 node_scalar(c->arena, &given->place, "categorical", true));
    } else if (!type) {
        node_set(c->arena, map, "type",
                 node_scalar(c->arena, &given->place, "double", true));
    }
    return map;
}

static void set_parameter(const struct context *c, struct node *to,
                          const char *name, struct node *value)
{
    if (node_is_null(value)) {
        node_set(c->arena, to, name, value);
        return;
    }
    if (value->kind == NODE_LIST) {
        report_error(c->report, &value->place,
                     "parameter %.60s is a list; expected values: [...] in a "
                     "map, or one value",
                     name);
        return;
    }
    node_set(c->arena, to, name,
             value->kind == NODE_MAP ? ranged_parameter(c, value)
                                     : fixed_parameter(c, value));
}

static void set_listed(const struct context *c, struct node *to,
                       struct node *item)
{
    const struct node *name = node_get(item, "name");

    if (!name || name->kind != NODE_SCALAR || !name->text[0]) {
        report_error(c->report, &item->place,
                     "a parameter without a name; expected maps with name, "
                     "type, min and max or values");
        return;
    }
    set_parameter(c, to, name->text, item);
}

void form_set_parameters(const struct context *c, struct node *out,
                         struct node *parameters)
{
    struct node *map = node_map(c->arena, &parameters->place);
    struct node *before = node_get_path(out, "search.parameters");

    if (parameters->kind == NODE_SCALAR) {
        report_error(c->report, &parameters->place,
                     "parameters is %s; expected a map of names to values or "
                     "to maps with type, min and max",
                     node_noun(parameters));
        return;
    }
    if (parameters->n > YAML_MAX_KEYS) {
        report_error(c->report, &parameters->place,
                     "%zu parameters; expected at most %d", parameters->n,
                     YAML_MAX_KEYS);
        return;
    }
    for (size_t i = 0; map && i < parameters->n; i++) {
        if (parameters->kind == NODE_LIST) {
            set_listed(c, map, parameters->items[i]);
        } else {
            set_parameter(c, map, parameters->pairs[i].key,
                          parameters->pairs[i].value);
        }
    }
    node_set_path(c->arena, out, "search.parameters",
                  node_merge(c->arena, before, map));
}
