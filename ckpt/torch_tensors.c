/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/torch_tensors.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- types --- */

static const struct {
    const char *name;    /* of the type */
    const char *storage; /* of storages with it; NULL: they have none, and tensors say it */
    enum dtype dtype;
} types[] = {
    {"float32", "FloatStorage", DTYPE_F32},
    {"float64", "DoubleStorage", DTYPE_F64},
    {"float16", "HalfStorage", DTYPE_F16},
    {"bfloat16", "BFloat16Storage", DTYPE_BF16},
    {"int64", "LongStorage", DTYPE_I64},
    {"int32", "IntStorage", DTYPE_I32},
    {"int16", "ShortStorage", DTYPE_I16},
    {"int8", "CharStorage", DTYPE_I8},
    {"uint8", "ByteStorage", DTYPE_U8},
    {"bool", "BoolStorage", DTYPE_BOOL},
    {"complex64", "ComplexFloatStorage", DTYPE_C64},
    {"uint16", NULL, DTYPE_U16},
    {"uint32", NULL, DTYPE_U32},
    {"uint64", NULL, DTYPE_U64},
    {"float8_e5m2", NULL, DTYPE_F8_E5M2},
    {"float8_e4m3fn", NULL, DTYPE_F8_E4M3},
    {"float8_e8m0fnu", NULL, DTYPE_F8_E8M0},
    {"float8_e4m3fnuz", NULL, DTYPE_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", NULL, DTYPE_F8_E5M2FNUZ},
};

bool torch_dtype_of(const struct pickle_node *n, enum dtype *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (pickle_node_is_class(n, "torch", types[i].name)) {
            *ret = types[i].dtype;
            return true;
        }
    }
    return false;
}

static bool storage_dtype(const struct pickle_node *n, enum dtype *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (types[i].storage && pickle_node_is_class(n, "torch", types[i].storage)) {
            *ret = types[i].dtype;
            return true;
        }
    }
    return false;
}

/* --- one tensor --- */

static bool is_number(const struct pickle_node *n)
{
    return n && n->kind == PICKLE_INT && n->number >= 0;
}

bool torch_numbers_of(const struct pickle_node *n, uint64_t to[BOX_MAX_DIMS], uint32_t *ret_n)
{
    uint32_t count = 0;

    if (n && n->kind == PICKLE_OBJECT && pickle_node_is_class(n->made_by, "torch", "Size")) {
        n = pickle_node_item(n->args, 0);
    }
    if (!n || (n->kind != PICKLE_TUPLE && n->kind != PICKLE_LIST)) {
        return false;
    }
    for (const struct pickle_item *i = n->first; i; i = i->next) {
        if (count == BOX_MAX_DIMS || !is_number(i->node)) {
            return false;
        }
        to[count++] = (uint64_t)i->node->number;
    }
    *ret_n = count;
    return true;
}

/* Behind its last element, in elements of its storage; false: that is no number. */
static bool find_end(struct torch_tensor *t)
{
    unsigned __int128 last = t->offset;

    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->shape[d] == 0) {
            return true;
        }
        last += (unsigned __int128)(t->shape[d] - 1) * (uint64_t)t->strides[d];
        if (last >= INT64_MAX) {
            return false;
        }
    }
    t->end = (uint64_t)last + 1;
    return true;
}

static bool has_volume(const struct torch_tensor *t)
{
    uint64_t n = 0, bytes = 0;

    return box_volume_of(t->n_dims, t->shape, &n) && dtype_bytes(t->dtype, n, &bytes) &&
           bytes <= INT64_MAX;
}

/* ('storage', class, key, place, how many elements): what persistent_load() is given. */
static int take_storage(const struct pickle_node *n, const struct pickle_node *dtype,
                        struct torch_tensor *t)
{
    const struct pickle_node *id = n && n->kind == PICKLE_PERSISTENT ? n->args : NULL;
    const struct pickle_node *key = pickle_node_item(id, 2), *count = pickle_node_item(id, 4);
    bool is_known = dtype ? torch_dtype_of(dtype, &t->dtype)
                          : storage_dtype(pickle_node_item(id, 1), &t->dtype);
    uint64_t room;

    if (n && n->kind == PICKLE_PERSISTENT && !id) {
        return -ENOTSUP;
    }
    if (!id || !pickle_node_is_text(pickle_node_item(id, 0), "storage") || !key ||
        key->kind != PICKLE_TEXT || !is_number(count)) {
        return -ERR_FORMAT;
    }
    if (!is_known) {
        return -ENOTSUP;
    }
    t->key = key->text;
    t->key_len = key->len;
    room = (uint64_t)count->number / (dtype ? dtype_bits(t->dtype) / 8 : 1); /* untyped: bytes */
    return has_volume(t) && find_end(t) && t->end <= room ? 1 : -ERR_FORMAT;
}

