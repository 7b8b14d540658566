/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/line_join.h"

#include "base/buf.h"
#include "launcher/output.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HELD = 64 << 10, MAX_SOURCES = 1 << 17 };

/* What a stream printed since its last newline. */
struct held {
    struct tree_output from; /* without data */
    struct buf text;
};

struct line_join {
    line_join_f *take;
    void *arg;
    struct held *held;
    size_t n_held;
};

struct line_join *line_join_create(line_join_f *take, void *arg)
{
    struct line_join *j = calloc(1, sizeof(*j));

    if (j) {
        j->take = take;
        j->arg = arg;
    }
    return j;
}

void line_join_destroy(struct line_join *j)
{
    if (!j) {
        return;
    }
    for (size_t i = 0; i < j->n_held; i++) {
        buf_release(&j->held[i].text);
    }
    free(j->held);
    free(j);
}

static void give(struct line_join *j, const struct tree_output *from,
                 const struct buf *line, bool is_part)
{
    struct tree_output bare = *from;

    bare.data = NULL;
    bare.len = 0;
    j->take(j->arg, &bare, buf_str(line), line->len, is_part);
}

static struct held *find_held(struct line_join *j, const struct tree_output *o)
{
    for (size_t i = 0; i < j->n_held; i++) {
        if (j->held[i].from.rank == o->rank &&
            j->held[i].from.which == o->which) {
            return &j->held[i];
        }
    }
    return NULL;
}

/* NULL without memory. */
static struct held *hold(struct line_join *j, const struct tree_output *o)
{
    struct held *more;

    if (j->n_held == MAX_SOURCES) {
        return NULL;
    }
    more = reallocarray(j->held, j->n_held + 1, sizeof(*more));
    if (!more) {
        return NULL;
    }
    j->held = more;
    more += j->n_held++;
    *more = (struct held){.from = *o};
    more->from.data = NULL;
    return more;
}

static void drop(struct line_join *j, struct held *h)
{
    buf_release(&h->text);
    *h = j->held[--j->n_held];
}

/* The end of a piece, without a newline. */
static void put_part(struct line_join *j, const struct tree_output *o,
                     const struct buf *part)
{
    struct held *h;

    if (o->piece == OUTPUT_END || part->len >= MAX_HELD) {
        give(j, o, part, o->piece != OUTPUT_END);
        return;
    }
    h = hold(j, o);
    if (h) {
        buf_append(&h->text, part->data, part->len);
    } else {
        give(j, o, part, true);
    }
}

/* What is held of the stream goes before what comes now. */
static void take_held(struct line_join *j, const struct tree_output *o,
                      struct buf *line)
{
    struct held *h = find_held(j, o);

    if (!h) {
        return;
    }
    if (h->from.generation == o->generation) {
        buf_append(line, h->text.data, h->text.len);
    } else { /* its node was lost before the rest came */
        give(j, &h->from, &h->text, true);
    }
    drop(j, h);
}

void line_join_put(struct line_join *j, const struct tree_output *o)
{
    _buf_ struct buf line = {0};
    const char *at = o->data;
    size_t left = o->len;

    take_held(j, o, &line);
    while (left) {
        const char *end = memchr(at, '\n', left);
        size_t n = end ? (size_t)(end - at) : left;

        buf_append(&line, at, n);
        n += end != NULL;
        at += n;
        left -= n;
        if (end) {
            give(j, o, &line, false);
            buf_clear(&line);
        }
    }
    if (line.len) {
        put_part(j, o, &line);
    }
}

void line_join_flush(struct line_join *j)
{
    while (j->n_held) {
        struct held *h = &j->held[0];

        give(j, &h->from, &h->text, true);
        drop(j, h);
    }
}
