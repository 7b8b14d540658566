/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer. `data` is always followed by a zero byte that `len`
 * does not count, so a buffer of text is a string. Zero-initialised is empty.
 * An allocation that fails is remembered in `failed` and every later call does
 * nothing, so a sequence of appends is checked once, at its end.
 */
#ifndef MUSTER_BASE_BUF_H
#define MUSTER_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL while empty and never grown */
    size_t len;
    size_t cap;
    bool failed;
};

/* Frees the memory; the buffer is empty and usable again. */
void buf_release(struct buf *b);

/* Empties, keeping the memory. */
void buf_clear(struct buf *b);

/* Room for `n` more bytes: where they go, or NULL without memory. The caller
 * writes there and adds to `len`. */
char *buf_reserve(struct buf *b, size_t n);

/* The same. Of a buffer that has no memory yet it begins with a page: what a disk takes past
 * the page cache. */
char *buf_reserve_page(struct buf *b, size_t n);

void buf_append(struct buf *b, const void *data, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

/* "1,20,300": with commas between them. */
void buf_put_numbers(struct buf *b, const uint64_t *numbers, size_t n);

/* Drops the first `n` bytes. */
void buf_consume(struct buf *b, size_t n);

/* Drops all behind the first `len` bytes. */
void buf_truncate(struct buf *b, size_t len);

/* The text ("" when empty), valid until the next call on `b`. */
const char *buf_str(const struct buf *b);

/* The memory, to be freed by the caller; NULL if anything failed. The buffer is
 * empty afterwards. */
char *buf_take(struct buf *b);

#define _buf_ __attribute__((cleanup(buf_release)))

#endif
