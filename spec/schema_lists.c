/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of fields that hold several values: lists, maps of text, lists and maps
 * of structs.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/job.h"
#include "spec/schema_types.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = JOB_ENV_NAME_MAX };

/* What one value of a list or map is expected to be. */
static const struct field one_text = {"text", .type = FIELD_STRING};

/* A list that is complete takes the place of what was there. */
static bool keep_list(struct reader *r, struct strlist *list, void *at)
{
    if (list->failed) {
        r->report->failed = true;
        return false;
    }
    if (at) {
        strlist_release(at);
        *(struct strlist *)at = *list;
        *list = (struct strlist){0};
    }
    return true;
}

static bool read_list(struct reader *r, const struct field *f, struct node *n,
                      void *at)
{
    _strlist_ struct strlist list = {0};

    if (n->kind != NODE_LIST) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; i < n->n; i++) {
        const char *s = schema_text(r, &one_text, n->items[i]);

        if (!s) {
            return false;
        }
        strlist_add(&list, s);
    }
    return keep_list(r, &list, at);
}

static json_t *write_list(const struct field *f, const void *at)
{
    const struct strlist *list = at;
    json_t *array = json_array();

    (void)f;
    for (size_t i = 0; array && i < list->n; i++) {
        if (json_array_append_new(array, json_string(list->items[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static void release_list(const struct field *f, void *at)
{
    (void)f;
    strlist_release(at);
}

static bool check_name(struct reader *r, const struct pair *p)
{
    size_t len = strlen(p->key);
    bool good = len && len <= MAX_NAME && !strchr(p->key, '=');

    for (size_t i = 0; good && i < len; i++) {
        good = (unsigned char)p->key[i] >= 0x20 && p->key[i] != 0x7f;
    }
    if (!good) {
        report_error(r->report, &p->place,
                     "%s has the name \"%.60s\"; expected 1 to %d printable "
                     "bytes without =",
                     r->path, p->key, MAX_NAME);
    }
    return good;
}

static bool read_pairs(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    _strlist_ struct strlist list = {0};

    if (n->kind != NODE_MAP) {
        return schema_mismatch(r, f, n);
    }
    for (size_t i = 0; i < n->n; i++) {
        const struct pair *p = &n->pairs[i];
        const char *s;
        size_t before;

        if (!check_name(r, p)) {
            return false;
        }
        if (node_is_null(p->value)) {
            continue;
        }
        before = schema_enter(r, p->key);
        s = schema_text(r, &one_text, p->value);
        schema_leave(r, before);
        if (!s) {
            return false;
        }
        strlist_addf(&list, "%s=%s", p->key, s);
    }
    return keep_list(r, &list, at);
}

static json_t *write_pairs(const struct field *f, const void *at)
{
    const struct strlist *list = at;
    json_t *map = json_object();

    (void)f;
    for (size_t i = 0; map && i < list->n; i++) {
        const char *item = list->items[i];
        size_t len = strcspn(item, "=");

        if (json_object_setn_new(map, item, len, json_string(item + len + 1)) <
            0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

static bool read_map(struct reader *r, const struct field *f, struct node *n,
                     void *at)
{
    if (n->kind != NODE_MAP) {
        return schema_mismatch(r, f, n);
    }
    /* The keys of an inner map are in the same struct: its offset is 0. */
    return schema_read(r, f->fields, n, at);
}

static json_t *write_map(const struct field *f, const void *at)
{
    return schema_write(f->fields, at);
}

static void release_map(const struct field *f, void *at)
{
    schema_release(f->fields, at);
}

/* A pointer to structs and, right behind it, their number. */
struct items {
    char *data;
    size_t n;
};

/* The first member of a named struct. */
static char **name_of(char *item)
{
    return (char **)(void *)item;
}

static void release_items(const struct field *f, void *at)
{
    struct items *items = at;

    for (size_t i = 0; i < items->n; i++) {
        if (f->type == FIELD_NAMED) {
            free(*name_of(items->data + i * f->item_size));
        }
        schema_release(f->fields, items->data + i * f->item_size);
    }
    free(items->data);
    *items = (struct items){0};
}

/* One struct of a list, or of a map, where its name comes from the key. */
static bool read_item(struct reader *r, const struct field *f,
                      const struct node *n, size_t i, struct items *to)
{
    const struct pair *p = f->type == FIELD_NAMED ? &n->pairs[i] : NULL;
    struct node *value = p ? p->value : n->items[i];
    char *item = to->data + to->n * f->item_size;
    bool good;

    if (p && node_is_null(value)) {
        return true;
    }
    if (value->kind != NODE_MAP) {
        return schema_mismatch(r, f, value);
    }
    if (p && !check_name(r, p)) {
        return false;
    }
    good = schema_read(r, f->fields, value, item);
    if (p) {
        good &= schema_keep_string(r, p->key, name_of(item));
    }
    to->n++;
    return good;
}

static bool read_items(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    struct items made = {0};
    bool good = true;

    if (n->kind != (f->type == FIELD_NAMED ? NODE_MAP : NODE_LIST)) {
        return schema_mismatch(r, f, n);
    }
    made.data = calloc(n->n ? n->n : 1, f->item_size);
    if (!made.data) {
        r->report->failed = true;
        return false;
    }
    for (size_t i = 0; i < n->n && !report_is_full(r->report); i++) {
        good &= read_item(r, f, n, i, &made);
    }
    good = good && !report_is_full(r->report);
    if (good && at) {
        release_items(f, at);
        memcpy(at, &made, sizeof(made));
    } else {
        release_items(f, &made);
    }
    return good;
}

static json_t *write_items(const struct field *f, const void *at)
{
    const struct items *items = at;
    bool named = f->type == FIELD_NAMED;
    json_t *all = named ? json_object() : json_array();

    for (size_t i = 0; all && i < items->n; i++) {
        char *item = items->data + i * f->item_size;
        json_t *value = schema_write(f->fields, item);

        if ((named ? json_object_set_new(all, *name_of(item), value)
                   : json_array_append_new(all, value)) < 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

const struct type_ops schema_list = {"list", read_list, write_list,
                                     release_list};
const struct type_ops schema_pairs = {"map", read_pairs, write_pairs,
                                      release_list};
const struct type_ops schema_map = {"map", read_map, write_map, release_map};
const struct type_ops schema_items = {"list of maps", read_items, write_items,
                                      release_items};
const struct type_ops schema_named = {"map of maps", read_items, write_items,
                                      release_items};
