/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/registry.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/utf8.h"
#include "ckpt/digest.h"
#include "ckpt/safetensors.h"
#include "ckpt/strided.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MUSTER_U64 == (int)DTYPE_U64 &&
                   (int)MUSTER_BF16 == (int)DTYPE_BF16 &&
                   N_DTYPES == (int)MUSTER_U64 + 1,
               "the public numbers are those in files");

enum { MIN_SLOTS = 64, MAX_SHOWN = 200 };

void registry_release(struct registry *r)
{
    for (size_t i = 0; i < r->n_pieces; i++) {
        free(r->pieces[i].name);
        free(r->pieces[i].shape);
    }
    for (size_t i = 0; i < r->n_blobs; i++) {
        free(r->blobs[i].name);
    }
    free(r->pieces);
    free(r->slots);
    free(r->blobs);
    device_finder_release(&r->finder);
    *r = (struct registry){0};
}

void registry_exchange_finder(struct registry *a, struct registry *b)
{
    struct device_finder f = a->finder;

    a->finder = b->finder;
    b->finder = f;
}

/* --- pieces by name and box --- */

static uint64_t hash_of(const struct reg_piece *p)
{
    uint64_t h = digest_short_of(p->name, strlen(p->name));

    if (p->n_dims > 0) { /* corner and lengths lie together */
        h ^= digest_short_of(p->at, 2 * p->n_dims * sizeof(*p->at));
    }
    return h;
}

static uint64_t digest_of_piece(const struct reg_piece *p)
{
    uint64_t all[] = {digest_short_of(p->name, strlen(p->name)), (uint64_t)p->dtype,
                      p->n_dims, 0};

    if (p->n_dims > 0) { /* the shape, the corner and the lengths lie together */
        all[3] = digest_short_of(p->shape, 3 * p->n_dims * sizeof(*p->shape));
    }
    return digest_short_of(all, sizeof(all));
}

static bool is_same(const struct reg_piece *a, const struct reg_piece *b)
{
    return a->n_dims == b->n_dims && strcmp(a->name, b->name) == 0 &&
           (a->n_dims == 0 ||
            memcmp(a->at, b->at, 2 * a->n_dims * sizeof(*a->at)) == 0);
}

/* The slot where it is, or would be. */
static size_t *slot_of(const struct registry *r, const struct reg_piece *p)
{
    size_t i = hash_of(p) % r->n_slots;

    while (r->slots[i] && !is_same(&r->pieces[r->slots[i] - 1], p)) {
        i = (i + 1) % r->n_slots;
    }
    return &r->slots[i];
}

/* At most half of the slots are taken. */
static int make_room(struct registry *r)
{
    size_t n = r->n_slots ? 2 * r->n_slots : MIN_SLOTS, *slots;
    struct reg_piece *pieces;

    if (r->n_pieces < r->room) {
        return 0;
    }
    pieces = reallocarray(r->pieces, n / 2, sizeof(*pieces));
    if (!pieces) {
        return -ENOMEM;
    }
    r->pieces = pieces;
    slots = calloc(n, sizeof(*slots));
    if (!slots) {
        return -ENOMEM;
    }
    free(r->slots);
    r->slots = slots;
    r->n_slots = n;
    r->room = n / 2;
    for (size_t i = 0; i < r->n_pieces; i++) {
        *slot_of(r, &r->pieces[i]) = i + 1;
    }
    return 0;
}

static bool has_shape_of(const struct reg_piece *a, const struct reg_piece *b)
{
    return a->dtype == b->dtype &&
           (a->n_dims == 0 ||
            memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0);
}

/* The sum of these is the same, whenever each was put where it is. */
static uint64_t digest_in_place(const struct reg_piece *p, size_t place)
{
    uint64_t both[] = {p->digest, place};

    return digest_short_of(both, sizeof(both));
}

