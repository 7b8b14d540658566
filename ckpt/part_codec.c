/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part_priv.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/utf8.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void part_list_fields(struct part_arrays *a, struct array to[PART_N_FIELDS])
{
    struct array all[PART_N_FIELDS] = {
        [PART_NAMES] = {"names", DTYPE_U8, (void **)&a->names, 0},
        [PART_NAME_ENDS] = {"name_ends", DTYPE_U64, (void **)&a->name_ends, 0},
        [PART_DTYPES] = {"dtypes", DTYPE_U8, (void **)&a->dtypes, 0},
        [PART_N_DIMS] = {"n_dims", DTYPE_U8, (void **)&a->n_dims, 0},
        [PART_SHAPES] = {"shapes", DTYPE_U64, (void **)&a->shapes, 0},
        [PART_BOXES] = {"boxes", DTYPE_U64, (void **)&a->boxes, 0},
        [PART_BEGINS] = {"begins", DTYPE_U64, (void **)&a->begins, 0},
        [PART_BLOCKS] = {"blocks", DTYPE_U64, (void **)&a->blocks, 0},
    };

    memcpy(to, all, sizeof(all));
}

/* --- encoding --- */

/* How long the arrays are. */
static int count(const struct part *p, struct array f[PART_N_FIELDS], struct error *e)
{
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct part_piece *piece = &p->pieces[i];

        if (piece->n_dims > BOX_MAX_DIMS) {
            return error_text(e, EINVAL, "a tensor with %u dimensions, and at "
                              "most %d are allowed", piece->n_dims, BOX_MAX_DIMS);
        }
        if (!utf8_is_valid(piece->name)) {
            return error_text(e, EINVAL, "the name of a tensor is not UTF-8");
        }
        f[PART_NAMES].n += strlen(piece->name);
        f[PART_SHAPES].n += piece->n_dims;
    }
    f[PART_BOXES].n = 2 * f[PART_SHAPES].n;
    f[PART_NAME_ENDS].n = f[PART_DTYPES].n = f[PART_N_DIMS].n = f[PART_BEGINS].n = p->n_pieces;
    f[PART_BLOCKS].n = p->n_blocks;
    return 0;
}

static size_t put_numbers(uint64_t *to, const uint64_t *from, size_t n)
{
    if (n > 0) {
        memcpy(to, from, n * sizeof(*to));
    }
    return n;
}

static void fill(const struct part *p, struct part_arrays *a)
{
    size_t name = 0, shape = 0, box = 0;

    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct part_piece *piece = &p->pieces[i];
        size_t len = strlen(piece->name);

        memcpy(a->names + name, piece->name, len);
        name += len;
        a->name_ends[i] = name;
        a->dtypes[i] = (uint8_t)piece->dtype;
        a->n_dims[i] = (uint8_t)piece->n_dims;
        a->begins[i] = piece->begin;
        shape += put_numbers(a->shapes + shape, piece->shape, piece->n_dims);
        box += put_numbers(a->boxes + box, piece->at, piece->n_dims);
        box += put_numbers(a->boxes + box, piece->len, piece->n_dims);
    }
    put_numbers(a->blocks, p->blocks, p->n_blocks);
}

static int put_digest(struct buf *b, struct error *e)
{
    uint64_t digest = digest_short_of(b->data, b->len);

    buf_append(b, &digest, sizeof(digest));
    return b->failed ? error_set(e, ENOMEM, "write a part") : 0;
}

int part_encode(const struct part *p, struct buf *b, struct error *e)
{
    struct part_arrays a = {0}; /* where they go in `b` */
    struct array fields[PART_N_FIELDS];
    struct st_meta meta[PART_N_META];
    int rc;

    part_list_fields(&a, fields);
    rc = count(p, fields, e);
    if (rc < 0) {
        return rc;
    }
    rc = part_make_meta(p, meta) ? arrays_make_room(fields, PART_N_FIELDS, meta, PART_N_META, b, e)
                            : error_set(e, ENOMEM, "write the part of rank %u", p->rank);
    part_free_meta(meta);
    if (rc < 0) {
        return rc;
    }
    fill(p, &a);
    return put_digest(b, e);
}

static int check_digest(const char *data, size_t len, struct error *e)
{
    uint64_t digest;

    if (len < PART_DIGEST_BYTES) {
        return error_text(e, ERR_FORMAT, "the part is cut");
    }
    memcpy(&digest, data + len - PART_DIGEST_BYTES, sizeof(digest));
    if (digest != digest_short_of(data, len - PART_DIGEST_BYTES)) {
        return error_text(e, ERR_FORMAT, "the part is cut or damaged: its %zu "
                          "bytes do not have their digest", len);
    }
    return 0;
}

