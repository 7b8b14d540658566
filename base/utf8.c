/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/utf8.h"

#include "base/cleanup.h"

#include <string.h>

size_t utf8_next_of(const char *text, size_t left, uint32_t *ret)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0},
                 {0xe0, 0xc0, 0x80},
                 {0xf0, 0xe0, 0x800},
                 {0xf8, 0xf0, 0x10000}};
    const unsigned char *s = (const unsigned char *)text;

    for (size_t n = 0; n < ARRAY_SIZE(forms); n++) {
        uint32_t c = s[0] & (unsigned char)~forms[n].mask;

        if ((s[0] & forms[n].mask) != forms[n].lead) {
            continue;
        }
        for (size_t i = 1; i <= n; i++) {
            if (i >= left || (s[i] & 0xc0) != 0x80) {
                return 0;
            }
            c = c << 6 | (s[i] & 0x3f);
        }
        if (c < forms[n].least || c > 0x10ffff ||
            (c >= 0xd800 && c <= 0xdfff)) {
            return 0;
        }
        *ret = c;
        return n + 1;
    }
    return 0;
}

size_t utf8_next(const char *s, uint32_t *ret)
{
    return utf8_next_of(s, SIZE_MAX, ret);
}

bool utf8_is_valid(const char *s)
{
    const char *end = s + strlen(s);
    uint64_t eight;
    uint32_t c;

    while (s < end) {
        size_t n;

        /* Nearly all text is ASCII: eight bytes at once. */
        for (; end - s >= 8; s += 8) {
            memcpy(&eight, s, sizeof(eight));
            if (eight & 0x8080808080808080u) {
                break;
            }
        }
        if (s == end) {
            break;
        }
        n = (signed char)*s > 0 ? 1 : utf8_next(s, &c);

        if (n == 0) {
            return false;
        }
        s += n;
    }
    return true;
}

struct range {
    uint32_t first, last;
};

static bool is_in(const struct range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

bool utf8_is_printable(uint32_t c)
{
    static const struct range hidden[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
        {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f},
    };

    return !is_in(hidden, ARRAY_SIZE(hidden), c);
}

/* Whole blocks, which is near enough for names. */
unsigned utf8_columns(uint32_t c)
{
    static const struct range none[] = {
        {0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff},
        {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef},
    };
    static const struct range two[] = {
        {0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xa960, 0xa97f},
        {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60},
        {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff},
        {0x20000, 0x3fffd},
    };

    return c < 0x300 ? 1 : is_in(none, ARRAY_SIZE(none), c) ? 0
           : is_in(two, ARRAY_SIZE(two), c) ? 2 : 1;
}

static void put_hidden(struct buf *to, uint32_t c)
{
    if (c == '\n') {
        buf_puts(to, "\\n");
    } else if (c == '\t') {
        buf_puts(to, "\\t");
    } else if (c < 0x80) {
        buf_printf(to, "\\x%02x", (unsigned)c);
    } else {
        buf_printf(to, "\\u%04x", (unsigned)c);
    }
}

void utf8_put_printable(struct buf *to, const char *s, size_t max)
{
    size_t start = to->len;

    while (*s) {
        uint32_t c = 0;
        size_t n = utf8_next(s, &c);

        if (to->failed) {
            return;
        }
        if (to->len - start >= max) {
            buf_puts(to, "...");
            return;
        }
        if (n == 0) {
            buf_printf(to, "\\x%02x", (unsigned char)*s);
            n = 1;
        } else if (utf8_is_printable(c)) {
            buf_append(to, s, n);
        } else {
            put_hidden(to, c);
        }
        s += n;
    }
}