/* Takes the piece's memory over, on success. */
static int put(struct registry *r, const struct reg_piece *p)
{
    int rc = make_room(r);
    struct reg_piece *old;
    size_t *slot;

    r->n_calls++;
    if (rc < 0) {
        return rc;
    }
    slot = slot_of(r, p);
    if (*slot) {
        old = &r->pieces[*slot - 1];
        r->n_changes += !has_shape_of(old, p);
        r->n_on_devices -= old->device != NULL;
        r->n_on_devices += p->device != NULL;
        r->digest += digest_in_place(p, *slot - 1) - digest_in_place(old, *slot - 1);
        free(old->name);
        free(old->shape);
        *old = *p;
        return 0;
    }
    r->n_changes++;
    r->n_on_devices += p->device != NULL;
    r->digest += digest_in_place(p, r->n_pieces);
    r->pieces[r->n_pieces++] = *p;
    *slot = r->n_pieces;
    return 0;
}

static void copy_numbers(void *to, const void *from, uint32_t n)
{
    if (n > 0) {
        memcpy(to, from, n * sizeof(uint64_t));
    }
}

static int add_piece(struct registry *r, const char *name, enum dtype dtype,
                     const uint64_t *shape, const struct box *box, void *data,
                     const int64_t *strides)
{
    uint32_t n = box->n_dims;
    struct reg_piece p = {.dtype = dtype, .n_dims = n, .data = data,
                          .device = device_of(&r->finder, data)};
    struct strided memory = {dtype, n, box->len, strides, data};
    int rc = -ENOMEM;

    if (strided_is_dense(&memory)) { /* what has gaps is loaded by way of other memory */
        strides = NULL;
    }
    p.name = strdup(name);
    p.shape = calloc(4 * (size_t)n + 1, sizeof(*p.shape));
    if (p.name && p.shape) {
        p.at = p.shape + n;
        p.len = p.shape + 2 * (size_t)n;
        p.strides = strides ? (int64_t *)(p.shape + 3 * (size_t)n) : NULL;
        copy_numbers(p.shape, shape, n);
        copy_numbers(p.at, box->at, n);
        copy_numbers(p.len, box->len, n);
        copy_numbers(p.strides, strides, strides ? n : 0);
        p.digest = digest_of_piece(&p);
        rc = put(r, &p);
    }
    if (rc < 0) {
        free(p.name);
        free(p.shape);
    }
    return rc;
}

/* --- tensors --- */

static int refuse(const char *name, struct error *e, const char *why)
{
    _buf_ struct buf shown = {0};

    utf8_put_printable(&shown, name, MAX_SHOWN);
    return error_text(e, EINVAL, "tensor '%s': %s", buf_str(&shown), why);
}

static int check_tensor(const struct muster_ckpt_tensor *t, struct error *e)
{
    struct box whole;
    uint64_t n, bytes;

    if (!t->name || !*t->name || strlen(t->name) > ST_MAX_NAME_BYTES / 2 ||
        !utf8_is_valid(t->name) || t->name[0] == '.' ||
        strcmp(t->name, "__metadata__") == 0) {
        return refuse(t->name ? t->name : "", e, "expected a name of 1 to 32768 "
                      "bytes of UTF-8, without a leading dot, and not "
                      "__metadata__");
    }
    if ((unsigned)t->dtype >= N_DTYPES) {
        return refuse(t->name, e, "its type is none of enum muster_dtype");
    }
    if (t->n_dims > BOX_MAX_DIMS || (t->n_dims > 0 && !t->shape)) {
        return refuse(t->name, e, "expected a shape of at most 16 dimensions");
    }
    whole = box_whole(t->n_dims, t->shape);
    if (!box_volume(&whole, &n) ||
        !dtype_bytes((enum dtype)t->dtype, n, &bytes) || bytes > INT64_MAX) {
        return refuse(t->name, e, "its shape has no size in whole bytes");
    }
    return 0;
}

