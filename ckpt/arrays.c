/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/arrays.h"

#include "base/pages.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are read and written as they lie");

enum {
    ALIGN = 64,
    SLACK_BYTES = 64, /* for a digest behind it */
};

/* --- encoding --- */

static int list_tensors(const struct array *arrays, size_t n,
                        struct st_file *f)
{
    f->tensors = calloc(n, sizeof(*f->tensors));
    f->dims = calloc(n, sizeof(*f->dims));
    for (size_t i = 0; f->tensors && f->dims && i < n; i++) {
        struct st_tensor *t = &f->tensors[f->n_tensors++];

        t->name = strdup(arrays[i].name);
        t->dtype = arrays[i].dtype;
        t->n_dims = 1;
        f->dims[i] = arrays[i].n;
        t->shape = &f->dims[i];
        if (!t->name) {
            return -ENOMEM;
        }
    }
    return f->tensors && f->dims ? 0 : -ENOMEM;
}

static const struct array *array_of(const struct array *arrays, size_t n,
                                    const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(arrays[i].name, name) == 0) {
            return &arrays[i];
        }
    }
    return NULL;
}

/* How many bytes the arrays have. */
static uint64_t bytes_of(const struct st_file *f)
{
    return f->n_tensors > 0 ? f->tensors[f->n_tensors - 1].end : 0;
}

/* The tensors in their order, too. */
static int encode_header(const struct array *arrays, size_t n, struct st_meta *meta,
                         size_t n_meta, struct st_file *f, struct buf *b,
                         struct error *e)
{
    int rc = list_tensors(arrays, n, f);

    f->meta = meta;
    f->n_meta = n_meta;
    if (rc < 0) {
        error_set(e, ENOMEM, "write arrays");
    }
    rc = rc < 0 ? rc : st_layout(f, e);
    rc = rc < 0 ? rc : st_write(f, ALIGN, b, e);
    f->meta = NULL; /* the caller's */
    f->n_meta = 0;
    return rc;
}

int arrays_encode(const struct array *arrays, size_t n, struct st_meta *meta,
                  size_t n_meta, struct buf *b, struct error *e)
{
    _st_file_ struct st_file f = {0};
    int rc = encode_header(arrays, n, meta, n_meta, &f, b, e);

    if (rc == 0) {
        buf_reserve(b, bytes_of(&f)); /* once */
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct st_tensor *t = &f.tensors[i];

        buf_append(b, *array_of(arrays, n, t->name)->data, t->end - t->begin);
    }
    return rc == 0 && b->failed ? error_set(e, ENOMEM, "write arrays") : rc;
}

int arrays_make_room(const struct array *arrays, size_t n, struct st_meta *meta,
                     size_t n_meta, struct buf *b, struct error *e)
{
    _st_file_ struct st_file f = {0};
    _buf_ struct buf header = {0};
    int rc = encode_header(arrays, n, meta, n_meta, &f, &header, e);
    char *at = NULL;

    if (rc == 0) {
        at = buf_reserve_page(b, header.len + bytes_of(&f) + SLACK_BYTES);
        pages_expect(at, at ? header.len + bytes_of(&f) : 0);
        buf_append(b, header.data, header.len);
        at = buf_reserve(b, bytes_of(&f));
        rc = at ? 0 : error_set(e, ENOMEM, "write arrays");
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct st_tensor *t = &f.tensors[i];

        *array_of(arrays, n, t->name)->data = at + t->begin;
    }
    b->len += rc == 0 ? bytes_of(&f) : 0;
    return rc;
}

int arrays_encode_header(const struct array *arrays, size_t n, struct st_meta *meta,
                         size_t n_meta, struct buf *b, struct error *e)
{
    _st_file_ struct st_file f = {0};
    int rc = encode_header(arrays, n, meta, n_meta, &f, b, e);

    return rc == 0 && b->failed ? error_set(e, ENOMEM, "write arrays") : rc;
}

/* --- decoding --- */

static int take(struct array *to, const struct st_file *f, const char *what,
                const char *data, struct error *e)
{
    const struct st_tensor *t = NULL;
    const char *at;

    for (size_t i = 0; i < f->n_tensors; i++) {
        if (strcmp(f->tensors[i].name, to->name) == 0) {
            t = &f->tensors[i];
        }
    }
    if (!t || t->dtype != to->dtype || t->n_dims != 1) {
        return error_text(e, ERR_FORMAT, "the %s has no '%s' of type %s", what,
                          to->name, dtype_name(to->dtype));
    }
    to->n = t->shape[0];
    at = data + f->data_at + t->begin;
    if ((uintptr_t)at % (dtype_bits(to->dtype) / 8) == 0) {
        *to->data = (void *)at;
        return 0;
    }
    *to->data = malloc(t->end - t->begin + 1);
    if (!*to->data) {
        return error_set(e, ENOMEM, "read an %s", what);
    }
    memcpy(*to->data, at, t->end - t->begin);
    return 0;
}

static int read_header(const char *data, size_t len, struct st_file *ret,
                       struct error *e)
{
    uint8_t prefix[ST_PREFIX_BYTES] = {0};
    uint64_t n;
    int rc;

    memcpy(prefix, data, len < sizeof(prefix) ? len : sizeof(prefix));
    rc = st_header_bytes(prefix, len, &n, e);
    return rc < 0 ? rc : st_read(data + sizeof(prefix), n, len, ret, e);
}

int arrays_find(const void *data, size_t len, const char *what,
                struct array *arrays, size_t n, struct st_file *ret,
                struct error *e)
{
    _st_file_ struct st_file f = {0};
    int rc = read_header(data, len, &f, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = take(&arrays[i], &f, what, data, e);
    }
    if (rc == 0) {
        *ret = f;
        f = (struct st_file){0};
    }
    return rc;
}

void arrays_free(const void *data, size_t len, struct array *arrays, size_t n)
{
    uintptr_t begin = (uintptr_t)data;

    for (size_t i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)*arrays[i].data;

        if (!data || at < begin || at > begin + len) {
            free(*arrays[i].data);
        }
        *arrays[i].data = NULL;
    }
}