/* (storage, offset, size, stride, ...). `dtype` is NULL where the storage says it. Bits that
 * tell of what is yet to be done to each element (conj, neg) no file has. */
static int take_strided(const struct pickle_node *args, const struct pickle_node *dtype,
                        const struct pickle_node *bits, struct torch_tensor *ret)
{
    const struct pickle_node *offset = pickle_node_item(args, 1);
    uint64_t strides[BOX_MAX_DIMS] = {0};
    uint32_t n_strides = 0;

    *ret = (struct torch_tensor){0};
    if (!is_number(offset) ||
        !torch_numbers_of(pickle_node_item(args, 2), ret->shape, &ret->n_dims) ||
        !torch_numbers_of(pickle_node_item(args, 3), strides, &n_strides) ||
        n_strides != ret->n_dims) {
        return -ERR_FORMAT;
    }
    for (uint32_t d = 0; d < n_strides; d++) {
        ret->strides[d] = (int64_t)strides[d];
    }
    ret->offset = (uint64_t)offset->number;
    return bits && bits->first ? -ENOTSUP
                               : take_storage(pickle_node_item(args, 0), dtype, ret);
}

/* What a function makes of its arguments. */
static int made(const struct pickle_node *by, const struct pickle_node *args, int depth,
                struct torch_tensor *ret)
{
    enum { MAX_WRAPPED = 8 };
    static const char utils[] = "torch._utils";
    const struct pickle_node *first = pickle_node_item(args, 0);

    if (pickle_node_is_class(by, utils, "_rebuild_tensor_v2") ||
        pickle_node_is_class(by, utils, "_rebuild_tensor")) {
        return take_strided(args, NULL, pickle_node_item(args, 6), ret);
    }
    if (pickle_node_is_class(by, utils, "_rebuild_tensor_v3")) {
        return take_strided(args, pickle_node_item(args, 6), pickle_node_item(args, 7), ret);
    }
    if (depth < MAX_WRAPPED && first &&
        (pickle_node_is_class(by, utils, "_rebuild_parameter") ||
         pickle_node_is_class(by, utils, "_rebuild_parameter_with_state"))) {
        return first->kind == PICKLE_OBJECT ? made(first->made_by, first->args, depth + 1, ret)
                                            : -ENOTSUP;
    }
    if (depth < MAX_WRAPPED && pickle_node_is_class(by, "torch._tensor", "_rebuild_from_type_v2")) {
        return made(first, pickle_node_item(args, 2), depth + 1, ret);
    }
    return by && by->kind == PICKLE_CLASS && by->len > 9 && memcmp(by->text, "_rebuild_", 9) == 0
               ? -ENOTSUP
               : 0;
}

int torch_tensor_of(const struct pickle_node *n, struct torch_tensor *ret)
{
    return n && n->kind == PICKLE_OBJECT ? made(n->made_by, n->args, 0, ret) : 0;
}

/* --- all of them --- */

enum { MAX_DEPTH = 100, MAX_VALUES = 1 << 25 }; /* (PICKLE_TREE_MAX_BYTES) */

struct walking {
    const struct torch_walk *walk;
    struct buf name;
    uint64_t n_values, max_values;
    unsigned depth;
    unsigned nameless; /* keys above that are no text, nor a number */
    struct error *e;
};

static int visit(struct walking *w, const struct pickle_node *n);

static bool is_name(const struct walking *w)
{
    return w->nameless == 0 && strlen(buf_str(&w->name)) == w->name.len &&
           utf8_is_valid(buf_str(&w->name));
}

static int tell(struct walking *w, int rc, const struct torch_tensor *t)
{
    if (w->name.failed) {
        return error_set(w->e, ENOMEM, "list tensors");
    }
    if (rc == -ERR_FORMAT) {
        return error_text(w->e, ERR_FORMAT, "tensor '%.100s' reaches out of its storage, or has "
                          "a shape that is none", buf_str(&w->name));
    }
    return rc == 1 && is_name(w)
               ? w->walk->each(w->walk->arg, buf_str(&w->name), t, w->e)
               : w->walk->other(w->walk->arg, buf_str(&w->name), rc != 0, w->e);
}

