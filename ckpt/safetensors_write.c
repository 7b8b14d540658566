/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/safetensors.h"

#include "base/sort.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    uint32_t x_bits = dtype_bits(x->dtype), y_bits = dtype_bits(y->dtype);

    if (x_bits != y_bits) {
        return x_bits > y_bits ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end > y->end ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_names(const struct st_file *f, struct error *e)
{
    const char **names = calloc(f->n_tensors + 1, sizeof(*names));
    int rc = 0;

    if (!names) {
        return error_set(e, ENOMEM, "lay tensors out");
    }
    for (size_t i = 0; i < f->n_tensors && rc == 0; i++) {
        names[i] = f->tensors[i].name;
        if (strcmp(names[i], "__metadata__") == 0 ||
            strlen(names[i]) > ST_MAX_NAME_BYTES) {
            rc = error_text(e, EINVAL, "'%.200s' cannot be a tensor's name",
                            names[i]);
        }
    }
    sort_items(names, f->n_tensors, sizeof(*names), by_name);
    for (size_t i = 1; i < f->n_tensors && rc == 0; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            rc = error_text(e, EINVAL, "two tensors of the name '%.200s'",
                            names[i]);
        }
    }
    free(names);
    return rc;
}

int st_layout(struct st_file *f, struct error *e)
{
    uint64_t at = 0;
    int rc = check_names(f, e);

    for (size_t i = 0; i < f->n_tensors && rc == 0; i++) {
        struct st_tensor *t = &f->tensors[i];
        uint64_t n;

        if (!box_volume_of(t->n_dims, t->shape, &n) || !dtype_bytes(t->dtype, n, &t->end)) {
            rc = error_text(e, EINVAL, "tensor '%.200s': its shape has no size "
                            "in bytes", t->name);
        }
    }
    if (rc < 0) {
        return rc;
    }
    /* What is made of sorted pieces comes sorted. */
    sort_items(f->tensors, f->n_tensors, sizeof(*f->tensors), by_size);
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct st_tensor *t = &f->tensors[i];

        t->begin = at;
        if (__builtin_add_overflow(at, t->end, &t->end)) {
            return error_text(e, EINVAL, "the tensors are too large together");
        }
        at = t->end;
    }
    return 0;
}

enum { ESCAPED_BYTES = 6, CHUNK_BYTES = 4096, DTYPE_BYTES = 32 };

/* Which of eight bytes are written otherwise: control characters, quotes, backslashes.
 * Their highest bits; above the first of them others may be set, too. */
static uint64_t special_of(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';

    return (((eight - ones * ' ') & ~eight) | ((quote - ones) & ~quote) |
            ((backslash - ones) & ~backslash)) & high;
}

