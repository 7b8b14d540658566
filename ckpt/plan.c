/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/plan.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/sort.h"
#include "ckpt/streamed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void plan_release(struct plan *p)
{
    free(p->pieces);
    free(p->spans);
    *p = (struct plan){0};
}

static struct box box_of(const struct index_tensor *t, const struct plan_want *w)
{
    struct box b = {.n_dims = t->n_dims};

    if (t->n_dims > 0) {
        memcpy(b.at, w->at, t->n_dims * sizeof(*b.at));
        memcpy(b.len, w->len, t->n_dims * sizeof(*b.len));
    }
    return b;
}

/* Nearly all chunks of a large tensor are somewhere else: told before more is made of
 * them. */
static bool is_apart(const struct index_tensor *t, const struct index_chunk *c,
                     const struct box *want)
{
    bool is = false;

    for (uint32_t d = 0; d < t->n_dims && !is; d++) {
        is = c->at[d] >= want->at[d] + want->len[d] ||
             want->at[d] >= c->at[d] + c->len[d];
    }
    return is;
}

static struct plan_piece *add_piece(struct plan *p, size_t *room)
{
    struct plan_piece *fresh;

    if (p->n_pieces == *room) {
        fresh = reallocarray(p->pieces, 2 * *room, sizeof(*fresh));
        if (!fresh) {
            return NULL;
        }
        p->pieces = fresh;
        *room *= 2;
    }
    return &p->pieces[p->n_pieces++];
}

/* Of elements that are smaller than a byte only all are found by their places. */
static int check_want(const struct index_tensor *t, const struct box *want,
                      struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape);
    char text[200];

    if (!box_contains(&whole, want)) {
        box_format(want, text, sizeof(text));
        return error_text(e, EINVAL, "tensor '%.*s' has no %s",
                          (int)(t->name_len < 200 ? t->name_len : 200), t->name,
                          text);
    }
    if (dtype_bits(t->dtype) % 8 != 0 &&
        (!box_equal(&whole, want) || t->n_chunks != 1)) {
        return error_text(e, EINVAL, "tensor '%.*s': elements of %u bits can "
                          "only be read all together, from one piece",
                          (int)(t->name_len < 200 ? t->name_len : 200), t->name,
                          dtype_bits(t->dtype));
    }
    return 0;
}

/* A part of a chunk, and where that lies. */
struct source {
    const struct box *chunk, *part; /* only of what is not together */
    uint64_t begin, end; /* the bytes of the file from its first element to its last */
    bool is_together;    /* there, and in the wanted box */
    uint64_t to;         /* where its first byte goes in that */
};

static struct source find_source(const struct index_tensor *t,
                                 const struct index_chunk *c, const struct box *chunk,
                                 const struct box *part, const struct box *want)
{
    uint32_t bits = dtype_bits(t->dtype);

    return (struct source){
        .chunk = chunk, .part = part,
        .begin = c->begin + box_first(chunk, part) * bits / 8,
        .end = c->begin + box_end(chunk, part) * bits / 8,
        .is_together = box_is_together(part, chunk) && box_is_together(part, want),
        .to = box_first(want, part) * bits / 8,
    };
}

/* A piece in each block that it has bytes in. */
static int add_source(struct plan *p, size_t *room, const struct source *s,
                      size_t size, uint64_t block_bytes, const struct plan_piece *like,
                      struct error *e)
{
    uint64_t at = s->begin;

    while (at < s->end) {
        struct plan_piece *piece = add_piece(p, room);
        uint64_t end = at / block_bytes * block_bytes + block_bytes, next;

        if (!piece) {
            return error_set(e, ENOMEM, "plan to read");
        }
        *piece = *like;
        piece->begin = at;
        piece->end = end < s->end ? end : s->end;
        piece->to = s->is_together ? s->to + (at - s->begin) : PLAN_APART;
        at = end;
        if (!s->is_together && at < s->end) {
            next = box_next_byte(s->part, size, s->chunk, at - s->begin);
            at = next == UINT64_MAX ? s->end : s->begin + next;
        }
    }
    return 0;
}

/* A part of a tensor, of as many chunks as it meets. */
static int add_part(const struct index *x, const struct index_tensor *t,
                    const struct plan_want *want, size_t place, uint64_t block_bytes,
                    struct plan *p, size_t *room, struct error *e)
{
    struct box wanted = box_of(t, want);
    uint64_t row = t->n_dims ? want->at[0] : 0;
    size_t first = 0, end = t->n_chunks;
    int rc = check_want(t, &wanted, e);

    if (rc == 0 && t->n_dims > 0) {
        index_chunks_of_rows(x, t, want->tensor, row, row + want->len[0], &first, &end);
    }
    for (size_t i = first; i < end && rc == 0; i++) {
        struct index_chunk c = index_chunk(x, t, want->tensor, i);
        struct plan_piece like = {.want = place, .chunk = i, .file = c.file};
        struct box chunk, part;
        struct source from;

        if (is_apart(t, &c, &wanted)) {
            continue;
        }
        chunk = index_chunk_box(t, &c);
        if (!box_meet(&chunk, &wanted, &part)) {
            continue;
        }
        from = find_source(t, &c, &chunk, &part, &wanted);
        rc = add_source(p, room, &from, dtype_bits(t->dtype) / 8, block_bytes, &like, e);
    }
    return rc;
}

