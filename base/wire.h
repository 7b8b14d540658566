/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of messages: big-endian, fixed width; strings and blobs carry their
 * length as 32 bits before them. Writing appends to a buffer (which remembers a
 * failed allocation). Reading is sticky: the first field that does not fit sets
 * `bad`, and every later read gives zero or "", so a decoder reads all fields
 * and then checks wire_done() once.
 */
#ifndef MUSTER_BASE_WIRE_H
#define MUSTER_BASE_WIRE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void wire_put_u8(struct buf *b, uint8_t v);
void wire_put_u16(struct buf *b, uint16_t v);
void wire_put_u32(struct buf *b, uint32_t v);
void wire_put_u64(struct buf *b, uint64_t v);
void wire_put_i64(struct buf *b, int64_t v);
void wire_put_f64(struct buf *b, double v);
void wire_put_bytes(struct buf *b, const void *data, size_t len);
/* NULL is written as "". */
void wire_put_str(struct buf *b, const char *s);

struct wire_reader {
    const uint8_t *data; /* borrowed */
    size_t len;
    size_t at;
    bool bad;
};

struct wire_reader wire_reader(const void *data, size_t len);
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
int64_t wire_get_i64(struct wire_reader *r);
double wire_get_f64(struct wire_reader *r);

/* A blob inside the reader's memory, valid as long as that; longer than `max`
 * is bad. */
const void *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_len);

/* Copies a string of at most size - 1 bytes; longer, or with a zero byte inside,
 * is bad. `to` is always terminated. */
void wire_get_str(struct wire_reader *r, char *to, size_t size);

/* A string on the heap, or NULL if bad, over `max` or out of memory. */
char *wire_dup_str(struct wire_reader *r, size_t max);

/* True if everything was read, to the last byte, and nothing was bad. */
bool wire_done(const struct wire_reader *r);

#endif
