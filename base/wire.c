/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/wire.h"

#include <stdlib.h>
#include <string.h>

static void put_be(struct buf *b, uint64_t v, size_t n_bytes)
{
    uint8_t out[8];

    for (size_t i = 0; i < n_bytes; i++) {
        out[i] = (uint8_t)(v >> (8 * (n_bytes - 1 - i)));
    }
    buf_append(b, out, n_bytes);
}

void wire_put_u8(struct buf *b, uint8_t v)
{
    put_be(b, v, 1);
}

void wire_put_u16(struct buf *b, uint16_t v)
{
    put_be(b, v, 2);
}

void wire_put_u32(struct buf *b, uint32_t v)
{
    put_be(b, v, 4);
}

void wire_put_u64(struct buf *b, uint64_t v)
{
    put_be(b, v, 8);
}

void wire_put_i64(struct buf *b, int64_t v)
{
    put_be(b, (uint64_t)v, 8);
}

void wire_put_f64(struct buf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_be(b, bits, 8);
}

void wire_put_bytes(struct buf *b, const void *data, size_t len)
{
    if (len > UINT32_MAX) {
        b->failed = true;
        return;
    }
    put_be(b, len, 4);
    buf_append(b, data, len);
}

void wire_put_str(struct buf *b, const char *s)
{
    wire_put_bytes(b, s ? s : "", s ? strlen(s) : 0);
}

struct wire_reader wire_reader(const void *data, size_t len)
{
    return (struct wire_reader){.data = data, .len = len};
}

static const uint8_t *take(struct wire_reader *r, size_t n)
{
    const uint8_t *from;

    if (r->bad || n > r->len - r->at) {
        r->bad = true;
        return NULL;
    }
    from = r->data + r->at;
    r->at += n;
    return from;
}

static uint64_t get_be(struct wire_reader *r, size_t n_bytes)
{
    const uint8_t *from = take(r, n_bytes);
    uint64_t v = 0;

    for (size_t i = 0; from && i < n_bytes; i++) {
        v = v << 8 | from[i];
    }
    return v;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
    return (uint8_t)get_be(r, 1);
}

uint16_t wire_get_u16(struct wire_reader *r)
{
    return (uint16_t)get_be(r, 2);
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    return (uint32_t)get_be(r, 4);
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    return get_be(r, 8);
}

int64_t wire_get_i64(struct wire_reader *r)
{
    return (int64_t)get_be(r, 8);
}

double wire_get_f64(struct wire_reader *r)
{
    uint64_t bits = get_be(r, 8);
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

const void *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_len)
{
    size_t len = wire_get_u32(r);
    const void *from;

    *ret_len = 0;
    if (len > max) {
        r->bad = true;
        return NULL;
    }
    from = take(r, len);
    if (from) {
        *ret_len = len;
    }
    return from;
}

void wire_get_str(struct wire_reader *r, char *to, size_t size)
{
    size_t len;
    const void *from = wire_get_bytes(r, size - 1, &len);

    to[0] = '\0';
    if (!from) {
        return;
    }
    if (memchr(from, '\0', len)) {
        r->bad = true;
        return;
    }
    memcpy(to, from, len);
    to[len] = '\0';
}

char *wire_dup_str(struct wire_reader *r, size_t max)
{
    size_t len;
    const void *from = wire_get_bytes(r, max, &len);
    char *s;

    if (!from || memchr(from, '\0', len)) {
        r->bad = true;
        return NULL;
    }
    s = malloc(len + 1);
    if (!s) {
        r->bad = true;
        return NULL;
    }
    memcpy(s, from, len);
    s[len] = '\0';
    return s;
}

bool wire_done(const struct wire_reader *r)
{
    return !r->bad && r->at == r->len;
}