static int add_flat(struct registry *r, const struct muster_ckpt_tensor *t,
                    struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape);
    struct box boxes[BOX_MAX_FLAT];
    uint32_t bits = dtype_bits((enum dtype)t->dtype);
    uint64_t volume = 0, done = 0;
    size_t n;

    box_volume(&whole, &volume);
    if (t->flat_begin > t->flat_end || t->flat_end > volume) {
        return refuse(t->name, e, "its flat range does not lie in it");
    }
    if (t->strides) {
        return refuse(t->name, e, "a flat range has no strides");
    }
    if (bits % 8 && t->flat_end - t->flat_begin != volume) {
        return refuse(t->name, e, "elements smaller than a byte are saved all "
                      "together");
    }
    if (t->flat_end > t->flat_begin && !t->data) {
        return refuse(t->name, e, "it has no data");
    }
    n = box_from_flat(&whole, t->flat_begin, t->flat_end, boxes);
    for (size_t i = 0; i < n; i++) {
        uint64_t count = 0;
        int rc = add_piece(r, t->name, (enum dtype)t->dtype, t->shape,
                           &boxes[i], (char *)t->data + done * bits / 8, NULL);

        if (rc < 0) {
            return error_set(e, ENOMEM, "register a tensor");
        }
        box_volume(&boxes[i], &count);
        done += count;
    }
    return 0;
}

static int check_box(const struct muster_ckpt_tensor *t, const struct box *box,
                     struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape);

    if (!box_contains(&whole, box)) {
        return refuse(t->name, e, "its box does not lie in its shape");
    }
    if (dtype_bits((enum dtype)t->dtype) % 8 &&
        (!box_equal(&whole, box) || t->strides)) {
        return refuse(t->name, e, "elements smaller than a byte are saved all "
                      "together, and without strides");
    }
    return box_is_empty(box) || t->data
               ? 0 : refuse(t->name, e, "it has no data");
}

/* Memory of a GPU is copied as it lies there. */
static int check_place(struct registry *r, const struct muster_ckpt_tensor *t,
                       const struct box *box, struct error *e)
{
    struct strided s = {(enum dtype)t->dtype, box->n_dims, box->len, t->strides,
                        t->data};

    return !t->strides || strided_is_dense(&s) || !device_of(&r->finder, t->data)
               ? 0
               : refuse(t->name, e, "it is in the memory of a GPU, with gaps or "
                        "in another order: expected it row-major there");
}

int registry_tensor(struct registry *r, const struct muster_ckpt_tensor *t,
                    struct error *e)
{
    struct box box;
    int rc = check_tensor(t, e);

    if (rc < 0 || t->is_flat) {
        return rc < 0 ? rc : add_flat(r, t, e);
    }
    box = box_whole(t->n_dims, t->shape);
    if (t->at) {
        copy_numbers(box.at, t->at, t->n_dims);
    }
    if (t->len) {
        copy_numbers(box.len, t->len, t->n_dims);
    }
    rc = check_box(t, &box, e);
    rc = rc < 0 ? rc : check_place(r, t, &box, e);
    if (rc < 0) {
        return rc;
    }
    rc = add_piece(r, t->name, (enum dtype)t->dtype, t->shape, &box, t->data,
                   t->strides);
    return rc < 0 ? error_set(e, ENOMEM, "register a tensor") : 0;
}

/* --- blobs --- */

static struct reg_blob *find_blob(const struct registry *r, const char *name)
{
    for (size_t i = 0; i < r->n_blobs; i++) {
        if (strcmp(r->blobs[i].name, name) == 0) {
            return &r->blobs[i];
        }
    }
    return NULL;
}

/* Of one kind a blob has its rank behind its name, as one of the other kind may. */
static const struct reg_blob *find_other(const struct registry *r, const char *full)
{
    for (size_t i = 0; i < r->n_blobs; i++) {
        size_t piece = r->blobs[i].piece;

        if (piece != SIZE_MAX && strcmp(r->pieces[piece].name, full) == 0) {
            return &r->blobs[i];
        }
    }
    return NULL;
}

/* -EEXIST: another one has its name in the file. */
static int add_blob(struct registry *r, const char *name,
                    enum muster_blob kind, struct reg_blob **ret)
{
    struct reg_blob *all = reallocarray(r->blobs, r->n_blobs + 1,
                                        sizeof(*all));
    struct reg_blob *b;

