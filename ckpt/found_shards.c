/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces that ranks write by themselves: shard-<rank>-model-<i>-of-<n>.safetensors of
 * HuggingFaceStorageWriter. Of each tensor in it a file has one piece, and in DCP_SHARDING_INFO
 * says where that begins. Nobody says how large a tensor is; but what lies before the end of
 * one piece is in others, or a file is missing.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/box.h"
#include "ckpt/found_json.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of one tensor what its pieces come to. */
struct sum {
    struct box all; /* from its beginning to the last end */
    uint64_t n;     /* of elements that are there */
    bool is_odd;    /* what is said of it fits no tensor */
};

struct sums {
    json_t *places; /* owned: by its name the place of each tensor */
    struct sum *items; /* owned */
    size_t n, room;
};

static void sums_release(struct sums *s)
{
    json_decref(s->places);
    free(s->items);
}

/* False: what it says is no place of that tensor. */
static bool read_place(const json_t *info, const struct st_tensor *t, struct box *ret)
{
    const json_t *at = json_object_get(json_object_get(info, t->name), "saved_offsets");

    *ret = (struct box){.n_dims = t->n_dims};
    if (t->n_dims > BOX_MAX_DIMS || json_array_size(at) != t->n_dims) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_dims; i++) {
        json_int_t from = json_integer_value(json_array_get(at, i));

        if (from < 0 || (uint64_t)from > INT64_MAX - t->shape[i] || t->shape[i] > INT64_MAX) {
            return false;
        }
        ret->at[i] = (uint64_t)from;
        ret->len[i] = t->shape[i];
    }
    return true;
}

/* NULL: no memory. */
static struct sum *sum_of(struct sums *s, const char *name, uint32_t n_dims)
{
    const json_t *place = json_object_get(s->places, name);

    if (place) {
        return &s->items[json_integer_value(place)];
    }
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct sum *items = reallocarray(s->items, room, sizeof(*items));

        if (!items) {
            return NULL;
        }
        s->items = items;
        s->room = room;
    }
    if (json_object_set_new(s->places, name, json_integer((json_int_t)s->n)) < 0) {
        return NULL;
    }
    s->items[s->n] = (struct sum){.all.n_dims = n_dims};
    return &s->items[s->n++];
}

static void add(struct sum *s, const struct box *piece)
{
    uint64_t n = 0;

    s->is_odd = s->is_odd || piece->n_dims != s->all.n_dims || !box_volume(piece, &n) ||
                __builtin_add_overflow(s->n, n, &s->n);
    for (uint32_t i = 0; i < piece->n_dims && !s->is_odd; i++) {
        uint64_t end = piece->at[i] + piece->len[i];

        s->all.len[i] = end > s->all.len[i] ? end : s->all.len[i];
    }
}

static int add_pieces(struct sums *s, const struct st_file *st)
{
    const char *text = st_meta(st, "DCP_SHARDING_INFO");
    _free_ char *copy = text ? strdup(text) : NULL;
    json_t *info = copy ? found_json_parse(copy, strlen(copy)) : NULL;
    struct box piece;
    int rc = 0;

    for (size_t i = 0; i < st->n_tensors && rc == 0; i++) {
        if (read_place(info, &st->tensors[i], &piece)) {
            struct sum *sum = sum_of(s, st->tensors[i].name, piece.n_dims);

            rc = sum ? 0 : -ENOMEM;
            if (sum) {
                add(sum, &piece);
            }
        }
    }
    json_decref(info);
    return rc;
}

static int add_file(struct sums *s, struct io *io, int dir, const char *name, struct error *e)
{
    _st_file_ struct st_file st = {0};
    int fd = io->ops->open_file(io, dir, name);
    int rc;

    if (fd < 0) {
        return found_fail_to_open(fd, name, e);
    }
    rc = st_load(io, fd, &st, e);
    io->ops->close(io, fd);
    if (rc < 0) {
        return error_wrap(e, "%s", name);
    }
    rc = add_pieces(s, &st);
    return rc < 0 ? error_set(e, -rc, "look at pieces in %s", name) : 0;
}

/* They are too few to fill it. One that is written twice hides it. */
static bool has_hole(const struct sum *s)
{
    uint64_t n = 0;

    return !s->is_odd && (!box_volume(&s->all, &n) || s->n < n);
}

static int check_sums(const struct sums *s, struct error *e)
{
    const char *name;
    json_t *place;

    json_object_foreach(s->places, name, place) {
        if (has_hole(&s->items[json_integer_value(place)])) {
            return error_text(e, ENOENT, "it was never finished: of '%.100s' not all pieces are "
                              "in files shard-<rank>-*.safetensors", name);
        }
    }
    return 0;
}

int found_check_pieces(struct io *io, int dir, const struct strlist *names, struct error *e)
{
    __attribute__((cleanup(sums_release))) struct sums sums = {.places = json_object()};
    int rc = sums.places ? 0 : error_set(e, ENOMEM, "look at pieces");

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        if (found_is_shard_name(names->items[i])) {
            rc = add_file(&sums, io, dir, names->items[i], e);
        }
    }
    return rc < 0 ? rc : check_sums(&sums, e);
}
