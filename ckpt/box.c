/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/box.h"

#include <stdio.h>
#include <string.h>

struct box box_whole(uint32_t n_dims, const uint64_t *shape)
{
    struct box b = {.n_dims = n_dims};

    for (uint32_t d = 0; d < n_dims; d++) {
        b.len[d] = shape[d];
    }
    return b;
}

static bool is_empty(uint32_t n_dims, const uint64_t *len)
{
    for (uint32_t d = 0; d < n_dims; d++) {
        if (len[d] == 0) {
            return true;
        }
    }
    return false;
}

bool box_is_empty(const struct box *b)
{
    return is_empty(b->n_dims, b->len);
}

bool box_volume_of(uint32_t n_dims, const uint64_t *len, uint64_t *ret)
{
    uint64_t n = 1;

    if (is_empty(n_dims, len)) {
        *ret = 0;
        return true;
    }
    for (uint32_t d = 0; d < n_dims; d++) {
        if (__builtin_mul_overflow(n, len[d], &n)) {
            return false;
        }
    }
    *ret = n;
    return true;
}

bool box_volume(const struct box *b, uint64_t *ret)
{
    return box_volume_of(b->n_dims, b->len, ret);
}

bool box_is_whole(uint32_t n_dims, const uint64_t *shape, const uint64_t *at,
                  const uint64_t *len)
{
    bool is = true;

    for (uint32_t d = 0; d < n_dims && is; d++) {
        is = at[d] == 0 && len[d] == shape[d];
    }
    return is;
}

bool box_contains(const struct box *outer, const struct box *inner)
{
    if (outer->n_dims != inner->n_dims) {
        return false;
    }
    for (uint32_t d = 0; d < outer->n_dims; d++) {
        uint64_t before, rest;

        if (inner->at[d] < outer->at[d]) {
            return false;
        }
        before = inner->at[d] - outer->at[d];
        if (before > outer->len[d]) {
            return false;
        }
        rest = outer->len[d] - before;
        if (inner->len[d] > rest) {
            return false;
        }
    }
    return true;
}

bool box_equal(const struct box *a, const struct box *b)
{
    return box_contains(a, b) && box_contains(b, a);
}

bool box_meet(const struct box *a, const struct box *b, struct box *ret)
{
    struct box r = {.n_dims = a->n_dims};

    for (uint32_t d = 0; d < a->n_dims; d++) {
        uint64_t at = a->at[d] > b->at[d] ? a->at[d] : b->at[d];
        uint64_t a_end = a->at[d] + a->len[d], b_end = b->at[d] + b->len[d];
        uint64_t end = a_end < b_end ? a_end : b_end;

        if (end <= at) {
            return false;
        }
        r.at[d] = at;
        r.len[d] = end - at;
    }
    *ret = r;
    return true;
}

void box_format(const struct box *b, char *to, size_t size)
{
    size_t n = 0;

    for (uint32_t d = 0; d <= b->n_dims && n < size; d++) {
        int more = d == b->n_dims
                       ? snprintf(to + n, size - n, d ? "]" : "[]")
                       : snprintf(to + n, size - n, "%s%llu:%llu",
                                  d ? ", " : "[",
                                  (unsigned long long)b->at[d],
                                  (unsigned long long)(b->at[d] + b->len[d]));

        n += more > 0 ? (size_t)more : 0;
    }
}

/* Elements between two neighbours in dimension `d`. */
static uint64_t stride(const struct box *b, uint32_t d)
{
    uint64_t n = 1;

    while (++d < b->n_dims) {
        n *= b->len[d];
    }
    return n;
}

uint64_t box_first(const struct box *whole, const struct box *part)
{
    uint64_t place = 0;

    for (uint32_t d = 0; d < whole->n_dims; d++) {
        place += (part->at[d] - whole->at[d]) * stride(whole, d);
    }
    return place;
}

uint64_t box_end(const struct box *whole, const struct box *part)
{
    uint64_t place = 0;

    for (uint32_t d = 0; d < whole->n_dims; d++) {
        place += (part->at[d] + part->len[d] - 1 - whole->at[d]) *
                 stride(whole, d);
    }
    return place + 1;
}

/* --- copying --- */

/* From which dimension on the part is as long as both boxes: what lies together
 * in both. */
static uint32_t first_whole_dim(const struct box *part, const struct box *a,
                                const struct box *b)
{
    uint32_t d = part->n_dims;

    while (d > 0 && part->len[d - 1] == a->len[d - 1] &&
           part->len[d - 1] == b->len[d - 1]) {
        d--;
    }
    return d;
}

/* The runs of bytes of a part that lie together in both boxes, one after the other. */
struct walk {
    uint32_t n_dims; /* that are walked */
    uint64_t run;    /* bytes */
    uint64_t len[BOX_MAX_DIMS], to_step[BOX_MAX_DIMS], from_step[BOX_MAX_DIMS];
    uint64_t i[BOX_MAX_DIMS];
    uint64_t to, from; /* bytes behind the first one, in each */
};

