/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_line.h"

#include "base/wire.h"

#include <stdlib.h>

enum {
    PIECE_BYTES = 64 * 1024,
    AHEAD_BYTES = 256 * 1024, /* in the link's queue, and a piece more */
};

void store_hello_encode(const struct store_hello *h, struct buf *b)
{
    wire_put_u32(b, h->rank);
    wire_put_u32(b, h->generation);
}

bool store_hello_decode(const struct channel_frame *f, struct store_hello *ret)
{
    struct wire_reader r = wire_reader(f->data, f->len);

    ret->rank = wire_get_u32(&r);
    ret->generation = wire_get_u32(&r);
    return f->type == STORE_LINE_HELLO && wire_done(&r);
}

static void forget(struct store_line *line)
{
    free(line->data);
    line->data = NULL;
    line->len = line->at = 0;
}

void store_line_send(struct store_line *line, char *data, size_t len)
{
    line->data = data;
    line->len = len;
    line->at = 0;
}

ssize_t store_line_pump(struct store_line *line)
{
    size_t before = line->at;
    int rc = 0;

    while (line->at < line->len && link_queued(line->link) < AHEAD_BYTES) {
        size_t n = line->len - line->at;

        n = n < PIECE_BYTES ? n : PIECE_BYTES;
        rc = link_send(line->link, STORE_LINE_DATA, line->data + line->at, n);
        if (rc < 0) {
            return rc;
        }
        line->at += n;
    }
    before = line->at - before;
    if (line->at < line->len) {
        link_tell_drained(line->link);
    } else {
        forget(line);
    }
    return (ssize_t)before;
}

void store_line_close(struct store_line *line)
{
    link_close(line->link);
    line->link = NULL;
    forget(line);
}
