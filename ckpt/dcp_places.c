/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/dcp_places.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLACES = 1 << 24 };

void dcp_places_release(struct dcp_places *p)
{
    free(p->items);
    *p = (struct dcp_places){0};
}

/* What is expected next: a record's class, and then keys and values of it. */
enum expect {
    CLASS,
    FILE_KEY,
    FILE_VALUE,
    OFFSET_KEY,
    OFFSET_VALUE,
    LENGTH_KEY,
    LENGTH_VALUE,
};

struct reader {
    struct dcp_places *places;
    size_t room;
    enum expect expect;
    struct dcp_place now;
    bool has_begun; /* what says where things are, the last that has such classes */
    size_t n_keys;
    bool has_key; /* since the last record */
    struct error *e;
};

static int add(struct reader *r)
{
    struct dcp_places *p = r->places;

    if (p->n == MAX_PLACES) {
        return -EFBIG;
    }
    if (p->n == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        struct dcp_place *fresh = reallocarray(p->items, room, sizeof(*fresh));

        if (!fresh) {
            return -ENOMEM;
        }
        p->items = fresh;
        r->room = room;
    }
    p->items[p->n++] = r->now;
    return 0;
}

static bool take_expected(struct reader *r, const struct pickle_value *v)
{
    switch (r->expect) {
    case CLASS:
        return false;
    case FILE_KEY:
        return pickle_is_text(v, "relative_path");
    case FILE_VALUE:
        r->now = (struct dcp_place){.file = v->text, .file_len = v->len};
        return v->text != NULL;
    case OFFSET_KEY:
        return pickle_is_text(v, "offset");
    case OFFSET_VALUE:
        r->now.offset = v->number;
        return v->is_number;
    case LENGTH_KEY:
        return pickle_is_text(v, "length");
    case LENGTH_VALUE:
        r->now.length = v->number;
        return v->is_number;
    }
    return false;
}

/* Keys and records take turns. Keys alone may have records of a class not known here. */
static int take_class(struct reader *r, const struct pickle_value *v)
{
    bool is_key = pickle_is_text(v, "MetadataIndex");

    if (!is_key && !pickle_is_text(v, "_StorageInfo")) {
        return 0;
    }
    if (is_key && r->places->n == 0) {
        r->has_key = false;
    }
    if (r->has_key == is_key && r->n_keys + is_key > 0) {
        return error_text(r->e, ERR_FORMAT, "of one of its places it says only %s",
                          is_key ? "what lies there" : "where it is");
    }
    r->has_key = is_key;
    r->n_keys += is_key;
    r->expect = is_key ? CLASS : FILE_KEY;
    return 0;
}

static int take_value(void *arg, const struct pickle_value *v)
{
    struct reader *r = arg;

    r->has_begun = r->has_begun || pickle_is_text(v, "storage_data");
    if (r->expect == CLASS) {
        return r->has_begun && v->is_class ? take_class(r, v) : 0;
    }
    if (r->expect == FILE_KEY && !v->text && !v->is_number) {
        return 0; /* the object, and its dictionary */
    }
    if (!take_expected(r, v)) {
        return error_text(r->e, ERR_FORMAT, "what it says of the place of a piece is wrong");
    }
    r->expect = r->expect == LENGTH_VALUE ? CLASS : r->expect + 1;
    return r->expect == CLASS ? add(r) : 0;
}

/* The next instruction that does more than keep; false: there is none. */
static bool next_op(const void *data, size_t len, size_t *at, struct pickle_op *ret)
{
    do {
        if (pickle_next(data, len, at, ret, NULL) < 0) {
            return false;
        }
    } while (ret->op == 'p' || ret->op == 'q' || ret->op == 'r' || ret->op == 0x94);
    return true;
}

static bool says(const struct pickle_op *op, const char *text)
{
    size_t len = strlen(text);
    bool is_text = op->op == 0x8c || op->op == 'X';

    return is_text && op->len > len && memcmp(op->argument + op->len - len, text, len) == 0;
}

/* "storage_data", a dictionary, and then nothing that goes into it, but the next field, or
 * the end of all fields. */
static bool is_empty(const void *data, size_t len)
{
    struct pickle_op op;
    size_t at = 0;

    while (next_op(data, len, &at, &op)) {
        if (says(&op, "storage_data") && next_op(data, len, &at, &op) && op.op == '}' &&
            next_op(data, len, &at, &op)) {
            return says(&op, "storage_meta") || says(&op, "version") || op.op == 'u';
        }
    }
    return false;
}

int dcp_place_file_compare(const struct dcp_place *a, const char *name, size_t len)
{
    size_t n = a->file_len < len ? a->file_len : len;
    int rc = memcmp(a->file, name, n);

    return rc ? rc : a->file_len < len ? -1 : a->file_len > len;
}

static int by_place(const void *a, const void *b)
{
    const struct dcp_place *x = a, *y = b;
    int rc = dcp_place_file_compare(x, y->file, y->file_len);

    if (rc == 0) {
        rc = x->offset < y->offset ? -1 : x->offset > y->offset;
    }
    return rc ? rc : x->length < y->length ? -1 : x->length > y->length;
}

static int check_end(const struct reader *r)
{
    size_t n = r->places->n;

    return r->expect != CLASS || (n > 0 && r->n_keys > n)
               ? error_text(r->e, ERR_FORMAT, "of one of its places it says only what lies there")
           : r->n_keys > 0 && r->n_keys < n
               ? error_text(r->e, ERR_FORMAT, "of one of its places it says only where it is") : 0;
}

int dcp_places_read(const void *metadata, size_t len, struct dcp_places *ret,
                    struct error *e)
{
    struct dcp_places p = {0};
    struct reader r = {.places = &p, .e = e};
    int rc = pickle_values(metadata, len, take_value, &r, e);

    rc = rc < 0 ? rc : check_end(&r);
    if (rc < 0) {
        dcp_places_release(&p);
        return rc == -ERR_FORMAT ? rc : error_set(e, -rc, "look through it");
    }
    if (r.n_keys == 0) { /* of other classes: whatever that says */
        dcp_places_release(&p);
    }
    if (p.n) {
        qsort(p.items, p.n, sizeof(*p.items), by_place);
    }
    p.is_empty = p.n == 0 && r.n_keys == 0 && is_empty(metadata, len);
    *ret = p;
    return 0;
}
