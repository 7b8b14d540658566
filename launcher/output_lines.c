/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that streams share gets whole lines, each behind "[RANK STREAM] ". A part
 * of a line waits for its rest, for other streams would be written behind it. What
 * cannot wait (a line of more than 64 KiB, and the end of a stream that has no
 * newline) goes behind "[RANK STREAM+] ", and its newline is not the worker's: so
 * nothing is lost, and nothing is ambiguous.
 */
#include <config.h>

#include "launcher/output_priv.h"

#include <string.h>

static void add_label(const struct output_stream *s, bool is_cut, struct buf *to)
{
    buf_printf(to, "[%u %s%s] ", s->rank,
               s->which == OUTPUT_STDERR ? "err" : "out", is_cut ? "+" : "");
}

static void add_rest(struct output_stream *s, struct buf *to)
{
    buf_append(to, s->rest.data, s->rest.len);
    buf_clear(&s->rest);
}

static void add_cut(struct output_stream *s, struct buf *to)
{
    add_label(s, true, to);
    add_rest(s, to);
    buf_putc(to, '\n');
}

void output_lines_write(struct output_stream *s, const char *data, size_t len)
{
    _buf_ struct buf out = {0};

    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;

        if (end) {
            add_label(s, false, &out);
            add_rest(s, &out);
            buf_append(&out, data, n);
        } else {
            buf_append(&s->rest, data, n);
        }
        if (s->rest.len >= OUTPUT_LINE_MAX) {
            add_cut(s, &out);
        }
        data += n;
        len -= n;
    }
    if (out.len) {
        logwriter_write(s->o->writer, s->file, out.data, out.len);
    }
}

void output_lines_end(struct output_stream *s)
{
    _buf_ struct buf out = {0};

    if (s->rest.len) {
        add_cut(s, &out);
        logwriter_write(s->o->writer, s->file, out.data, out.len);
    }
}
