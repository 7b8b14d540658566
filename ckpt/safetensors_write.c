/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/safetensors.h"

#include "base/pages.h"
#include "base/sort.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ESCAPED_BYTES = 6,
    TWICE_ESCAPED_BYTES = 7,
    CHUNK_BYTES = 4096,
    DTYPE_BYTES = 32,
    LEAST_BYTES = 40, /* of a tensor in a header, and in what is made of all */
};

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* While `begin` says which one it is by name, and `end` how many bytes it has. */
static int by_size(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    if (x->dtype != y->dtype && dtype_bits(x->dtype) != dtype_bits(y->dtype)) {
        return dtype_bits(x->dtype) > dtype_bits(y->dtype) ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end > y->end ? -1 : 1;
    }
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int check_tensor(struct st_tensor *t, struct error *e)
{
    uint64_t n;

    if (strcmp(t->name, "__metadata__") == 0 || strlen(t->name) > ST_MAX_NAME_BYTES) {
        return error_text(e, EINVAL, "'%.200s' cannot be a tensor's name", t->name);
    }
    if (!box_volume_of(t->n_dims, t->shape, &n) || !dtype_bytes(t->dtype, n, &t->end)) {
        return error_text(e, EINVAL, "tensor '%.200s': its shape has no size in bytes",
                          t->name);
    }
    return 0;
}

/* Orders them by name, and looks at each: names lie here and there in memory, and are fetched
 * once where they come in order. */
static int order_by_name(struct st_file *f, struct error *e)
{
    size_t i = 0;
    int rc = 0;

    while (i < f->n_tensors && rc == 0) {
        struct st_tensor *t = st_tensor_at(f, i);
        int order = i > 0 ? by_name(st_tensor_at(f, i - 1), t) : -1;

        if (order > 0) {
            sort_items(f->tensors, f->n_tensors, st_tensor_bytes(f), by_name);
            i = 0;
            continue;
        }
        rc = order == 0 ? error_text(e, EINVAL, "two tensors of the name '%.200s'", t->name)
                        : check_tensor(t, e);
        t->begin = i;
        i++;
    }
    return rc;
}

int st_layout(struct st_file *f, struct error *e)
{
    uint64_t at = 0;
    int rc = order_by_name(f, e);

    if (rc < 0) {
        return rc;
    }
    sort_items(f->tensors, f->n_tensors, st_tensor_bytes(f), by_size);
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct st_tensor *t = st_tensor_at(f, i);

        t->begin = at;
        if (__builtin_add_overflow(at, t->end, &t->end)) {
            return error_text(e, EINVAL, "the tensors are too large together");
        }
        at = t->end;
    }
    return 0;
}

/* Which of eight bytes are written otherwise: control characters, quotes, backslashes.
 * Their highest bits; above the first of them others may be set, too. */
static uint64_t special_of(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';

    return (((eight - ones * ' ') & ~eight) | ((quote - ones) & ~quote) |
            ((backslash - ones) & ~backslash)) & high;
}

static bool is_special(unsigned char c)
{
    return c < ' ' || c == '"' || c == '\\';
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

        if (is_special(c)) {
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
        to = put_bytes(to, s, s + n);
        *to = '\0';
        b->len = (size_t)(to - b->data);
        s += n;
    }
}

static void put_string(const char *s, struct buf *b)
{
    buf_putc(b, '"');
    put_escaped(s, strlen(s), b);
    buf_putc(b, '"');
}

/* As nearly all names are. */
static bool is_plain(const char *s, size_t len)
{
    const char *end = s + len;
    uint64_t eight, special = 0;

    for (; end - s >= 8; s += 8) {
        memcpy(&eight, s, 8);
        special |= special_of(eight);
    }
    for (; s < end; s++) {
        special |= is_special((unsigned char)*s);
    }
    return special == 0;
}

