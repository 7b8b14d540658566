/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/str.h"
#include "base/utf8.h"
#include "ckpt/arrays.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_FIELDS = 8, PART_VERSION = 1, DIGEST_BYTES = 8 };

/* The arrays of a file. */
struct arrays {
    char *names;
    uint64_t *name_ends;
    uint8_t *dtypes, *n_dims;
    uint64_t *shapes, *boxes, *begins, *blocks;
};

enum { NAMES, NAME_ENDS, DTYPES, N_DIMS, SHAPES, BOXES, BEGINS, BLOCKS };

static void list_fields(struct arrays *a, struct array to[N_FIELDS])
{
    struct array all[N_FIELDS] = {
        [NAMES] = {"names", DTYPE_U8, (void **)&a->names, 0},
        [NAME_ENDS] = {"name_ends", DTYPE_U64, (void **)&a->name_ends, 0},
        [DTYPES] = {"dtypes", DTYPE_U8, (void **)&a->dtypes, 0},
        [N_DIMS] = {"n_dims", DTYPE_U8, (void **)&a->n_dims, 0},
        [SHAPES] = {"shapes", DTYPE_U64, (void **)&a->shapes, 0},
        [BOXES] = {"boxes", DTYPE_U64, (void **)&a->boxes, 0},
        [BEGINS] = {"begins", DTYPE_U64, (void **)&a->begins, 0},
        [BLOCKS] = {"blocks", DTYPE_U64, (void **)&a->blocks, 0},
    };

    memcpy(to, all, sizeof(all));
}

/* --- metadata --- */

enum { N_META = 9 };

static char *number(uint64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    return strdup(text);
}

/* [["name", is_per_rank], ...] */
static char *list_blobs(const struct part *p)
{
    json_t *all = json_array();
    char *text;

    for (size_t i = 0; i < p->n_blobs; i++) {
        json_array_append_new(all, json_pack("[sb]", p->blobs[i].name,
                                             (int)p->blobs[i].is_per_rank));
    }
    text = json_array_size(all) == p->n_blobs ? json_dumps(all, JSON_COMPACT)
                                              : NULL;
    json_decref(all);
    return text;
}

static bool make_meta(const struct part *p, struct st_meta to[N_META])
{
    struct st_meta all[N_META] = {
        {(char *)"part", number(PART_VERSION)},   {(char *)"step", number(p->step)},
        {(char *)"uuid", strdup(p->uuid)},   {(char *)"rank", number(p->rank)},
        {(char *)"ranks", number(p->n_ranks)}, {(char *)"node", number(p->node)},
        {(char *)"bytes", number(p->file_bytes)}, {(char *)"blobs", list_blobs(p)},
        {(char *)"state", strdup(p->state ? p->state : "")},
    };
    bool is_whole = true;

    for (size_t i = 0; i < N_META; i++) {
        is_whole = is_whole && all[i].value;
        to[i] = all[i];
    }
    return is_whole;
}

static int take_number(const struct st_file *f, const char *key, uint64_t max,
                       uint64_t *ret, struct error *e)
{
    const char *text = st_meta(f, key);

    if (!text || str_to_u64(text, ret) < 0 || *ret > max) {
        return error_text(e, ERR_FORMAT, "the part has no '%s'", key);
    }
    return 0;
}

static int check_version(uint64_t version, struct error *e)
{
    return version == PART_VERSION
               ? 0
               : error_text(e, ERR_VERSION, "a part of format %llu, written by a newer muster",
                            (unsigned long long)version);
}

static int take_blobs(const char *text, struct part *p, struct error *e)
{
    json_t *all = text ? json_loads(text, 0, NULL) : NULL, *entry;
    size_t i;
    int rc = json_is_array(all) ? 0 : -ERR_FORMAT;

    p->blobs = calloc(json_array_size(all) + 1, sizeof(*p->blobs));
    rc = p->blobs ? rc : -ENOMEM;
    json_array_foreach(all, i, entry) {
        const char *name;
        int is_per_rank;

        if (rc < 0 || json_unpack(entry, "[sb!]", &name, &is_per_rank) < 0) {
            rc = rc < 0 ? rc : -ERR_FORMAT;
            break;
        }
        p->blobs[i].name = strdup(name);
        p->blobs[i].is_per_rank = is_per_rank;
        p->n_blobs++;
        rc = p->blobs[i].name ? 0 : -ENOMEM;
    }
    json_decref(all);
    if (rc == -ENOMEM) {
        return error_set(e, ENOMEM, "read a part");
    }
    return rc < 0 ? error_text(e, ERR_FORMAT, "the part has no 'blobs'") : 0;
}

static int take_state(const char *text, struct part *p, struct error *e)
{
    json_t *state;
    bool is_object;

    if (!text || !*text) {
        return 0;
    }
    state = json_loads(text, 0, NULL);
    is_object = json_is_object(state);
    json_decref(state);
    if (!is_object) {
        return error_text(e, ERR_FORMAT, "the part's state is no JSON object");
    }
    p->state = strdup(text);
    return p->state ? 0 : error_set(e, ENOMEM, "read a part");
}

