/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_priv.h"

#include <stdlib.h>
#include <string.h>

size_t index_n_tensors(const struct index *x)
{
    return x->n;
}

size_t index_n_files(const struct index *x)
{
    return x->f;
}

const uint64_t *index_blocks(const struct index *x, size_t file, size_t *ret_n)
{
    size_t at = file ? x->block_ends[file - 1] : 0;

    *ret_n = x->block_ends[file] - at;
    return x->blocks + at;
}

size_t index_n_chunks(const struct index *x)
{
    return x->m;
}

struct index_tensor index_tensor(const struct index *x, size_t i)
{
    size_t name = i ? x->name_ends[i - 1] : 0;
    size_t chunk = i ? x->chunk_ends[i - 1] : 0;

    return (struct index_tensor){
        .name = x->names + name,
        .name_len = x->name_ends[i] - name,
        .dtype = (enum dtype)x->dtypes[i],
        .n_dims = x->n_dims[i],
        .shape = x->shapes + x->shape_at[i],
        .first_chunk = chunk,
        .n_chunks = x->chunk_ends[i] - chunk,
    };
}

struct index_chunk index_chunk(const struct index *x,
                               const struct index_tensor *t, size_t i,
                               size_t chunk)
{
    const uint64_t *box = x->chunk_boxes + x->box_at[i] +
                          chunk * 2 * t->n_dims;

    return (struct index_chunk){
        .file = x->chunk_files[t->first_chunk + chunk],
        .begin = x->chunk_begins[t->first_chunk + chunk],
        .at = box,
        .len = box + t->n_dims,
    };
}

/* The first chunk of a loaf that ends behind a row, or that begins at it or behind. */
static size_t first_behind(const struct index *x, const struct index_tensor *t, size_t i,
                           uint64_t row, bool is_by_end)
{
    const uint64_t *boxes = x->chunk_boxes + x->box_at[i];
    size_t low = 0, high = t->n_chunks;

    while (low < high) {
        size_t k = low + (high - low) / 2;
        const uint64_t *box = boxes + k * 2 * t->n_dims;

        if (is_by_end ? box[0] + box[t->n_dims] > row : box[0] >= row) {
            high = k;
        } else {
            low = k + 1;
        }
    }
    return low;
}

void index_chunks_of_rows(const struct index *x, const struct index_tensor *t, size_t i,
                          uint64_t begin, uint64_t end, size_t *ret_first,
                          size_t *ret_end)
{
    *ret_first = x->is_loaf[i] ? first_behind(x, t, i, begin, true) : 0;
    *ret_end = !x->is_loaf[i] ? t->n_chunks
               : begin < end  ? first_behind(x, t, i, end, false)
                              : *ret_first;
}

struct box index_chunk_box(const struct index_tensor *t,
                           const struct index_chunk *c)
{
    struct box b = {.n_dims = t->n_dims};

    memcpy(b.at, c->at, t->n_dims * sizeof(*b.at));
    memcpy(b.len, c->len, t->n_dims * sizeof(*b.len));
    return b;
}

/* Less than 0: tensor `i` comes before that name. */
static int compare(const struct index *x, size_t i, const char *name, size_t len)
{
    struct index_tensor t = index_tensor(x, i);
    int order = memcmp(t.name, name, t.name_len < len ? t.name_len : len);

    return order ? order : t.name_len < len ? -1 : t.name_len > len;
}

/* From `near` on in steps that double, until it is passed: it lies in between. */
static void enclose(const struct index *x, const char *name, size_t len, size_t near,
                    size_t *low, size_t *high)
{
    size_t step = 1;

    if (near < x->n && compare(x, near, name, len) <= 0) {
        *low = near;
        while (x->n - *low > step && compare(x, *low + step, name, len) <= 0) {
            *low += step;
            step *= 2;
        }
        *high = x->n - *low > step ? *low + step : x->n;
    } else {
        *high = near < x->n ? near : x->n;
        while (*high > step && compare(x, *high - step, name, len) > 0) {
            *high -= step;
            step *= 2;
        }
        *low = *high > step ? *high - step : 0;
    }
}

size_t index_find_near(const struct index *x, const char *name, size_t near)
{
    size_t low, high, len = strlen(name);

    enclose(x, name, len, near, &low, &high);
    while (low < high) {
        size_t i = low + (high - low) / 2;
        int order = compare(x, i, name, len);

        if (order == 0) {
            return i;
        }
        if (order < 0) {
            low = i + 1;
        } else {
            high = i;
        }
    }
    return SIZE_MAX;
}

size_t index_find(const struct index *x, const char *name)
{
    return index_find_near(x, name, x->n / 2);
}

void index_destroy(struct index *x)
{
    if (x) {
        index_free_arrays(x);
        free(x->data);
        free(x->shape_at);
        free(x->box_at);
        free(x->is_loaf);
        free(x);
    }
}
