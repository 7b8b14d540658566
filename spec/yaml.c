/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml gives events; this builds nodes from them on an explicit stack. An
 * alias shares the node of its anchor, so it costs no memory, but its weight
 * (nodes after expansion) and height are counted as if it were written out:
 * what walks the tree later is bounded by these.
 */
#include <config.h>

#include "spec/yaml.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/yaml_syntax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
    const char *name;
    struct node *node;
};

struct frame {
    struct node *node;
    const char *anchor;
    const char *key; /* of the value to come; NULL: a key is next */
    struct place key_place;
    bool key_merges;    /* it is a plain `<<` */
    struct node *merge; /* the value of that */
};

struct loader {
    struct arena *arena;
    struct report *report;
    const char *file;
    const struct place *fixed;
    struct frame stack[YAML_MAX_DEPTH + 1];
    size_t depth;
    struct anchor anchors[YAML_MAX_ANCHORS];
    size_t n_anchors;
    uint32_t n_nodes;
    size_t work;
    struct node *root; /* of the document that is being read */
};

static struct place place_of(const struct loader *l, const yaml_mark_t *mark)
{
    return yaml_place(l->file, l->fixed, mark);
}

static int refuse(struct loader *l, const struct place *at, const char *what)
{
    report_error(l->report, at, "%s", what);
    return -ERR_SPEC;
}

static int count_nodes(struct loader *l, const struct place *at, uint32_t n)
{
    if (n > YAML_MAX_NODES - l->n_nodes) {
        report_error(l->report, at,
                     "more than %d values (aliases count as often as they are "
                     "used); expected a smaller file",
                     YAML_MAX_NODES);
        return -ERR_SPEC;
    }
    l->n_nodes += n;
    return 0;
}

static int spend(struct loader *l, const struct place *at, size_t n)
{
    l->work += n;
    if (l->work > YAML_MAX_WORK) {
        return refuse(l, at, "more aliases and `<<` than can be followed; "
                      "expected fewer");
    }
    return 0;
}

static int remember_anchor(struct loader *l, const char *name,
                           struct node *node)
{
    if (!name) {
        return 0;
    }
    if (l->n_anchors == YAML_MAX_ANCHORS) {
        report_error(l->report, &node->place, "more than %d anchors; expected fewer",
                     YAML_MAX_ANCHORS);
        return -ERR_SPEC;
    }
    l->anchors[l->n_anchors++] = (struct anchor){.name = name, .node = node};
    return 0;
}

static int add_key(struct loader *l, struct frame *f, struct node *node)
{
    if (node->kind != NODE_SCALAR) {
        report_error(l->report, &node->place,
                     "%s as a key; expected a name and a colon",
                     node_noun(node));
        return -ERR_SPEC;
    }
    if (f->node->n >= YAML_MAX_KEYS) {
        report_error(l->report, &node->place, "more than %d keys in one map; expected fewer",
                     YAML_MAX_KEYS);
        return -ERR_SPEC;
    }
    f->key = node->text;
    f->key_place = node->place;
    f->key_merges = node->plain && strcmp(node->text, "<<") == 0;
    return 0;
}

static int add_value(struct loader *l, struct frame *f, struct node *node)
{
    const char *key = take_ptr(&f->key);

    if (f->key_merges) {
        if (f->merge) {
            return refuse(l, &f->key_place, "a second `<<` in one map; "
                          "expected one, with a list of maps");
        }
        f->merge = node;
        return 0;
    }
    node_add(l->arena, f->node, key, &f->key_place, node);
    return 0;
}

/* A complete node goes into what is open. */
static int place_node(struct loader *l, struct node *node)
{
    struct frame *f;

    if (!node) {
        return -ENOMEM;
    }
    if (l->depth == 0) {
        l->root = node;
        return 0;
    }
    f = &l->stack[l->depth - 1];
    if (f->node->kind == NODE_LIST) {
        node_append(l->arena, f->node, node);
        return 0;
    }
    return f->key ? add_value(l, f, node) : add_key(l, f, node);
}

