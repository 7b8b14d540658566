/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "tests/lib/tap.h"

#include <string.h>

static void test_valid(void)
{
    static const struct {
        const char *text, *what;
        bool valid;
    } cases[] = {
        {"", "nothing", true},
        {"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "of every length", true},
        {"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80", "the ends of ranges", true},
        {"\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "and further", true},
        {"\xff", "no lead byte", false},
        {"a\x80", "no lead byte behind a letter", false},
        {"\xc3", "cut short", false},
        {"\xe2\x82", "cut short behind two", false},
        {"\xc3(", "no continuation", false},
        {"\xc0\x80", "two bytes for one", false},
        {"\xc1\xbf", "two bytes for the last of one", false},
        {"\xe0\x9f\xbf", "three bytes for two", false},
        {"\xf0\x8f\xbf\xbf", "four bytes for three", false},
        {"\xed\xa0\x80", "the first surrogate", false},
        {"\xed\xbf\xbf", "the last surrogate", false},
        {"\xf4\x90\x80\x80", "beyond Unicode", false},
        {"\xf8\x88\x80\x80\x80", "five bytes", false},
    };
    uint32_t c = 0;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(utf8_is_valid(cases[i].text) == cases[i].valid, "%s",
           cases[i].what);
    }
    is_int((int)utf8_next("\xe2\x82\xac!", &c), 3, "length");
    is_int((int)c, 0x20ac, "and code point");
    is_int((int)utf8_next_of("\xe2\x82\xac!", 3, &c), 3, "with none to spare");
    is_int((int)utf8_next_of("\xe2\x82\xac!", 2, &c), 0, "or one too few");
    is_int((int)utf8_next_of("", 1, &c), 1, "a zero byte is one");
}

/* ASCII is looked at eight bytes at once, and what is not as it comes. */
static void test_places(void)
{
    int n_wrong = 0;

    for (size_t len = 1; len < 40; len++) {
        for (size_t at = 0; at < len; at++) {
            char text[64];

            memset(text, 'x', sizeof(text));
            text[len] = '\0';
            n_wrong += !utf8_is_valid(text);
            text[at] = '\xff';
            n_wrong += utf8_is_valid(text);
            if (at + 1 < len) {
                memcpy(text + at, "\xc3\xa9", 2);
                n_wrong += !utf8_is_valid(text);
            } else {
                text[at] = '\xc3'; /* and its end is the text's */
                n_wrong += utf8_is_valid(text);
            }
        }
    }
    is_int(n_wrong, 0, "characters of one and two bytes, and broken ones, at all places");
}

static void test_printable(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"plain \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", NULL},
        {"~\xc2\xa0\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf", NULL},
        {"\x1b[31mred\a", "\\x1b[31mred\\x07"},
        {"a\nb\tc\rd\x7f", "a\\nb\\tc\\x0d" "d\\x7f"},
        {"\xc2\x9b" "31m\xc2\x80", "\\u009b31m\\u0080"},
        {"\xe2\x80\xae" "fdp\xe2\x80\xa8\xe2\x81\xa6", "\\u202efdp\\u2028\\u2066"},
        {"a\xe2\x80\x8b" "b\xe2\x80\x8f\xef\xbb\xbf",
         "a\\u200bb\\u200f\\ufeff"},
        {"\xf3\xa0\x80\x81x\xef\xbf\xb9\xef\xbf\xbf",
         "\\ue0001x\\ufff9\\uffff"},
        {"a\xff" "b\xc3", "a\\xffb\\xc3"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        const char *want = cases[i].want ? cases[i].want : cases[i].text;

        utf8_put_printable(&b, cases[i].text, 100);
        is_str(buf_str(&b), want, "shown: %s", want);
    }
}

static void test_cut(void)
{
    _buf_ struct buf b = {0};

    buf_puts(&b, "before:");
    utf8_put_printable(&b, "abcdef", 6);
    is_str(buf_str(&b), "before:abcdef", "as long as it may be");
    buf_clear(&b);
    utf8_put_printable(&b, "abcdefg", 6);
    is_str(buf_str(&b), "abcdef...", "longer");
    buf_clear(&b);
    utf8_put_printable(&b, "abcde\xe2\x82\xacxyz", 6);
    is_str(buf_str(&b), "abcde\xe2\x82\xac...", "never inside of a character");
}

int main(void)
{
    test_valid();
    test_places();
    test_printable();
    test_cut();
    return tap_done();
}
