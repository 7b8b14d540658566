/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a trunk (store_frame.h) on its link (base/link.h): bytes both ways,
 * and only so many of them in the link's queue as keep the network busy. Who
 * connects says with a struct store_hello whose clients it brings; the first
 * frame of the other side says that they are welcome.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_LINE_H
#define MUSTER_RENDEZVOUS_STORE_LINE_H

#include "base/link.h"

enum store_line_type {
    STORE_LINE_HELLO = 64, /* no type of the tree's, whose listener it is for */
    STORE_LINE_WELCOME = 65,
    STORE_LINE_DATA = 66,
};

struct store_hello {
    uint32_t rank; /* of the agent */
    uint32_t generation;
};

void store_hello_encode(const struct store_hello *h, struct buf *b);
/* False if it is none. */
bool store_hello_decode(const struct channel_frame *f, struct store_hello *ret);

struct store_line {
    struct link *link;
    char *data; /* being sent; NULL: nothing is */
    size_t len;
    size_t at;
};

/* Begins to send, where nothing is being sent; takes `data` over. */
void store_line_send(struct store_line *line, char *data, size_t len);

/* Gives the link what it has room for, and returns how much; negative: the link
 * is down. While something is left, the link's on_drained calls for more. */
ssize_t store_line_pump(struct store_line *line);

void store_line_close(struct store_line *line);

#endif
