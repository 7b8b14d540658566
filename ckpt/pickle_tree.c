/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/pickle_tree.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16, MAX_BLOCKS = 1 << 15 };

struct block {
    struct block *next;
    size_t used;
    _Alignas(max_align_t) char bytes[BLOCK_BYTES];
};

struct stack {
    struct pickle_node **at; /* owned; NULL is a mark */
    size_t n, room;
};

struct machine {
    struct block *blocks;
    size_t n_blocks;
    struct stack stack;
    struct pickle_node **kept; /* owned */
    size_t n_kept, kept_room;
    size_t at, len; /* of the instruction, and of the pickle */
    struct error *e;
};

static void machine_release(struct machine *m)
{
    struct pickle_tree rest = {.blocks = m->blocks};

    pickle_tree_release(&rest);
    free(m->stack.at);
    free(m->kept);
}

void pickle_tree_release(struct pickle_tree *t)
{
    struct block *b = t->blocks;

    while (b) {
        struct block *next = b->next;

        free(b);
        b = next;
    }
    *t = (struct pickle_tree){0};
}

static int wrong(const struct machine *m, const char *what)
{
    return error_text(m->e, ERR_FORMAT, "no pickle: %s, at its byte %zu", what, m->at);
}

static int no_memory(const struct machine *m)
{
    return m->n_blocks == MAX_BLOCKS
               ? error_text(m->e, EFBIG, "a pickle of so many values, %zu bytes, that they take "
                            "more than %d MiB", m->len, MAX_BLOCKS / ((1 << 20) / BLOCK_BYTES))
               : error_set(m->e, ENOMEM, "look through a pickle of %zu bytes", m->len);
}

/* --- what it is made of --- */

static void *take(struct machine *m, size_t bytes)
{
    struct block *b = m->blocks;
    void *at;

    if (!b || BLOCK_BYTES - b->used < bytes) {
        b = m->n_blocks < MAX_BLOCKS ? malloc(sizeof(*b)) : NULL;
        if (!b) {
            return NULL;
        }
        m->n_blocks++;
        b->next = m->blocks;
        b->used = 0;
        m->blocks = b;
    }
    at = b->bytes + b->used;
    b->used += (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    memset(at, 0, bytes);
    return at;
}

static int push(struct machine *m, struct pickle_node *n)
{
    struct stack *s = &m->stack;

    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct pickle_node **fresh = reallocarray(s->at, room, sizeof(struct pickle_node *));

        if (!fresh) {
            return no_memory(m);
        }
        s->at = fresh;
        s->room = room;
    }
    s->at[s->n++] = n;
    return 0;
}

static int make(struct machine *m, enum pickle_kind kind, struct pickle_node **ret)
{
    struct pickle_node *n = take(m, sizeof(*n));

    if (!n) {
        return no_memory(m);
    }
    n->kind = kind;
    *ret = n;
    return push(m, n);
}

static int pop(struct machine *m, struct pickle_node **ret)
{
    struct stack *s = &m->stack;

    if (s->n == 0 || !s->at[s->n - 1]) {
        return wrong(m, "it takes more than there is");
    }
    *ret = s->at[--s->n];
    return 0;
}

static int append(struct machine *m, struct pickle_node *to, const struct pickle_node *node)
{
    struct pickle_item *item = take(m, sizeof(*item));

    if (!item) {
        return no_memory(m);
    }
    item->node = node;
    if (to->last) {
        to->last->next = item;
    } else {
        to->first = item;
    }
    to->last = item;
    return 0;
}

/* Whether items can be put into it; what else they are put into nobody looks at. */
static bool takes_items(struct pickle_node *to, bool is_pairs)
{
    if (to->kind == PICKLE_OBJECT && (!to->first || to->has_pairs == is_pairs)) {
        to->has_pairs = is_pairs;
        return true;
    }
    return to->kind == (is_pairs ? PICKLE_DICT : PICKLE_LIST);
}

/* The last `n` of the stack into `to`. */
static int gather(struct machine *m, struct pickle_node *to, size_t n, bool drop)
{
    struct stack *s = &m->stack;
    int rc = 0;

    for (size_t i = s->n - n; i < s->n && rc == 0 && !drop; i++) {
        rc = append(m, to, s->at[i]);
    }
    s->n -= n;
    return rc;
}

