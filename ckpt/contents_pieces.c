/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a piece is wanted is read as it lies there, from its first to its last byte, and put
 * into the order of its rows. Of a transposed matrix that is nearly all of it, whichever rows
 * are wanted: so what was read last is kept, for who asks for the next ones.
 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "base/cleanup.h"
#include "ckpt/pickle_tree.h"
#include "ckpt/strided.h"
#include "ckpt/torch_archive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct contents_span {
    size_t file;
    uint64_t begin, end; /* in that; nothing is there where they are equal */
    uint64_t room;
    char *bytes;
};

/* --- which bytes --- */

/* Bytes [begin, end) of a file, in the order that they have there. */
static int read_span(const struct contents *c, size_t file, uint64_t begin, uint64_t end,
                     const char **ret, struct error *e)
{
    struct contents_span *s = c->span;
    int fd, rc;

    if (s->file == file && s->begin <= begin && end <= s->end) {
        *ret = s->bytes + (begin - s->begin);
        return 0;
    }
    if (s->room < end - begin) {
        free(s->bytes);
        *s = (struct contents_span){.room = end - begin, .bytes = malloc(end - begin)};
    }
    if (!s->bytes) {
        *s = (struct contents_span){0};
        return error_set(e, ENOMEM, "read %llu bytes of %s at once",
                         (unsigned long long)(end - begin), contents_file_name(c, file));
    }
    fd = contents_file_open(c, file, e);
    if (fd < 0) {
        return fd;
    }
    s->begin = s->end = 0;
    rc = io_read_all(c->io, fd, s->bytes, end - begin, begin);
    if (rc < 0) {
        return error_set(e, -rc, "read %s", contents_file_name(c, file));
    }
    s->file = file;
    s->begin = begin;
    s->end = end;
    *ret = s->bytes;
    return 0;
}

/* --- pieces that are archives --- */

static bool is_piece(const struct contents_tensor *t, const struct contents_piece *p,
                     const struct torch_tensor *is)
{
    return is->dtype == t->dtype && is->n_dims == t->n_dims &&
           (is->n_dims == 0 ||
            memcmp(is->shape, p->box.len, is->n_dims * sizeof(*is->shape)) == 0);
}

static int look_into(const struct contents *c, const struct contents_tensor *t,
                     struct contents_piece *p, int fd, struct error *e)
{
    _torch_archive_ struct torch_archive a = {0};
    _pickle_tree_ struct pickle_tree tree = {0};
    _free_ char *pickle = NULL;
    struct torch_tensor is = {0};
    size_t len = 0;
    int rc = torch_archive_open_at(c->io, fd, p->archive_at, p->archive_end, &a, e);

    rc = rc < 0 ? rc : contents_torch_check_order(c->io, fd, &a, e);
    rc = rc < 0 ? rc : torch_archive_pickle(c->io, fd, &a, &pickle, &len, e);
    rc = rc < 0 ? rc : pickle_tree_read(pickle, len, &tree, e);
    if (rc < 0) {
        return rc;
    }
    if (torch_tensor_of(tree.root, &is) != 1 || !is_piece(t, p, &is)) {
        return error_text(e, ERR_FORMAT, "it is another tensor than .metadata says");
    }
    rc = contents_torch_place(&a, &is, &p->begin, e);
    if (rc == 0) {
        p->is_strided = !contents_torch_is_dense(&is);
        memcpy(p->strides, is.strides, sizeof(p->strides));
        p->is_archive = false;
    }
    return rc;
}

static int find_piece(const struct contents *c, const struct contents_tensor *t,
                      struct contents_piece *p, struct error *e)
{
    char text[256];
    int fd, rc;

    if (!p->is_archive) {
        return 0;
    }
    fd = contents_file_open(c, p->file, e);
    rc = fd < 0 ? fd : look_into(c, t, p, fd, e);
    box_format(&p->box, text, sizeof(text));
    return rc < 0 ? error_wrap(e, "%s: piece %s of tensor '%.100s'",
                               contents_file_name(c, p->file), text, t->name)
                  : 0;
}

