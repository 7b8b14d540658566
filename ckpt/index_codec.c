/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "base/str.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are read and written as they lie");

enum { N_FIELDS = 11, ALIGN = 64 };

/* One array of the index. */
struct field {
    const char *name;
    enum dtype dtype;
    void **array;
    size_t n; /* elements; while reading: what the file says */
};

static void list_fields(struct index *x, struct field *f)
{
    struct field all[N_FIELDS] = {
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

static int list_tensors(const struct field *fields, struct st_file *f)
{
    f->tensors = calloc(N_FIELDS, sizeof(*f->tensors));
    for (size_t i = 0; f->tensors && i < N_FIELDS; i++) {
        struct st_tensor *t = &f->tensors[f->n_tensors++];

        t->name = strdup(fields[i].name);
        t->dtype = fields[i].dtype;
        t->n_dims = 1;
        t->shape[0] = fields[i].n;
        if (!t->name) {
            return -ENOMEM;
        }
    }
    return f->tensors ? 0 : -ENOMEM;
}

static const struct field *field_of(const struct field *fields,
                                    const char *name)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

int index_encode(const struct index *x, struct buf *b)
{
    _st_file_ struct st_file f = {0};
    struct field fields[N_FIELDS];
    uint64_t shapes, boxes;

    list_fields((struct index *)x, fields);
    count_numbers(x, &shapes, &boxes);
    fields[NAMES].n = x->n ? x->name_ends[x->n - 1] : 0;
    fields[SHAPES].n = shapes;
    fields[BOXES].n = boxes;
    fields[BLOCKS].n = x->f ? x->block_ends[x->f - 1] : 0;
    if (list_tensors(fields, &f) < 0 || st_layout(&f, NULL) < 0 ||
        st_write(&f, ALIGN, b, NULL) < 0) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct st_tensor *t = &f.tensors[i];

        buf_append(b, *field_of(fields, t->name)->array, t->end - t->begin);
    }
    return b->failed ? -ENOMEM : 0;
}

/* --- decoding --- */

static int take_field(struct field *to, const struct st_file *f,
                      const char *data, struct error *e)
{
    const struct st_tensor *t = NULL;

    for (size_t i = 0; i < f->n_tensors; i++) {
        if (strcmp(f->tensors[i].name, to->name) == 0) {
            t = &f->tensors[i];
        }
    }
    if (!t || t->dtype != to->dtype || t->n_dims != 1) {
        return error_text(e, ERR_FORMAT, "the index has no '%s' of type %s",
                          to->name, dtype_name(to->dtype));
    }
    to->n = t->shape[0];
    *to->array = calloc(1, t->end - t->begin + sizeof(uint64_t));
    if (!*to->array) {
        return error_set(e, ENOMEM, "read an index");
    }
    memcpy(*to->array, data + f->data_at + t->begin, t->end - t->begin);
    return 0;
}

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
static int check_lengths(struct index *x, const struct field *f,
                         struct error *e)
{
    struct field want[N_FIELDS];
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

static int read_header(const char *data, size_t len, struct st_file *ret,
                       struct error *e)
{
    uint8_t prefix[ST_PREFIX_BYTES] = {0};
    uint64_t n;
    int rc;

    memcpy(prefix, data, len < sizeof(prefix) ? len : sizeof(prefix));
    rc = st_header_bytes(prefix, len, &n, e);
    return rc < 0 ? rc : st_read(data + sizeof(prefix), n, len, ret, e);
}

int index_decode(const void *data, size_t len, struct index **ret,
                 struct error *e)
{
    _cleanup_(index) struct index *x = calloc(1, sizeof(*x));
    _st_file_ struct st_file f = {0};
    struct field fields[N_FIELDS];
    int rc;

    if (!x) {
        return error_set(e, ENOMEM, "read an index");
    }
    rc = read_header(data, len, &f, e);
    list_fields(x, fields);
    for (size_t i = 0; i < N_FIELDS && rc == 0; i++) {
        rc = take_field(&fields[i], &f, data, e);
    }
    rc = rc < 0 ? rc : check_lengths(x, fields, e);
    rc = rc < 0 ? rc : index_check(x, e);
    if (rc == 0) {
        *ret = take_ptr(&x);
    }
    return rc;
}
