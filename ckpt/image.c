/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/image.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void image_release(struct image *im)
{
    buf_release(&im->header);
    *im = (struct image){0};
}

static const char *key_of(const struct image_piece *p)
{
    return p->key ? p->key : p->name;
}

/* --- metadata --- */

/* {"NAME": {"saved_offsets": [0, 128]}, ...}, of pieces in the file. */
static char *sharding_info(const struct image_piece *pieces, size_t n)
{
    json_t *all = json_object();
    char *text;
    int rc = all ? 0 : -1;

    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *corner = json_array();

        for (uint32_t d = 0; d < pieces[i].n_dims; d++) {
            json_array_append_new(corner,
                                  json_integer((json_int_t)pieces[i].at[d]));
        }
        rc = json_object_set_new(all, key_of(&pieces[i]),
                                 json_pack("{s:o}", "saved_offsets", corner));
    }
    text = rc == 0 ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

enum { N_META = 5 };

static bool make_meta(const struct image_piece *pieces, size_t n,
                      uint64_t step, const char *uuid,
                      struct st_meta to[N_META])
{
    char number[24];
    bool is_whole = true;

    snprintf(number, sizeof(number), "%llu", (unsigned long long)step);
    to[0] = (struct st_meta){(char *)"format", strdup("pt")};
    to[1] = (struct st_meta){(char *)"DCP_VERSION", strdup("1.0")};
    to[2] = (struct st_meta){(char *)"muster.step", strdup(number)};
    to[3] = (struct st_meta){(char *)"muster.uuid", strdup(uuid)};
    to[4] = (struct st_meta){(char *)"DCP_SHARDING_INFO", sharding_info(pieces, n)};
    for (size_t i = 0; i < N_META; i++) {
        is_whole = is_whole && to[i].value;
    }
    return is_whole;
}

/* What comes before the step, and between that and the uuid; st_write() makes it. */
#define BEFORE_STEP \
    "{\"__metadata__\":{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"muster.step\":\""
#define BEFORE_UUID "\",\"muster.uuid\":\""

bool image_set_step(struct image *im, uint64_t step, const char *uuid)
{
    size_t at = ST_PREFIX_BYTES + strlen(BEFORE_STEP), n, uuid_at;
    char number[24];
    char *h = im->header.data;

    if (im->header.len < IMAGE_ALIGN ||
        memcmp(h + ST_PREFIX_BYTES, BEFORE_STEP, strlen(BEFORE_STEP)) != 0) {
        return false;
    }
    n = strspn(h + at, "0123456789");
    uuid_at = at + n + strlen(BEFORE_UUID);
    if ((size_t)snprintf(number, sizeof(number), "%llu",
                         (unsigned long long)step) != n ||
        memcmp(h + at + n, BEFORE_UUID, strlen(BEFORE_UUID)) != 0 ||
        strcspn(h + uuid_at, "\"") != strlen(uuid)) {
        return false;
    }
    memcpy(h + at, number, n);
    memcpy(h + uuid_at, uuid, strlen(uuid));
    return true;
}

/* --- places --- */

static int by_key(const void *a, const void *b)
{
    return strcmp(key_of(a), key_of(b));
}

static int by_begin(const void *a, const void *b)
{
    const struct image_piece *x = a, *y = b;

    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return strcmp(key_of(x), key_of(y)); /* empty ones */
}

static int list_tensors(const struct image_piece *pieces, size_t n,
                        struct st_file *f, struct error *e)
{
    f->tensors = calloc(n + 1, sizeof(*f->tensors));
    for (size_t i = 0; f->tensors && i < n; i++) {
        struct st_tensor *t = &f->tensors[i];

        if (!utf8_is_valid(key_of(&pieces[i]))) {
            return error_text(e, EINVAL, "the name of a tensor is not UTF-8");
        }
        t->name = strdup(key_of(&pieces[i]));
        t->dtype = pieces[i].dtype;
        t->n_dims = pieces[i].n_dims;
        if (t->n_dims > 0) {
            memcpy(t->shape, pieces[i].len, t->n_dims * sizeof(*t->shape));
        }
        f->n_tensors++;
        if (!t->name) {
            return error_set(e, ENOMEM, "lay tensors out");
        }
    }
    return f->tensors ? 0 : error_set(e, ENOMEM, "lay tensors out");
}

/* Both have each key once. */
static void take_places(struct image_piece *pieces, size_t n,
                        const struct st_file *f)
{
    if (n == 0) {
        return;
    }
    qsort(pieces, n, sizeof(*pieces), by_key);
    for (size_t i = 0; i < n; i++) {
        struct image_piece key = {.name = f->tensors[i].name};
        struct image_piece *p = bsearch(&key, pieces, n, sizeof(*pieces),
                                        by_key);

        if (p) {
            p->begin = f->tensors[i].begin;
        }
    }
    qsort(pieces, n, sizeof(*pieces), by_begin);
}

int image_plan(struct image_piece *pieces, size_t n, uint64_t step,
               const char *uuid, struct image *ret, struct error *e)
{
    _image_ struct image im = {.pieces = pieces, .n = n};
    struct st_meta meta[N_META];
    struct st_file f = {0};
    int rc = list_tensors(pieces, n, &f, e);

    rc = rc < 0 ? rc : st_layout(&f, e);
    if (rc == 0) {
        take_places(pieces, n, &f);
        f.meta = meta;
        f.n_meta = N_META;
        rc = make_meta(pieces, n, step, uuid, meta)
                 ? st_write(&f, IMAGE_ALIGN, &im.header, e)
                 : error_set(e, ENOMEM, "write a safetensors header");
        for (size_t i = 0; i < N_META; i++) {
            free(meta[i].value);
        }
        f.meta = NULL;
        f.n_meta = 0;
        im.bytes = st_file_bytes(&f);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        pieces[i].begin += f.data_at;
    }
    st_release(&f);
    if (rc == 0) {
        *ret = im;
        im = (struct image){0};
    }
    return rc;
}
