/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/model_bed.h"

#include "ckpt/box.h"
#include "ckpt/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CUTS = 6, MAX_PIECES = 64, GAP = 0xa5 };

static const struct {
    const char *name;
    enum muster_dtype dtype;
    uint32_t n_dims;
    uint64_t shape[4];
} tensors[] = {
    {"embed.weight", MUSTER_F32, 2, {97, 12}},
    {"layer.0.norm", MUSTER_BF16, 1, {131}},
    {"layer.0.w", MUSTER_F64, 3, {7, 11, 5}},
    {"layer.1.w", MUSTER_F16, 4, {3, 5, 2, 9}},
    {"layer.1.mask", MUSTER_BOOL, 2, {8, 17}},
    {"layer.1.ids", MUSTER_I64, 1, {33}},
    {"step", MUSTER_I64, 0, {0}},
    {"empty", MUSTER_F32, 2, {0, 4}},
    {"nibbles", MUSTER_F4, 1, {10}},
    {"one", MUSTER_U8, 2, {1, 1}},
};
enum { N_TENSORS = sizeof(tensors) / sizeof(tensors[0]) };

struct piece {
    int tensor;
    struct box box;
    int64_t strides[BOX_MAX_DIMS];
    bool has_strides;
    unsigned char *memory; /* from its first byte to its last */
    size_t bytes;
};

struct model {
    size_t n;
    struct piece pieces[N_TENSORS * MAX_PIECES];
};

static uint64_t next(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t z = *seed;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static unsigned char value(int tensor, uint64_t byte, int64_t step)
{
    uint64_t seed = (uint64_t)step * 1000003 + (uint64_t)tensor * 7919 + byte;

    return (unsigned char)next(&seed);
}

static struct box whole_of(int tensor)
{
    return box_whole(tensors[tensor].n_dims, tensors[tensor].shape);
}

static size_t size_of(int tensor)
{
    uint32_t bits = dtype_bits((enum dtype)tensors[tensor].dtype);

    return bits % 8 ? 0 : bits / 8;
}

static void fail(const char *why)
{
    fprintf(stderr, "model: %s\n", why);
    abort();
}

/* --- memory --- */

/* Rows one after the other; or with gaps behind each; or with the dimensions in
 * another order. */
static void choose_strides(struct piece *p, uint64_t kind, uint64_t *ret_n)
{
    uint32_t n = p->box.n_dims;
    uint64_t step = 1;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = kind == 2 ? i : n - 1 - i;

        p->strides[d] = (int64_t)step;
        step *= p->box.len[d] + (kind == 1 && i == 0 ? 3 : 0);
    }
    p->has_strides = kind > 0;
    *ret_n = step;
}

static void add_memory(struct piece *p, uint64_t kind)
{
    size_t size = size_of(p->tensor);
    uint64_t n = 1, volume = 0;

    if (size == 0) {
        box_volume(&p->box, &volume);
        p->bytes = volume / 2;
    } else {
        choose_strides(p, kind, &n);
        p->bytes = n * size;
    }
    p->memory = malloc(p->bytes + 1);
    if (!p->memory) {
        fail("no memory");
    }
    memset(p->memory, GAP, p->bytes + 1);
}

static void add_piece(struct model *m, struct muster_ckpt *ck, int tensor,
                      const struct box *box, uint64_t kind)
{
    struct piece *p = &m->pieces[m->n++];
    struct muster_ckpt_tensor t = {
        .name = tensors[tensor].name, .dtype = tensors[tensor].dtype,
        .n_dims = tensors[tensor].n_dims, .shape = tensors[tensor].shape,
        .at = p->box.at, .len = p->box.len,
    };

    *p = (struct piece){.tensor = tensor, .box = *box};
    add_memory(p, kind);
    t.data = p->memory;
    t.strides = p->has_strides ? p->strides : NULL;
    if (muster_ckpt_tensor(ck, &t) < 0) {
        fail(muster_ckpt_error_text(ck));
    }
}

/* --- cuts --- */

/* Pieces of a tensor; each goes to a rank, or to two or three. */
static void cut_boxes(struct model *m, struct muster_ckpt *ck, int tensor,
                      uint32_t rank, uint32_t world, uint64_t *seed)
{
    struct box boxes[MAX_CUTS + 1] = {whole_of(tensor)};
    uint64_t n_cuts = size_of(tensor) ? next(seed) % MAX_CUTS : 0;
    size_t n = 1;

    for (uint64_t i = 0; i < n_cuts && boxes[0].n_dims > 0; i++) {
        struct box *b = &boxes[next(seed) % n];
        uint32_t d = (uint32_t)(next(seed) % b->n_dims);
        uint64_t at = b->len[d] ? next(seed) % (b->len[d] + 1) : 0;

        boxes[n] = *b;
        boxes[n].at[d] += at;
        boxes[n].len[d] -= at;
        b->len[d] = at;
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t n_holders = 1 + next(seed) % 3, first = next(seed);

        for (uint64_t k = 0; k < n_holders && k < world; k++) {
            uint64_t kind = next(seed) % 3;

            if ((first + k) % world == rank) {
                add_piece(m, ck, tensor, &boxes[i],
                          size_of(tensor) ? kind : 0);
            }
        }
    }
}

