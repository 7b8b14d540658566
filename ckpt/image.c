/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/image.h"

#include "base/cleanup.h"
#include "base/sort.h"
#include "ckpt/safetensors.h"

#include <errno.h>
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

/* {"NAME": {"saved_offsets": [0, 128]}, ...}, of pieces in the file; the last call is
 * for its end. */
static void put_sharding_info(void *arg, size_t i, struct buf *to)
{
    const struct image *im = arg;

    if (i == 0 || i < im->n) {
        buf_putc(to, i == 0 ? '{' : ',');
    }
    if (i == im->n) {
        buf_putc(to, '}');
        return;
    }
    st_put_string(key_of(&im->pieces[i]), to);
    buf_puts(to, ":{\"saved_offsets\":[");
    buf_put_numbers(to, im->pieces[i].at, im->pieces[i].n_dims);
    buf_puts(to, "]}");
}

enum { N_META = 4 };

static bool make_meta(uint64_t step, const char *uuid, struct st_meta to[N_META])
{
    char number[24];
    bool is_whole = true;

    snprintf(number, sizeof(number), "%llu", (unsigned long long)step);
    to[0] = (struct st_meta){(char *)"format", strdup("pt")};
    to[1] = (struct st_meta){(char *)"DCP_VERSION", strdup("1.0")};
    to[2] = (struct st_meta){(char *)"muster.step", strdup(number)};
    to[3] = (struct st_meta){(char *)"muster.uuid", strdup(uuid)};
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

static int list_tensors(const struct image_piece *pieces, size_t n,
                        struct st_file *f, struct error *e)
{
    f->tensors = calloc(n + 1, sizeof(*f->tensors));
    for (size_t i = 0; f->tensors && i < n; i++) {
        struct st_tensor *t = &f->tensors[i];

        t->place = i;
        t->name = (char *)(uintptr_t)key_of(&pieces[i]);
        t->dtype = pieces[i].dtype;
        t->n_dims = pieces[i].n_dims;
        t->shape = pieces[i].len;
        f->n_tensors++;
    }
    return f->tensors ? 0 : error_set(e, ENOMEM, "lay tensors out");
}

/* Puts the pieces into the order of the tensors that were made of them. */
static int reorder(struct image_piece *pieces, const struct st_file *f)
{
    size_t n = f->n_tensors;
    _free_ struct image_piece *before = calloc(n + 1, sizeof(*before));

    if (!before) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        before[i] = pieces[i];
    }
    for (size_t i = 0; i < n; i++) {
        pieces[i] = before[f->tensors[i].place];
    }
    return 0;
}

static bool is_in_order(const struct st_file *f)
{
    size_t i = 0;

    while (i < f->n_tensors && f->tensors[i].place == i) {
        i++;
    }
    return i == f->n_tensors;
}

static int take_places(struct image_piece *pieces, const struct st_file *f)
{
    int rc = is_in_order(f) ? 0 : reorder(pieces, f);

    for (size_t i = 0; i < f->n_tensors && rc == 0; i++) {
        pieces[i].begin = f->tensors[i].begin;
        pieces[i].bytes = f->tensors[i].end - f->tensors[i].begin;
    }
    return rc;
}

int image_plan(struct image_piece *pieces, size_t n, uint64_t step,
               const char *uuid, struct image *ret, struct error *e)
{
    _image_ struct image im = {.pieces = pieces, .n = n};
    struct st_meta meta[N_META];
    const struct st_made info = {"DCP_SHARDING_INFO", n + 1, put_sharding_info, &im};
    struct st_file f = {.borrows_names = true, .made = &info};
    int rc;

    sort_items(pieces, n, sizeof(*pieces), by_key);
    rc = list_tensors(pieces, n, &f, e);
    rc = rc < 0 ? rc : st_layout(&f, e);
    if (rc == 0 && take_places(pieces, &f) < 0) {
        rc = error_set(e, ENOMEM, "lay tensors out");
    }
    if (rc == 0) {
        f.meta = meta;
        f.n_meta = N_META;
        rc = make_meta(step, uuid, meta)
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
