/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/node.h"

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16384 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t size;
    max_align_t data[];
};

void arena_release(struct arena *a)
{
    struct arena_block *next;

    for (struct arena_block *b = a->blocks; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){0};
}

static struct arena_block *add_block(struct arena *a, size_t size)
{
    struct arena_block *b;

    size = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    b = calloc(1, sizeof(*b) + size);
    if (b) {
        b->size = size;
        b->next = a->blocks;
        a->blocks = b;
    }
    return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
    struct arena_block *b = a->blocks;
    void *p;

    if (a->failed || size > ARENA_MAX - a->total) {
        a->failed = true;
        return NULL;
    }
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    if (!b || size > b->size - b->used) {
        b = add_block(a, size);
    }
    if (!b) {
        a->failed = true;
        return NULL;
    }
    p = (char *)b->data + b->used;
    b->used += size;
    a->total += size;
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t len = strlen(s);
    char *copy = arena_alloc(a, len + 1);

    return copy ? memcpy(copy, s, len + 1) : NULL;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    char *text = NULL, *copy;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        a->failed = true;
        return NULL;
    }
    copy = arena_strdup(a, text);
    free(text);
    return copy;
}

static struct node *make(struct arena *a, enum node_kind kind,
                         const struct place *at)
{
    struct node *n = arena_alloc(a, sizeof(*n));

    if (n) {
        n->kind = kind;
        n->weight = 1;
        if (at) {
            n->place = *at;
        }
    }
    return n;
}

struct node *node_scalar(struct arena *a, const struct place *at,
                         const char *text, bool plain)
{
    struct node *n = make(a, NODE_SCALAR, at);

    if (!n || !text) {
        return NULL;
    }
    n->text = arena_strdup(a, text);
    n->plain = plain;
    return n->text ? n : NULL;
}

struct node *node_map(struct arena *a, const struct place *at)
{
    return make(a, NODE_MAP, at);
}

struct node *node_list(struct arena *a, const struct place *at)
{
    return make(a, NODE_LIST, at);
}

static void add_child(struct node *parent, const struct node *child)
{
    uint32_t weight = parent->weight + child->weight;

    parent->weight = weight < parent->weight ? UINT32_MAX : weight;
    if (child->height >= parent->height) {
        parent->height = child->height + 1;
    }
}

/* Room for one more of `size` bytes in an array that doubles. */
static void *grow(struct arena *a, struct node *n, void *array, size_t size)
{
    size_t cap = n->cap ? 2 * n->cap : 4;
    void *grown;

    if (n->n < n->cap) {
        return array;
    }
    grown = arena_alloc(a, cap * size);
    if (grown && n->n) {
        memcpy(grown, array, n->n * size);
    }
    if (grown) {
        n->cap = cap;
    }
    return grown;
}

void node_add(struct arena *a, struct node *map, const char *key,
              const struct place *at, struct node *value)
{
    struct pair *pairs;

    if (!map || !key || !value) {
        return;
    }
    pairs = grow(a, map, map->pairs, sizeof(*pairs));
    if (pairs) {
        map->pairs = pairs;
        pairs[map->n++] = (struct pair){
            .key = key, .place = at ? *at : value->place, .value = value};
        add_child(map, value);
    }
}

void node_append(struct arena *a, struct node *list, struct node *value)
{
    struct node **items;

    if (!list || !value) {
        return;
    }
    items = grow(a, list, list->items, sizeof(struct node *));
    if (items) {
        list->items = items;
        items[list->n++] = value;
        add_child(list, value);
    }
}

static struct pair *find(const struct node *map, const char *key)
{
    for (size_t i = 0; i < map->n; i++) {
        if (strcmp(map->pairs[i].key, key) == 0) {
            return &map->pairs[i];
        }
    }
    return NULL;
}

void node_set(struct arena *a, struct node *map, const char *key,
              struct node *value)
{
    struct pair *p;

    if (!map || !key || !value || map->kind != NODE_MAP) {
        return;
    }
    p = find(map, key);
    if (p) {
        p->value = value;
        p->place = value->place;
        return;
    }
    node_add(a, map, arena_strdup(a, key), NULL, value);
}

