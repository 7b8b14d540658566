/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree between text and job: scalars, maps and lists, each with the place
 * that it came from. Nodes live in an arena and are freed all at once; a node
 * may be shared by several parents, so a node that is in a tree is not changed,
 * but copied (node_merge() does).
 *
 * An allocation that fails is remembered in the arena. Functions that make
 * nodes return NULL then, and take NULL where they take nodes, so a sequence is
 * checked once, at its end.
 */
#ifndef MUSTER_SPEC_NODE_H
#define MUSTER_SPEC_NODE_H

#include "spec/report.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t total; /* bytes handed out; at most ARENA_MAX */
    bool failed;
};

#define ARENA_MAX ((size_t)256 << 20)

void arena_release(struct arena *a);
/* Zeroed memory, or NULL. */
void *arena_alloc(struct arena *a, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#define _arena_ __attribute__((cleanup(arena_release)))

enum node_kind {
    NODE_SCALAR,
    NODE_MAP,
    NODE_LIST,
};

struct node;

struct pair {
    const char *key;
    struct place place; /* of the key */
    struct node *value;
};

struct node {
    enum node_kind kind;
    struct place place;
    const char *text; /* scalar */
    bool plain;       /* scalar: was not quoted */
    bool literal;     /* scalar: $(X) in it is not expanded */
    bool secret;      /* scalar: not to be shown */
    struct pair *pairs;
    struct node **items;
    size_t n; /* of pairs or items */
    size_t cap;
    uint32_t weight; /* nodes in it, shared ones as often as they appear */
    uint32_t height; /* levels below it */
};

struct node *node_scalar(struct arena *a, const struct place *at,
                         const char *text, bool plain);
struct node *node_map(struct arena *a, const struct place *at);
struct node *node_list(struct arena *a, const struct place *at);

/* Adds without looking for one of that name. */
void node_add(struct arena *a, struct node *map, const char *key,
              const struct place *at, struct node *value);
void node_append(struct arena *a, struct node *list, struct node *value);

/* Replaces the value of that name, or adds it. */
void node_set(struct arena *a, struct node *map, const char *key,
              struct node *value);
/* As node_set() for a path "a.b.c": maps on the way are made where missing.
 * Under "env" and the like the rest of the path is one name. */
void node_set_path(struct arena *a, struct node *map, const char *path,
                   struct node *value);

/* NULL if absent, or if `map` is no map. Borrowed. */
struct node *node_get(const struct node *map, const char *key);
struct node *node_get_path(const struct node *map, const char *path);

/* As node_get(), but what is null counts as absent. */
struct node *node_given(const struct node *map, const char *key);

/* A scalar that means "no value": nothing, ~ or null, not quoted. */
bool node_is_null(const struct node *n);

/* What a message calls it: "a map", "a list", "text". */
const char *node_noun(const struct node *n);

/* A copy of which every part may be changed. Keys with a null are left out. */
struct node *node_copy(struct arena *a, const struct node *n);

/* `over` laid over `under`: maps merge by key, anything else replaces. A null
 * in `over` deletes the key, so that the layer below neither of them counts.
 * Neither is changed; parts may be shared. */
struct node *node_merge(struct arena *a, struct node *under, struct node *over);

#endif