static int check_tag(struct loader *l, const struct place *at, const char *tag,
                     enum node_kind kind, bool *ret_string)
{
    static const char *const known[][6] = {
        [NODE_SCALAR] = {"str", "int", "float", "bool", "null", NULL},
        [NODE_MAP] = {"map", NULL},
        [NODE_LIST] = {"seq", NULL},
    };
    static const char prefix[] = "tag:yaml.org,2002:";

    *ret_string = false;
    if (!tag || strcmp(tag, "!") == 0) {
        *ret_string = tag != NULL;
        return 0;
    }
    if (str_starts(tag, prefix)) {
        const char *rest = tag + sizeof(prefix) - 1;

        for (size_t i = 0; known[kind][i]; i++) {
            if (strcmp(rest, known[kind][i]) == 0) {
                *ret_string = kind == NODE_SCALAR && i == 0;
                return 0;
            }
        }
    }
    report_error(l->report, at, "tag %.100s; expected a value without a tag",
                 tag);
    return -ERR_SPEC;
}

static int on_scalar(struct loader *l, const yaml_event_t *event)
{
    struct place at = place_of(l, &event->start_mark);
    const char *text = (const char *)event->data.scalar.value;
    struct node *node;
    bool string;
    int rc;

    if (strlen(text) != event->data.scalar.length) {
        return refuse(l, &at, "a zero byte inside a value; expected text");
    }
    rc = check_tag(l, &at, (const char *)event->data.scalar.tag, NODE_SCALAR,
                   &string);
    rc = rc ? rc : count_nodes(l, &at, 1);
    if (rc) {
        return rc;
    }
    node = node_scalar(l->arena, &at, text,
                       event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                           !string);
    if (!node) {
        return -ENOMEM;
    }
    if (event->data.scalar.anchor) {
        rc = remember_anchor(
            l, arena_strdup(l->arena, (const char *)event->data.scalar.anchor),
            node);
    }
    return rc ? rc : place_node(l, node);
}

static int open_node(struct loader *l, enum node_kind kind,
                     const yaml_mark_t *mark, const yaml_char_t *tag,
                     const yaml_char_t *anchor)
{
    struct place at = place_of(l, mark);
    struct frame *f = &l->stack[l->depth];
    bool string;
    int rc;

    if (l->depth == YAML_MAX_DEPTH) {
        report_error(l->report, &at,
                     "nested deeper than %d levels; expected a flatter file",
                     YAML_MAX_DEPTH);
        return -ERR_SPEC;
    }
    rc = check_tag(l, &at, (const char *)tag, kind, &string);
    rc = rc ? rc : count_nodes(l, &at, 1);
    if (rc) {
        return rc;
    }
    *f = (struct frame){0};
    f->node = kind == NODE_MAP ? node_map(l->arena, &at)
                               : node_list(l->arena, &at);
    f->anchor = anchor ? arena_strdup(l->arena, (const char *)anchor) : NULL;
    l->depth++;
    return f->node ? 0 : -ENOMEM;
}

/* The keys of `from` that `to` does not have. */
static int merge_from(struct loader *l, struct node *to,
                      const struct node *from)
{
    if (from->kind != NODE_MAP) {
        report_error(l->report, &from->place,
                     "%s after `<<`; expected a map or a list of maps",
                     node_noun(from));
        return -ERR_SPEC;
    }
    for (size_t i = 0; i < from->n; i++) {
        const struct pair *p = &from->pairs[i];
        int rc = spend(l, &to->place, to->n + 1);

        if (!rc && node_get(to, p->key)) {
            continue;
        }
        rc = rc ? rc : count_nodes(l, &to->place, p->value->weight);
        if (!rc && to->n >= YAML_MAX_KEYS) {
            rc = refuse(l, &to->place, "too many keys after `<<`; expected fewer");
        }
        if (rc) {
            return rc;
        }
        node_add(l->arena, to, p->key, &p->place, p->value);
    }
    return 0;
}