/* One range a rank, with the same memory as boxes of it that were loaded. */
static void cut_flat(struct model *m, struct muster_ckpt *ck, int tensor,
                     uint32_t rank, uint32_t world)
{
    struct muster_ckpt_tensor t = {
        .name = tensors[tensor].name, .dtype = tensors[tensor].dtype,
        .n_dims = tensors[tensor].n_dims, .shape = tensors[tensor].shape,
        .is_flat = 1,
    };
    struct box whole = whole_of(tensor), boxes[BOX_MAX_FLAT];
    uint64_t volume = 0, part, n;
    unsigned char *memory;

    box_volume(&whole, &volume);
    part = volume / world + 1; /* the last ranks may have none */
    t.flat_begin = rank * part < volume ? rank * part : volume;
    t.flat_end = t.flat_begin + part < volume ? t.flat_begin + part : volume;
    n = box_from_flat(&whole, t.flat_begin, t.flat_end, boxes);
    memory = malloc((t.flat_end - t.flat_begin) * size_of(tensor) + 1);
    if (!memory) {
        fail("no memory");
    }
    t.data = memory;
    if (muster_ckpt_tensor(ck, &t) < 0) {
        fail(muster_ckpt_error_text(ck));
    }
    for (uint64_t i = 0; i < n; i++) {
        struct piece *p = &m->pieces[m->n++];
        uint64_t count = 0, ignored;

        *p = (struct piece){.tensor = tensor, .box = boxes[i]};
        choose_strides(p, 0, &ignored);
        box_volume(&boxes[i], &count);
        p->memory = memory;
        p->bytes = count * size_of(tensor);
        memory += p->bytes;
    }
    if (n == 0) {
        free(memory);
    }
}

struct model *model_create(struct muster_ckpt *ck, uint32_t rank,
                           uint32_t world, uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));

    if (!m) {
        fail("no memory");
    }
    for (int t = 0; t < N_TENSORS; t++) {
        uint64_t kind = next(&seed) % 4;
        uint64_t own = seed ^ (uint64_t)t << 32;

        if (kind == 0 && size_of(t) && tensors[t].n_dims > 0 &&
            tensors[t].shape[0] > 0) {
            cut_flat(m, ck, t, rank, world);
        } else {
            cut_boxes(m, ck, t, rank, world, &own);
        }
    }
    return m;
}

void model_destroy(struct model *m)
{
    const unsigned char *end = NULL;

    for (size_t i = 0; i < m->n; i++) {
        struct piece *p = &m->pieces[i];

        if (p->memory != end) { /* parts of one range have one memory */
            free(p->memory);
        }
        end = p->memory + p->bytes;
    }
    free(m);
}

/* --- values --- */

/* Calls `each` with every byte of a piece: where it is, and which of its tensor. */
static uint64_t walk(const struct piece *p,
                     uint64_t (*each)(unsigned char *at, int tensor,
                                      uint64_t byte, int64_t step),
                     int64_t step)
{
    struct box whole = whole_of(p->tensor);
    size_t size = size_of(p->tensor);
    uint64_t at[BOX_MAX_DIMS] = {0}, volume = 0, sum = 0;

    box_volume(&p->box, &volume);
    if (size == 0) {
        for (uint64_t i = 0; i < p->bytes; i++) {
            sum += each(p->memory + i, p->tensor, i, step);
        }
        return sum;
    }
    for (uint64_t i = 0; i < volume; i++) {
        int64_t offset = 0;
        uint64_t flat = 0;

        for (uint32_t d = 0; d < p->box.n_dims; d++) {
            offset += (int64_t)at[d] * p->strides[d];
            flat = flat * whole.len[d] + p->box.at[d] + at[d];
        }
        for (size_t b = 0; b < size; b++) {
            sum += each(p->memory + offset * (int64_t)size + b, p->tensor,
                        flat * size + b, step);
        }
        for (uint32_t d = p->box.n_dims; d-- > 0;) {
            if (++at[d] < p->box.len[d]) {
                break;
            }
            at[d] = 0;
        }
    }
    return sum;
}

static uint64_t set(unsigned char *at, int tensor, uint64_t byte, int64_t step)
{
    *at = value(tensor, byte, step);
    return 0;
}

static uint64_t differs(unsigned char *at, int tensor, uint64_t byte,
                        int64_t step)
{
    return *at != value(tensor, byte, step);
}

void model_set(struct model *m, int64_t step)
{
    for (size_t i = 0; i < m->n; i++) {
        walk(&m->pieces[i], set, step);
    }
}

uint64_t model_wrong(const struct model *m, int64_t step)
{
    uint64_t n = 0;

    for (size_t i = 0; i < m->n; i++) {
        n += walk(&m->pieces[i], differs, step);
        if (m->pieces[i].has_strides) {
            n += m->pieces[i].memory[m->pieces[i].bytes] != GAP;
        }
    }
    return n;
}
