/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"

#include "base/pages.h"
#include "base/str.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_release(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data) {
        b->data[0] = '\0';
    }
}

static char *grow(struct buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *grown;

    if (b->failed || n > SIZE_MAX / 4 - b->len) {
        b->failed = true;
        return NULL;
    }
    while (cap < b->len + n + 1) {
        cap *= 2;
    }
    grown = realloc(b->data, cap);
    if (!grown) {
        b->failed = true;
        return NULL;
    }
    b->data = grown;
    b->cap = cap;
    return b->data + b->len;
}

char *buf_reserve(struct buf *b, size_t n)
{
    return !b->failed && n < b->cap - b->len ? b->data + b->len : grow(b, n);
}

char *buf_reserve_page(struct buf *b, size_t n)
{
    void *at = NULL;

    if (b->data || b->failed || n > SIZE_MAX / 4) {
        return buf_reserve(b, n);
    }
    if (posix_memalign(&at, pages_bytes(), n + 1) != 0) {
        b->failed = true;
        return NULL;
    }
    b->data = at;
    b->cap = n + 1;
    b->data[0] = '\0';
    return b->data;
}

void buf_append(struct buf *b, const void *data, size_t n)
{
    char *to = buf_reserve(b, n);

    if (!to) {
        return;
    }
    if (n) {
        memcpy(to, data, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    size_t room = b->failed ? 0 : b->cap - b->len;
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, again);
    va_end(again);
    if (n >= 0 && (size_t)n < room) {
        b->len += (size_t)n;
        return;
    }
    if (room) {
        b->data[b->len] = '\0';
    }
    if (n < 0) {
        b->failed = true;
        return;
    }
    if (buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
        b->len += (size_t)n;
    }
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_put_numbers(struct buf *b, const uint64_t *numbers, size_t n)
{
    char *begin = n > 0 ? buf_reserve(b, n * (STR_U64_BYTES + 1)) : NULL, *to = begin;

    for (size_t i = 0; to && i < n; i++) {
        if (i > 0) {
            *to++ = ',';
        }
        to = str_put_u64(to, numbers[i]);
    }
    if (to) {
        *to = '\0';
        b->len += (size_t)(to - begin);
    }
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
    } else {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
    if (b->data) {
        b->data[b->len] = '\0';
    }
}

void buf_truncate(struct buf *b, size_t len)
{
    if (len < b->len) {
        b->len = len;
        b->data[len] = '\0';
    }
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
    char *taken = b->failed ? NULL : b->data;

    if (taken) {
        *b = (struct buf){0};
    } else if (!b->failed) {
        taken = calloc(1, 1);
    }
    return taken;
}