static int apply_merge(struct loader *l, const struct frame *f)
{
    int rc = 0;

    if (!f->merge) {
        return 0;
    }
    if (f->merge->kind != NODE_LIST) {
        return merge_from(l, f->node, f->merge);
    }
    if (f->merge->n > 100) {
        return refuse(l, &f->merge->place, "more than 100 maps after `<<`; "
                      "expected fewer");
    }
    for (size_t i = 0; i < f->merge->n && !rc; i++) {
        rc = merge_from(l, f->node, f->merge->items[i]);
    }
    return rc;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = *(const struct pair *const *)a;
    const struct pair *y = *(const struct pair *const *)b;
    int order = strcmp(x->key, y->key);

    return order ? order : (x > y) - (x < y);
}

static int check_duplicates(struct loader *l, const struct node *map)
{
    _free_ const struct pair **sorted = NULL;
    int rc = 0;

    if (map->n < 2) {
        return 0;
    }
    sorted = calloc(map->n, sizeof(struct pair *));
    if (!sorted) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < map->n; i++) {
        sorted[i] = &map->pairs[i];
    }
    qsort(sorted, map->n, sizeof(struct pair *), compare_pairs);
    for (size_t i = 1; i < map->n; i++) {
        if (strcmp(sorted[i]->key, sorted[i - 1]->key) == 0) {
            report_error(l->report, &sorted[i]->place,
                         "key \"%.100s\" again, first on line %u; expected it "
                         "once",
                         sorted[i]->key, sorted[i - 1]->place.line);
            rc = -ERR_SPEC;
        }
    }
    return rc;
}

static int close_node(struct loader *l)
{
    struct frame f = l->stack[--l->depth];
    int rc = 0;

    if (f.node->kind == NODE_MAP) {
        rc = check_duplicates(l, f.node);
        rc = rc ? rc : apply_merge(l, &f);
    }
    if (!rc && l->depth + f.node->height > YAML_MAX_DEPTH) {
        rc = refuse(l, &f.node->place, "nested too deep through aliases; "
                    "expected a flatter file");
    }
    rc = rc ? rc : remember_anchor(l, f.anchor, f.node);
    return rc ? rc : place_node(l, f.node);
}

static int on_alias(struct loader *l, const yaml_event_t *event)
{
    struct place at = place_of(l, &event->start_mark);
    const char *name = (const char *)event->data.alias.anchor;
    int rc = spend(l, &at, l->n_anchors);

    if (rc) {
        return rc;
    }

    for (size_t i = l->n_anchors; i-- > 0;) {
        if (strcmp(l->anchors[i].name, name) != 0) {
            continue;
        }
        rc = count_nodes(l, &at, l->anchors[i].node->weight);
        return rc ? rc : place_node(l, l->anchors[i].node);
    }
    report_error(l->report, &at,
                 "alias *%.100s; expected an anchor &%.100s that is complete "
                 "before it",
                 name, name);
    return -ERR_SPEC;
}

static int end_document(struct loader *l, struct yaml_docs *docs)
{
    struct node *root = take_ptr(&l->root);

    l->n_anchors = 0;
    if (!root || node_is_null(root)) {
        return 0;
    }
    docs->docs[docs->n++] = root;
    return 0;
}

static int on_event(struct loader *l, const yaml_event_t *event,
                    struct yaml_docs *docs)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(l, event);
    case YAML_ALIAS_EVENT:
        return on_alias(l, event);
    case YAML_MAPPING_START_EVENT:
        return open_node(l, NODE_MAP, &event->start_mark,
                         event->data.mapping_start.tag,
                         event->data.mapping_start.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(l, NODE_LIST, &event->start_mark,
                         event->data.sequence_start.tag,
                         event->data.sequence_start.anchor);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return close_node(l);
    case YAML_DOCUMENT_END_EVENT:
        return end_document(l, docs);
    default:
        return 0;
    }
}

