/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/rank_set.h"

#include <string.h>

enum { MAX_DIGITS = 9 };

static bool take_number(const char **s, uint32_t *ret)
{
    size_t n = strspn(*s, "0123456789");

    if (n == 0 || n > MAX_DIGITS) {
        return false;
    }
    for (*ret = 0; n; n--, ++*s) {
        *ret = *ret * 10 + (uint32_t)(**s - '0');
    }
    return true;
}

/* Takes "3" or "3-5", and the comma behind it if more follows. */
static bool take_range(const char **s, uint32_t *ret_first, uint32_t *ret_last)
{
    if (!take_number(s, ret_first)) {
        return false;
    }
    *ret_last = *ret_first;
    if (**s == '-') {
        ++*s;
        if (!take_number(s, ret_last) || *ret_last < *ret_first) {
            return false;
        }
    }
    if (**s == ',' && (*s)[1]) {
        ++*s;
        return true;
    }
    return !**s;
}

static bool is_word(const char *text)
{
    return strcmp(text, "all") == 0 || strcmp(text, "lead") == 0 ||
           strcmp(text, "none") == 0;
}

bool rank_set_is_valid(const char *text)
{
    uint32_t first, last;

    if (is_word(text)) {
        return true;
    }
    do {
        if (!take_range(&text, &first, &last)) {
            return false;
        }
    } while (*text);
    return true;
}

bool rank_set_has(const char *text, uint32_t rank)
{
    uint32_t first, last;

    if (is_word(text)) {
        return text[0] == 'a' || (text[0] == 'l' && rank == 0);
    }
    while (*text && take_range(&text, &first, &last)) {
        if (first <= rank && rank <= last) {
            return true;
        }
    }
    return false;
}