static int add_want(const struct index *x, const struct plan_want *want,
                    size_t place, uint64_t block_bytes, struct plan *p, size_t *room,
                    struct error *e)
{
    struct index_tensor t = index_tensor(x, want->tensor);
    struct plan_piece like = {.want = place};
    struct source from = {.is_together = true};
    struct index_chunk c;
    uint64_t volume = 0;

    if (t.n_chunks != 1 || !want->is_whole) {
        return add_part(x, &t, want, place, block_bytes, p, room, e);
    }
    c = index_chunk(x, &t, want->tensor, 0);
    if (!box_is_whole(t.n_dims, t.shape, c.at, c.len) ||
        !box_volume_of(t.n_dims, t.shape, &volume)) {
        return add_part(x, &t, want, place, block_bytes, p, room, e);
    }
    /* Most are saved and wanted whole: there is nothing to cut. */
    like.file = c.file;
    from.begin = c.begin;
    from.end = c.begin + volume * dtype_bits(t.dtype) / 8;
    return add_source(p, room, &from, dtype_bits(t.dtype) / 8, block_bytes, &like, e);
}

static struct sort_key place_of(const void *item)
{
    const struct plan_piece *p = item;

    return (struct sort_key){p->file, p->begin};
}

static int make_spans(struct plan *p, uint64_t block_bytes, struct error *e)
{
    p->spans = calloc(p->n_pieces + 1, sizeof(*p->spans));
    if (!p->spans) {
        return error_set(e, ENOMEM, "plan to read");
    }
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct plan_piece *piece = &p->pieces[i];
        struct plan_span *s = p->n_spans ? &p->spans[p->n_spans - 1] : NULL;

        if (!s || s->file != piece->file || s->end <= piece->begin) {
            uint64_t begin = piece->begin - piece->begin % block_bytes;

            s = &p->spans[p->n_spans++];
            *s = (struct plan_span){.file = piece->file, .begin = begin,
                                    .end = begin + block_bytes, .first = i};
        }
        s->n++;
    }
    return 0;
}

/* When a want's turn is: by their tensors, as most lie in files. To sort their pieces, which
 * are larger, would take longer. */
static struct sort_place *list_turns(const struct plan_want *wants, size_t n)
{
    _free_ struct sort_place *turns = pages_alloc(n + 1, sizeof(*turns));

    for (size_t i = 0; turns && i < n; i++) {
        turns[i] = (struct sort_place){wants[i].tensor, i};
    }
    return turns && sort_places(turns, n) == 0 ? take_ptr(&turns) : NULL;
}

int plan_make(const struct index *x, const struct plan_want *wants, size_t n,
              uint64_t block_bytes, struct plan *ret, struct error *e)
{
    _free_ struct sort_place *turns = list_turns(wants, n);
    size_t room = n + n / 8 + 64; /* most lie in one block */
    _plan_ struct plan p = {.pieces = pages_alloc(room, sizeof(*p.pieces))};
    int rc = turns && p.pieces ? 0 : error_set(e, ENOMEM, "plan to read");

    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t place = turns[i].at;

        rc = add_want(x, &wants[place], place, block_bytes, &p, &room, e);
    }
    if (rc == 0 && sort_by_key(p.pieces, p.n_pieces, sizeof(*p.pieces), place_of) < 0) {
        rc = error_set(e, ENOMEM, "plan to read");
    }
    rc = rc < 0 ? rc : make_spans(&p, block_bytes, e);
    if (rc == 0) {
        *ret = p;
        p = (struct plan){0};
    }
    return rc;
}

static void copy_apart(const struct index *x, const struct plan_want *want,
                       const struct plan_piece *piece, uint64_t begin, uint64_t end,
                       const void *bytes, char *to)
{
    struct index_tensor t = index_tensor(x, want->tensor);
    struct index_chunk c = index_chunk(x, &t, want->tensor, piece->chunk);
    struct box chunk = index_chunk_box(&t, &c), wanted = box_of(&t, want), part;
    size_t size = dtype_bits(t.dtype) / 8;
    uint64_t first;

    if (box_meet(&chunk, &wanted, &part)) {
        first = c.begin + box_first(&chunk, &part) * size;
        box_copy_bytes(&part, size, to + box_first(&wanted, &part) * size, &wanted, bytes,
                       &chunk, begin - first, end - first);
    }
}

/* Of tensors of that size little is in a cache any more when they are all there. */
enum { STREAM_BYTES = 2 << 20 };

void plan_copy(const struct index *x, const struct plan_want *wants,
               const struct plan_piece *piece, uint64_t begin, uint64_t end,
               const void *bytes, void *to)
{
    uint64_t from = piece->begin > begin ? piece->begin : begin;
    const char *at = (const char *)bytes + (from - begin);

    end = piece->end < end ? piece->end : end;
    if (from >= end) {
        return;
    }
    if (piece->to == PLAN_APART) {
        copy_apart(x, &wants[piece->want], piece, from, end, at, to);
    } else {
        (piece->end - piece->begin < STREAM_BYTES ? near_copy : streamed_copy)(
            (char *)to + piece->to + (from - piece->begin), at, end - from);
    }
}
