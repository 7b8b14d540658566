/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "base/str.h"
#include "base/utf8.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A tensor's name, for a message. */
struct shown {
    char text[256];
};

static struct shown show(const struct index_tensor *t)
{
    char name[201];
    struct shown s = {""};
    _buf_ struct buf b = {0};
    size_t n = t->name_len < sizeof(name) - 1 ? t->name_len : sizeof(name) - 1;

    memcpy(name, t->name, n);
    name[n] = '\0';
    utf8_put_printable(&b, name, sizeof(name) - 1);
    str_copy(s.text, sizeof(s.text), buf_str(&b));
    return s;
}

/* Places of shapes and boxes, from the numbers of dimensions. */
static int find_places(struct index *x, struct error *e)
{
    size_t shape = 0, box = 0, chunk = 0;

    x->shape_at = calloc(x->n + 1, sizeof(*x->shape_at));
    x->box_at = calloc(x->n + 1, sizeof(*x->box_at));
    x->is_by_rows = calloc(x->n + 1, sizeof(*x->is_by_rows));
    if (!x->shape_at || !x->box_at || !x->is_by_rows) {
        return error_set(e, ENOMEM, "an index of %zu tensors", x->n);
    }
    for (size_t i = 0; i < x->n; i++) {
        x->shape_at[i] = shape;
        x->box_at[i] = box;
        shape += x->n_dims[i];
        box += (x->chunk_ends[i] - chunk) * 2 * x->n_dims[i];
        chunk = x->chunk_ends[i];
    }
    return 0;
}

static int check_name(const struct index *x, size_t i, struct error *e)
{
    struct index_tensor t = index_tensor(x, i), before;
    size_t both;
    int order;

    if (memchr(t.name, '\0', t.name_len)) {
        return error_text(e, ERR_FORMAT, "tensor %zu has a zero byte in its name",
                          i);
    }
    if (i == 0) {
        return 0;
    }
    before = index_tensor(x, i - 1);
    both = t.name_len < before.name_len ? t.name_len : before.name_len;
    order = memcmp(before.name, t.name, both);
    if (order > 0 || (order == 0 && before.name_len >= t.name_len)) {
        return error_text(e, ERR_FORMAT, "tensor '%s' comes after '%s'",
                          show(&t).text, show(&before).text);
    }
    return 0;
}

static int tell_cover(const struct index_tensor *t, const struct box *boxes,
                      int fault, const struct box_cover *found, struct error *e)
{
    char a[200], b[200];

    switch ((enum box_fault)fault) {
    case BOX_OUTSIDE:
        box_format(&boxes[found->a], a, sizeof(a));
        return error_text(e, ERR_FORMAT, "tensor '%s': a piece %s lies outside "
                          "of it", show(t).text, a);
    case BOX_OVERLAP:
        box_format(&boxes[found->a], a, sizeof(a));
        box_format(&boxes[found->b], b, sizeof(b));
        return error_text(e, ERR_FORMAT, "tensor '%s': pieces %s and %s overlap",
                          show(t).text, a, b);
    case BOX_HOLE:
        box_format(&found->hole, a, sizeof(a));
        return error_text(e, ERR_FORMAT, "tensor '%s': nobody has %s",
                          show(t).text, a);
    }
    return error_set(e, ENOMEM, "check tensor '%s'", show(t).text);
}

/* Of so many elements in each dimension; false if there is no such number. */
static bool count_bytes(const struct index_tensor *t, const uint64_t *len,
                        uint64_t *ret)
{
    bool is_countable = true;
    uint64_t n = 1;

    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (len[d] == 0) {
            *ret = 0;
            return true;
        }
        is_countable &= !__builtin_mul_overflow(n, len[d], &n);
    }
    return is_countable && dtype_bytes(t->dtype, n, ret);
}

/* Its size in bytes can be counted, and each chunk lies in a file, as far as that has
 * blocks. */
