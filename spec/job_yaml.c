/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "spec/job.h"
#include "spec/schema.h"
#include "spec/value.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_text(struct buf *to, const char *s)
{
    if (value_needs_quotes(s)) {
        value_write_quoted(to, s);
    } else {
        buf_puts(to, s);
    }
}

static void write_real(struct buf *to, double v)
{
    char text[40];

    snprintf(text, sizeof(text), "%.15g", v);
    if (strtod(text, NULL) != v) {
        snprintf(text, sizeof(text), "%.17g", v);
    }
    buf_puts(to, text);
}

static void write_scalar(struct buf *to, const json_t *v)
{
    if (json_is_string(v)) {
        write_text(to, json_string_value(v));
    } else if (json_is_real(v)) {
        write_real(to, json_real_value(v));
    } else if (json_is_integer(v)) {
        buf_printf(to, "%lld", (long long)json_integer_value(v));
    } else {
        buf_puts(to, json_is_true(v) ? "true" : "false");
    }
}

static void write_flow(struct buf *to, json_t *v);

static void write_flow_map(struct buf *to, json_t *map)
{
    const char *key, *sep = "";
    json_t *value;

    buf_putc(to, '{');
    json_object_foreach(map, key, value) {
        buf_puts(to, sep);
        write_text(to, key);
        buf_puts(to, ": ");
        write_flow(to, value);
        sep = ", ";
    }
    buf_putc(to, '}');
}

static void write_flow(struct buf *to, json_t *v)
{
    json_t *item;
    size_t i;

    if (json_is_object(v)) {
        write_flow_map(to, v);
        return;
    }
    if (!json_is_array(v)) {
        write_scalar(to, v);
        return;
    }
    buf_putc(to, '[');
    json_array_foreach(v, i, item) {
        buf_puts(to, i ? ", " : "");
        write_flow(to, item);
    }
    buf_putc(to, ']');
}

static bool has_maps(json_t *map)
{
    const char *key;
    json_t *value;

    json_object_foreach(map, key, value) {
        if (json_is_object(value) && json_object_size(value)) {
            return true;
        }
    }
    return false;
}

/* Maps of maps in lines; env one a line; everything else in flow style. */
static void write_block(struct buf *to, json_t *map, int indent)
{
    const char *key;
    json_t *value;

    json_object_foreach(map, key, value) {
        buf_printf(to, "%*s", indent, "");
        write_text(to, key);
        buf_putc(to, ':');
        if (json_is_object(value) && json_object_size(value) &&
            (has_maps(value) || strcmp(key, "env") == 0)) {
            buf_putc(to, '\n');
            write_block(to, value, indent + 2);
            continue;
        }
        buf_putc(to, ' ');
        write_flow(to, value);
        buf_putc(to, '\n');
    }
}

/* A secret that other values may contain. */
struct secret {
    const char *item; /* NAME=VALUE */
    size_t name_len;
    const char *value;
    const char *next; /* where it stands next in the text at hand, or NULL */
};

/* Short values are no secrets that could be told from other text. */
enum { LEAST_SECRET = 6, MAX_SECRETS = 256 };

struct secrets {
    struct secret items[MAX_SECRETS];
    size_t n;
};

static void list_secrets(const struct job *job, struct secrets *to)
{
    for (size_t i = 0; i < job->env.n && to->n < MAX_SECRETS; i++) {
        const char *item = job->env.items[i], *sep = strchr(item, '=');
        char name[512];

        if (!sep || (size_t)(sep - item) >= sizeof(name) ||
            strlen(sep + 1) < LEAST_SECRET) {
            continue;
        }
        str_copy(name, (size_t)(sep - item) + 1, item);
        if (job_env_is_secret(job, name)) {
            to->items[to->n++] = (struct secret){
                .item = item,
                .name_len = (size_t)(sep - item),
                .value = sep + 1};
        }
    }
}

/* The secret that stands first at or behind `s`. Each is looked for again only
 * once its last finding is passed, so a text is searched once for each. */
static struct secret *next_secret(struct secrets *all, const char *s)
{
    struct secret *first = NULL;

    for (size_t i = 0; i < all->n; i++) {
        struct secret *one = &all->items[i];

        if (one->next && one->next < s) {
            one->next = strstr(s, one->value);
        }
        if (one->next && (!first || one->next < first->next)) {
            first = one;
        }
    }
    return first;
}

/* The template `s` with secrets named, not shown. */
static json_t *without_secrets(struct secrets *all, const char *s)
{
    _buf_ struct buf text = {0};
    const struct secret *secret;

    for (size_t i = 0; i < all->n; i++) {
        all->items[i].next = strstr(s, all->items[i].value);
    }
    while ((secret = next_secret(all, s))) {
        buf_append(&text, s, (size_t)(secret->next - s));
        buf_printf(&text, "$(%.*s)", (int)secret->name_len, secret->item);
        s = secret->next + strlen(secret->value);
    }
    buf_puts(&text, s);
    return text.failed ? NULL : json_string(buf_str(&text));
}

static bool hide_secrets(const struct job *job, struct secrets *all,
                         json_t *map)
{
    json_t *env = json_object_get(map, "env");
    json_t *command = json_object_get(map, "command");
    json_t *value;
    const char *key;
    size_t i;
    void *next;

    json_object_foreach_safe(env, next, key, value) {
        json_t *text = job_env_is_secret(job, key)
                           ? json_string(JOB_HIDDEN)
                           : without_secrets(all, json_string_value(value));

        if (json_object_set_new(env, key, text) < 0) {
            return false;
        }
    }
    json_array_foreach(command, i, value) {
        if (json_array_set_new(command, i,
                               without_secrets(all, json_string_value(
                                                        value))) < 0) {
            return false;
        }
    }
    return true;
}

/* The job as people may see it; NULL without memory. */
static json_t *shown(const struct job *job)
{
    _free_ struct secrets *all = calloc(1, sizeof(*all));
    json_t *map = schema_write(job_fields, job);

    if (all) {
        list_secrets(job, all);
    }
    if (!all || !map || !hide_secrets(job, all, map)) {
        json_decref(map);
        return NULL;
    }
    return map;
}

char *job_write_yaml(const struct job *job)
{
    _buf_ struct buf text = {0};
    json_t *map = shown(job);

    if (!map) {
        return NULL;
    }
    buf_puts(&text, "apiVersion: muster/v1\nkind: Job\n");
    if (job->runtime) {
        /* All that it gives is in the job by now: as a key it would be looked
         * for again, and might be another one by then. */
        buf_puts(&text, "# made with the runtime ");
        value_write_quoted(&text, job->runtime);
        buf_putc(&text, '\n');
        json_object_del(map, "runtime");
    }
    write_block(&text, map, 0);
    json_decref(map);
    return buf_take(&text);
}

/* The value at a path; a name at its end may have dots itself. */
static json_t *find_value(json_t *map, const char *path)
{
    json_t *value = json_object_get(map, path);
    const char *dot = strchr(path, '.');
    char first[64];

    if (value || !dot || (size_t)(dot - path) >= sizeof(first)) {
        return value;
    }
    str_copy(first, (size_t)(dot - path) + 1, path);
    value = json_object_get(map, first);
    return value ? find_value(value, dot + 1) : NULL;
}

bool job_write_value(const struct job *job, const char *path, struct buf *to)
{
    json_t *map = shown(job);
    json_t *value = map ? find_value(map, path) : NULL;
    bool is_set = value;

    if (is_set) {
        write_flow(to, value);
    }
    json_decref(map);
    return is_set;
}
