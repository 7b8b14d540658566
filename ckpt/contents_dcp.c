/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .metadata says of each tensor its type, its size and the boxes that it is cut into
 * (state_dict_metadata), and of each of these in which file its bytes are (storage_data).
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py, PyTorch 2.0 to 2.13.
 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "base/cleanup.h"
#include "ckpt/found_priv.h"
#include "ckpt/pickle_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- where pieces lie --- */

struct place {
    const struct pickle_node *name; /* a text */
    uint32_t n_dims;
    uint64_t at[BOX_MAX_DIMS];
    const struct pickle_node *file; /* likewise */
    uint64_t begin, end;
};

struct places {
    struct place *items; /* owned; in order */
    size_t n;
};

static void places_release(struct places *p)
{
    free(p->items);
}

static int compare_texts(const struct pickle_node *a, const struct pickle_node *b)
{
    uint32_t least = a->len < b->len ? a->len : b->len;
    int rc = memcmp(a->text, b->text, least);

    return rc ? rc : a->len < b->len ? -1 : a->len > b->len;
}

static int by_piece(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int rc = compare_texts(x->name, y->name);

    if (rc || x->n_dims != y->n_dims) {
        return rc ? rc : x->n_dims < y->n_dims ? -1 : 1;
    }
    for (uint32_t d = 0; d < x->n_dims; d++) {
        if (x->at[d] != y->at[d]) {
            return x->at[d] < y->at[d] ? -1 : 1;
        }
    }
    return 0;
}

static bool is_text(const struct pickle_node *n)
{
    return n && n->kind == PICKLE_TEXT;
}

static bool is_number(const struct pickle_node *n)
{
    return n && n->kind == PICKLE_INT && n->number >= 0;
}

/* MetadataIndex(fqn, offset) and _StorageInfo(relative_path, offset, length). False: of a value
 * that is no tensor, or something else. */
static bool take_place(const struct pickle_node *key, const struct pickle_node *info,
                       struct place *ret)
{
    const struct pickle_node *offset = pickle_node_field(info, "offset");
    const struct pickle_node *length = pickle_node_field(info, "length");

    ret->name = pickle_node_field(key, "fqn");
    ret->file = pickle_node_field(info, "relative_path");
    if (!is_text(ret->name) || !is_text(ret->file) || !is_number(offset) || !is_number(length) ||
        length->number > INT64_MAX - offset->number ||
        !torch_numbers_of(pickle_node_field(key, "offset"), ret->at, &ret->n_dims)) {
        return false;
    }
    ret->begin = (uint64_t)offset->number;
    ret->end = ret->begin + (uint64_t)length->number;
    return true;
}

static int list_places(const struct pickle_node *data, struct places *ret, struct error *e)
{
    size_t n = 0;

    for (const struct pickle_item *i = data->first; i; i = i->next) {
        n++;
    }
    ret->items = calloc(n / 2 + 1, sizeof(*ret->items));
    if (!ret->items) {
        return error_set(e, ENOMEM, "list where %zu pieces lie", n / 2);
    }
    for (const struct pickle_item *i = data->first; i && i->next; i = i->next->next) {
        ret->n += take_place(i->node, i->next->node, &ret->items[ret->n]);
    }
    qsort(ret->items, ret->n, sizeof(*ret->items), by_piece);
    return 0;
}

/* --- tensors --- */

struct reading {
    struct contents *c;
    struct places places;
    struct error *e;
};

/* The number of the file of that name; it is one of the directory. */
static int file_of(struct contents *c, const struct pickle_node *name, struct error *e)
{
    char text[FOUND_NAME_BYTES];
    int rc;

    if (name->len == 0 || name->len >= sizeof(text) || memchr(name->text, '/', name->len) ||
        memchr(name->text, '\0', name->len)) {
        return error_text(e, ERR_FORMAT, "it names a file outside of its directory: '%.*s'",
                          (int)(name->len < 100 ? name->len : 100), name->text);
    }
    memcpy(text, name->text, name->len);
    text[name->len] = '\0';
    for (size_t i = c->n_files; i-- > 0;) { /* mostly the last one */
        if (strcmp(contents_file_name(c, i), text) == 0) {
            return (int)i;
        }
    }
    rc = contents_file_add(c, text, -1);
    return rc < 0 ? error_set(e, ENOMEM, "list its files") : rc;
}

static int take_piece(struct reading *r, const struct pickle_node *name,
                      const struct pickle_node *chunk, struct contents_piece *ret)
{
    struct place key = {.name = name};
    uint32_t n = 0;
    const struct place *place = NULL;
    int file;

    if (torch_numbers_of(pickle_node_field(chunk, "offsets"), key.at, &key.n_dims) &&
        torch_numbers_of(pickle_node_field(chunk, "sizes"), ret->box.len, &n) &&
        n == key.n_dims && r->places.n > 0) {
        place = bsearch(&key, r->places.items, r->places.n, sizeof(key), by_piece);
    }
    if (!place) {
        return error_text(r->e, ERR_FORMAT, "it does not say where a piece of it lies");
    }
    file = file_of(r->c, place->file, r->e);
    if (file < 0) {
        return file;
    }
    ret->box.n_dims = n;
    memcpy(ret->box.at, key.at, sizeof(key.at));
    ret->file = (size_t)file;
    ret->is_archive = true;
    ret->archive_at = place->begin;
    ret->archive_end = place->end;
    return 0;
}

