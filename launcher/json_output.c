/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/json_output.h"

#include "launcher/jsonw.h"
#include "launcher/output.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HELD = 64 << 10, MAX_SOURCES = 1 << 17 };

/* What a stream printed since its last newline. */
struct held {
    struct tree_output from; /* without data */
    struct buf text;
};

struct json_output {
    struct held *held;
    size_t n_held;
};

struct json_output *json_output_create(void)
{
    return calloc(1, sizeof(struct json_output));
}

void json_output_destroy(struct json_output *j)
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

static void add_object(const struct tree_output *o, uint64_t wall_ns,
                       const struct buf *line, bool is_part, struct buf *to)
{
    struct jsonw w = jsonw_start(to);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_time(&w, "t", wall_ns);
    jsonw_int(&w, "generation", o->generation);
    jsonw_int(&w, "rank", o->rank);
    jsonw_int(&w, "node", o->node);
    jsonw_str(&w, "stream", o->which ? "stderr" : "stdout");
    jsonw_bytes(&w, "line", buf_str(line), line->len);
    if (is_part) {
        jsonw_bool(&w, "part", true);
    }
    jsonw_end_object(&w);
    buf_putc(to, '\n');
}

static struct held *find_held(struct json_output *j, const struct tree_output *o)
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
static struct held *hold(struct json_output *j, const struct tree_output *o)
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

static void drop(struct json_output *j, struct held *h)
{
    buf_release(&h->text);
    *h = j->held[--j->n_held];
}

/* The end of a piece, without a newline. */
static void put_part(struct json_output *j, const struct tree_output *o,
                     const struct buf *part, uint64_t wall_ns, struct buf *to)
{
    struct held *h;

    if (o->piece == OUTPUT_END || part->len >= MAX_HELD) {
        add_object(o, wall_ns, part, o->piece != OUTPUT_END, to);
        return;
    }
    h = hold(j, o);
    if (h) {
        buf_append(&h->text, part->data, part->len);
    } else {
        add_object(o, wall_ns, part, true, to);
    }
}

void json_output_put(struct json_output *j, const struct tree_output *o,
                     uint64_t wall_ns, struct buf *to)
{
    _buf_ struct buf line = {0};
    struct held *h = find_held(j, o);
    const char *at = o->data;
    size_t left = o->len;

    if (h) {
        if (h->from.generation == o->generation) {
            buf_append(&line, h->text.data, h->text.len);
        } else { /* its node was lost before the rest came */
            add_object(&h->from, wall_ns, &h->text, true, to);
        }
        drop(j, h);
    }
    while (left) {
        const char *end = memchr(at, '\n', left);
        size_t n = end ? (size_t)(end - at) : left;

        buf_append(&line, at, n);
        n += end != NULL;
        at += n;
        left -= n;
        if (end) {
            add_object(o, wall_ns, &line, false, to);
            buf_clear(&line);
        }
    }
    if (line.len) {
        put_part(j, o, &line, wall_ns, to);
    }
}

void json_output_flush(struct json_output *j, uint64_t wall_ns, struct buf *to)
{
    while (j->n_held) {
        struct held *h = &j->held[0];

        add_object(&h->from, wall_ns, &h->text, true, to);
        drop(j, h);
    }
}