/* How many lie above the last mark. */
static int above_mark(const struct machine *m, size_t *ret)
{
    const struct stack *s = &m->stack;
    size_t n = 0;

    while (n < s->n && s->at[s->n - 1 - n]) {
        n++;
    }
    *ret = n;
    return n < s->n ? 0 : wrong(m, "it goes back to a mark that was never set");
}

/* The last `n`, or all above the mark where that is SIZE_MAX, as one container. */
static int collect(struct machine *m, enum pickle_kind kind, size_t n)
{
    bool is_marked = n == SIZE_MAX;
    struct pickle_node *to = take(m, sizeof(*to));
    int rc = !to ? no_memory(m) : is_marked ? above_mark(m, &n) : 0;

    for (size_t i = 0; rc == 0 && !is_marked && i < n; i++) {
        if (i >= m->stack.n || !m->stack.at[m->stack.n - 1 - i]) {
            rc = wrong(m, "it takes more than there is");
        }
    }
    if (rc == 0 && kind == PICKLE_DICT && n % 2) {
        rc = wrong(m, "a key is without a value");
    }
    if (rc < 0) {
        return rc;
    }
    to->kind = kind;
    rc = gather(m, to, n, false);
    m->stack.n -= is_marked;
    return rc < 0 ? rc : push(m, to);
}

/* Items above the mark, or the last `n`, into what lies below. */
static int put_items(struct machine *m, size_t n, bool is_pairs)
{
    bool is_marked = n == SIZE_MAX;
    struct stack *s = &m->stack;
    struct pickle_node *to;
    int rc = is_marked ? above_mark(m, &n) : 0;

    if (rc == 0 && (s->n < n + is_marked + 1 || !s->at[s->n - n - is_marked - 1])) {
        rc = wrong(m, "it takes more than there is");
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = s->at[s->n - 1 - i] ? 0 : wrong(m, "it takes more than there is");
    }
    if (rc == 0 && is_pairs && n % 2) {
        rc = wrong(m, "a key is without a value");
    }
    if (rc < 0) {
        return rc;
    }
    to = s->at[s->n - n - is_marked - 1];
    rc = gather(m, to, n, !takes_items(to, is_pairs));
    s->n -= is_marked;
    return rc;
}

/* --- objects --- */

static int reduce(struct machine *m, bool has_keywords)
{
    struct pickle_node *args = NULL, *made_by = NULL, *n = NULL;
    int rc = has_keywords ? pop(m, &n) : 0;

    rc = rc < 0 ? rc : pop(m, &args);
    rc = rc < 0 ? rc : pop(m, &made_by);
    rc = rc < 0 ? rc : make(m, PICKLE_OBJECT, &n);
    if (rc == 0) {
        n->made_by = made_by;
        n->args = args;
    }
    return rc;
}

static int build(struct machine *m)
{
    struct pickle_node *state = NULL, *to = NULL;
    int rc = pop(m, &state);

    rc = rc < 0 ? rc : pop(m, &to);
    if (rc == 0 && to->kind == PICKLE_OBJECT) {
        to->state = state;
    }
    return rc < 0 ? rc : push(m, to);
}

static int persistent(struct machine *m)
{
    struct pickle_node *id = NULL, *n = NULL;
    int rc = pop(m, &id);

    rc = rc < 0 ? rc : make(m, PICKLE_PERSISTENT, &n);
    if (rc == 0) {
        n->args = id;
    }
    return rc;
}

static int stack_class(struct machine *m)
{
    struct pickle_node *name = NULL, *module = NULL, *n = NULL;
    int rc = pop(m, &name);

    rc = rc < 0 ? rc : pop(m, &module);
    if (rc == 0 && (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)) {
        rc = wrong(m, "a class has no name");
    }
    rc = rc < 0 ? rc : make(m, PICKLE_CLASS, &n);
    if (rc == 0) {
        n->text = name->text;
        n->len = name->len;
        n->module = module->text;
        n->module_len = module->len;
    }
    return rc;
}

