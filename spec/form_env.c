/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environments: a map, the list of name and value of Kubernetes, and envFrom.
 * A value that a cluster would take from a Secret is taken from the environment
 * of whoever resolves the spec, and is marked as not to be shown.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/utf8.h"
#include "spec/form.h"
#include "spec/job.h"
#include "spec/value.h"
#include "spec/yaml.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ENV_FILE = 1 << 20 };

const char *form_getenv(const struct context *c, const char *name)
{
    char *const *env = c->request->env;
    size_t len = strlen(name);

    for (; env && *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

static struct node *env_map(const struct context *c, struct node *out,
                            const struct place *at)
{
    struct node *map = node_given(out, "env");

    if (!map) {
        map = node_map(c->arena, at);
        node_set(c->arena, out, "env", map);
    }
    return map;
}

static void set_secret(const struct context *c, struct node *map,
                       const char *name, const struct place *at,
                       const char *what)
{
    const char *value = form_getenv(c, name);
    struct node *n;

    if (!value) {
        report_warn(c->report, at,
                    "variable %s is not set: %s; expected it in the "
                    "environment",
                    name, what);
        return;
    }
    n = node_scalar(c->arena, at, value, false);
    if (n) {
        n->secret = true;
        n->literal = true;
    }
    node_set(c->arena, map, name, n);
}

static void set_variable(const struct context *c, struct node *map,
                         const char *name, struct node *value)
{
    if (value->kind == NODE_SCALAR && strcmp(value->text, JOB_HIDDEN) == 0) {
        set_secret(c, map, name, &value->place, "its value was hidden");
        return;
    }
    node_set(c->arena, map, name, value);
}

static void set_value_from(const struct context *c, struct node *map,
                           const char *name, const struct node *from)
{
    static const char *const kinds[] = {"secretKeyRef", "configMapKeyRef",
                                        "fieldRef", "resourceFieldRef", NULL};

    if (from->kind == NODE_MAP && from->n == 1) {
        for (size_t i = 0; kinds[i]; i++) {
            if (strcmp(from->pairs[0].key, kinds[i]) != 0) {
                continue;
            }
            set_secret(c, map, name, &from->place,
                       arena_printf(c->arena, "there is no cluster to read "
                                              "its %s from", kinds[i]));
            return;
        }
    }
    report_error(c->report, &from->place,
                 "valueFrom of %.60s is %s; expected a map of one of "
                 "secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef",
                 name,
                 from->kind == NODE_MAP ? "another map" : node_noun(from));
}

static const struct field item_fields[] = {
    {"name", .type = FIELD_STRING, .flags = FIELD_REQUIRED},
    {"value", .type = FIELD_ANY},
    {"valueFrom", .type = FIELD_ANY},
    {0},
};

/* The list of Kubernetes may name a variable twice. */
static void warn_of_double(const struct context *c, const struct node *map,
                           const char *name, const struct place *at)
{
    const struct node *before = node_get(map, name);

    if (before && before->place.line && before->place.file == at->file) {
        report_warn(c->report, at,
                    "env has %.60s again, first on line %u; this one counts",
                    name, before->place.line);
    }
}

static void set_item(const struct context *c, struct node *map,
                     struct node *item)
{
    struct reader r = form_reader(c, NULL);
    struct node *value, *from;
    const char *name;

    schema_enter(&r, "env");
    if (item->kind != NODE_MAP) {
        report_error(c->report, &item->place,
                     "%s in env; expected a map with name and value",
                     node_noun(item));
        return;
    }
    if (!schema_read(&r, item_fields, item, NULL)) {
        return;
    }
    name = node_get(item, "name")->text;
    warn_of_double(c, map, name, &item->place);
    value = node_given(item, "value");
    from = node_given(item, "valueFrom");
    if (from && value) {
        report_error(c->report, &from->place,
                     "env has value and valueFrom for %.60s; expected one of "
                     "them",
                     name);
        return;
    }
    if (from) {
        set_value_from(c, map, name, from);
        return;
    }
    if (!value) {
        value = node_scalar(c->arena, &item->place, "", false);
    }
    if (value) {
        set_variable(c, map, name, value);
    }
}

void form_set_env(const struct context *c, struct node *out, struct node *env)
{
    struct node *map = env_map(c, out, &env->place);

    if (!map) {
        return;
    }
    if (env->kind == NODE_SCALAR) {
        report_error(c->report, &env->place,
                     "env is text; expected a map of names to values, or a "
                     "list of maps with name and value");
        return;
    }
    if (env->n > YAML_MAX_KEYS) {
        report_error(c->report, &env->place,
                     "%zu variables; expected at most %d", env->n,
                     YAML_MAX_KEYS);
        return;
    }
    for (size_t i = 0; i < env->n && !report_is_full(c->report); i++) {
        if (env->kind == NODE_LIST) {
            set_item(c, map, env->items[i]);
        } else {
            set_variable(c, map, env->pairs[i].key, env->pairs[i].value);
        }
    }
}

static void set_line(const struct context *c, struct node *map,
                     const char *prefix, char *line, const struct place *at)
{
    char *sep = strchr(line, '=');
    struct node *value;

    line += strspn(line, " \t");
    if (!line[0] || line[0] == '#') {
        return;
    }
    if (!sep || sep == line) {
        report_error(c->report, at, "no assignment; expected NAME=VALUE");
        return;
    }
    if (map->n >= YAML_MAX_KEYS) {
        report_error(c->report, at, "more than %d variables", YAML_MAX_KEYS);
        return;
    }
    *sep = '\0';
    if (!utf8_is_valid(line) || !utf8_is_valid(sep + 1)) {
        report_error(c->report, at, "bytes that are not UTF-8; expected text");
        return;
    }
    value = node_scalar(c->arena, at, sep + 1, false);
    if (value) {
        value->secret = true;
        value->literal = true;
    }
    node_set(c->arena, map, arena_printf(c->arena, "%s%s", prefix, line),
             value);
}

static void set_file(const struct context *c, struct node *map,
                     const struct node *file, const char *prefix)
{
    _free_ char *text = NULL;
    struct error e = {0};
    size_t len;
    unsigned line = 1;

    if (fs_read_regular(file->text, MAX_ENV_FILE, &text, &len, &e) < 0) {
        report_error(c->report, &file->place, "envFrom: %s", e.text);
        return;
    }
    if (strlen(text) != len) {
        report_error(c->report, &file->place, "envFrom: %.200s has a zero byte; "
                     "expected text", file->text);
        return;
    }
    for (char *at = text, *end; *at && !report_is_full(c->report); at = end) {
        struct place place = {.file = file->text, .line = line++, .column = 1};

        end = at + strcspn(at, "\n");
        if (*end) {
            *end++ = '\0';
        }
        set_line(c, map, prefix, at, &place);
        if (map->n >= YAML_MAX_KEYS) {
            return;
        }
    }
}

static const struct field from_fields[] = {
    {"file", .type = FIELD_STRING},
    {"prefix", .type = FIELD_STRING},
    {"configMapRef", .type = FIELD_ANY},
    {"secretRef", .type = FIELD_ANY},
    {0},
};

static void set_from(const struct context *c, struct node *map,
                     struct node *item)
{
    struct reader r = form_reader(c, NULL);
    const struct node *file, *prefix;

    schema_enter(&r, "envFrom");
    if (item->kind != NODE_MAP) {
        report_error(c->report, &item->place,
                     "%s in envFrom; expected a map with file",
                     node_noun(item));
        return;
    }
    if (!schema_read(&r, from_fields, item, NULL)) {
        return;
    }
    file = node_given(item, "file");
    prefix = node_given(item, "prefix");
    if (!file) {
        report_warn(c->report, &item->place,
                    "envFrom has no effect: there is no cluster to read it "
                    "from; expected file: with lines NAME=VALUE");
        return;
    }
    set_file(c, map, file, prefix ? prefix->text : "");
}

void form_set_env_from(const struct context *c, struct node *out,
                       struct node *env_from)
{
    struct node *map = node_map(c->arena, &env_from->place);

    if (env_from->kind != NODE_LIST) {
        report_error(c->report, &env_from->place,
                     "envFrom is %s; expected a list such as [{file: vars}]",
                     node_noun(env_from));
        return;
    }
    for (size_t i = 0; map && i < env_from->n; i++) {
        set_from(c, map, env_from->items[i]);
    }
    /* What env says beats what envFrom brings. */
    node_set(c->arena, out, "env",
             node_merge(c->arena, map, node_given(out, "env")));
}

void form_take_env(struct reader *r, const struct field *f, struct node *n)
{
    (void)f;
    form_set_env(form_context(r), r->out, n);
}

void form_take_env_from(struct reader *r, const struct field *f,
                        struct node *n)
{
    (void)f;
    form_set_env_from(form_context(r), r->out, n);
}