/* Each element is in one piece. */
static int check_pieces(const struct contents_tensor *t, struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape);
    _free_ struct box *boxes = calloc(t->n_pieces + 1, sizeof(*boxes));
    struct box_cover cover;
    int rc;

    if (!boxes) {
        return error_set(e, ENOMEM, "list its pieces");
    }
    for (size_t i = 0; i < t->n_pieces; i++) {
        boxes[i] = t->pieces[i].box;
    }
    rc = box_check_cover(&whole, boxes, t->n_pieces, &cover);
    return rc < 0   ? error_set(e, -rc, "list its pieces")
           : rc > 0 ? error_text(e, ERR_FORMAT, "its pieces do not have each element once")
                    : 0;
}

/* A file is told once of each tensor. */
static int list_files(const struct contents *c, struct contents_tensor *t)
{
    for (size_t i = 0; i < t->n_pieces; i++) {
        size_t k = i;

        while (k > 0 && t->pieces[k - 1].file != t->pieces[i].file) {
            k--;
        }
        if (k == 0) {
            strlist_add(&t->files, contents_file_name(c, t->pieces[i].file));
        }
    }
    return t->files.failed ? -ENOMEM : 0;
}

static int take_pieces(struct reading *r, const struct pickle_node *name,
                       const struct pickle_node *chunks, struct contents_tensor *t)
{
    size_t n = 0;
    int rc = 0;

    for (const struct pickle_item *i = chunks->first; i; i = i->next) {
        n++;
    }
    t->pieces = calloc(n + 1, sizeof(*t->pieces));
    if (!t->pieces) {
        return error_set(r->e, ENOMEM, "list its pieces");
    }
    for (const struct pickle_item *i = chunks->first; i && rc == 0; i = i->next) {
        rc = take_piece(r, name, i->node, &t->pieces[t->n_pieces++]);
    }
    rc = rc < 0 ? rc : check_pieces(t, r->e);
    return rc < 0 ? rc : list_files(r->c, t) < 0 ? error_set(r->e, ENOMEM, "list its files") : 0;
}

/* TensorProperties, whose state is a tuple that begins with the type. */
static bool take_type(const struct pickle_node *properties, enum dtype *ret)
{
    return properties && properties->kind == PICKLE_OBJECT &&
           torch_dtype_of(pickle_node_item(properties->state, 0), ret);
}

/* TensorStorageMetadata(properties, size, chunks). */
static int take_tensor(struct reading *r, const struct pickle_node *key, const char *name,
                       const struct pickle_node *says)
{
    const struct pickle_node *chunks = pickle_node_field(says, "chunks");
    struct contents_tensor *t = NULL;
    uint64_t shape[BOX_MAX_DIMS];
    enum dtype dtype;
    uint32_t n;
    int rc;

    if (!chunks || chunks->kind != PICKLE_LIST ||
        !torch_numbers_of(pickle_node_field(says, "size"), shape, &n) ||
        !take_type(pickle_node_field(says, "properties"), &dtype)) {
        contents_leave_out(r->c, name, chunks != NULL);
        return 0;
    }
    rc = contents_add_of(r->c, name, dtype, n, shape, NULL, &t);
    if (rc == -ENOMEM) {
        return error_set(r->e, ENOMEM, "list tensors");
    }
    rc = rc < 0 ? error_text(r->e, ERR_FORMAT, "its size is none")
                : take_pieces(r, key, chunks, t);
    return rc < 0 ? error_wrap(r->e, "tensor '%.100s'", name) : 0;
}

static int take_tensors(struct reading *r, const struct pickle_node *says)
{
    int rc = 0;

    for (const struct pickle_item *i = says->first; i && i->next && rc == 0; i = i->next->next) {
        _free_ char *name = is_text(i->node) ? strndup(i->node->text, i->node->len) : NULL;

        if (name && strlen(name) == i->node->len) {
            rc = take_tensor(r, i->node, name, i->next->node);
        } else {
            contents_leave_out(r->c, "?", true);
        }
    }
    return rc;
}

int contents_add_dcp(struct contents *c, struct error *e)
{
    static const char file[] = ".metadata";
    _pickle_tree_ struct pickle_tree tree = {0};
    const struct pickle_node *says, *data;
    struct reading r = {.c = c, .e = e};
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = io_read_file(c->io, c->dir, file, PICKLE_TREE_MAX_BYTES, &text, &len);

    if (rc == -ENOENT) {
        c->why_no_tensors = "each of its ranks has told only of its own pieces, in a .metadata of "
                            "its own";
        return 0;
    }
    rc = rc < 0 ? found_fail_to_read(rc, file, e) : pickle_tree_read(text, len, &tree, e);
    if (rc < 0) {
        return error_wrap(e, file);
    }
    says = pickle_node_field(tree.root, "state_dict_metadata");
    data = pickle_node_field(tree.root, "storage_data");
    if (!says || !data || says->kind != PICKLE_DICT || data->kind != PICKLE_DICT) {
        c->why_no_tensors = "its .metadata is of a version of PyTorch that muster does not know";
        return 0;
    }
    c->has_sums = true;
    rc = contents_span_create(c) < 0 ? error_set(e, ENOMEM, "list tensors")
                                     : list_places(data, &r.places, e);
    rc = rc < 0 ? rc : take_tensors(&r, says);
    places_release(&r.places);
    return rc < 0 ? error_wrap(e, file) : 0;
}
