/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void plan_release(struct plan *p)
{
    free(p->pieces);
    free(p->spans);
    *p = (struct plan){0};
}

/* Nearly all chunks of a large tensor are somewhere else: told by their first
 * dimension alone. */
static bool is_apart(const struct index_tensor *t, const struct index_chunk *c,
                     const struct box *want)
{
    return t->n_dims > 0 && (c->at[0] >= want->at[0] + want->len[0] ||
                             want->at[0] >= c->at[0] + c->len[0]);
}

static struct plan_piece *add_piece(struct plan *p, size_t *room)
{
    struct plan_piece *fresh;

    if (p->n_pieces == *room) {
        *room = *room ? 2 * *room : 64;
        fresh = reallocarray(p->pieces, *room, sizeof(*fresh));
        if (!fresh) {
            return NULL;
        }
        p->pieces = fresh;
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

/* The bytes of the file that a part of a chunk spans. */
static void find_bytes(const struct index_tensor *t,
                       const struct index_chunk *c, const struct box *chunk,
                       const struct box *part, struct plan_piece *ret)
{
    uint32_t bits = dtype_bits(t->dtype);

    ret->file = c->file;
    ret->begin = c->begin + box_first(chunk, part) * bits / 8;
    ret->end = c->begin + box_end(chunk, part) * bits / 8;
}

static int add_want(const struct index *x, const struct plan_want *want,
                    size_t place, struct plan *p, size_t *room, struct error *e)
{
    struct index_tensor t = index_tensor(x, want->tensor);
    uint64_t volume = 0, bytes = 0;
    int rc = check_want(&t, &want->box, e);

    for (size_t i = 0; i < t.n_chunks && rc == 0; i++) {
        struct index_chunk c = index_chunk(x, &t, want->tensor, i);
        struct plan_piece *piece;
        struct box chunk, part;

        if (is_apart(&t, &c, &want->box)) {
            continue;
        }
        chunk = index_chunk_box(&t, &c);
        if (!box_meet(&chunk, &want->box, &part)) {
            continue;
        }
        piece = add_piece(p, room);
        if (!piece) {
            return error_set(e, ENOMEM, "plan to read");
        }
        *piece = (struct plan_piece){.want = place, .chunk = i};
        find_bytes(&t, &c, &chunk, &part, piece);
    }
    if (rc == 0 && box_volume(&want->box, &volume) &&
        dtype_bytes(t.dtype, volume, &bytes)) {
        p->n_wanted_bytes += bytes;
    }
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct plan_piece *x = a, *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Whether a piece is read together with those before it. */
static bool joins(const struct plan_span *s, const struct plan_piece *p,
                  uint64_t max_bytes, uint64_t gap_bytes)
{
    uint64_t end = p->end > s->end ? p->end : s->end;

    if (p->file != s->file) {
        return false;
    }
    if (p->end <= s->end) {
        return true;
    }
    return (p->begin <= s->end || p->begin - s->end <= gap_bytes) &&
           end - s->begin <= max_bytes;
}

static int make_spans(struct plan *p, uint64_t max_bytes, uint64_t gap_bytes,
                      struct error *e)
{
    p->spans = calloc(p->n_pieces + 1, sizeof(*p->spans));
    if (!p->spans) {
        return error_set(e, ENOMEM, "plan to read");
    }
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct plan_piece *piece = &p->pieces[i];
        struct plan_span *s = p->n_spans ? &p->spans[p->n_spans - 1] : NULL;

        if (!s || !joins(s, piece, max_bytes, gap_bytes)) {
            s = &p->spans[p->n_spans++];
            *s = (struct plan_span){.file = piece->file, .begin = piece->begin,
                                    .end = piece->end, .first = i};
        }
        s->end = piece->end > s->end ? piece->end : s->end;
        s->n++;
    }
    for (size_t i = 0; i < p->n_spans; i++) {
        p->n_read_bytes += p->spans[i].end - p->spans[i].begin;
    }
    return 0;
}

int plan_make(const struct index *x, const struct plan_want *wants, size_t n,
              uint64_t max_bytes, uint64_t gap_bytes, struct plan *ret,
              struct error *e)
{
    _plan_ struct plan p = {0};
    size_t room = 0;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = add_want(x, &wants[i], i, &p, &room, e);
    }
    if (rc == 0) {
        if (p.n_pieces) {
            qsort(p.pieces, p.n_pieces, sizeof(*p.pieces), by_place);
        }
        rc = make_spans(&p, max_bytes, gap_bytes, e);
    }
    if (rc == 0) {
        *ret = p;
        p = (struct plan){0};
    }
    return rc;
}

void plan_copy(const struct index *x, const struct plan_want *wants,
               const struct plan_piece *piece, const struct plan_span *span,
               const void *bytes, void *to)
{
    const struct plan_want *want = &wants[piece->want];
    struct index_tensor t = index_tensor(x, want->tensor);
    struct index_chunk c = index_chunk(x, &t, want->tensor, piece->chunk);
    struct box chunk = index_chunk_box(&t, &c), part;
    const char *from = (const char *)bytes + (piece->begin - span->begin);
    uint32_t bits = dtype_bits(t.dtype);

    if (bits % 8 != 0) {
        memcpy(to, from, piece->end - piece->begin);
        return;
    }
    if (box_meet(&chunk, &want->box, &part)) {
        to = (char *)to + box_first(&want->box, &part) * (bits / 8);
        box_copy(&part, bits / 8, to, &want->box, from, &chunk);
    }
}
