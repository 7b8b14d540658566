/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8, and text that may be shown: what others wrote (a spec, a name, an
 * argument) is printed in messages, where it must neither drive a terminal nor
 * look like something else.
 */
#ifndef MUSTER_BASE_UTF8_H
#define MUSTER_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the sequence at `s`, and its code point; 0: there is none. */
size_t utf8_next(const char *s, uint32_t *ret);
/* The same where `s` has `left` bytes (1 or more), and no zero byte behind. */
size_t utf8_next_of(const char *s, size_t left, uint32_t *ret);

bool utf8_is_valid(const char *s);

/* False for what a terminal acts on or what hides or reorders text: control
 * characters of both ranges, line and paragraph separators, marks of direction,
 * the byte order mark. */
bool utf8_is_printable(uint32_t c);

/* In how many columns of a terminal it is shown: 1; 2 for what East Asian scripts and emoji
 * take; 0 for accents that go onto what is before. */
unsigned utf8_columns(uint32_t c);

/* Appends `s` with all that is not printable as \n, \t, \xNN (a byte) or \uNNNN,
 * and cuts after about `max` bytes, which it then says by "...". */
void utf8_put_printable(struct buf *to, const char *s, size_t max);

#endif
