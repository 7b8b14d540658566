/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/safetensors.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The reference reader goes to 127. */
enum { MAX_HEADER_DEPTH = 127 };

static const char META_KEY[] = "__metadata__";

int st_header_bytes(const uint8_t prefix[ST_PREFIX_BYTES], uint64_t file_bytes,
                    uint64_t *ret, struct error *e)
{
    uint64_t n = 0;

    if (file_bytes < ST_PREFIX_BYTES) {
        return error_text(e, ERR_FORMAT, "%llu bytes are no safetensors file: "
                          "one has at least %d",
                          (unsigned long long)file_bytes, ST_PREFIX_BYTES);
    }
    for (int i = ST_PREFIX_BYTES; i-- > 0;) {
        n = n << 8 | prefix[i];
    }
    if (n > ST_MAX_HEADER_BYTES) {
        return error_text(e, ERR_FORMAT, "no safetensors file: a header of %llu "
                          "bytes, and at most %d are allowed",
                          (unsigned long long)n, ST_MAX_HEADER_BYTES);
    }
    if (n > file_bytes - ST_PREFIX_BYTES) {
        return error_text(e, ERR_FORMAT, "the file is cut in its header: "
                          "expected at least %llu bytes, found %llu",
                          (unsigned long long)(n + ST_PREFIX_BYTES),
                          (unsigned long long)file_bytes);
    }
    *ret = n;
    return 0;
}

/* A name from outside, for a message. */
struct shown {
    char text[256];
};

static struct shown show(const char *name)
{
    struct shown s = {""};
    _buf_ struct buf b = {0};

    utf8_put_printable(&b, name, 200);
    str_copy(s.text, sizeof(s.text), buf_str(&b));
    return s;
}

/* A number of the header; none is below zero. */
static bool take_number(const json_t *v, uint64_t *ret)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

/* Into `to`, where there is room for it. */
static int take_shape(const json_t *v, uint64_t *to, struct st_tensor *t,
                      struct error *e)
{
    if (!json_is_array(v)) {
        return error_text(e, ERR_FORMAT, "tensor '%s': its shape is no list",
                          show(t->name).text);
    }
    if (json_array_size(v) > BOX_MAX_DIMS) { /* sound, and too much for us */
        return error_text(e, EFBIG, "tensor '%s': its shape has %zu lengths, and at most "
                          "%d lengths can be read here", show(t->name).text,
                          json_array_size(v), BOX_MAX_DIMS);
    }
    t->n_dims = (uint32_t)json_array_size(v);
    t->shape = to;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (!take_number(json_array_get(v, d), &to[d])) {
            return error_text(e, ERR_FORMAT, "tensor '%s': length %u of its "
                              "shape is no number", show(t->name).text, d);
        }
    }
    return 0;
}

/* Its place must be just as long as its elements. */
static int check_size(const struct st_tensor *t, struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape);
    uint64_t n, bytes;

    if (!box_volume(&whole, &n) || !dtype_bytes(t->dtype, n, &bytes)) {
        return error_text(e, ERR_FORMAT, "tensor '%s': its shape has no size "
                          "in bytes", show(t->name).text);
    }
    if (t->end < t->begin || t->end - t->begin != bytes) {
        return error_text(e, ERR_FORMAT, "tensor '%s': it lies at %llu to "
                          "%llu, and has %llu bytes", show(t->name).text,
                          (unsigned long long)t->begin,
                          (unsigned long long)t->end,
                          (unsigned long long)bytes);
    }
    return 0;
}

static int take_tensor(const char *name, const json_t *v, uint64_t *shape,
                       struct st_tensor *t, struct error *e)
{
    const json_t *offsets = json_object_get(v, "data_offsets");
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    int rc;

    if (strlen(name) > ST_MAX_NAME_BYTES) {
        return error_text(e, ERR_FORMAT, "a tensor's name has %zu bytes, and at "
                          "most %d are allowed", strlen(name),
                          ST_MAX_NAME_BYTES);
    }
    t->name = strdup(name);
    if (!t->name) {
        return error_set(e, ENOMEM, "read a safetensors header");
    }
    if (!dtype || !dtype_parse(dtype, &t->dtype)) {
        return error_text(e, ERR_FORMAT, "tensor '%s': unknown dtype '%s'",
                          show(name).text, show(dtype ? dtype : "").text);
    }
    if (json_array_size(offsets) != 2 ||
        !take_number(json_array_get(offsets, 0), &t->begin) ||
        !take_number(json_array_get(offsets, 1), &t->end)) {
        return error_text(e, ERR_FORMAT, "tensor '%s': data_offsets are not "
                          "two numbers", show(name).text);
    }
    rc = take_shape(json_object_get(v, "shape"), shape, t, e);
    return rc < 0 ? rc : check_size(t, e);
}

