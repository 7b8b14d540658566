/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "ckpt/arrays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N_FIELDS = 11 };

static void list_fields(struct index *x, struct array *f)
{
    struct array all[N_FIELDS] = {
        {"names", DTYPE_U8, (void **)&x->names, 0},
        {"name_ends", DTYPE_U64, (void **)&x->name_ends, x->n},
        {"dtypes", DTYPE_U8, (void **)&x->dtypes, x->n},
        {"n_dims", DTYPE_U8, (void **)&x->n_dims, x->n},
        {"shapes", DTYPE_U64, (void **)&x->shapes, 0},
        {"chunk_ends", DTYPE_U64, (void **)&x->chunk_ends, x->n},
        {"chunk_files", DTYPE_U32, (void **)&x->chunk_files, x->m},
        {"chunk_begins", DTYPE_U64, (void **)&x->chunk_begins, x->m},
        {"chunk_boxes", DTYPE_U64, (void **)&x->chunk_boxes, 0},
        {"block_ends", DTYPE_U64, (void **)&x->block_ends, x->f},
        {"blocks", DTYPE_U64, (void **)&x->blocks, 0},
    };

    memcpy(f, all, sizeof(all));
}

enum { /* places of those without n above, and of those that say n */
    NAMES = 0,
    NAME_ENDS = 1,
    SHAPES = 4,
    CHUNK_FILES = 6,
    BOXES = 8,
    BLOCK_ENDS = 9,
    BLOCKS = 10,
};

/* How many lengths and box numbers the dimensions ask for; false if no file could
 * have so many. */
static bool count_numbers(const struct index *x, uint64_t *ret_shapes,
                          uint64_t *ret_boxes)
{
    uint64_t chunk = 0;

    *ret_shapes = 0;
    *ret_boxes = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (x->chunk_ends[i] < chunk || x->chunk_ends[i] > x->m ||
            x->n_dims[i] > BOX_MAX_DIMS) {
            return false;
        }
        *ret_shapes += x->n_dims[i];
        *ret_boxes += (x->chunk_ends[i] - chunk) * 2 * x->n_dims[i];
        chunk = x->chunk_ends[i];
    }
    return chunk == x->m;
}

/* --- encoding --- */

int index_make_room(struct index *x, const struct index_numbers *numbers)
{
    struct array fields[N_FIELDS];
    _buf_ struct buf b = {0};

    list_fields(x, fields);
    fields[NAMES].n = numbers->name_bytes;
    fields[SHAPES].n = numbers->shapes;
    fields[BOXES].n = numbers->boxes;
    fields[BLOCKS].n = numbers->blocks;
    if (arrays_make_room(fields, N_FIELDS, NULL, 0, &b, NULL) < 0) {
        return -ENOMEM;
    }
    x->len = b.len;
    x->data = buf_take(&b);
    return x->data ? 0 : -ENOMEM;
}

const char *index_bytes(const struct index *x, size_t *ret_len)
{
    *ret_len = x->len;
    return x->data;
}

/* --- decoding --- */

/* Rising, up to just `end`. */
static int check_ends(const uint64_t *ends, size_t n, uint64_t end,
                      const char *what, struct error *e)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (ends[i] < at || ends[i] > end) {
            return error_text(e, ERR_FORMAT, "the index: %s %zu ends at %llu",
                              what, i, (unsigned long long)ends[i]);
        }
        at = ends[i];
    }
    return at == end ? 0 : error_text(e, ERR_FORMAT, "the index: what its %ss "
                                      "need is not what it has", what);
}

/* Arrays of one length each, for tensors, chunks and files, and the others as long
 * as these say. */
static int check_lengths(struct index *x, const struct array *f,
                         struct error *e)
{
    struct array want[N_FIELDS];
    uint64_t shapes, boxes;
    int rc;

    x->n = f[NAME_ENDS].n;
    x->m = f[CHUNK_FILES].n;
    x->f = f[BLOCK_ENDS].n;
    list_fields(x, want);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (i != NAMES && i != SHAPES && i != BOXES && i != BLOCKS &&
            f[i].n != want[i].n) {
            return error_text(e, ERR_FORMAT, "the index has %zu of '%s', "
                              "expected %zu", f[i].n, f[i].name, want[i].n);
        }
    }
    rc = check_ends(x->name_ends, x->n, f[NAMES].n, "name", e);
    rc = rc < 0 ? rc : check_ends(x->block_ends, x->f, f[BLOCKS].n, "file", e);
    if (rc == 0 && (!count_numbers(x, &shapes, &boxes) ||
                    shapes != f[SHAPES].n || boxes != f[BOXES].n)) {
        rc = error_text(e, ERR_FORMAT, "the index: shapes or boxes are not as "
                        "many as its tensors and chunks need");
    }
    return rc;
}

int index_take(char *data, size_t len, struct index **ret, struct error *e)
{
    _cleanup_(index) struct index *x = calloc(1, sizeof(*x));
    _st_file_ struct st_file f = {0};
    struct array fields[N_FIELDS];
    int rc;

    if (!x) {
        return error_set(e, ENOMEM, "read an index");
    }
    x->data = data;
    x->len = len;
    list_fields(x, fields);
    rc = arrays_find(data, len, "index", fields, N_FIELDS, &f, e);
    rc = rc < 0 ? rc : check_lengths(x, fields, e);
    rc = rc < 0 ? rc : index_check(x, e);
    if (rc == 0) {
        *ret = take_ptr(&x);
    } else {
        index_free_arrays(x);
        x->data = NULL; /* the caller's */
    }
    return rc;
}

int index_decode(const void *data, size_t len, struct index **ret,
                 struct error *e)
{
    _free_ char *copy = malloc(len ? len : 1);
    int rc;

    if (!copy) {
        return error_set(e, ENOMEM, "read an index");
    }
    memcpy(copy, data, len);
    rc = index_take(copy, len, ret, e);
    if (rc == 0) {
        take_ptr(&copy);
    }
    return rc;
}

void index_free_arrays(struct index *x)
{
    struct array fields[N_FIELDS];

    list_fields(x, fields);
    arrays_free(x->data, x->len, fields, N_FIELDS);
}