/* Below a key. */
static int enter(struct walking *w, const struct pickle_node *key, uint64_t place,
                 const struct pickle_node *n)
{
    bool is_text = key && key->kind == PICKLE_TEXT, is_number = key && key->kind == PICKLE_INT;
    bool is_nameless = key && !is_text && !is_number;
    size_t len = w->name.len;
    int rc;

    buf_puts(&w->name, len ? "." : "");
    if (is_text) {
        buf_append(&w->name, key->text, key->len);
    } else if (is_number) {
        buf_printf(&w->name, "%" PRId64, key->number);
    } else {
        buf_printf(&w->name, "%" PRIu64, place);
    }
    w->nameless += is_nameless;
    rc = visit(w, n);
    w->nameless -= is_nameless;
    buf_truncate(&w->name, len);
    return rc;
}

static int visit_items(struct walking *w, const struct pickle_node *n, bool is_pairs)
{
    const struct pickle_item *i = n->first;
    uint64_t place = 0;
    int rc = 0;

    while (i && rc == 0) {
        const struct pickle_item *value = is_pairs ? i->next : i;

        rc = value ? enter(w, is_pairs ? i->node : NULL, place++, value->node) : 0;
        i = value ? value->next : NULL;
    }
    return rc;
}

/* A set of names: by protocols before 4 it is made of a list. */
static bool is_in_set(const struct pickle_node *set, const struct pickle_node *name)
{
    const struct pickle_node *list = set && set->kind == PICKLE_OBJECT
                                         ? pickle_node_item(set->args, 0) : set;
    bool is = list && list->kind == PICKLE_LIST && name->kind == PICKLE_TEXT;

    for (const struct pickle_item *i = is ? list->first : NULL; i; i = i->next) {
        if (i->node->kind == PICKLE_TEXT && i->node->len == name->len &&
            memcmp(i->node->text, name->text, name->len) == 0) {
            return true;
        }
    }
    return false;
}

/* Of a module: what there is none of (bias=False) is None. */
static int visit_part(struct walking *w, const struct pickle_node *part,
                      const struct pickle_node *but)
{
    bool is = part && (part->kind == PICKLE_DICT ||
                       (part->kind == PICKLE_OBJECT && part->has_pairs));
    int rc = 0;

    for (const struct pickle_item *i = is ? part->first : NULL; i && i->next && rc == 0;
         i = i->next->next) {
        if (i->next->node->kind != PICKLE_NONE && !is_in_set(but, i->node)) {
            rc = enter(w, i->node, 0, i->next->node);
        }
    }
    return rc;
}

static bool is_module(const struct pickle_node *n)
{
    return pickle_node_field(n, "_parameters") && pickle_node_field(n, "_buffers") &&
           pickle_node_field(n, "_modules");
}

static int visit_module(struct walking *w, const struct pickle_node *n)
{
    int rc = visit_part(w, pickle_node_field(n, "_parameters"), NULL);

    rc = rc < 0 ? rc : visit_part(w, pickle_node_field(n, "_buffers"),
                                  pickle_node_field(n, "_non_persistent_buffers_set"));
    return rc < 0 ? rc : visit_part(w, pickle_node_field(n, "_modules"), NULL);
}

static bool has_items(const struct pickle_node *n)
{
    return n->kind == PICKLE_DICT || n->kind == PICKLE_LIST || n->kind == PICKLE_TUPLE ||
           (n->kind == PICKLE_OBJECT && n->first);
}

static int visit(struct walking *w, const struct pickle_node *n)
{
    bool is_pairs = n->kind == PICKLE_DICT || (n->kind == PICKLE_OBJECT && n->has_pairs);
    struct torch_tensor t;
    int rc = torch_tensor_of(n, &t);

    if (rc != 0) {
        return tell(w, rc, &t);
    }
    if (w->depth == MAX_DEPTH || w->n_values++ == w->max_values) {
        return error_text(w->e, EFBIG, "what '%.100s' leads to goes too deep, or in a circle",
                          buf_str(&w->name));
    }
    if (!has_items(n) && !is_module(n)) {
        return tell(w, 0, NULL);
    }
    w->depth++;
    rc = is_module(n) ? visit_module(w, n) : visit_items(w, n, is_pairs);
    w->depth--;
    return rc;
}

int torch_tensors(const struct pickle_node *root, const char *prefix, const char *alone,
                  const struct torch_walk *walk, struct error *e)
{
    struct walking w = {.walk = walk, .e = e,
                        .max_values = walk->max_values ? walk->max_values : MAX_VALUES};
    struct torch_tensor t;
    int rc;

    buf_puts(&w.name, *prefix || torch_tensor_of(root, &t) == 0 ? prefix : alone);
    rc = visit(&w, root);
    buf_release(&w.name);
    return rc;
}