/* Two lines: module and name. */
static void take_class(const struct pickle_op *op, struct pickle_node *ret)
{
    const char *text = (const char *)op->argument;
    const char *line = memchr(text, '\n', op->len);

    ret->kind = PICKLE_CLASS;
    ret->module = text;
    ret->module_len = (uint32_t)(line - text);
    ret->text = line + 1;
    ret->len = (uint32_t)(op->len - ret->module_len - 2);
}

static int line_class(struct machine *m, const struct pickle_op *op)
{
    struct pickle_node *n = NULL;
    int rc = make(m, PICKLE_CLASS, &n);

    if (rc == 0) {
        take_class(op, n);
    }
    return rc;
}

/* Of text protocols, and of old classes: with all that lies above the mark. `op` names the
 * class, where it is not the first of these. */
static int old_object(struct machine *m, const struct pickle_op *op)
{
    struct pickle_node *args = NULL, *n = NULL, *made_by = op ? take(m, sizeof(*made_by)) : NULL;
    size_t count = 0;
    int rc = op && !made_by ? no_memory(m) : above_mark(m, &count);

    if (rc == 0 && !op && count == 0) {
        rc = wrong(m, "an object has no class");
    }
    if (rc == 0) {
        made_by = op ? made_by : m->stack.at[m->stack.n - count];
        rc = collect(m, PICKLE_TUPLE, SIZE_MAX);
    }
    rc = rc < 0 ? rc : pop(m, &args);
    rc = rc < 0 ? rc : make(m, PICKLE_OBJECT, &n);
    if (rc < 0) {
        return rc;
    }
    if (op) {
        take_class(op, made_by);
    } else {
        args->first = args->first->next;
    }
    n->made_by = made_by;
    n->args = args;
    return 0;
}

/* --- plain values --- */

static int put_number(struct machine *m, enum pickle_kind kind, int64_t number)
{
    struct pickle_node *n = NULL;
    int rc = make(m, kind, &n);

    if (rc == 0) {
        n->number = number;
    }
    return rc;
}

static int put_other(struct machine *m)
{
    return put_number(m, PICKLE_OTHER, 0);
}

/* Of any length, with a sign. */
static int put_long(struct machine *m, const uint8_t *at, size_t bytes)
{
    uint64_t n;

    if (bytes > sizeof(n)) {
        return put_other(m);
    }
    n = pickle_number(at, bytes);
    if (bytes > 0 && bytes < sizeof(n) && at[bytes - 1] & 0x80) {
        n |= UINT64_MAX << 8 * bytes;
    }
    return put_number(m, PICKLE_INT, (int64_t)n);
}

/* "12", "-3", or "12L", to the end of the line; "00" and "01" are False and True. */
static int put_digits(struct machine *m, const struct pickle_op *op)
{
    enum { MAX_DIGITS = 18 };
    const char *text = (const char *)op->argument;
    size_t len = op->len - 1, at = 0;
    bool is_negative = len > 0 && text[0] == '-';
    int64_t n = 0;

    if (op->op == 'I' && len == 2 && text[0] == '0') {
        return put_number(m, PICKLE_BOOL, text[1] == '1');
    }
    len -= len > 0 && text[len - 1] == 'L';
    at += is_negative;
    if (len <= at || len - at > MAX_DIGITS) {
        return put_other(m);
    }
    for (; at < len; at++) {
        if (text[at] < '0' || text[at] > '9') {
            return put_other(m);
        }
        n = 10 * n + (text[at] - '0');
    }
    return put_number(m, PICKLE_INT, is_negative ? -n : n);
}

static int put_text(struct machine *m, const uint8_t *text, size_t len)
{
    struct pickle_node *n = NULL;
    int rc = make(m, PICKLE_TEXT, &n);

    if (rc == 0) {
        n->text = (const char *)text;
        n->len = (uint32_t)len;
    }
    return rc;
}

/* As it is written in a program: what has signs for others in it is not looked into. */
static int put_written(struct machine *m, const uint8_t *text, size_t len)
{
    return memchr(text, '\\', len) ? put_other(m) : put_text(m, text, len);
}

/* --- what is kept --- */

