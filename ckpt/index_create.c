/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "base/sort.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const struct index_piece *x = *(const struct index_piece *const *)a;
    const struct index_piece *y = *(const struct index_piece *const *)b;
    int order = strcmp(x->name, y->name);

    if (order) {
        return order;
    }
    if (x->file != y->file) { /* as they lie, for whoever reads all */
        return x->file < y->file ? -1 : 1;
    }
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool is_same_tensor(const struct index_piece *a,
                           const struct index_piece *b)
{
    return strcmp(a->name, b->name) == 0;
}

static bool is_same_shape(const struct index_piece *a,
                          const struct index_piece *b)
{
    return a->n_dims == b->n_dims &&
           (a->n_dims == 0 || memcmp(a->shape, b->shape, a->n_dims *
                                     sizeof(*a->shape)) == 0);
}

static int check_alike(const struct index_piece *a, const struct index_piece *b,
                       struct error *e)
{
    _buf_ struct buf name = {0};

    if (a->dtype == b->dtype && is_same_shape(a, b)) {
        return 0;
    }
    utf8_put_printable(&name, a->name, 200);
    return error_text(e, EINVAL, "tensor '%s': ranks differ in its type or "
                      "shape (%s with %u dimensions, %s with %u)",
                      buf_str(&name), dtype_name(a->dtype), a->n_dims,
                      dtype_name(b->dtype), b->n_dims);
}

/* How much there will be of everything. */
struct totals {
    size_t tensors, name_bytes, dims, box_numbers;
};

static int count(const struct index_piece *const *sorted, size_t n,
                 struct totals *ret, struct error *e)
{
    struct totals t = {0};

    for (size_t i = 0; i < n; i++) {
        const struct index_piece *p = sorted[i];

        if (p->n_dims > BOX_MAX_DIMS) {
            return error_text(e, EINVAL, "a tensor with %u dimensions, and at "
                              "most %d are allowed", p->n_dims, BOX_MAX_DIMS);
        }
        t.box_numbers += 2 * p->n_dims;
        if (i > 0 && is_same_tensor(sorted[i - 1], p)) {
            int rc = check_alike(sorted[i - 1], p, e);

            if (rc < 0) {
                return rc;
            }
            continue;
        }
        t.tensors++;
        t.name_bytes += strlen(p->name);
        t.dims += p->n_dims;
    }
    *ret = t;
    return 0;
}

static struct index *allocate(const struct totals *t, size_t n)
{
    _cleanup_(index) struct index *x = calloc(1, sizeof(*x));

    if (!x) {
        return NULL;
    }
    x->names = calloc(t->name_bytes + 1, 1);
    x->name_ends = calloc(t->tensors + 1, sizeof(*x->name_ends));
    x->dtypes = calloc(t->tensors + 1, 1);
    x->n_dims = calloc(t->tensors + 1, 1);
    x->shapes = calloc(t->dims + 1, sizeof(*x->shapes));
    x->chunk_ends = calloc(t->tensors + 1, sizeof(*x->chunk_ends));
    x->chunk_files = calloc(n + 1, sizeof(*x->chunk_files));
    x->chunk_begins = calloc(n + 1, sizeof(*x->chunk_begins));
    x->chunk_boxes = calloc(t->box_numbers + 1, sizeof(*x->chunk_boxes));
    if (!x->names || !x->name_ends || !x->dtypes || !x->n_dims || !x->shapes ||
        !x->chunk_ends || !x->chunk_files || !x->chunk_begins ||
        !x->chunk_boxes) {
        return NULL;
    }
    return take_ptr(&x);
}

/* Where there are none, NULL may stand for them. */
static void copy_numbers(uint64_t *to, const uint64_t *from, size_t n)
{
    if (n > 0) {
        memcpy(to, from, n * sizeof(*to));
    }
}

static void add_tensor(struct index *x, const struct index_piece *p,
                       size_t *n_dims)
{
    size_t at = x->n ? x->name_ends[x->n - 1] : 0, len = strlen(p->name);

    memcpy(x->names + at, p->name, len);
    x->name_ends[x->n] = at + len;
    x->dtypes[x->n] = (uint8_t)p->dtype;
    x->n_dims[x->n] = (uint8_t)p->n_dims;
    copy_numbers(x->shapes + *n_dims, p->shape, p->n_dims);
    *n_dims += p->n_dims;
    x->n++;
}

static void add_chunk(struct index *x, const struct index_piece *p,
                      size_t *n_numbers)
{
    uint64_t *box = x->chunk_boxes + *n_numbers;

    x->chunk_files[x->m] = p->file;
    x->chunk_begins[x->m] = p->begin;
    copy_numbers(box, p->at, p->n_dims);
    copy_numbers(box + p->n_dims, p->len, p->n_dims);
    *n_numbers += 2 * p->n_dims;
    x->m++;
    x->chunk_ends[x->n - 1] = x->m;
}

static void fill(struct index *x, const struct index_piece *const *sorted,
                 size_t n)
{
    size_t n_dims = 0, n_numbers = 0;

    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !is_same_tensor(sorted[i - 1], sorted[i])) {
            add_tensor(x, sorted[i], &n_dims);
        }
        add_chunk(x, sorted[i], &n_numbers);
    }
}

/* The digests of all files, one after the other. */
static int add_files(struct index *x, const struct index_file *files, size_t n)
{
    size_t n_blocks = 0;

    for (size_t i = 0; i < n; i++) {
        n_blocks += files[i].n_blocks;
    }
    x->block_ends = calloc(n + 1, sizeof(*x->block_ends));
    x->blocks = calloc(n_blocks + 1, sizeof(*x->blocks));
    if (!x->block_ends || !x->blocks) {
        return -ENOMEM;
    }
    for (n_blocks = 0; x->f < n; x->f++) {
        copy_numbers(x->blocks + n_blocks, files[x->f].blocks,
                     files[x->f].n_blocks);
        n_blocks += files[x->f].n_blocks;
        x->block_ends[x->f] = n_blocks;
    }
    return 0;
}

int index_create(const struct index_piece *pieces, size_t n,
                 const struct index_file *files, size_t n_files,
                 struct index **ret, struct error *e)
{
    _free_ const struct index_piece **sorted = calloc(n + 1, sizeof(*sorted));
    _cleanup_(index) struct index *x = NULL;
    struct totals t = {0};
    int rc;

    if (!sorted) {
        return error_set(e, ENOMEM, "an index of %zu chunks", n);
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &pieces[i];
    }
    sort_items(sorted, n, sizeof(*sorted), by_name);
    rc = count(sorted, n, &t, e);
    if (rc < 0) {
        return rc;
    }
    x = allocate(&t, n);
    if (!x || add_files(x, files, n_files) < 0) {
        return error_set(e, ENOMEM, "an index of %zu chunks", n);
    }
    fill(x, sorted, n);
    rc = index_check(x, e);
    if (rc == 0) {
        *ret = take_ptr(&x);
    }
    if (rc == -ERR_FORMAT) { /* it was given so, not read so */
        rc = -EINVAL;
        if (e) {
            e->code = EINVAL;
        }
    }
    return rc;
}
