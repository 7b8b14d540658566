/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pickle says, as a tree that can be looked through. Nothing is run, and nothing is made
 * that the pickle asks for: an object is what it would be made by, a class and arguments, and
 * what would be put into it. So it is safe of anybody's pickle, and says as much as whoever
 * reads the tree knows of the classes.
 *
 * A value that was kept and fetched is one node with several parents, and a container may be in
 * itself: whoever walks it has to bound depth and steps.
 */
#ifndef MUSTER_CKPT_PICKLE_TREE_H
#define MUSTER_CKPT_PICKLE_TREE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what a program has saved, a tree takes some ten times as much memory; of any pickle less
 * than 2 GiB. */
#define PICKLE_TREE_MAX_BYTES (UINT64_C(256) << 20)

enum pickle_kind {
    PICKLE_OTHER, /* bytes, floats, what does not fit into 64 bits, ... */
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_TEXT,
    PICKLE_CLASS,      /* or a function */
    PICKLE_TUPLE,
    PICKLE_LIST,       /* or a set */
    PICKLE_DICT,       /* its items are keys, each with its value behind it */
    PICKLE_OBJECT,     /* may have items, as either of the two above */
    PICKLE_PERSISTENT, /* what is not in the pickle */
};

struct pickle_node;

struct pickle_item {
    const struct pickle_node *node;
    struct pickle_item *next;
};

struct pickle_node {
    enum pickle_kind kind;
    bool has_pairs; /* an object's items are keys and values */
    union {
        int64_t number; /* of PICKLE_BOOL 0 or 1 */
        struct {        /* in the pickle's bytes, without zero bytes behind them */
            const char *text; /* of a class its name */
            const char *module;
            uint32_t len, module_len;
        };
        struct {
            struct pickle_item *first, *last;
            const struct pickle_node *made_by; /* an object's class or function */
            const struct pickle_node *args;    /* of that; or what says which persistent one,
                                                  NULL in protocol 0 */
            const struct pickle_node *state;   /* an object's, or NULL */
        };
    };
};

struct pickle_tree {
    const struct pickle_node *root;
    void *blocks; /* private, owned */
};

/* `data` must stay as long as the tree. 0; -ERR_FORMAT: no unpickler could go through it;
 * -EFBIG: longer, or of more values, than is looked through; -ENOMEM. On failure nothing is to
 * be released. */
int pickle_tree_read(const void *data, size_t len, struct pickle_tree *ret, struct error *e);
void pickle_tree_release(struct pickle_tree *t);
#define _pickle_tree_ __attribute__((cleanup(pickle_tree_release)))

/* A text, or the name of a class of a module (NULL: any). NULL is nothing. */
bool pickle_node_is_text(const struct pickle_node *n, const char *text);
bool pickle_node_is_class(const struct pickle_node *n, const char *module, const char *name);
/* Of a tuple or list: its item `i`, or NULL. */
const struct pickle_node *pickle_node_item(const struct pickle_node *n, size_t i);
/* Of a dict, or an object with such items: the value that a key has last, or NULL. */
const struct pickle_node *pickle_node_value(const struct pickle_node *n, const char *key);
/* What an object's state has under that name, where it is a dict; NULL. */
const struct pickle_node *pickle_node_field(const struct pickle_node *n, const char *name);

#endif
