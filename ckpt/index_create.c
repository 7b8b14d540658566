/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "base/pages.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "ckpt/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A piece, and the file that it is in. */
struct placed {
    const struct part_piece *piece;
    uint32_t file;
};

static int by_name(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = strcmp(x->piece->name, y->piece->name);

    if (order) {
        return order;
    }
    if (x->file != y->file) { /* as they lie, for whoever reads all */
        return x->file < y->file ? -1 : 1;
    }
    return x->piece->begin < y->piece->begin ? -1 : x->piece->begin > y->piece->begin;
}

static struct placed *sort(const struct part *parts, size_t n, size_t n_pieces)
{
    struct placed *sorted = pages_alloc(n_pieces + 1, sizeof(*sorted));
    size_t k = 0;

    for (size_t f = 0; sorted && f < n; f++) {
        for (size_t i = 0; i < parts[f].n_pieces; i++) {
            sorted[k++] = (struct placed){&parts[f].pieces[i], (uint32_t)f};
        }
    }
    sort_items(sorted, k, sizeof(*sorted), by_name);
    return sorted;
}

static bool is_same_tensor(const struct part_piece *a, const struct part_piece *b)
{
    return strcmp(a->name, b->name) == 0;
}

static bool is_same_shape(const struct part_piece *a, const struct part_piece *b)
{
    return a->n_dims == b->n_dims &&
           (a->n_dims == 0 || memcmp(a->shape, b->shape, a->n_dims *
                                     sizeof(*a->shape)) == 0);
}

static int check_alike(const struct part_piece *a, const struct part_piece *b,
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

/* How many there will be of everything, but files and blocks. */
static int count(const struct placed *sorted, size_t n, struct index *x,
                 struct index_numbers *numbers, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct part_piece *p = sorted[i].piece;

        if (p->n_dims > BOX_MAX_DIMS) {
            return error_text(e, EINVAL, "a tensor with %u dimensions, and at "
                              "most %d are allowed", p->n_dims, BOX_MAX_DIMS);
        }
        numbers->boxes += 2 * p->n_dims;
        if (i > 0 && is_same_tensor(sorted[i - 1].piece, p)) {
            int rc = check_alike(sorted[i - 1].piece, p, e);

            if (rc < 0) {
                return rc;
            }
            continue;
        }
        x->n++;
        numbers->name_bytes += strlen(p->name);
        numbers->shapes += p->n_dims;
    }
    x->m = n;
    return 0;
}

/* Where there are none, NULL may stand for them. Returns what is behind them. */
static uint64_t *copy_numbers(uint64_t *to, const uint64_t *from, size_t n)
{
    if (n > 0) {
        memcpy(to, from, n * sizeof(*to));
    }
    return to + n;
}

static void fill(struct index *x, const struct placed *sorted)
{
    uint64_t *shape = x->shapes, *box = x->chunk_boxes;
    size_t tensor = 0, name_end = 0;

    for (size_t i = 0; i < x->m; i++) {
        const struct part_piece *p = sorted[i].piece;

        if (i == 0 || !is_same_tensor(sorted[i - 1].piece, p)) {
            size_t len = strlen(p->name);

            memcpy(x->names + name_end, p->name, len);
            name_end += len;
            x->name_ends[tensor] = name_end;
            x->dtypes[tensor] = (uint8_t)p->dtype;
            x->n_dims[tensor] = (uint8_t)p->n_dims;
            shape = copy_numbers(shape, p->shape, p->n_dims);
            tensor++;
        }
        x->chunk_files[i] = sorted[i].file;
        x->chunk_begins[i] = p->begin;
        box = copy_numbers(box, p->at, p->n_dims);
        box = copy_numbers(box, p->len, p->n_dims);
        x->chunk_ends[tensor - 1] = i + 1;
    }
}

/* The digests of all files, one after the other. */
static void fill_blocks(struct index *x, const struct part *parts)
{
    uint64_t *block = x->blocks;

    for (size_t f = 0; f < x->f; f++) {
        block = copy_numbers(block, parts[f].blocks, parts[f].n_blocks);
        x->block_ends[f] = (uint64_t)(block - x->blocks);
    }
}

/* It was given so, not read so. */
static int as_given(int rc, struct error *e)
{
    if (rc != -ERR_FORMAT) {
        return rc;
    }
    if (e) {
        e->code = EINVAL;
    }
    return -EINVAL;
}

int index_create(const struct part *parts, size_t n, struct index **ret, struct error *e)
{
    _cleanup_(index) struct index *x = calloc(1, sizeof(*x));
    struct index_numbers numbers = {0};
    _free_ struct placed *sorted = NULL;
    size_t n_pieces = 0;
    int rc;

    for (size_t f = 0; f < n; f++) {
        n_pieces += parts[f].n_pieces;
        numbers.blocks += parts[f].n_blocks;
    }
    sorted = x ? sort(parts, n, n_pieces) : NULL;
    if (!sorted) {
        return error_set(e, ENOMEM, "an index of %zu chunks", n_pieces);
    }
    x->f = n;
    rc = count(sorted, n_pieces, x, &numbers, e);
    if (rc < 0) {
        return rc;
    }
    if (index_make_room(x, &numbers) < 0) {
        return error_set(e, ENOMEM, "an index of %zu chunks", n_pieces);
    }
    fill(x, sorted);
    fill_blocks(x, parts);
    rc = as_given(index_check(x, e), e);
    if (rc == 0) {
        *ret = take_ptr(&x);
    }
    return rc;
}

bool index_renew(struct index *x, const struct part *parts, size_t n)
{
    bool is_alike = n == x->f;

    for (size_t f = 0; f < n && is_alike; f++) {
        is_alike = parts[f].n_blocks == x->block_ends[f] - (f ? x->block_ends[f - 1] : 0);
    }
    if (is_alike) {
        fill_blocks(x, parts);
    }
    return is_alike;
}