static int read_events(struct loader *l, yaml_parser_t *parser,
                       const char *text, size_t len, struct yaml_docs *docs)
{
    unsigned n_docs = 0;
    bool more = true;
    int rc = 0;

    while (more && !rc) {
        yaml_event_t event;

        if (!yaml_parser_parse(parser, &event)) {
            return yaml_syntax_error(parser, text, len, l->file, l->fixed,
                                     l->report);
        }
        more = event.type != YAML_STREAM_END_EVENT;
        l->work++;
        if (event.type == YAML_DOCUMENT_START_EVENT &&
            n_docs++ == YAML_MAX_DOCUMENTS) {
            struct place at = place_of(l, &event.start_mark);

            report_error(l->report, &at, "more than %d documents; expected fewer",
                         YAML_MAX_DOCUMENTS);
            rc = -ERR_SPEC;
        }
        rc = rc ? rc : on_event(l, &event, docs);
        if (!rc && l->arena->failed) {
            rc = -ENOMEM;
        }
        yaml_event_delete(&event);
    }
    return rc;
}

/* libyaml compares each %TAG directive with all before it, so many of them take
 * minutes. Nobody needs any here. */
static bool has_many_directives(const char *text, size_t len)
{
    static const char word[] = "%TAG";
    const char *at = text, *end = text + len;
    unsigned n = 0;

    while ((at = memmem(at, (size_t)(end - at), word, sizeof(word) - 1))) {
        if (++n > YAML_MAX_DIRECTIVES) {
            return true;
        }
        at++;
    }
    return false;
}

static int check_text(struct loader *l, const char *text, size_t len)
{
    struct place at = {.file = l->file};

    if (len > YAML_MAX_BYTES) {
        report_error(l->report, &at, "%zu bytes; expected at most %zu", len,
                     YAML_MAX_BYTES);
        return -ERR_SPEC;
    }
    if (len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 ||
                     memcmp(text, "\xfe\xff", 2) == 0)) {
        return refuse(l, &at, "UTF-16 text; expected UTF-8");
    }
    if (has_many_directives(text, len)) {
        report_error(l->report, &at, "more than %d %%TAG; expected none",
                     YAML_MAX_DIRECTIVES);
        return -ERR_SPEC;
    }
    return 0;
}

int yaml_load(struct arena *a, const char *file, const char *text, size_t len,
              const struct place *fixed, struct yaml_docs *ret,
              struct report *r)
{
    _free_ struct loader *l = calloc(1, sizeof(*l));
    yaml_parser_t parser;
    int rc;

    ret->n = ret->work = 0;
    if (!l || !yaml_parser_initialize(&parser)) {
        report_error(r, NULL, "out of memory");
        return -ENOMEM;
    }
    l->arena = a;
    l->report = r;
    l->file = arena_strdup(a, file);
    l->fixed = fixed;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    rc = check_text(l, text, len);
    rc = rc ? rc : read_events(l, &parser, text, len, ret);
    ret->work = l->work;
    yaml_parser_delete(&parser);
    if (rc == -ENOMEM) {
        report_error(r, NULL, "%s: out of memory", file);
    }
    return rc;
}

struct node *yaml_load_value(struct arena *a, const char *text,
                             const struct place *at, struct report *r)
{
    struct yaml_docs docs;

    if (yaml_load(a, at->file, text, strlen(text), at, &docs, r) < 0) {
        return NULL;
    }
    if (docs.n > 1) {
        report_error(r, at, "%zu values; expected one", docs.n);
        return NULL;
    }
    return docs.n ? docs.docs[0] : node_scalar(a, at, "", true);
}