/* They are counted from 0 or 1 on. */
static int place_of(const struct machine *m, const struct pickle_op *op, size_t *ret)
{
    uint64_t n = pickle_place(op);

    *ret = n;
    return n > m->len ? wrong(m, "a place is none, or far away") : 0;
}

static int keep(struct machine *m, size_t place)
{
    struct stack *s = &m->stack;

    if (s->n == 0 || !s->at[s->n - 1]) {
        return wrong(m, "it keeps what is not there");
    }
    if (place >= m->kept_room) {
        size_t room = 2 * (place + 32);
        struct pickle_node **fresh = reallocarray(m->kept, room, sizeof(struct pickle_node *));

        if (!fresh) {
            return no_memory(m);
        }
        memset(fresh + m->kept_room, 0, (room - m->kept_room) * sizeof(struct pickle_node *));
        m->kept = fresh;
        m->kept_room = room;
    }
    m->n_kept += !m->kept[place];
    m->kept[place] = s->at[s->n - 1];
    return 0;
}

static int keep_at(struct machine *m, const struct pickle_op *op)
{
    size_t place = 0;
    int rc = place_of(m, op, &place);

    return rc < 0 ? rc : keep(m, place);
}

static int fetch(struct machine *m, const struct pickle_op *op)
{
    size_t place = 0;
    int rc = place_of(m, op, &place);

    if (rc == 0 && (place >= m->kept_room || !m->kept[place])) {
        rc = wrong(m, "it fetches what was never kept");
    }
    return rc < 0 ? rc : push(m, m->kept[place]);
}

/* --- instructions --- */

static int drop(struct machine *m, bool to_mark)
{
    size_t n = 1;
    int rc = to_mark ? above_mark(m, &n) : 0;

    if (rc < 0 || m->stack.n == 0) {
        return rc < 0 ? rc : wrong(m, "it takes more than there is");
    }
    m->stack.n -= to_mark ? n + 1 : 1;
    return 0;
}

static int duplicate(struct machine *m)
{
    struct pickle_node *top = NULL;
    int rc = pop(m, &top);

    rc = rc < 0 ? rc : push(m, top);
    return rc < 0 ? rc : push(m, top);
}

/* Values that stand by themselves. */
static int put_value(struct machine *m, const struct pickle_op *op)
{
    const uint8_t *at = op->argument;

    switch (op->op) {
    case 'N':
        return put_number(m, PICKLE_NONE, 0);
    case 0x88: case 0x89:
        return put_number(m, PICKLE_BOOL, op->op == 0x88);
    case 'K': case 'M':
        return put_number(m, PICKLE_INT, (int64_t)pickle_number(at, op->len));
    case 'J':
        return put_long(m, at, op->len);
    case 0x8a:
        return put_long(m, at + 1, op->len - 1);
    case 0x8b:
        return put_long(m, at + 4, op->len - 4);
    case 'I': case 'L':
        return put_digits(m, op);
    case 'U': case 0x8c:
        return put_text(m, at + 1, op->len - 1);
    case 'X': case 'T':
        return put_text(m, at + 4, op->len - 4);
    case 0x8d:
        return put_text(m, at + 8, op->len - 8);
    case 'V':
        return put_written(m, at, op->len - 1);
    case 'S': /* in quotes */
        return op->len >= 3 ? put_written(m, at + 1, op->len - 3) : put_other(m);
    case 'P': /* all of it in one line: which one is not looked into */
        return put_number(m, PICKLE_PERSISTENT, 0);
    case '}':
        return put_number(m, PICKLE_DICT, 0);
    case ']': case 0x8f: /* or a set */
        return put_number(m, PICKLE_LIST, 0);
    case ')':
        return put_number(m, PICKLE_TUPLE, 0);
    default:
        return put_other(m);
    }
}