int part_find(const void *data, size_t len, struct array fields[PART_N_FIELDS],
              struct st_file *ret, struct error *e)
{
    int rc = check_digest(data, len, e);

    return rc < 0 ? rc : arrays_find(data, len - PART_DIGEST_BYTES, "part", fields,
                                     PART_N_FIELDS, ret, e);
}

int part_finish(const void *part, size_t len, const uint64_t *blocks,
                size_t n_blocks, struct buf *ret, struct error *e)
{
    struct part_arrays a = {0}; /* where they lie in `part` */
    _st_file_ struct st_file f = {0};
    struct array fields[PART_N_FIELDS];
    uint64_t bytes = 0;
    int rc;

    part_list_fields(&a, fields);
    rc = part_find(part, len, fields, &f, e);
    rc = rc < 0 ? rc : part_take_bytes(&f, &bytes, e);
    if (rc == 0 && n_blocks != digest_n_blocks(bytes)) {
        rc = error_text(e, ERR_FORMAT, "the part: a file of %llu bytes has no %zu blocks",
                        (unsigned long long)bytes, n_blocks);
    }
    fields[PART_BLOCKS].data = (void *)&blocks;
    fields[PART_BLOCKS].n = n_blocks;
    rc = rc < 0 ? rc : arrays_encode(fields, PART_N_FIELDS, f.meta, f.n_meta, ret, e);
    part_list_fields(&a, fields);
    arrays_free(part, len, fields, PART_N_FIELDS);
    return rc < 0 ? rc : put_digest(ret, e);
}