static void walk_begin(struct walk *w, const struct box *part, size_t size,
                       const struct box *to, const struct box *from)
{
    uint32_t whole = first_whole_dim(part, to, from);

    w->n_dims = whole ? whole - 1 : 0;
    w->run = size;
    w->to = 0;
    w->from = 0;
    for (uint32_t d = w->n_dims; d < part->n_dims; d++) {
        w->run *= part->len[d];
    }
    for (uint32_t d = 0; d < w->n_dims; d++) {
        w->len[d] = part->len[d];
        w->to_step[d] = stride(to, d) * size;
        w->from_step[d] = stride(from, d) * size;
        w->i[d] = 0;
    }
}

/* False behind the last one. */
static bool walk_on(struct walk *w)
{
    for (uint32_t d = w->n_dims; d-- > 0;) {
        w->to += w->to_step[d];
        w->from += w->from_step[d];
        if (++w->i[d] < w->len[d]) {
            return true;
        }
        w->to -= w->to_step[d] * w->i[d];
        w->from -= w->from_step[d] * w->i[d];
        w->i[d] = 0;
    }
    return false;
}

/* From the first run to the first that ends behind a place in `from`; false if none
 * does. */
static bool walk_to(struct walk *w, uint64_t place)
{
    bool is_behind = false; /* of all runs with these first indices */

    for (uint32_t d = 0; d < w->n_dims; d++) {
        uint64_t i = is_behind ? w->len[d] - 1 : place / w->from_step[d];

        if (i >= w->len[d]) {
            i = w->len[d] - 1;
            is_behind = true;
        }
        w->i[d] = i;
        w->to += i * w->to_step[d];
        w->from += i * w->from_step[d];
        place -= is_behind ? 0 : i * w->from_step[d];
    }
    return (!is_behind && place < w->run) || walk_on(w);
}

void box_copy_bytes(const struct box *part, size_t size, void *to,
                    const struct box *to_box, const void *from,
                    const struct box *from_box, uint64_t begin, uint64_t end)
{
    struct walk w;

    if (box_is_empty(part)) {
        return;
    }
    walk_begin(&w, part, size, to_box, from_box);
    for (bool more = walk_to(&w, begin); more && w.from < end; more = walk_on(&w)) {
        uint64_t a = w.from > begin ? w.from : begin;
        uint64_t b = w.from + w.run < end ? w.from + w.run : end;

        memcpy((char *)to + w.to + (a - w.from), (const char *)from + (a - begin),
               b - a);
    }
}

void box_copy(const struct box *part, size_t size, void *to,
              const struct box *to_box, const void *from,
              const struct box *from_box)
{
    box_copy_bytes(part, size, to, to_box, from, from_box, 0, UINT64_MAX);
}

uint64_t box_next_byte(const struct box *part, size_t size, const struct box *whole,
                       uint64_t place)
{
    struct walk w;

    if (box_is_empty(part)) {
        return UINT64_MAX;
    }
    walk_begin(&w, part, size, whole, whole);
    return !walk_to(&w, place) ? UINT64_MAX : w.from > place ? w.from : place;
}

bool box_is_together(const struct box *part, const struct box *whole)
{
    uint32_t d = first_whole_dim(part, whole, whole);

    for (uint32_t k = 0; k + 1 < d; k++) {
        if (part->len[k] != 1) {
            return false;
        }
    }
    return true;
}

/* --- flat ranges --- */

/* The box of `n` neighbours in dimension `d`, whole in those behind it, that
 * begins at a place. */
static struct box rows_at(const struct box *whole, uint64_t place, uint32_t d,
                          uint64_t n)
{
    struct box b = *whole;

    for (uint32_t k = 0; k <= d && k < whole->n_dims; k++) {
        uint64_t step = stride(whole, k);

        b.at[k] = whole->at[k] + place / step;
        b.len[k] = 1;
        place %= step;
    }
    if (d < whole->n_dims) {
        b.len[d] = n;
    }
    return b;
}

/* How many neighbours in dimension `d`, whole in those behind it, begin at `begin`
 * and end before `end` and in one row of the dimension before. */
static uint64_t rows_from(const struct box *whole, uint32_t d, uint64_t begin,
                          uint64_t end)
{
    uint64_t step = stride(whole, d);
    uint64_t left = whole->len[d] - begin / step % whole->len[d];
    uint64_t n = (end - begin) / step;

    return begin % step ? 0 : n < left ? n : left;
}

size_t box_from_flat(const struct box *whole, uint64_t begin, uint64_t end,
                     struct box *ret)
{
    size_t n = 0;

    if (whole->n_dims == 0 && begin < end) {
        ret[n++] = *whole;
        return n;
    }
    while (begin < end) {
        uint32_t d = 0;

        while (rows_from(whole, d, begin, end) == 0) {
            d++; /* the last dimension has steps of one */
        }
        ret[n] = rows_at(whole, begin, d, rows_from(whole, d, begin, end));
        begin += ret[n].len[d] * stride(whole, d);
        n++;
    }
    return n;
}