/* As it stands in a string of JSON that stands in another one. Behind `to` there are
 * TWICE_ESCAPED_BYTES for each byte, and 8 more. */
static char *put_bytes_within(char *to, const char *s, size_t len)
{
    char once[ESCAPED_BYTES + 8];

    if (is_plain(s, len)) {
        memcpy(to, s, len);
        return to + len;
    }
    for (size_t i = 0; i < len; i++) {
        to = put_bytes(to, once, put_bytes(once, s + i, s + i + 1));
    }
    return to;
}

static char *put_text(char *to, const char *s)
{
    size_t n = strlen(s);

    memcpy(to, s, n);
    return to + n;
}

static char *put_numbers(char *to, const uint64_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) {
            *to++ = ',';
        }
        to = str_put_u64(to, numbers[i]);
    }
    return to;
}

static void put_made_of(const struct st_made *m, const struct st_tensor *t,
                        const uint64_t *numbers, struct buf *b)
{
    static const char begin[] = "\\\":{\\\"", end[] = "\\\":[";
    size_t len = strlen(t->name);
    char *to = buf_reserve(b, TWICE_ESCAPED_BYTES * len + strlen(m->field) + sizeof(begin) +
                                  sizeof(end) + t->n_dims * (STR_U64_BYTES + 1) + 16);

    if (!to) {
        return;
    }
    to = put_text(to, "\\\"");
    to = put_bytes_within(to, t->name, len);
    to = put_text(to, begin);
    to = put_text(to, m->field);
    to = put_text(to, end);
    to = put_numbers(to, numbers, t->n_dims);
    to = put_text(to, "]}");
    b->len = (size_t)(to - b->data);
}

static void put_made(const struct st_file *f, struct buf *b)
{
    const struct st_made *m = f->made;

    put_string(m->key, b);
    buf_puts(b, ":\"{");
    for (size_t i = 0; i < f->n_tensors; i++) {
        if (i > 0) {
            buf_putc(b, ',');
        }
        put_made_of(m, st_tensor_at(f, i), m->numbers(m->arg, i), b);
    }
    buf_puts(b, "}\"");
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
        put_string(f->meta[i].key, b);
        buf_putc(b, ':');
        put_string(f->meta[i].value, b);
    }
    if (f->made) {
        if (f->n_meta > 0) {
            buf_putc(b, ',');
        }
        put_made(f, b);
    }
    buf_putc(b, '}');
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
    to = put_numbers(to, t->shape, t->n_dims);
    to = put_text(to, places);
    to = str_put_u64(to, t->begin);
    *to++ = ',';
    to = str_put_u64(to, t->end);
    to = put_text(to, "]}");
    b->len = (size_t)(to - b->data);
}

static int put_tensors(const struct st_file *f, struct buf *b, struct error *e)
{
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct st_tensor *t = st_tensor_at(f, i);

        if (!utf8_is_valid(t->name)) {
            return error_text(e, EINVAL, "the name of a tensor is not UTF-8");
        }
        if (i > 0 || has_meta(f)) {
            buf_putc(b, ',');
        }
        put_tensor(t, b);
    }
    return 0;
}

static int check_meta(const struct st_file *f, struct error *e)
{
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

static size_t least_bytes(const struct st_file *f)
{
    return (f->made ? 2 : 1) * f->n_tensors * LEAST_BYTES;
}

int st_write(struct st_file *f, uint64_t align, struct buf *b, struct error *e)
{
    size_t from = b->len;
    uint64_t n;
    int rc = check_meta(f, e);

    if (rc < 0) {
        return rc;
    }
    pages_expect(buf_reserve(b, least_bytes(f)), least_bytes(f));
    buf_append(b, "\0\0\0\0\0\0\0", ST_PREFIX_BYTES);
    buf_putc(b, '{');
    if (has_meta(f)) {
        put_meta(f, b);
    }
    rc = put_tensors(f, b, e);
    if (rc < 0) {
        return rc;
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
