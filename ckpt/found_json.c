/* SPDX-License-Identifier: Apache-2.0 */
/* Each word and number is written over in its place, by one of the same length. */
#include <config.h>

#include "ckpt/found_json.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_DIGITS = 18 }; /* which fit into 64 bits */

static size_t word_at(const char *text, size_t left)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);

        if (n <= left && memcmp(text, words[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 36893488147419103232 becomes 36893488147419103e03. `n` is how many bytes the number
 * has. */
static void round_number(char *text, size_t n)
{
    size_t first = *text == '-', digits = 0;

    while (first + digits < n && is_digit(text[first + digits])) {
        digits++;
    }
    if (digits > MAX_DIGITS && first + digits == n && text[first] != '0') {
        memcpy(text + n - 3, "e03", 3);
    }
}

static size_t number_at(const char *text, size_t left)
{
    size_t n = 0;

    while (n < left && (is_digit(text[n]) || strchr("+-.eE", text[n])) && text[n]) {
        n++;
    }
    return n;
}

static size_t string_at(const char *text, size_t left)
{
    size_t n = 1;

    while (n < left && text[n] != '"') {
        n += text[n] == '\\' ? 2 : 1;
    }
    return n < left ? n + 1 : left;
}

/* What is there, and how many bytes that has. */
static size_t take(char *text, size_t left)
{
    size_t n = *text == '"' ? string_at(text, left) : word_at(text, left);

    if (n > 0 && *text != '"') {
        memset(text, ' ', n);
        memcpy(text, "\"\"", 2);
    }
    if (n == 0) {
        n = number_at(text, left);
        round_number(text, n);
    }
    return n ? n : 1;
}

json_t *found_json_parse(char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        at += take(text + at, len - at);
    }
    return json_loadb(text, len, 0, NULL);
}