/* --- reading --- */

/* What of a piece is wanted, and where it goes. */
struct part {
    const struct contents_tensor *t;
    const struct contents_piece *piece;
    struct box box;
    const struct box *to_box;
    char *to; /* where the first element of that is */
    uint64_t size; /* of an element */
};

static int read_rows(const struct contents *c, const struct part *p, struct error *e)
{
    const struct box *whole = &p->piece->box;
    uint64_t first = box_first(whole, &p->box), end = box_end(whole, &p->box);
    const char *from = NULL;
    int rc = read_span(c, p->piece->file, p->piece->begin + first * p->size,
                       p->piece->begin + end * p->size, &from, e);

    if (rc == 0) {
        box_copy(&p->box, p->size, p->to + box_first(p->to_box, &p->box) * p->size, p->to_box,
                 from, whole);
    }
    return rc;
}

static int read_strided(const struct contents *c, const struct part *p, struct error *e)
{
    const int64_t *strides = p->piece->strides;
    struct strided s = {.dtype = p->t->dtype, .n_dims = p->box.n_dims, .len = p->box.len,
                        .strides = strides};
    uint64_t first = 0, last = 0, bytes = strided_bytes(&s);
    _free_ char *rows = malloc(bytes);
    const char *from = NULL;
    int rc;

    if (!rows) {
        return error_set(e, ENOMEM, "read tensor '%.100s'", p->t->name);
    }
    for (uint32_t d = 0; d < p->box.n_dims; d++) {
        first += (p->box.at[d] - p->piece->box.at[d]) * (uint64_t)strides[d];
        last += (p->box.len[d] - 1) * (uint64_t)strides[d];
    }
    rc = read_span(c, p->piece->file, p->piece->begin + first * p->size,
                   p->piece->begin + (first + last + 1) * p->size, &from, e);
    if (rc == 0) {
        s.data = (char *)from; /* which is only read */
        strided_get(&s, 0, bytes, rows);
        box_copy(&p->box, p->size, p->to + box_first(p->to_box, &p->box) * p->size, p->to_box,
                 rows, &p->box);
    }
    return rc;
}

/* All of `box` into `to`. */
static int read_box(const struct contents *c, const struct contents_tensor *t,
                    const struct box *box, char *to, struct error *e)
{
    struct part p = {.t = t, .to_box = box, .to = to, .size = dtype_bits(t->dtype) / 8};
    int rc = 0;

    for (size_t i = 0; i < t->n_pieces && rc == 0; i++) {
        if (!box_meet(&t->pieces[i].box, box, &p.box)) {
            continue;
        }
        p.piece = &t->pieces[i];
        rc = find_piece(c, t, &t->pieces[i], e);
        rc = rc < 0                  ? rc
             : p.piece->is_strided ? read_strided(c, &p, e)
                                   : read_rows(c, &p, e);
    }
    return rc;
}

int contents_read_pieces(const struct contents *c, const struct contents_tensor *t,
                         uint64_t begin, uint64_t end, void *to, struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape), boxes[BOX_MAX_FLAT];
    size_t n = box_from_flat(&whole, begin, end, boxes);
    char *at = to;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        uint64_t volume = 0, bytes = 0;

        box_volume(&boxes[i], &volume);
        dtype_bytes(t->dtype, volume, &bytes);
        rc = read_box(c, t, &boxes[i], at, e);
        at += bytes;
    }
    return rc;
}

void contents_span_release(struct contents *c)
{
    if (c->span) {
        free(c->span->bytes);
        free(c->span);
    }
}

int contents_span_create(struct contents *c)
{
    c->span = c->span ? c->span : calloc(1, sizeof(*c->span));
    return c->span ? 0 : -ENOMEM;
}