static int take_meta(const json_t *v, struct st_file *f, struct error *e)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v)) {
        return error_text(e, ERR_FORMAT, "%s is no object", META_KEY);
    }
    f->meta = calloc(json_object_size(v) + 1, sizeof(*f->meta));
    if (!f->meta) {
        return error_set(e, ENOMEM, "read a safetensors header");
    }
    json_object_foreach((json_t *)v, key, value) {
        struct st_meta *m = &f->meta[f->n_meta++];

        if (!json_is_string(value)) {
            return error_text(e, ERR_FORMAT, "%s: '%s' is no string",
                              META_KEY, show(key).text);
        }
        m->key = strdup(key);
        m->value = strdup(json_string_value(value));
        if (!m->key || !m->value) {
            return error_set(e, ENOMEM, "read a safetensors header");
        }
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* One after the other, from the header to the end of the file. */
static int check_places(const struct st_file *f, uint64_t file_bytes,
                        struct error *e)
{
    uint64_t at = 0;

    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = &f->tensors[i];

        if (t->begin != at) {
            return error_text(e, ERR_FORMAT, "tensor '%s' begins at %llu, "
                              "where the one before ends at %llu",
                              show(t->name).text,
                              (unsigned long long)t->begin,
                              (unsigned long long)at);
        }
        at = t->end;
    }
    if (at != file_bytes - f->data_at) {
        return error_text(e, ERR_FORMAT, "%s: expected %llu bytes, found %llu",
                          at > file_bytes - f->data_at ? "the file is cut"
                                                       : "too long a file",
                          (unsigned long long)(f->data_at + at),
                          (unsigned long long)file_bytes);
    }
    return 0;
}

/* How many lengths all shapes have together. */
static size_t count_dims(const json_t *header)
{
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach((json_t *)header, key, value) {
        n += json_array_size(json_object_get(value, "shape"));
    }
    return n;
}

static int take_all(const json_t *header, struct st_file *f, struct error *e)
{
    const char *key;
    json_t *value;
    size_t n_dims = 0;
    int rc = 0;

    f->tensors = calloc(json_object_size(header) + 1, sizeof(*f->tensors));
    f->dims = calloc(count_dims(header) + 1, sizeof(*f->dims));
    if (!f->tensors || !f->dims) {
        return error_set(e, ENOMEM, "read a safetensors header");
    }
    json_object_foreach((json_t *)header, key, value) {
        if (strcmp(key, META_KEY) == 0) {
            rc = take_meta(value, f, e);
        } else {
            struct st_tensor *t = &f->tensors[f->n_tensors++];

            rc = take_tensor(key, value, f->dims + n_dims, t, e);
            n_dims += t->n_dims;
        }
        if (rc < 0) {
            return rc;
        }
    }
    qsort(f->tensors, f->n_tensors, sizeof(*f->tensors), by_place);
    return 0;
}

/* What the parser does not tell of a header. */
struct scan {
    size_t depth; /* of lists and objects in each other: parsers of others end at some */
    bool has_minus_zero; /* of which it makes 0; the reference reader refuses it */
};

/* A number, and not the beginning of one: -0 and nothing that goes on behind. */
static bool is_minus_zero(const char *text, size_t left)
{
    return left >= 2 && text[0] == '-' && text[1] == '0' &&
           (left == 2 || (text[2] != '.' && text[2] != 'e' && text[2] != 'E'));
}

static struct scan scan_header(const char *text, size_t len)
{
    struct scan s = {0};
    size_t depth = 0;
    bool is_string = false;

    for (size_t i = 0; i < len; i++) {
        if (is_string) {
            is_string = text[i] != '"';
            i += text[i] == '\\';
        } else if (text[i] == '"') {
            is_string = true;
        } else if (text[i] == '{' || text[i] == '[') {
            depth++;
            s.depth = depth > s.depth ? depth : s.depth;
        } else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
            depth--;
        } else {
            /* In an exponent it is a part of another number. */
            s.has_minus_zero = s.has_minus_zero ||
                               (is_minus_zero(text + i, len - i) &&
                                (i == 0 || (text[i - 1] != 'e' && text[i - 1] != 'E')));
        }
    }
    return s;
}

int st_read(const void *header, size_t len, uint64_t file_bytes,
            struct st_file *ret, struct error *e)
{
    _st_file_ struct st_file f = {.data_at = ST_PREFIX_BYTES + len};
    struct scan scan = scan_header(header, len);
    json_error_t why;
    json_t *json;
    int rc;

    if (len == 0 || *(const char *)header != '{' || f.data_at > file_bytes) {
        return error_text(e, ERR_FORMAT, "no safetensors file: its header does "
                          "not begin with '{'");
    }
    if (scan.depth > MAX_HEADER_DEPTH) {
        return error_text(e, ERR_FORMAT, "the header is nested more than %d levels "
                          "deep", MAX_HEADER_DEPTH);
    }
    if (scan.has_minus_zero) {
        return error_text(e, ERR_FORMAT, "a number of the header is -0, and none is "
                          "negative");
    }
    json = json_loadb(header, len, JSON_REJECT_DUPLICATES, &why);
    if (!json) {
        return error_text(e, ERR_FORMAT, "the header is no JSON object: %.200s, "
                          "at its byte %d", why.text, why.position);
    }
    rc = take_all(json, &f, e);
    json_decref(json);
    rc = rc < 0 ? rc : check_places(&f, file_bytes, e);
    if (rc == 0) {
        *ret = f;
        f = (struct st_file){0};
    }
    return rc;
}

int st_load(struct io *io, int fd, struct st_file *ret, struct error *e)
{
    uint8_t prefix[ST_PREFIX_BYTES] = {0};
    _free_ char *header = NULL;
    uint64_t bytes = 0, n = 0;
    int rc = io->ops->size(io, fd, &bytes);

    if (rc == 0 && bytes >= sizeof(prefix)) {
        rc = io_read_all(io, fd, prefix, sizeof(prefix), 0);
    }
    if (rc < 0) {
        return error_set(e, -rc, "read its header");
    }
    rc = st_header_bytes(prefix, bytes, &n, e);
    header = rc == 0 ? malloc(n + 1) : NULL;
    if (!header) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "read its header");
    }
    rc = io_read_all(io, fd, header, n, sizeof(prefix));
    return rc < 0 ? error_set(e, -rc, "read its header")
                  : st_read(header, n, bytes, ret, e);
}
