/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/pickle.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What follows an instruction: so many bytes, or one of these. */
enum argument {
    LINE = -1,      /* text to the end of the line */
    TWO_LINES = -2,
    COUNTED_1 = -3, /* a length in so many bytes, little-endian, and then that */
    COUNTED_4 = -4,
    COUNTED_8 = -5,
    NONE = -6,      /* no such instruction */
};

static int argument_of(uint8_t op)
{
    switch (op) {
    case '(': case '.': case '0': case '1': case '2': case 'N': case 'Q':
    case 'R': case 'a': case 'b': case 'd': case '}': case 'e': case 'l':
    case ']': case 'o': case 's': case 't': case ')': case 'u':
    case 0x81: case 0x85: case 0x86: case 0x87: case 0x88: case 0x89:
    case 0x8f: case 0x90: case 0x91: case 0x92: case 0x93: case 0x94:
    case 0x97: case 0x98:
        return 0;
    case 'K': case 'h': case 'q': case 0x80: case 0x82:
        return 1;
    case 'M': case 0x83:
        return 2;
    case 'J': case 'j': case 'r': case 0x84:
        return 4;
    case 'G': case 0x95:
        return 8;
    case 'F': case 'I': case 'L': case 'P': case 'S': case 'V': case 'g':
    case 'p':
        return LINE;
    case 'c': case 'i':
        return TWO_LINES;
    case 'U': case 'C': case 0x8a: case 0x8c:
        return COUNTED_1;
    case 'T': case 'B': case 'X': case 0x8b:
        return COUNTED_4;
    case 0x8d: case 0x8e: case 0x96:
        return COUNTED_8;
    default:
        return NONE;
    }
}

/* Both skip forwards from `at`; false where the data ends before. */
static bool skip_lines(const uint8_t *data, size_t len, size_t *at, int n)
{
    while (n-- > 0) {
        const uint8_t *end = memchr(data + *at, '\n', len - *at);

        if (!end) {
            return false;
        }
        *at = (size_t)(end - data) + 1;
    }
    return true;
}

static bool skip_counted(const uint8_t *data, size_t len, size_t *at,
                         size_t n_bytes)
{
    uint64_t n = 0;

    if (len - *at < n_bytes) {
        return false;
    }
    for (size_t i = n_bytes; i-- > 0;) {
        n = n << 8 | data[*at + i];
    }
    *at += n_bytes;
    if (n > len - *at) {
        return false;
    }
    *at += n;
    return true;
}

static bool skip_argument(const uint8_t *data, size_t len, size_t *at,
                          int argument)
{
    switch (argument) {
    case LINE:
        return skip_lines(data, len, at, 1);
    case TWO_LINES:
        return skip_lines(data, len, at, 2);
    case COUNTED_1:
        return skip_counted(data, len, at, 1);
    case COUNTED_4:
        return skip_counted(data, len, at, 4);
    case COUNTED_8:
        return skip_counted(data, len, at, 8);
    default:
        if (len - *at < (size_t)argument) {
            return false;
        }
        *at += (size_t)argument;
        return true;
    }
}

int pickle_next(const void *data, size_t len, size_t *at,
                struct pickle_op *ret, struct error *e)
{
    const uint8_t *bytes = data;
    size_t from = *at;
    int argument;

    if (from >= len) {
        return error_text(e, ERR_FORMAT, "the pickle is cut: %zu bytes without an "
                          "end", len);
    }
    ret->op = bytes[(*at)++];
    ret->argument = bytes + *at;
    argument = argument_of(ret->op);
    if (argument == NONE) {
        return error_text(e, ERR_FORMAT, "no pickle: its byte %zu, 0x%02x, is "
                          "no instruction", from, ret->op);
    }
    if (!skip_argument(bytes, len, at, argument)) {
        return error_text(e, ERR_FORMAT, "the pickle is cut in the instruction at "
                          "its byte %zu of %zu", from, len);
    }
    ret->len = *at - from - 1;
    return 0;
}

uint64_t pickle_number(const uint8_t *at, size_t bytes)
{
    uint64_t n = 0;

    while (bytes-- > 0) {
        n = n << 8 | at[bytes];
    }
    return n;
}

uint64_t pickle_place(const struct pickle_op *op)
{
    uint64_t n = 0;

    if (op->op != 'p' && op->op != 'g') {
        return pickle_number(op->argument, op->len);
    }
    for (size_t i = 0; i + 1 < op->len; i++) {
        if (op->argument[i] < '0' || op->argument[i] > '9' || n > UINT32_MAX) {
            return UINT64_MAX;
        }
        n = 10 * n + (op->argument[i] - '0');
    }
    return op->len > 1 ? n : UINT64_MAX;
}