    if (!all) {
        return -ENOMEM;
    }
    r->blobs = all;
    b = &all[r->n_blobs];
    *b = (struct reg_blob){.kind = kind, .piece = SIZE_MAX};
    b->name = strdup(name);
    if (!b->name) {
        return -ENOMEM;
    }
    if (kind != MUSTER_JSON) {
        _buf_ struct buf full = {0};
        struct box empty = {.n_dims = 1};

        part_blob_name(name, kind == MUSTER_PER_RANK, r->rank, &full);
        if (!full.failed && find_other(r, full.data)) {
            free(b->name);
            return -EEXIST;
        }
        if (full.failed || add_piece(r, full.data, DTYPE_U8, empty.len, &empty,
                                     NULL, NULL) < 0) {
            free(b->name);
            return -ENOMEM;
        }
        b->piece = *slot_of(r, &(struct reg_piece){
                                   .name = full.data, .n_dims = 1,
                                   .at = (uint64_t[2]){0, 0}}) - 1;
    }
    r->n_blobs++;
    *ret = b;
    return 0;
}

/* The piece of a blob stays in the slot of an empty one: its length may change. */
static void set_blob(struct registry *r, struct reg_blob *b, void *data,
                     size_t len)
{
    r->n_calls++;
    b->len = len;
    if (b->kind == MUSTER_JSON) {
        b->json = data;
    } else {
        r->pieces[b->piece].data = data;
        r->n_changes += r->pieces[b->piece].shape[0] != len;
        r->pieces[b->piece].shape[0] = len;
    }
}

int registry_blob(struct registry *r, const char *name, void *data, size_t len,
                  enum muster_blob kind, struct error *e)
{
    struct reg_blob *b = NULL;
    int rc;

    if (!name || !*name || strlen(name) > ST_MAX_NAME_BYTES / 2 ||
        !utf8_is_valid(name)) {
        return error_text(e, EINVAL, "a blob's name has 1 to 32768 bytes of "
                          "UTF-8");
    }
    if ((unsigned)kind > MUSTER_JSON || len > INT64_MAX || (len > 0 && !data)) {
        return error_text(e, EINVAL, "blob '%.200s': expected a kind of enum "
                          "muster_blob, and data", name);
    }
    if (device_of(&r->finder, data)) {
        return error_text(e, EINVAL, "blob '%.200s' is in the memory of a GPU: "
                          "expected a tensor, or a copy of it", name);
    }
    b = find_blob(r, name);
    if (b && b->kind != kind) {
        return error_text(e, EINVAL, "blob '%.200s' was of another kind before",
                          name);
    }
    rc = b ? 0 : add_blob(r, name, kind, &b);
    if (rc == -EEXIST) {
        return error_text(e, EINVAL, "blob '%.200s': another blob has the name that this "
                          "one would have in a file, with its rank; choose another name",
                          name);
    }
    if (rc < 0) {
        return error_set(e, ENOMEM, "register a blob");
    }
    set_blob(r, b, data, len);
    return 0;
}

int registry_settle(const struct registry *r, struct error *e)
{
    size_t left = r->n_on_devices;
    void *last = NULL;
    int rc = 0;

    for (size_t i = 0; left > 0 && rc == 0; i++) {
        const struct reg_piece *p = &r->pieces[i];

        left -= p->device != NULL;
        rc = p->device ? device_settle(p->device, p->data, &last, e) : 0;
    }
    return rc;
}

/* --- the table --- */

int registry_state(const struct registry *r, char **ret, struct error *e)
{
    json_t *state = NULL;
    int rc = 0;

    for (size_t i = 0; i < r->n_blobs && rc == 0; i++) {
        const struct reg_blob *b = &r->blobs[i];
        json_error_t why;
        json_t *v;

        if (b->kind != MUSTER_JSON) {
            continue;
        }
        v = json_loadb(b->json ? b->json : "", b->len,
                       JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
        if (!v) {
            rc = error_text(e, EINVAL, "blob '%.200s' is no JSON: byte %d: %s",
                            b->name, why.position, why.text);
            break;
        }
        state = state ? state : json_object();
        if (json_object_set_new(state, b->name, v) < 0) {
            rc = error_set(e, ENOMEM, "blob '%.200s'", b->name);
        }
    }
    if (rc == 0 && state) {
        *ret = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS);
        rc = *ret ? 0 : error_set(e, ENOMEM, "save JSON");
    }
    json_decref(state);
    return rc;
}

