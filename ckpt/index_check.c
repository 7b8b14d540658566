/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include "base/str.h"
#include "base/utf8.h"
#include "ckpt/crowd.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 14 }; /* tensors, or pieces, that are worth a thread */

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
    x->is_loaf = calloc(x->n + 1, sizeof(*x->is_loaf));
    if (!x->shape_at || !x->box_at || !x->is_loaf) {
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

/* Pieces in the order of their corners, cut like loaves: slabs of the first dimension one
 * after the other, each of them into slabs of the next, and so on. */
struct loaf {
    size_t n_dims;
    const uint64_t *shape;
    uint64_t at[BOX_MAX_DIMS];  /* where the next piece begins */
    uint64_t len[BOX_MAX_DIMS]; /* of the slab that it is in ... */
    size_t n_open;              /* ... in so many of the dimensions */
    bool is_over;
};

/* All of it to zero takes longer than a tensor of one piece does else. */
static void begin_loaf(struct loaf *l, const struct index_tensor *t)
{
    l->n_dims = t->n_dims;
    l->shape = t->shape;
    memset(l->at, 0, t->n_dims * sizeof(*l->at));
    l->n_open = 0;
    l->is_over = false;
}

static bool is_all(const struct loaf *l, const uint64_t *at, const uint64_t *len, size_t d)
{
    while (d < l->n_dims && at[d] == 0 && len[d] == l->shape[d]) {
        d++;
    }
    return d == l->n_dims;
}

/* Whether that piece is the next one. Nothing of a slab of rows is one, too. */
static bool take_slice(struct loaf *l, const uint64_t *at, const uint64_t *len)
{
    size_t d = 0;

    if (l->n_open == 0 && len[0] == 0) {
        return at[0] == l->at[0] && is_all(l, at, len, 1);
    }
    for (d = 0; d < l->n_dims; d++) {
        if (l->is_over || at[d] != l->at[d] ||
            (d < l->n_open ? len[d] != l->len[d]
                           : len[d] == 0 || len[d] > l->shape[d] - at[d])) {
            return false;
        }
        l->len[d] = len[d];
    }
    while (d > 0 && l->at[d - 1] + l->len[d - 1] == l->shape[d - 1]) {
        d--;
        l->at[d] = d > 0 ? 0 : l->at[d];
    }
    l->is_over = d == 0;
    l->n_open = d > 0 ? d - 1 : 0;
    l->at[l->n_open] += l->len[l->n_open];
    return true;
}

/* Each piece is in a file that has it, as far as that has blocks. */
static bool is_in_file(const struct index *x, size_t chunk, uint64_t bytes)
{
    uint32_t file = x->chunk_files[chunk];
    uint64_t end;

    return file < x->f &&
           !__builtin_add_overflow(x->chunk_begins[chunk], bytes, &end) &&
           digest_n_blocks(end) <=
               x->block_ends[file] - (file ? x->block_ends[file - 1] : 0);
}

static bool are_slices(const struct index *x, const struct index_tensor *t,
                       const uint64_t *box)
{
    struct loaf l;
    size_t n = t->n_dims, bytes_each = dtype_bits(t->dtype) / 8;

    begin_loaf(&l, t);
    for (size_t k = t->first_chunk; k < t->first_chunk + t->n_chunks; k++, box += 2 * n) {
        uint64_t bytes = bytes_each;

        if (!take_slice(&l, box, box + n)) {
            return false;
        }
        for (size_t d = 0; d < n; d++) {
            bytes *= box[n + d];
        }
        if (!is_in_file(x, k, bytes)) {
            return false;
        }
    }
    return l.is_over;
}

static bool is_all_of_it(const struct index_tensor *t, const uint64_t *box)
{
    size_t d = 0;

    while (d < t->n_dims && box[d] == 0 && box[t->n_dims + d] == t->shape[d]) {
        d++;
    }
    return d == t->n_dims;
}

/* Nearly all tensors are cut so, or not at all, and there are many of them, and many pieces.
 * A whole that has a size has pieces that have one. False: it is to be looked at in
 * general. */
static bool is_cut_like_loaf(const struct index *x, const struct index_tensor *t,
                             size_t i)
{
    const uint64_t *box = x->chunk_boxes + x->box_at[i];
    uint64_t whole;

    if (t->n_dims == 0 || dtype_bits(t->dtype) % 8 != 0 ||
        !count_bytes(t, t->shape, &whole) || whole == 0) {
        return false;
    }
    return t->n_chunks == 1 ? is_all_of_it(t, box) && is_in_file(x, t->first_chunk, whole)
                            : are_slices(x, t, box);
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

static int check_tensor(struct index *x, size_t i, struct error *e)
{
    struct index_tensor t = index_tensor(x, i);
    int rc = check_name(x, i, e);

    x->is_loaf[i] = rc == 0 && is_cut_like_loaf(x, &t, i);
    if (rc < 0 || x->is_loaf[i]) {
        return rc;
    }
    rc = check_cover(x, i, e); /* in general, or to say what is wrong */
    return rc < 0 ? rc : check_sizes(x, i, e);
}

struct check {
    struct index *x;
    size_t n_each; /* tensors that a thread takes at a time */
};

static int check_some(void *arg, size_t number, struct error *e)
{
    const struct check *c = arg;
    size_t begin = number * c->n_each, left = c->x->n - begin;
    size_t end = begin + (left < c->n_each ? left : c->n_each);
    int rc = 0;

    for (size_t i = begin; i < end && rc == 0; i++) {
        rc = check_tensor(c->x, i, e);
    }
    return rc;
}

/* Of many it is memory that takes the time, and several threads read more of it at once. */
static int check_tensors(struct index *x, struct error *e)
{
    size_t most = x->n > x->m ? x->n : x->m;
    struct check c = {.x = x, .n_each = most > MANY ? x->n * MANY / most + 1 : MANY};
    const struct crowd crowd = {.n_threads = crowd_n_threads(), .work = check_some,
                                .arg = &c};

    return crowd_run(&crowd, (x->n + c.n_each - 1) / c.n_each, e);
}

int index_check(struct index *x, struct error *e)
{
    int rc;

    for (size_t i = 0; i < x->n; i++) {
        if (x->dtypes[i] >= N_DTYPES || x->n_dims[i] > BOX_MAX_DIMS) {
            return error_text(e, ERR_FORMAT, "tensor %zu: type %u with %u "
                              "dimensions", i, x->dtypes[i], x->n_dims[i]);
        }
    }
    rc = find_places(x, e);
    return rc < 0 ? rc : check_tensors(x, e);
}