static int check_sizes(const struct index *x, size_t i, struct error *e)
{
    struct index_tensor t = index_tensor(x, i);
    uint64_t bytes, end;
    size_t n_blocks;

    if (!count_bytes(&t, t.shape, &bytes)) {
        return error_text(e, ERR_FORMAT, "tensor '%s': its shape has no size in "
                          "bytes", show(&t).text);
    }
    for (size_t k = 0; k < t.n_chunks; k++) {
        struct index_chunk c = index_chunk(x, &t, i, k);

        if (!count_bytes(&t, c.len, &bytes) ||
            __builtin_add_overflow(c.begin, bytes, &end)) {
            return error_text(e, ERR_FORMAT, "tensor '%s': chunk %zu has no size "
                              "in bytes", show(&t).text, k);
        }
        if (c.file >= x->f) {
            return error_text(e, ERR_FORMAT, "tensor '%s': chunk %zu is in file "
                              "%u of %zu", show(&t).text, k, c.file, x->f);
        }
        index_blocks(x, c.file, &n_blocks);
        if (digest_n_blocks(end) > n_blocks) {
            return error_text(e, ERR_FORMAT, "tensor '%s': chunk %zu ends at "
                              "%llu, and its file has %zu blocks",
                              show(&t).text, k, (unsigned long long)end,
                              n_blocks);
        }
    }
    return 0;
}

/* Rows of a tensor one after the other, each piece as wide as it, and in a file that has
 * it: nearly all tensors are cut so, or not at all, and there are many pieces. */
static bool is_cut_by_rows(const struct index *x, const struct index_tensor *t,
                           size_t i)
{
    const uint64_t *box = x->chunk_boxes + x->box_at[i], *shape = t->shape;
    uint64_t row = 0, row_bytes, end;
    size_t n = t->n_dims;

    if (n == 0 || !count_bytes(t, shape, &row_bytes) || row_bytes == 0 ||
        dtype_bits(t->dtype) % 8 != 0) {
        return false;
    }
    row_bytes /= shape[0];
    for (size_t k = t->first_chunk; k < t->first_chunk + t->n_chunks; k++, box += 2 * n) {
        uint32_t file = x->chunk_files[k];
        bool is_row = box[0] == row && box[n] <= shape[0] - row;
        uint64_t first;

        for (size_t d = 1; d < n; d++) {
            is_row &= box[d] == 0 && box[n + d] == shape[d];
        }
        if (!is_row || file >= x->f ||
            __builtin_add_overflow(x->chunk_begins[k], box[n] * row_bytes, &end)) {
            return false;
        }
        first = file ? x->block_ends[file - 1] : 0;
        if (digest_n_blocks(end) > x->block_ends[file] - first) {
            return false;
        }
        row += box[n];
    }
    return row == shape[0];
}

static int check_cover(const struct index *x, size_t i, struct error *e)
{
    struct index_tensor t = index_tensor(x, i);
    struct box whole = box_whole(t.n_dims, t.shape);
    _free_ struct box *boxes = NULL;
    struct box_cover found;
    int rc;

    boxes = calloc(t.n_chunks + 1, sizeof(*boxes));
    if (!boxes) {
        return error_set(e, ENOMEM, "check tensor '%s'", show(&t).text);
    }
    for (size_t k = 0; k < t.n_chunks; k++) {
        struct index_chunk c = index_chunk(x, &t, i, k);

        boxes[k] = index_chunk_box(&t, &c);
    }
    rc = box_check_cover(&whole, boxes, t.n_chunks, &found);
    return rc ? tell_cover(&t, boxes, rc, &found, e) : 0;
}

int index_check(struct index *x, struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < x->n; i++) {
        if (x->dtypes[i] >= N_DTYPES || x->n_dims[i] > BOX_MAX_DIMS) {
            return error_text(e, ERR_FORMAT, "tensor %zu: type %u with %u "
                              "dimensions", i, x->dtypes[i], x->n_dims[i]);
        }
    }
    rc = find_places(x, e);
    for (size_t i = 0; i < x->n && rc == 0; i++) {
        struct index_tensor t = index_tensor(x, i);

        rc = check_name(x, i, e);
        x->is_by_rows[i] = rc == 0 && is_cut_by_rows(x, &t, i);
        if (!x->is_by_rows[i]) { /* in general, or to say what is wrong */
            rc = rc < 0 ? rc : check_cover(x, i, e);
            rc = rc < 0 ? rc : check_sizes(x, i, e);
        }
    }
    return rc;
}