static int step(struct machine *m, const struct pickle_op *op)
{
    switch (op->op) {
    case 0x80: case 0x95: case 0x98: /* of the pickle itself, or of buffers */
        return 0;
    case '(':
        return push(m, NULL);
    case '0':
        return drop(m, false);
    case '1':
        return drop(m, true);
    case '2':
        return duplicate(m);
    case 'p': case 'q': case 'r':
        return keep_at(m, op);
    case 0x94:
        return keep(m, m->n_kept);
    case 'g': case 'h': case 'j':
        return fetch(m, op);
    case 't':
        return collect(m, PICKLE_TUPLE, SIZE_MAX);
    case 0x85: case 0x86: case 0x87:
        return collect(m, PICKLE_TUPLE, op->op - 0x84u);
    case 'l': case 0x91: /* or a frozen set */
        return collect(m, PICKLE_LIST, SIZE_MAX);
    case 'd':
        return collect(m, PICKLE_DICT, SIZE_MAX);
    case 'a':
        return put_items(m, 1, false);
    case 'e': case 0x90:
        return put_items(m, SIZE_MAX, false);
    case 's':
        return put_items(m, 2, true);
    case 'u':
        return put_items(m, SIZE_MAX, true);
    case 'c':
        return line_class(m, op);
    case 0x93:
        return stack_class(m);
    case 'i':
        return old_object(m, op);
    case 'o':
        return old_object(m, NULL);
    case 'R': case 0x81:
        return reduce(m, false);
    case 0x92:
        return reduce(m, true);
    case 'b':
        return build(m);
    case 'Q':
        return persistent(m);
    default:
        return put_value(m, op);
    }
}

int pickle_tree_read(const void *data, size_t len, struct pickle_tree *ret, struct error *e)
{
    __attribute__((cleanup(machine_release))) struct machine m = {.len = len, .e = e};
    struct pickle_op op = {0};
    struct pickle_node *root = NULL;
    size_t at = 0;
    int rc = 0;

    if (len > PICKLE_TREE_MAX_BYTES) {
        return error_text(e, EFBIG, "a pickle of %zu bytes, and more than %llu are not looked "
                          "through", len, (unsigned long long)PICKLE_TREE_MAX_BYTES);
    }
    while (rc == 0 && op.op != PICKLE_STOP) {
        m.at = at;
        rc = pickle_next(data, len, &at, &op, e);
        if (rc == 0 && op.op != PICKLE_STOP) {
            rc = step(&m, &op);
        }
    }
    rc = rc < 0 ? rc : pop(&m, &root);
    if (rc == 0) {
        *ret = (struct pickle_tree){.root = root, .blocks = m.blocks};
        m.blocks = NULL;
    }
    return rc;
}

/* --- looking at it --- */

static bool is_same(const char *a, size_t len, const char *b)
{
    return strlen(b) == len && memcmp(a, b, len) == 0;
}

bool pickle_node_is_text(const struct pickle_node *n, const char *text)
{
    return n && n->kind == PICKLE_TEXT && is_same(n->text, n->len, text);
}

bool pickle_node_is_class(const struct pickle_node *n, const char *module, const char *name)
{
    return n && n->kind == PICKLE_CLASS && is_same(n->text, n->len, name) &&
           (!module || is_same(n->module, n->module_len, module));
}

const struct pickle_node *pickle_node_item(const struct pickle_node *n, size_t i)
{
    const struct pickle_item *item = NULL;

    if (n && (n->kind == PICKLE_TUPLE || n->kind == PICKLE_LIST)) {
        for (item = n->first; item && i > 0; i--) {
            item = item->next;
        }
    }
    return item ? item->node : NULL;
}

const struct pickle_node *pickle_node_value(const struct pickle_node *n, const char *key)
{
    bool is = n && (n->kind == PICKLE_DICT || (n->kind == PICKLE_OBJECT && n->has_pairs));
    const struct pickle_node *last = NULL;

    for (const struct pickle_item *i = is ? n->first : NULL; i && i->next; i = i->next->next) {
        if (pickle_node_is_text(i->node, key)) {
            last = i->next->node;
        }
    }
    return last;
}

/* With slots a state is two: a dict, or None; and that of the slots. */
const struct pickle_node *pickle_node_field(const struct pickle_node *n, const char *name)
{
    const struct pickle_node *state = n && n->kind == PICKLE_OBJECT ? n->state : NULL;
    const struct pickle_node *value = pickle_node_value(state, name);

    return value ? value : pickle_node_value(pickle_node_item(state, 1), name);
}