static int list_blobs(const struct registry *r, struct part *to)
{
    to->blobs = calloc(r->n_blobs + 1, sizeof(*to->blobs));
    for (size_t i = 0; to->blobs && i < r->n_blobs; i++) {
        struct part_blob *b = &to->blobs[to->n_blobs];

        if (r->blobs[i].kind == MUSTER_JSON) {
            continue;
        }
        b->name = strdup(r->blobs[i].name);
        b->is_per_rank = r->blobs[i].kind == MUSTER_PER_RANK;
        if (!b->name) {
            return -ENOMEM;
        }
        to->n_blobs++;
    }
    return to->blobs ? 0 : -ENOMEM;
}

int registry_table(const struct registry *r, uint32_t n_ranks, uint32_t node,
                   struct part *ret, struct error *e)
{
    static const uint64_t zero;
    _part_ struct part p = {.rank = r->rank, .n_ranks = n_ranks, .node = node};
    int rc;

    p.pieces = pages_calloc(r->n_pieces + 1, sizeof(*p.pieces));
    if (!p.pieces || list_blobs(r, &p) < 0) {
        return error_set(e, ENOMEM, "list what is saved");
    }
    for (size_t i = 0; i < r->n_pieces; i++) {
        const struct reg_piece *from = &r->pieces[i];

        p.pieces[i] = (struct part_piece){from->name, from->dtype, from->n_dims,
                                          from->shape, from->at, from->len, 0};
    }
    p.n_pieces = r->n_pieces;
    for (size_t i = 0; i < r->n_blobs; i++) { /* all of each */
        const struct reg_blob *b = &r->blobs[i];

        if (b->piece != SIZE_MAX) {
            p.pieces[b->piece].at = &zero;
            p.pieces[b->piece].len = r->pieces[b->piece].shape;
        }
    }
    rc = registry_state(r, &p.state, e);
    if (rc == 0) {
        *ret = p;
        p = (struct part){0};
    }
    return rc;
}

uint64_t registry_digest(const struct registry *r, uint32_t n_ranks, uint32_t node)
{
    uint64_t first[] = {r->rank, n_ranks, node, r->n_pieces, r->digest};
    _buf_ struct buf b = {0};

    buf_append(&b, first, sizeof(first));
    for (size_t i = 0; i < r->n_blobs; i++) {
        const struct reg_blob *blob = &r->blobs[i];
        uint64_t what[3];

        if (blob->piece == SIZE_MAX) {
            continue; /* JSON is not in the table */
        }
        what[0] = digest_short_of(blob->name, strlen(blob->name));
        what[1] = blob->kind;
        what[2] = r->pieces[blob->piece].shape[0];
        buf_append(&b, what, sizeof(what));
    }
    return b.failed ? 0 : digest_short_of(b.data, b.len);
}

const void *registry_blob_data(const struct registry *r, const struct reg_blob *b)
{
    const void *data = b->kind == MUSTER_JSON ? b->json : r->pieces[b->piece].data;

    return b->len ? data : "";
}

uint64_t registry_common(const struct registry *r)
{
    uint64_t all = 0;

    for (size_t i = 0; i < r->n_blobs; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (b->kind != MUSTER_PER_RANK) { /* in whatever order they came */
            uint64_t both[2] = {digest_short_of(b->name, strlen(b->name)),
                                digest_short_of(registry_blob_data(r, b), b->len)};

            all ^= digest_short_of(both, sizeof(both));
        }
    }
    return all;
}

char *registry_json_of(const char *state, const char *name)
{
    json_t *all = state ? json_loads(state, 0, NULL) : NULL;
    json_t *v = json_object_get(all, name);
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(all);
    return text;
}