static int take_meta(const struct st_file *f, struct part *p, struct error *e)
{
    const char *uuid = st_meta(f, "uuid");
    uint64_t version = 0, rank = 0, n_ranks = 0, node = 0;
    int rc = take_number(f, "part", UINT64_MAX, &version, e);

    rc = rc < 0 ? rc : check_version(version, e);
    rc = rc < 0 ? rc : take_number(f, "step", INT64_MAX, &p->step, e);
    rc = rc < 0 ? rc : take_number(f, "ranks", INT32_MAX, &n_ranks, e);
    rc = rc < 0 ? rc : take_number(f, "rank", INT32_MAX, &rank, e);
    rc = rc < 0 ? rc : take_number(f, "node", INT32_MAX, &node, e);
    rc = rc < 0 ? rc : take_number(f, "bytes", INT64_MAX, &p->file_bytes, e);
    if (rc == 0 && (rank >= n_ranks || !uuid ||
                    strlen(uuid) >= sizeof(p->uuid))) {
        rc = error_text(e, ERR_FORMAT, "the part has no uuid, or is of rank %llu "
                        "of %llu", (unsigned long long)rank,
                        (unsigned long long)n_ranks);
    }
    if (rc < 0) {
        return rc;
    }
    p->rank = (uint32_t)rank;
    p->n_ranks = (uint32_t)n_ranks;
    p->node = (uint32_t)node;
    str_copy(p->uuid, sizeof(p->uuid), uuid);
    rc = take_blobs(st_meta(f, "blobs"), p, e);
    return rc < 0 ? rc : take_state(st_meta(f, "state"), p, e);
}

/* --- encoding --- */

/* How long the arrays are. */
static int count(const struct part *p, struct array f[N_FIELDS], struct error *e)
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
        f[NAMES].n += strlen(piece->name);
        f[SHAPES].n += piece->n_dims;
    }
    f[BOXES].n = 2 * f[SHAPES].n;
    f[NAME_ENDS].n = f[DTYPES].n = f[N_DIMS].n = f[BEGINS].n = p->n_pieces;
    f[BLOCKS].n = p->n_blocks;
    return 0;
}

static size_t put_numbers(uint64_t *to, const uint64_t *from, size_t n)
{
    if (n > 0) {
        memcpy(to, from, n * sizeof(*to));
    }
    return n;
}

static void fill(const struct part *p, struct arrays *a)
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
    struct arrays a = {0}; /* where they go in `b` */
    struct array fields[N_FIELDS];
    struct st_meta meta[N_META];
    int rc;

    list_fields(&a, fields);
    rc = count(p, fields, e);
    if (rc < 0) {
        return rc;
    }
    rc = make_meta(p, meta) ? arrays_make_room(fields, N_FIELDS, meta, N_META, b, e)
                            : error_set(e, ENOMEM, "write the part of rank %u", p->rank);
    for (size_t i = 0; i < N_META; i++) {
        free(meta[i].value);
    }
    if (rc < 0) {
        return rc;
    }
    fill(p, &a);
    return put_digest(b, e);
}

static int check_digest(const char *data, size_t len, struct error *e)
{
    uint64_t digest;

    if (len < DIGEST_BYTES) {
        return error_text(e, ERR_FORMAT, "the part is cut");
    }
    memcpy(&digest, data + len - DIGEST_BYTES, sizeof(digest));
    if (digest != digest_short_of(data, len - DIGEST_BYTES)) {
        return error_text(e, ERR_FORMAT, "the part is cut or damaged: its %zu "
                          "bytes do not have their digest", len);
    }
    return 0;
}

int part_finish(const void *part, size_t len, const uint64_t *blocks,
                size_t n_blocks, struct buf *ret, struct error *e)
{
    struct arrays a = {0}; /* where they lie in `part` */
    _st_file_ struct st_file f = {0};
    struct array fields[N_FIELDS];
    uint64_t bytes = 0, version = 0;
    int rc = check_digest(part, len, e);

    list_fields(&a, fields);
    rc = rc < 0 ? rc : arrays_find(part, len - DIGEST_BYTES, "part", fields, N_FIELDS,
                                   &f, e);
    rc = rc < 0 ? rc : take_number(&f, "bytes", INT64_MAX, &bytes, e);
    rc = rc < 0 ? rc : take_number(&f, "part", UINT64_MAX, &version, e);
    rc = rc < 0 ? rc : check_version(version, e);
    if (rc == 0 && n_blocks != digest_n_blocks(bytes)) {
        rc = error_text(e, ERR_FORMAT, "the part: a file of %llu bytes has no %zu blocks",
                        (unsigned long long)bytes, n_blocks);
    }
    fields[BLOCKS].data = (void *)&blocks;
    fields[BLOCKS].n = n_blocks;
    rc = rc < 0 ? rc : arrays_encode(fields, N_FIELDS, f.meta, f.n_meta, ret, e);
    list_fields(&a, fields);
    arrays_free(part, len, fields, N_FIELDS);
    return rc < 0 ? rc : put_digest(ret, e);
}

