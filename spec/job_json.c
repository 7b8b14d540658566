/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job as JSON between processes: the short form, with every key written. It
 * is read by the same table, so it is checked as strictly as a file of a user.
 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/job.h"
#include "spec/node.h"
#include "spec/schema.h"
#include "spec/yaml.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

char *job_encode(const struct job *job)
{
    json_t *map = schema_write(job_fields, job);
    char *text = map ? json_dumps(map, JSON_COMPACT) : NULL;

    json_decref(map);
    return text;
}

static struct node *to_node(struct arena *a, json_t *json, int depth);

static struct node *map_to_node(struct arena *a, json_t *json, int depth)
{
    struct node *map = node_map(a, NULL);
    const char *key;
    json_t *value;

    json_object_foreach(json, key, value) {
        node_add(a, map, arena_strdup(a, key), NULL,
                 to_node(a, value, depth + 1));
    }
    return map;
}

static struct node *list_to_node(struct arena *a, json_t *json, int depth)
{
    struct node *list = node_list(a, NULL);
    json_t *value;
    size_t i;

    json_array_foreach(json, i, value) {
        node_append(a, list, to_node(a, value, depth + 1));
    }
    return list;
}

static struct node *to_node(struct arena *a, json_t *json, int depth)
{
    if (depth > YAML_MAX_DEPTH) {
        a->failed = true;
        return NULL;
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return map_to_node(a, json, depth);
    case JSON_ARRAY:
        return list_to_node(a, json, depth);
    case JSON_STRING:
        return node_scalar(a, NULL, json_string_value(json), false);
    case JSON_INTEGER:
        return node_scalar(
            a, NULL,
            arena_printf(a, "%lld", (long long)json_integer_value(json)), true);
    case JSON_REAL:
        return node_scalar(a, NULL,
                           arena_printf(a, "%.17g", json_real_value(json)),
                           true);
    case JSON_TRUE:
        return node_scalar(a, NULL, "true", true);
    case JSON_FALSE:
        return node_scalar(a, NULL, "false", true);
    default:
        return node_scalar(a, NULL, "", true);
    }
}

static int read_job(struct reader *r, json_t *json, struct job *job,
                    struct error *e)
{
    struct node *map = to_node(r->arena, json, 0);

    if (!map || r->arena->failed) {
        return error_text(e, ERR_FORMAT, "a job that is too large or nested");
    }
    if (!schema_read(r, job_fields, map, job)) {
        return error_text(e, ERR_FORMAT, "a job with %s",
                          r->report->n ? r->report->items[0].text
                                       : "no memory for it");
    }
    if (!job->name || job->command.n == 0 || !job->command.items[0][0]) {
        return error_text(e, ERR_FORMAT, "a job without name or command");
    }
    return 0;
}

static int decode(json_t *json, struct job **ret, struct error *e)
{
    _cleanup_(job) struct job *job = job_create();
    _arena_ struct arena arena = {0};
    struct report report = {0};
    struct reader r = {.arena = &arena, .report = &report};
    int rc;

    if (!job) {
        return error_set(e, ENOMEM, "a job");
    }
    rc = read_job(&r, json, job, e);
    report_release(&report);
    if (rc == 0) {
        *ret = take_ptr(&job);
    }
    return rc;
}

int job_decode(const char *json, size_t len, struct job **ret, struct error *e)
{
    json_error_t where;
    json_t *root;
    int rc;

    if (len > YAML_MAX_BYTES) {
        return error_text(e, ERR_FORMAT, "a job of %zu bytes", len);
    }
    root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        return error_text(e, ERR_FORMAT, "a job that is no JSON: %s",
                          where.text);
    }
    rc = json_is_object(root)
             ? decode(root, ret, e)
             : error_text(e, ERR_FORMAT, "a job that is no object");
    json_decref(root);
    return rc;
}