/* Maps whose keys are the user's own names, which may hold dots. */
static bool has_free_names(const char *name, size_t len)
{
    static const char *const names[] = {"env", "labels", "annotations",
                                        "parameters", NULL};

    for (size_t i = 0; names[i]; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

void node_set_path(struct arena *a, struct node *map, const char *path,
                   struct node *value)
{
    const char *dot;

    while (map && value && (dot = strchr(path, '.'))) {
        char *name = arena_printf(a, "%.*s", (int)(dot - path), path);
        bool last = has_free_names(path, (size_t)(dot - path));
        struct node *inner = name ? node_get(map, name) : NULL;

        if (!inner || inner->kind != NODE_MAP) {
            inner = node_map(a, &value->place);
            node_set(a, map, name, inner);
        }
        map = inner;
        path = dot + 1;
        if (last) {
            break;
        }
    }
    node_set(a, map, path, value);
}

struct node *node_get(const struct node *map, const char *key)
{
    const struct pair *p;

    if (!map || map->kind != NODE_MAP) {
        return NULL;
    }
    p = find(map, key);
    return p ? p->value : NULL;
}

struct node *node_given(const struct node *map, const char *key)
{
    struct node *n = node_get(map, key);

    return n && !node_is_null(n) ? n : NULL;
}

struct node *node_get_path(const struct node *map, const char *path)
{
    struct node *found = NULL;
    const char *dot;
    char name[128];

    while ((dot = strchr(path, '.'))) {
        if ((size_t)(dot - path) >= sizeof(name)) {
            return NULL;
        }
        memcpy(name, path, (size_t)(dot - path));
        name[dot - path] = '\0';
        map = node_get(map, name);
        path = dot + 1;
    }
    found = node_get(map, path);
    return found;
}

bool node_is_null(const struct node *n)
{
    return n->kind == NODE_SCALAR && n->plain &&
           (!n->text[0] || strcmp(n->text, "~") == 0 ||
            strcmp(n->text, "null") == 0 || strcmp(n->text, "Null") == 0 ||
            strcmp(n->text, "NULL") == 0);
}

const char *node_noun(const struct node *n)
{
    if (n->kind == NODE_MAP) {
        return "a map";
    }
    if (n->kind == NODE_LIST) {
        return "a list";
    }
    return node_is_null(n) ? "nothing" : "text";
}

struct node *node_copy(struct arena *a, const struct node *n)
{
    struct node *copy = make(a, n->kind, &n->place);

    if (!copy) {
        return NULL;
    }
    if (n->kind == NODE_SCALAR) {
        *copy = *n;
        return copy;
    }
    for (size_t i = 0; i < n->n; i++) {
        if (n->kind == NODE_LIST) {
            node_append(a, copy, node_copy(a, n->items[i]));
        } else if (!node_is_null(n->pairs[i].value)) {
            node_add(a, copy, n->pairs[i].key, &n->pairs[i].place,
                     node_copy(a, n->pairs[i].value));
        }
    }
    return copy;
}

static void merge_into(struct arena *a, struct node *to, struct node *over)
{
    for (size_t i = 0; i < over->n; i++) {
        const struct pair *p = &over->pairs[i];
        struct pair *under = find(to, p->key);

        if (!under) {
            node_add(a, to, p->key, &p->place, p->value);
            continue;
        }
        under->place = p->place;
        under->value = node_merge(a, under->value, p->value);
    }
}

struct node *node_merge(struct arena *a, struct node *under, struct node *over)
{
    struct node *merged;

    if (!under || !over) {
        return over ? over : under;
    }
    if (under->kind != NODE_MAP || over->kind != NODE_MAP) {
        return over;
    }
    merged = node_map(a, &over->place);
    for (size_t i = 0; i < under->n; i++) {
        node_add(a, merged, under->pairs[i].key, &under->pairs[i].place,
                 under->pairs[i].value);
    }
    if (merged) {
        merge_into(a, merged, over);
    }
    return merged;
}