static char *escape(char *to, unsigned char c)
{
    static const char short_of[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    static const char digits[] = "0123456789ABCDEF";

    for (size_t i = 0; i + 1 < sizeof(short_of); i += 2) {
        if ((unsigned char)short_of[i] == c) {
            *to++ = '\\';
            *to++ = short_of[i + 1];
            return to;
        }
    }
    memcpy(to, "\\u00", 4);
    to[4] = digits[c >> 4];
    to[5] = digits[c & 15];
    return to + ESCAPED_BYTES;
}

/* Behind `to` there are ESCAPED_BYTES for each of them, and 8 more. */
static char *put_bytes(char *to, const char *s, const char *end)
{
    while (end - s >= 8) {
        uint64_t eight, special;
        size_t plain;

        memcpy(&eight, s, 8);
        memcpy(to, &eight, 8);
        special = special_of(eight);
        plain = special ? (size_t)__builtin_ctzll(special) / 8 : 8;
        to += plain;
        s += plain;
        if (special) {
            to = escape(to, (unsigned char)*s++);
        }
    }
    for (; s < end; s++) {
        unsigned char c = (unsigned char)*s;

        if (c < ' ' || c == '"' || c == '\\') {
            to = escape(to, c);
        } else {
            *to++ = *s;
        }
    }
    return to;
}

static void put_escaped(const char *s, size_t len, struct buf *b)
{
    const char *end = s + len;

    while (s < end) {
        size_t n = end - s < CHUNK_BYTES ? (size_t)(end - s) : CHUNK_BYTES;
        char *to = buf_reserve(b, ESCAPED_BYTES * n + 8);

        if (!to) {
            return;
        }
        b->len = (size_t)(put_bytes(to, s, s + n) - b->data);
        s += n;
    }
}

void st_put_string(const char *s, struct buf *b)
{
    buf_putc(b, '"');
    put_escaped(s, strlen(s), b);
    buf_putc(b, '"');
}

static void put_made(const struct st_made *m, struct buf *b)
{
    _buf_ struct buf some = {0};

    st_put_string(m->key, b);
    buf_puts(b, ":\"");
    for (size_t i = 0; i < m->n && !some.failed; i++) {
        m->put(m->arg, i, &some);
        put_escaped(buf_str(&some), some.len, b);
        buf_clear(&some);
    }
    buf_putc(b, '"');
    b->failed = b->failed || some.failed;
}

static bool has_meta(const struct st_file *f)
{
    return f->n_meta > 0 || f->made;
}

static void put_meta(const struct st_file *f, struct buf *b)
{
    buf_puts(b, "\"__metadata__\":{");
    for (size_t i = 0; i < f->n_meta; i++) {
        if (i > 0) {
            buf_putc(b, ',');
        }
        st_put_string(f->meta[i].key, b);
        buf_putc(b, ':');
        st_put_string(f->meta[i].value, b);
    }
    if (f->made) {
        if (f->n_meta > 0) {
            buf_putc(b, ',');
        }
        put_made(f->made, b);
    }
    buf_putc(b, '}');
}

static char *put_text(char *to, const char *s)
{
    size_t n = strlen(s);

    memcpy(to, s, n);
    return to + n;
}

/* There may be very many: room is made for it once. */
static void put_tensor(const struct st_tensor *t, struct buf *b)
{
    static const char begin[] = "\":{\"dtype\":\"", shape[] = "\",\"shape\":[",
                      places[] = "],\"data_offsets\":[";
    size_t len = strlen(t->name);
    char *to = buf_reserve(b, ESCAPED_BYTES * len + DTYPE_BYTES + sizeof(begin) +
                                  sizeof(shape) + sizeof(places) +
                                  (t->n_dims + 2) * (STR_U64_BYTES + 1) + 8);

    if (!to) {
        return;
    }
    *to++ = '"';
    to = put_bytes(to, t->name, t->name + len);
    to = put_text(to, begin);
    to = put_text(to, dtype_name(t->dtype));
    to = put_text(to, shape);
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (d > 0) {
            *to++ = ',';
        }
        to = str_put_u64(to, t->shape[d]);
    }
    to = put_text(to, places);
    to = str_put_u64(to, t->begin);
    *to++ = ',';
    to = str_put_u64(to, t->end);
    to = put_text(to, "]}");
    b->len = (size_t)(to - b->data);
}

static int check_text(const struct st_file *f, struct error *e)
{
    for (size_t i = 0; i < f->n_tensors; i++) {
        const char *name = f->tensors[i].name;

        if (!utf8_is_valid(name)) {
            return error_text(e, EINVAL, "the name of a tensor is not UTF-8");
        }
    }
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct st_meta *m = &f->meta[i];

        if (!utf8_is_valid(m->key) ||
            !utf8_is_valid(m->value)) {
            return error_text(e, EINVAL, "metadata of '%.200s' is not UTF-8",
                              m->key);
        }
    }
    return 0;
}

static void pad(struct buf *b, size_t from, uint64_t align)
{
    while (!b->failed && (b->len - from) % align != 0) {
        buf_putc(b, ' ');
    }
}

int st_write(struct st_file *f, uint64_t align, struct buf *b, struct error *e)
{
    size_t from = b->len;
    uint64_t n;
    int rc = check_text(f, e);

    if (rc < 0) {
        return rc;
    }
    buf_append(b, "\0\0\0\0\0\0\0", ST_PREFIX_BYTES);
    buf_putc(b, '{');
    if (has_meta(f)) {
        put_meta(f, b);
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        if (i > 0 || has_meta(f)) {
            buf_putc(b, ',');
        }
        put_tensor(&f->tensors[i], b);
    }
    buf_putc(b, '}');
    pad(b, from, align);
    if (b->failed) {
        return error_set(e, ENOMEM, "write a safetensors header");
    }
    n = b->len - from - ST_PREFIX_BYTES;
    if (n > ST_MAX_HEADER_BYTES) {
        return error_text(e, EINVAL, "%zu tensors need a header of %llu bytes, "
                          "and readers take %d", f->n_tensors,
                          (unsigned long long)n, ST_MAX_HEADER_BYTES);
    }
    f->data_at = ST_PREFIX_BYTES + n;
    for (size_t i = 0; i < ST_PREFIX_BYTES; i++) {
        b->data[from + i] = (char)(n >> 8 * i);
    }
    return 0;
}
