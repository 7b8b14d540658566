/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of fields that hold several values: lists, maps of text, lists and maps
 * of structs.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/schema_types.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 320 };

/* What one value of a list or map is expected to be. */
static const struct field one_text = {"text", .type = FIELD_STRING};

bool schema_read_list(struct reader *r, const struct field *f, struct node *n,
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
    if (list.failed) {
        r->report->failed = true;
        return false;
    }
    if (at) {
        strlist_release(at);
        *(struct strlist *)at = list;
        list = (struct strlist){0};
    }
    return true;
}

json_t *schema_write_list(const struct field *f, const void *at)
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

void schema_release_list(const struct field *f, void *at)
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

bool schema_read_pairs(struct reader *r, const struct field *f, struct node *n,
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
        before = schema_enter(r, p->key);
        s = schema_text(r, &one_text, p->value);
        schema_leave(r, before);
        if (!s) {
            return false;
        }
        strlist_addf(&list, "%s=%s", p->key, s);
    }
    if (list.failed) {
        r->report->failed = true;
        return false;
    }
    if (at) {
        strlist_release(at);
        *(struct strlist *)at = list;
        list = (struct strlist){0};
    }
    return true;
}

json_t *schema_write_pairs(const struct field *f, const void *at)
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

bool schema_read_map(struct reader *r, const struct field *f, struct node *n,
                     void *at)
{
    if (n->kind != NODE_MAP) {
        return schema_mismatch(r, f, n);
    }
    /* The keys of an inner map are in the same struct: its offset is 0. */
    return schema_read(r, f->fields, n, at);
}

json_t *schema_write_map(const struct field *f, const void *at)
{
    return schema_write(f->fields, at);
}

void schema_release_map(const struct field *f, void *at)
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

void schema_release_items(const struct field *f, void *at)
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

static char *make_items(struct reader *r, const struct field *f, size_t n)
{
    char *data = calloc(n ? n : 1, f->item_size);

    if (!data) {
        r->report->failed = true;
    }
    return data;
}

static void keep_items(const struct field *f, struct items *made, bool good,
                       void *at)
{
    if (!good || !at) {
        schema_release_items(f, made);
        return;
    }
    schema_release_items(f, at);
    memcpy(at, made, sizeof(*made));
}

bool schema_read_items(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    struct items made = {0};
    bool good = true;

    if (n->kind != NODE_LIST) {
        return schema_mismatch(r, f, n);
    }
    made.data = make_items(r, f, n->n);
    for (size_t i = 0; made.data && i < n->n; i++) {
        if (n->items[i]->kind != NODE_MAP) {
            good = schema_mismatch(r, f, n->items[i]);
            continue;
        }
        good &= schema_read(r, f->fields, n->items[i],
                            made.data + i * f->item_size);
        made.n++;
    }
    keep_items(f, &made, good && made.data, at);
    return good && !r->report->failed;
}

json_t *schema_write_items(const struct field *f, const void *at)
{
    const struct items *items = at;
    json_t *list = json_array();

    for (size_t i = 0; list && i < items->n; i++) {
        if (json_array_append_new(
                list, schema_write(f->fields,
                                   items->data + i * f->item_size)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

bool schema_read_named(struct reader *r, const struct field *f, struct node *n,
                       void *at)
{
    struct items made = {0};
    bool good = true;

    if (n->kind != NODE_MAP) {
        return schema_mismatch(r, f, n);
    }
    made.data = make_items(r, f, n->n);
    for (size_t i = 0; made.data && i < n->n; i++) {
        const struct pair *p = &n->pairs[i];
        char *item = made.data + made.n * f->item_size;

        if (!check_name(r, p) || p->value->kind != NODE_MAP) {
            good = p->value->kind == NODE_MAP
                       ? false
                       : schema_mismatch(r, f, p->value);
            continue;
        }
        good &= schema_read(r, f->fields, p->value, item);
        good &= schema_keep_string(r, p->key, name_of(item));
        made.n++;
    }
    keep_items(f, &made, good && made.data, at);
    return good && !r->report->failed;
}

json_t *schema_write_named(const struct field *f, const void *at)
{
    const struct items *items = at;
    json_t *map = json_object();

    for (size_t i = 0; map && i < items->n; i++) {
        char *item = items->data + i * f->item_size;
        json_t *value = schema_write(f->fields, item);

        if (json_object_set_new(map, *name_of(item), value) < 0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}
