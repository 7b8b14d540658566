/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/wire.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_buf(void)
{
    _buf_ struct buf b = {0};

    is_str(buf_str(&b), "", "empty");
    buf_printf(&b, "%s-%d", "x", 5);
    is_str(buf_str(&b), "x-5", "printf");
    for (int i = 0; i < 1000; i++) {
        buf_putc(&b, 'y');
    }
    is_int((intmax_t)b.len, 1003, "grown");
    buf_consume(&b, 1001);
    is_str(buf_str(&b), "yy", "consumed");
    buf_truncate(&b, 5);
    is_str(buf_str(&b), "yy", "nothing is behind its end");
    buf_truncate(&b, 1);
    is_str(buf_str(&b), "y", "cut");
    buf_consume(&b, 99);
    is_int((intmax_t)b.len, 0, "consumed beyond the end");
    buf_puts(&b, "abc");
    buf_consume(&b, 3);
    is_str(buf_str(&b), "", "consumed to the end");
    ok(buf_reserve(&b, SIZE_MAX / 2) == NULL && b.failed, "absurd size");
    buf_puts(&b, "ignored");
    is_int((intmax_t)b.len, 0, "a failed buffer takes nothing");
    ok(buf_take(&b) == NULL, "and gives nothing");
    buf_clear(&b);
    buf_puts(&b, "again");
    is_str(buf_str(&b), "again", "until it is cleared");
}

/* There is room for a terminator behind whatever was reserved. */
static void test_room(void)
{
    bool enough = true;

    for (size_t n = 0; n < 300; n++) {
        _buf_ struct buf b = {0};

        enough = enough && buf_reserve(&b, n) && b.cap > n;
    }
    ok(enough, "room for a terminator");
}

static void test_page(void)
{
    _buf_ struct buf b = {0}, none = {0};
    char *first = buf_reserve_page(&b, 5000);
    size_t room = b.cap;

    ok(first && (uintptr_t)first % 4096 == 0 && room > 5000,
       "room from the beginning of a page on");
    is_str(buf_str(&b), "", "which is an empty text");
    buf_append(&b, "abc", 3);
    ok(buf_reserve_page(&b, 4997) == b.data + 3 && b.data == first && b.cap == room,
       "what is there stays, in the same memory");
    buf_reserve_page(&b, 100000);
    is_str(buf_str(&b), "abc", "and in more");
    ok(b.cap > 100003, "of which there is enough");
    ok(buf_reserve_page(&none, SIZE_MAX / 2) == NULL && none.failed, "absurd size");
}

static void test_round_trip(void)
{
    _buf_ struct buf b = {0};
    struct wire_reader r;
    char text[8];
    size_t len;

    wire_put_u8(&b, 0xfe);
    wire_put_u16(&b, 0xfedc);
    wire_put_u32(&b, 0xfedcba98);
    wire_put_u64(&b, 0xfedcba9876543210);
    wire_put_i64(&b, -5);
    wire_put_f64(&b, -0.25);
    wire_put_str(&b, "seven77");
    wire_put_bytes(&b, "\0\1", 2);
    is_int((uint8_t)b.data[1], 0xfe, "big-endian");
    r = wire_reader(b.data, b.len);
    is_int(wire_get_u8(&r), 0xfe, "u8");
    is_int(wire_get_u16(&r), 0xfedc, "u16");
    is_int(wire_get_u32(&r), 0xfedcba98, "u32");
    ok(wire_get_u64(&r) == 0xfedcba9876543210, "u64");
    is_int(wire_get_i64(&r), -5, "i64");
    ok(wire_get_f64(&r) == -0.25, "f64");
    wire_get_str(&r, text, sizeof(text));
    is_str(text, "seven77", "str that just fits");
    ok(memcmp(wire_get_bytes(&r, 2, &len), "\0\1", 2) == 0, "bytes");
    ok(wire_done(&r), "all read");
    is_int(wire_get_u8(&r), 0, "past the end gives zero");
    ok(r.bad && !wire_done(&r), "and is bad");
}

static void test_every_cut(void)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, 7);
    wire_put_str(&b, "text");
    wire_put_u64(&b, 9);
    for (size_t cut = 0; cut < b.len; cut++) {
        struct wire_reader r = wire_reader(b.data, cut);
        char text[8];

        wire_get_u32(&r);
        wire_get_str(&r, text, sizeof(text));
        wire_get_u64(&r);
        ok(!wire_done(&r), "cut to %zu bytes is noticed", cut);
    }
}

static void test_bad_strings(void)
{
    _buf_ struct buf b = {0};
    struct wire_reader r;
    char text[4];

    wire_put_str(&b, "long");
    r = wire_reader(b.data, b.len);
    wire_get_str(&r, text, sizeof(text));
    ok(r.bad && text[0] == '\0', "too long for its place");
    buf_clear(&b);
    wire_put_bytes(&b, "a\0b", 3);
    r = wire_reader(b.data, b.len);
    ok(wire_dup_str(&r, 10) == NULL && r.bad, "zero byte inside");
    r = wire_reader(b.data, b.len);
    wire_get_str(&r, text, sizeof(text));
    ok(r.bad && text[0] == '\0', "likewise in a place of its own");
    buf_clear(&b);
    wire_put_str(&b, "text");
    wire_put_u8(&b, 0);
    r = wire_reader(b.data, b.len);
    free(wire_dup_str(&r, 4));
    ok(!r.bad && !wire_done(&r), "a byte too many");
    buf_clear(&b);
    wire_put_u32(&b, 0xffffffff);
    r = wire_reader(b.data, b.len);
    ok(wire_dup_str(&r, SIZE_MAX) == NULL && r.bad, "length beyond the frame");
}

/* Whatever room there is: text that just fits into it, and that does not. */
static void test_printf(void)
{
    unsigned n_wrong = 0;

    for (int before = 0; before < 70; before++) {
        for (int n = 0; n < 140; n++) {
            _buf_ struct buf b = {0};
            char want[256];

            snprintf(want, sizeof(want), "%0*d%0*d", before + 1, 7, n + 1, 8);
            buf_printf(&b, "%0*d", before + 1, 7);
            buf_printf(&b, "%0*d", n + 1, 8);
            n_wrong += b.failed || b.len != strlen(want) || strcmp(b.data, want) != 0;
        }
    }
    is_int((int)n_wrong, 0, "texts of all lengths");
}

static void test_numbers(void)
{
    static const uint64_t some[] = {0, 9, 10, UINT64_MAX};
    _buf_ struct buf b = {0};

    buf_put_numbers(&b, some, 4);
    is_str(buf_str(&b), "0,9,10,18446744073709551615", "numbers, with commas between them");
    buf_put_numbers(&b, NULL, 0);
    buf_put_numbers(&b, some + 1, 1);
    is_str(buf_str(&b), "0,9,10,184467440737095516159", "none, and one behind what is there");
}

int main(void)
{
    test_buf();
    test_room();
    test_page();
    test_printf();
    test_numbers();
    test_round_trip();
    test_every_cut();
    test_bad_strings();
    return tap_done();
}
