/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/image.h"

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

/* --- metadata --- */

/* Where in its tensor each piece of the file is. */
static const uint64_t *offsets_of(const void *arg, size_t i)
{
    const struct image *im = arg;

    return im->pieces[i].at;
}

enum { N_META = 4 };

static bool make_meta(const struct image_of *of, struct st_meta to[N_META])
{
    char number[24];
    bool is_whole = true;

    snprintf(number, sizeof(number), "%llu", (unsigned long long)of->step);
    to[0] = (struct st_meta){(char *)"format", strdup("pt")};
    to[1] = (struct st_meta){(char *)"DCP_VERSION", strdup("1.0")};
    to[2] = (struct st_meta){(char *)"muster.step", strdup(number)};
    to[3] = (struct st_meta){(char *)"muster.uuid", strdup(of->uuid)};
    for (size_t i = 0; i < N_META; i++) {
        is_whole = is_whole && to[i].value;
    }
    return is_whole;
}

/* What comes before the step, and between that and the uuid; st_write() makes it. */
#define BEFORE_STEP \
    "{\"__metadata__\":{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"muster.step\":\""
#define BEFORE_UUID "\",\"muster.uuid\":\""

/* The number at `at`, of `n` bytes, becomes one of `want`: blanks at the end of the header make
 * room for it, or are what is left. False: there are not enough, or there would be more than
 * it takes to reach a multiple of IMAGE_ALIGN. */
static bool make_room(struct buf *header, size_t at, size_t n, size_t want)
{
    char *h = header->data;
    size_t end = header->len, n_blanks;

    while (h[end - 1] == ' ') { /* it has a brace at last */
        end--;
    }
    n_blanks = header->len - end;
    if (n_blanks + n < want || n_blanks + n - want >= IMAGE_ALIGN) {
        return false;
    }
    memmove(h + at + want, h + at + n, end - (at + n));
    memset(h + end + want - n, ' ', n_blanks + n - want);
    return true;
}

bool image_set_step(struct image *im, uint64_t step, const char *uuid)
{
    size_t at = ST_PREFIX_BYTES + strlen(BEFORE_STEP), n, uuid_at, want;
    char number[24];
    char *h = im->header.data;

    if (im->header.len < IMAGE_ALIGN ||
        memcmp(h + ST_PREFIX_BYTES, BEFORE_STEP, strlen(BEFORE_STEP)) != 0) {
        return false;
    }
    n = strspn(h + at, "0123456789");
    uuid_at = at + n + strlen(BEFORE_UUID);
    want = (size_t)snprintf(number, sizeof(number), "%llu", (unsigned long long)step);
    if (memcmp(h + at + n, BEFORE_UUID, strlen(BEFORE_UUID)) != 0 ||
        strcspn(h + uuid_at, "\"") != strlen(uuid) ||
        (want != n && !make_room(&im->header, at, n, want))) {
        return false;
    }
    memcpy(h + at, number, want);
    memcpy(h + uuid_at + want - n, uuid, strlen(uuid));
    return true;
}

/* --- places --- */

static int write_header(struct st_file *f, const struct image_of *of, struct buf *to,
                        struct error *e)
{
    struct st_meta meta[N_META];
    int rc;

    f->meta = meta;
    f->n_meta = N_META;
    rc = make_meta(of, meta) ? st_write(f, IMAGE_ALIGN, to, e)
                             : error_set(e, ENOMEM, "write a safetensors header");
    for (size_t i = 0; i < N_META; i++) {
        free(meta[i].value);
    }
    return rc;
}

int image_plan(struct image_piece *pieces, size_t n, const struct image_of *of,
               struct image *ret, struct error *e)
{
    _image_ struct image im = {.pieces = pieces, .n = n};
    const struct st_made info = {"DCP_SHARDING_INFO", "saved_offsets", offsets_of, &im};
    struct st_file f = {.n_tensors = n, .tensors = &pieces->tensor,
                        .tensor_bytes = sizeof(*pieces),
                        .made = of->has_pieces ? &info : NULL};
    int rc = st_layout(&f, e);

    rc = rc < 0 ? rc : write_header(&f, of, &im.header, e);
    if (rc < 0) {
        return rc;
    }
    im.bytes = st_file_bytes(&f);
    for (size_t i = 0; i < n; i++) {
        pieces[i].tensor.begin += f.data_at;
        pieces[i].tensor.end += f.data_at;
    }
    *ret = im;
    im = (struct image){0};
    return 0;
}
