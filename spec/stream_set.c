/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/stream_set.h"

#include "base/cleanup.h"

#include <string.h>

enum { MAX_DIGITS = 5 };

static const char *const words[] = {
    [0] = "none",
    [STREAM_STDOUT] = "stdout",
    [STREAM_STDERR] = "stderr",
    [STREAM_STDOUT | STREAM_STDERR] = "both",
};

/* One item: a word, with a local rank and a colon before it or not. */
struct item {
    bool has_rank;
    uint32_t rank;
    unsigned bits;
};

static bool take_rank(const char **s, struct item *to)
{
    size_t n = strspn(*s, "0123456789");

    to->has_rank = n > 0;
    to->rank = 0;
    if (n == 0) {
        return true;
    }
    if (n > MAX_DIGITS || (*s)[n] != ':') {
        return false;
    }
    for (; n; n--, ++*s) {
        to->rank = to->rank * 10 + (uint32_t)(**s - '0');
    }
    ++*s;
    return to->rank < STREAM_SET_RANKS;
}

/* Takes an item, and the comma behind it if more follows. */
static bool take_item(const char **s, struct item *to)
{
    size_t len;

    if (!take_rank(s, to)) {
        return false;
    }
    len = strcspn(*s, ",");
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
        if (strlen(words[i]) == len && strncmp(*s, words[i], len) == 0) {
            to->bits = i;
            *s += len;
            *s += **s == ',' && (*s)[1];
            return **s != ',';
        }
    }
    return false;
}

bool stream_set_is_valid(const char *text)
{
    const char *s = text;
    struct item item;

    do {
        const char *at = s;

        if (!take_item(&s, &item) || (!item.has_rank && at != text)) {
            return false;
        }
    } while (*s);
    return true;
}

unsigned stream_set_of(const char *text, uint32_t local_rank)
{
    unsigned bits = STREAM_STDOUT | STREAM_STDERR;
    struct item item;

    while (*text && take_item(&text, &item)) {
        if (!item.has_rank || item.rank == local_rank) {
            bits = item.bits;
        }
    }
    return bits;
}

const char *stream_set_word(unsigned bits)
{
    return words[bits & (STREAM_STDOUT | STREAM_STDERR)];
}