/* How long its arrays are. */
static bool read_lengths(const struct buf *b, struct array fields[PART_N_FIELDS],
                         uint64_t *ret_header)
{
    _st_file_ struct st_file f = {0};
    uint8_t prefix[ST_PREFIX_BYTES];
    size_t n_found = 0;
    uint64_t n;

    if (b->len < sizeof(prefix) + PART_DIGEST_BYTES) {
        return false;
    }
    memcpy(prefix, b->data, sizeof(prefix));
    if (st_header_bytes(prefix, b->len - PART_DIGEST_BYTES, &n, NULL) < 0 ||
        st_read(b->data + sizeof(prefix), n, b->len - PART_DIGEST_BYTES, &f, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < f.n_tensors; i++) {
        for (size_t k = 0; k < PART_N_FIELDS; k++) {
            if (f.tensors[i].n_dims == 1 &&
                strcmp(f.tensors[i].name, fields[k].name) == 0) {
                fields[k].n = f.tensors[i].shape[0];
                n_found++;
            }
        }
    }
    *ret_header = f.data_at;
    return n_found == PART_N_FIELDS;
}

bool part_encode_again(const struct part *p, struct buf *b)
{
    struct part_arrays none = {0};
    struct array fields[PART_N_FIELDS];
    struct st_meta meta[PART_N_META];
    _buf_ struct buf header = {0};
    uint64_t n = 0;
    bool is_as_long;

    part_list_fields(&none, fields);
    if (!read_lengths(b, fields, &n)) {
        return false;
    }
    is_as_long = part_make_meta(p, meta) &&
                 arrays_encode_header(fields, PART_N_FIELDS, meta, PART_N_META, &header,
                                      NULL) == 0 && header.len == n;
    part_free_meta(meta);
    if (is_as_long) {
        memcpy(b->data, header.data, n);
    }
    return is_as_long;
}

void part_seal(struct buf *b)
{
    uint64_t digest = digest_short_of(b->data, b->len - PART_DIGEST_BYTES);

    memcpy(b->data + b->len - PART_DIGEST_BYTES, &digest, sizeof(digest));
}

/* --- decoding --- */

static int check_lengths(const struct array f[PART_N_FIELDS],
                         const struct part_arrays *a, struct error *e)
{
    size_t n = f[PART_NAME_ENDS].n, dims = 0;
    uint64_t at = 0;
    bool is_sound = f[PART_DTYPES].n == n && f[PART_N_DIMS].n == n && f[PART_BEGINS].n == n;

    for (size_t i = 0; i < n && is_sound; i++) {
        is_sound = a->name_ends[i] >= at && a->dtypes[i] < N_DTYPES &&
                   a->n_dims[i] <= BOX_MAX_DIMS;
        at = a->name_ends[i];
        dims += a->n_dims[i];
    }
    if (!is_sound || at != f[PART_NAMES].n || f[PART_SHAPES].n != dims ||
        f[PART_BOXES].n != 2 * dims) {
        return error_text(e, ERR_FORMAT, "the part has arrays that do not "
                          "belong together");
    }
    return 0;
}

/* Names with a zero byte behind each, and the numbers: what pieces borrow. */
static int keep(struct part *p, const struct part_arrays *a, const struct array *f,
                struct error *e)
{
    size_t n = f[PART_NAME_ENDS].n, numbers = f[PART_SHAPES].n + f[PART_BOXES].n;
    size_t n_blocks = f[PART_BLOCKS].n;
    uint64_t *shape = pages_alloc(1, numbers * sizeof(*shape) + f[PART_NAMES].n + n + 1);
    uint64_t *box, at = 0;
    char *name;

    p->memory = shape;
    p->pieces = pages_alloc(n + 1, sizeof(*p->pieces));
    p->blocks = calloc(n_blocks + 1, sizeof(*p->blocks));
    if (!shape || !p->pieces || !p->blocks) {
        return error_set(e, ENOMEM, "read a part");
    }
    box = shape + put_numbers(shape, a->shapes, f[PART_SHAPES].n);
    put_numbers(box, a->boxes, f[PART_BOXES].n);
    name = (char *)(shape + numbers);
    for (size_t i = 0; i < n; i++) {
        uint32_t d = a->n_dims[i];
        size_t len = a->name_ends[i] - at;

        memcpy(name, a->names + at, len);
        name[len] = '\0';
        p->pieces[i] = (struct part_piece){name, (enum dtype)a->dtypes[i], d,
                                           shape, box, box + d, a->begins[i]};
        name += len + 1;
        at = a->name_ends[i];
        shape += d;
        box += 2 * (size_t)d;
    }
    p->n_pieces = n;
    p->n_blocks = put_numbers(p->blocks, a->blocks, n_blocks);
    return 0;
}

static bool count_bytes(const struct part_piece *p, const uint64_t *len, uint64_t *ret)
{
    uint64_t n;

    return box_volume_of(p->n_dims, len, &n) && dtype_bytes(p->dtype, n, ret);
}

/* As box_contains(), of boxes that nobody has to make of their numbers first: there are many. */
static bool lies_in_tensor(const struct part_piece *p)
{
    bool is = true;

    for (uint32_t d = 0; d < p->n_dims && is; d++) {
        is = p->at[d] <= p->shape[d] && p->len[d] <= p->shape[d] - p->at[d];
    }
    return is;
}

static int check_piece(const struct part *p, const struct part_piece *piece,
                       size_t name_len, struct error *e)
{
    uint64_t bytes, end = 0;
    bool is_sound = count_bytes(piece, piece->shape, &bytes) && lies_in_tensor(piece) &&
                    count_bytes(piece, piece->len, &bytes) &&
                    !__builtin_add_overflow(piece->begin, bytes, &end);

    if (!is_sound || strlen(piece->name) != name_len ||
        !utf8_is_valid(piece->name) ||
        (p->uuid[0] && end > p->file_bytes)) {
        return error_text(e, ERR_FORMAT, "the part of rank %u has a piece that "
                          "does not lie in its tensor or in its file", p->rank);
    }
    return 0;
}

int part_decode(const void *data, size_t len, struct part *ret,
                struct error *e)
{
    struct part_arrays a = {0}; /* where they lie in `data` */
    _part_ struct part p = {0};
    _st_file_ struct st_file f = {0};
    struct array fields[PART_N_FIELDS];
    uint64_t at = 0;
    int rc;

    part_list_fields(&a, fields);
    rc = part_find(data, len, fields, &f, e);
    rc = rc < 0 ? rc : part_take_meta(&f, &p, e);
    rc = rc < 0 ? rc : check_lengths(fields, &a, e);
    rc = rc < 0 ? rc : keep(&p, &a, fields, e);
    for (size_t i = 0; i < p.n_pieces && rc == 0; i++) {
        rc = check_piece(&p, &p.pieces[i], a.name_ends[i] - at, e);
        at = a.name_ends[i];
    }
    arrays_free(data, len, fields, PART_N_FIELDS);
    if (rc == 0) {
        *ret = p;
        p = (struct part){0};
    }
    return rc;
}
