/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/redrawn.h"

#include <string.h>

static size_t move(struct buf *b, size_t to, size_t from, size_t end)
{
    memmove(b->data + to, b->data + from, end - from);
    return to + (end - from);
}

void redrawn_drop(struct buf *b)
{
    size_t to = 0, next;

    for (size_t from = 0; from < b->len; from = next) {
        const char *newline = memchr(b->data + from, '\n', b->len - from), *back;
        size_t end = newline ? (size_t)(newline - b->data) : b->len, shown = end;

        while (shown > from && b->data[shown - 1] == '\r') {
            shown--;
        }
        back = memrchr(b->data + from, '\r', shown - from);
        next = newline ? end + 1 : end;
        to = move(b, to, back ? (size_t)(back - b->data) + 1 : from, shown);
        to = move(b, to, newline ? end : shown, next); /* a line may go on behind returns */
    }
    b->len = to;
    if (b->data) {
        b->data[to] = '\0';
    }
}
