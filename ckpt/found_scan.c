/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the text, which has no zero byte but the one at its end: that one is
 * right nowhere inside a value. */
#include <config.h>

#include "ckpt/found_json.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <string.h>

enum { MAX_DEPTH = 1000 }; /* Python takes no more */

static const char digits[] = "0123456789";

static void skip_blanks(const char **at)
{
    *at += strspn(*at, " \t\r\n");
}

static bool take(const char **at, char c)
{
    bool is = **at == c;

    *at += is;
    return is;
}

static bool take_digits(const char **at)
{
    size_t n = strspn(*at, digits);

    *at += n;
    return n > 0;
}

/* Behind its backslash. */
static bool take_escape(const char **at)
{
    if (take(at, 'u')) {
        bool is = strspn(*at, "0123456789abcdefABCDEF") >= 4;

        *at += is ? 4 : 0;
        return is;
    }
    return **at && strchr("\"\\/bfnrt", **at) && take(at, **at);
}

/* Never the zero byte at the end. */
static bool take_plain(const char **at)
{
    bool is = (unsigned char)**at >= ' ';

    *at += is;
    return is;
}

static bool take_string(const char **at)
{
    if (!take(at, '"')) {
        return false;
    }
    while (**at != '"') {
        bool is = take(at, '\\') ? take_escape(at) : take_plain(at);

        if (!is) {
            return false;
        }
    }
    return take(at, '"');
}

static bool take_number(const char **at)
{
    take(at, '-');
    if (!take(at, '0') && !take_digits(at)) {
        return false;
    }
    if (take(at, '.') && !take_digits(at)) {
        return false;
    }
    if (take(at, 'e') || take(at, 'E')) {
        if (!take(at, '-')) {
            take(at, '+');
        }
        return take_digits(at);
    }
    return true;
}

static bool take_word(const char **at)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity",
                                        "-Infinity"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (str_starts(*at, words[i])) {
            *at += strlen(words[i]);
            return true;
        }
    }
    return false;
}

static bool take_value(const char **at, unsigned depth);

static bool take_key(const char **at)
{
    skip_blanks(at);
    if (!take_string(at)) {
        return false;
    }
    skip_blanks(at);
    return take(at, ':');
}

/* Behind its bracket: values, of an object each with a key before. */
static bool take_values(const char **at, char end, unsigned depth)
{
    skip_blanks(at);
    if (take(at, end)) {
        return true;
    }
    do {
        if ((end == '}' && !take_key(at)) || !take_value(at, depth)) {
            return false;
        }
    } while (take(at, ','));
    return take(at, end);
}

static bool take_value(const char **at, unsigned depth)
{
    bool is = false;

    skip_blanks(at);
    if (**at == '"') {
        is = take_string(at);
    } else if (take(at, '{')) {
        is = depth < MAX_DEPTH && take_values(at, '}', depth + 1);
    } else if (take(at, '[')) {
        is = depth < MAX_DEPTH && take_values(at, ']', depth + 1);
    } else {
        is = take_word(at) || take_number(at);
    }
    skip_blanks(at);
    return is;
}

/* What stops a walk at the end alone: nothing is left, or a part of a word or an escape. */
static bool is_left_of_end(const char *text, const char *rest)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity",
                                        "-Infinity"};
    size_t n = strlen(rest);
    bool is = n == 0 || (n < 4 && rest - text >= 2 && strncmp(rest - 2, "\\u", 2) == 0 &&
                         strspn(rest, "0123456789abcdefABCDEF") == n);

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        is = is || strncmp(rest, words[i], n) == 0;
    }
    return is;
}

bool found_json_is_cut(const char *text, size_t len)
{
    const char *at = text;

    if (strlen(text) != len) {
        return false;
    }
    while (skip_blanks(&at), *at) {
        if (!take_value(&at, 0)) {
            return is_left_of_end(text, at);
        }
    }
    return false;
}

bool found_json_is_whole(const char *text, size_t len)
{
    const char *at = text;

    return strlen(text) == len && utf8_is_valid(text) && take_value(&at, 0) && *at == '\0';
}