/* How long its arrays are. */
static bool read_lengths(const struct buf *b, struct array fields[N_FIELDS],
                         uint64_t *ret_header)
{
    _st_file_ struct st_file f = {0};
    uint8_t prefix[ST_PREFIX_BYTES];
    size_t n_found = 0;
    uint64_t n;

    if (b->len < sizeof(prefix) + DIGEST_BYTES) {
        return false;
    }
    memcpy(prefix, b->data, sizeof(prefix));
    if (st_header_bytes(prefix, b->len - DIGEST_BYTES, &n, NULL) < 0 ||
        st_read(b->data + sizeof(prefix), n, b->len - DIGEST_BYTES, &f, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < f.n_tensors; i++) {
        for (size_t k = 0; k < N_FIELDS; k++) {
            if (f.tensors[i].n_dims == 1 &&
                strcmp(f.tensors[i].name, fields[k].name) == 0) {
                fields[k].n = f.tensors[i].shape[0];
                n_found++;
            }
        }
    }
    *ret_header = f.data_at;
    return n_found == N_FIELDS;
}

bool part_encode_again(const struct part *p, struct buf *b)
{
    struct arrays none = {0};
    struct array fields[N_FIELDS];
    struct st_meta meta[N_META];
    _buf_ struct buf header = {0};
    uint64_t n = 0;
    bool is_as_long;

    list_fields(&none, fields);
    if (!read_lengths(b, fields, &n)) {
        return false;
    }
    is_as_long = make_meta(p, meta) &&
                 arrays_encode_header(fields, N_FIELDS, meta, N_META, &header,
                                      NULL) == 0 && header.len == n;
    for (size_t i = 0; i < N_META; i++) {
        free(meta[i].value);
    }
    if (is_as_long) {
        memcpy(b->data, header.data, n);
    }
    return is_as_long;
}

void part_seal(struct buf *b)
{
    uint64_t digest = digest_short_of(b->data, b->len - DIGEST_BYTES);

    memcpy(b->data + b->len - DIGEST_BYTES, &digest, sizeof(digest));
}

/* --- decoding --- */

static int check_lengths(const struct array f[N_FIELDS],
                         const struct arrays *a, struct error *e)
{
    size_t n = f[NAME_ENDS].n, dims = 0;
    uint64_t at = 0;
    bool is_sound = f[DTYPES].n == n && f[N_DIMS].n == n && f[BEGINS].n == n;

    for (size_t i = 0; i < n && is_sound; i++) {
        is_sound = a->name_ends[i] >= at && a->dtypes[i] < N_DTYPES &&
                   a->n_dims[i] <= BOX_MAX_DIMS;
        at = a->name_ends[i];
        dims += a->n_dims[i];
    }
    if (!is_sound || at != f[NAMES].n || f[SHAPES].n != dims ||
        f[BOXES].n != 2 * dims) {
        return error_text(e, ERR_FORMAT, "the part has arrays that do not "
                          "belong together");
    }
    return 0;
}

/* Names with a zero byte behind each, and the numbers: what pieces borrow. */
static int keep(struct part *p, const struct arrays *a, const struct array *f,
                struct error *e)
{
    size_t n = f[NAME_ENDS].n, numbers = f[SHAPES].n + f[BOXES].n;
    size_t n_blocks = f[BLOCKS].n;
    uint64_t *shape = pages_alloc(1, numbers * sizeof(*shape) + f[NAMES].n + n + 1);
    uint64_t *box, at = 0;
    char *name;

    p->memory = shape;
    p->pieces = pages_alloc(n + 1, sizeof(*p->pieces));
    p->blocks = calloc(n_blocks + 1, sizeof(*p->blocks));
    if (!shape || !p->pieces || !p->blocks) {
        return error_set(e, ENOMEM, "read a part");
    }
    box = shape + put_numbers(shape, a->shapes, f[SHAPES].n);
    put_numbers(box, a->boxes, f[BOXES].n);
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
    struct arrays a = {0}; /* where they lie in `data` */
    _part_ struct part p = {0};
    _st_file_ struct st_file f = {0};
    struct array fields[N_FIELDS];
    uint64_t at = 0;
    int rc = check_digest(data, len, e);

    list_fields(&a, fields);
    rc = rc < 0 ? rc : arrays_find(data, len - DIGEST_BYTES, "part", fields, N_FIELDS,
                                   &f, e);
    rc = rc < 0 ? rc : take_meta(&f, &p, e);
    rc = rc < 0 ? rc : check_lengths(fields, &a, e);
    rc = rc < 0 ? rc : keep(&p, &a, fields, e);
    for (size_t i = 0; i < p.n_pieces && rc == 0; i++) {
        rc = check_piece(&p, &p.pieces[i], a.name_ends[i] - at, e);
        at = a.name_ends[i];
    }
    arrays_free(data, len, fields, N_FIELDS);
    if (rc == 0) {
        *ret = p;
        p = (struct part){0};
    }
    return rc;
}
