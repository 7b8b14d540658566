/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/log_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PER_SPAN = 1000, MAX_DOUBLINGS = 20, MAX_ENTRY_BYTES = 80 };

#define SECOND UINT64_C(1000000000)
#define MILLI UINT64_C(1000000)

/* Of the entry with this number. */
static uint64_t span_of(uint32_t n)
{
    uint32_t doublings = n / PER_SPAN;

    return UINT64_C(1) << (doublings < MAX_DOUBLINGS ? doublings
                                                     : MAX_DOUBLINGS);
}

void log_index_note(struct log_index *x, uint64_t wall_ns, uint64_t offset,
                    struct buf *to)
{
    bool is_first = x->n == 0;

    /* A clock that was put back makes a new entry. */
    if (!is_first && wall_ns >= x->last_ns &&
        wall_ns - x->last_ns < span_of(x->n - 1) * SECOND) {
        return;
    }
    buf_printf(to, "%s%" PRIu64 ".%03u %" PRIu64 " %" PRIu64 "\n",
               is_first ? "v 1\n" : "", wall_ns / SECOND,
               (unsigned)(wall_ns / MILLI % 1000), offset, span_of(x->n));
    x->last_ns = wall_ns;
    x->n++;
}

struct entry {
    uint64_t from_ns, until_ns, offset;
};

static bool parse(const char *line, size_t len, struct entry *ret)
{
    uint64_t seconds, offset, span;
    unsigned millis;
    char text[MAX_ENTRY_BYTES];
    int end = 0;

    if (len >= sizeof(text)) {
        return false;
    }
    memcpy(text, line, len);
    text[len] = '\0';
    if (sscanf(text, "%11" SCNu64 ".%3u %19" SCNu64 " %9" SCNu64 "%n",
               &seconds, &millis, &offset, &span, &end) != 4 ||
        (size_t)end != len) {
        return false;
    }
    /* A year of 11 digits of seconds is beyond 64 bits of nanoseconds. */
    seconds = seconds < UINT64_MAX / SECOND / 2 ? seconds
                                                : UINT64_MAX / SECOND / 2;
    ret->from_ns = seconds * SECOND + millis * MILLI;
    ret->until_ns = ret->from_ns + span * SECOND;
    ret->offset = offset;
    return true;
}

/* The next entry; false at the end. What has no newline was cut short. */
static bool next_entry(const char **at, const char *end, struct entry *ret)
{
    while (*at < end) {
        const char *line = *at;
        const char *newline = memchr(line, '\n', (size_t)(end - line));

        if (!newline) {
            return false;
        }
        *at = newline + 1;
        if (parse(line, (size_t)(newline - line), ret)) {
            return true;
        }
    }
    return false;
}

uint64_t log_index_find(const char *text, size_t len, uint64_t since_ns,
                        uint64_t written_ns, uint64_t size)
{
    const char *at = text, *end = text + len;
    struct entry e, next;
    bool more = next_entry(&at, end, &e);

    if (!more) {
        return written_ns < since_ns ? size : 0;
    }
    while (more) {
        more = next_entry(&at, end, &next);
        /* An entry may be missing at the end: then the file knows better. */
        if (!more && e.until_ns < written_ns) {
            e.until_ns = written_ns;
        }
        if (e.until_ns >= since_ns) {
            return e.offset < size ? e.offset : size;
        }
        e = next;
    }
    return size;
}
