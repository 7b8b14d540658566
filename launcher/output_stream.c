/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One read a stream a turn of the loop, of at most OUTPUT_CHUNK bytes: no stream
 * can starve another one or the control traffic. A stream's bytes go to its file
 * at once; the sink gets the whole lines among them where they were read to, and
 * the rest waits in `line` for its end. What is
 * there at the end of a turn is at most one chunk over the longest line, so
 * memory is bounded by the number of streams.
 */
#include <config.h>

#include "launcher/output_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/redrawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_MAX_BYTES = 128 << 10,
    DRAIN_MAX_BYTES = 4 << 20, /* more than an unprivileged pipe can hold */
    TAIL_BYTES = 4 << 10,
};

static void on_readable(uv_poll_t *h, int status, int events);

static bool may_read(const struct output_stream *s)
{
    return s->fd >= 0 && !s->o->is_paused && !(s->o->is_full && s->file);
}

void output_stream_update(struct output_stream *s)
{
    bool want = may_read(s);

    if (want == s->is_polling) {
        return;
    }
    s->is_polling = want;
    if (want) {
        uv_poll_start(&s->poll, UV_READABLE, on_readable);
    } else {
        uv_poll_stop(&s->poll);
    }
}

static void give(struct output_stream *s, enum output_piece piece, size_t len)
{
    s->o->config.sink(s->o->config.arg, s->rank, s->which, piece,
                      s->line.data, len);
    buf_consume(&s->line, len);
    s->partial_since_ms = 0;
}

/* How much of the front is whole lines, within one piece. */
static size_t whole_lines(const char *data, size_t len)
{
    size_t n = len < PIECE_MAX_BYTES ? len : PIECE_MAX_BYTES;
    const char *end = n ? memrchr(data, '\n', n) : NULL;

    return end ? (size_t)(end - data) + 1 : 0;
}

void output_stream_deliver(struct output_stream *s)
{
    struct output *o = s->o;

    while (s->line.len && !o->is_paused) {
        size_t n = whole_lines(s->line.data, s->line.len);

        if (n) {
            give(s, OUTPUT_LINES, n);
        } else if (s->line.len >= OUTPUT_LINE_MAX) {
            give(s, OUTPUT_CUT, OUTPUT_LINE_MAX);
        } else if (s->fd < 0) {
            give(s, OUTPUT_END, s->line.len);
        } else {
            break;
        }
    }
}

static void on_partial(uv_timer_t *t);

void output_stream_await(struct output_stream *s)
{
    struct output *o = s->o;

    if (!s->line.len || s->fd < 0 || s->partial_since_ms) {
        return;
    }
    s->partial_since_ms = clock_mono_ms();
    if (!uv_is_active((uv_handle_t *)&o->partial)) {
        uv_timer_start(&o->partial, on_partial, o->config.partial_ms, 0);
    }
}

/* A progress bar ends its updates with a carriage return: cut there. */
static void give_partial(struct output_stream *s)
{
    const char *end = memrchr(s->line.data, '\r', s->line.len);
    size_t n = end ? (size_t)(end - s->line.data) + 1 : s->line.len;

    give(s, OUTPUT_CUT, n);
}

static void on_partial(uv_timer_t *t)
{
    struct output *o = t->data;
    uint64_t now = clock_mono_ms();
    bool more = false;

    for (struct output_stream *s = o->streams; s; s = s->next) {
        if (!s->partial_since_ms || o->is_paused) {
            continue;
        }
        if (s->partial_since_ms + o->config.partial_ms <= now) {
            give_partial(s);
            s->partial_since_ms = s->line.len ? now : 0;
        }
        more = more || s->partial_since_ms;
    }
    if (more) {
        uv_timer_start(t, on_partial, o->config.partial_ms, 0);
    }
}

static void bound_tail(struct buf *b)
{
    if (b->len > TAIL_BYTES) {
        buf_consume(b, b->len - TAIL_BYTES);
    }
}

static void keep_tail(struct output_stream *s, const char *data, size_t len)
{
    if (len > TAIL_BYTES) {
        data += len - TAIL_BYTES;
        len = TAIL_BYTES;
    }
    buf_append(&s->tail, data, len);
    /* Not at every line: moving it costs more than keeping it. */
    if (s->tail.len > 4 * TAIL_BYTES) {
        redrawn_drop(&s->tail);
        bound_tail(&s->tail);
    }
}

/* What was just read lies in the chunk: with the part of a line before it, its
 * whole lines go to the sink from there. That part has room, for longer ones are cut
 * where the sink is not paused. Returns how many bytes are left, at the end. */
static size_t give_chunk(struct output_stream *s, const char *data, size_t len)
{
    struct output *o = s->o;
    size_t head = s->line.len, n = whole_lines(data, len);

    if (o->is_paused || !n) {
        return len;
    }
    assert(head < OUTPUT_LINE_MAX);
    if (head) {
        data = memcpy(o->chunk + OUTPUT_LINE_MAX - head, s->line.data, head);
        buf_clear(&s->line);
    }
    s->partial_since_ms = 0;
    o->config.sink(o->config.arg, s->rank, s->which, OUTPUT_LINES, data,
                   head + n);
    return len - n;
}

static void feed(struct output_stream *s, const char *data, size_t len)
{
    struct output *o = s->o;
    size_t left;

    s->last_ms = clock_mono_ms();
    keep_tail(s, data, len);
    if (s->is_shared) {
        output_lines_write(s, data, len);
    } else if (s->file) {
        logwriter_write(o->writer, s->file, data, len);
    }
    if (o->config.sink) {
        left = give_chunk(s, data, len);
        buf_append(&s->line, data + len - left, left);
        s->line.failed = false;
        output_stream_deliver(s);
        output_stream_await(s);
    }
}

static void on_poll_closed(uv_handle_t *h)
{
    struct output_stream *s = h->data;

    s->handle_closed = true;
    output_finish_streams(s->o);
}

/* The pipe is done with; what is in `line` may still wait for the sink. */
static void close_pipe(struct output_stream *s)
{
    if (s->fd < 0) {
        return;
    }
    s->is_polling = false;
    uv_close((uv_handle_t *)&s->poll, on_poll_closed);
    close_fd(&s->fd);
    output_lines_end(s);
    output_stream_deliver(s);
}

/* One read. Returns 1 for bytes, 0 for none now, -1 at the end. */
static int read_some(struct output_stream *s)
{
    char *to = s->o->chunk + OUTPUT_LINE_MAX;
    ssize_t n;

    do {
        n = read(s->fd, to, OUTPUT_CHUNK);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        feed(s, to, (size_t)n);
        return 1;
    }
    return n < 0 && errno == EAGAIN ? 0 : -1;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct output_stream *s = h->data;

    (void)events;
    if (status < 0 || read_some(s) < 0) {
        close_pipe(s);
        return;
    }
    if (s->file && !s->o->is_full && logwriter_is_full(s->o->writer)) {
        output_look_at_writer(s->o);
    }
}

void output_drain(struct output_stream *s)
{
    for (size_t n = 0; s->fd >= 0 && n < DRAIN_MAX_BYTES; n += OUTPUT_CHUNK) {
        int rc = read_some(s);

        if (rc < 0) {
            close_pipe(s);
        }
        if (rc <= 0) {
            break;
        }
    }
}

void output_stream_free(struct output_stream *s)
{
    buf_release(&s->line);
    buf_release(&s->tail);
    buf_release(&s->rest);
    free(s);
}

void output_close(struct output_stream *s, output_closed_f *closed, void *arg)
{
    output_drain(s);
    close_pipe(s);
    if (s->file) {
        logwriter_close(s->o->writer, s->file);
        s->file = NULL;
        s->is_shared = false;
    }
    s->is_closing = true;
    s->closed = closed;
    s->closed_arg = arg;
    waker_send(s->o->wake);
}

uint64_t output_last_ms(const struct output_stream *s)
{
    return s->last_ms;
}

void output_tail(const struct output_stream *s, unsigned n_lines,
                 struct buf *b)
{
    _buf_ struct buf tail = {0};
    size_t at;

    buf_append(&tail, s->tail.data, s->tail.len);
    redrawn_drop(&tail);
    while (tail.len && tail.data[tail.len - 1] == '\r') {
        tail.len--;
    }
    bound_tail(&tail);
    if (!tail.len || !n_lines) {
        return;
    }
    /* The newline at the very end ends the last line and begins no other. */
    at = tail.len - (tail.data[tail.len - 1] == '\n');
    while (at > 0 && !(tail.data[at - 1] == '\n' && --n_lines == 0)) {
        at--;
    }
    buf_append(b, tail.data + at, tail.len - at);
}

/* The file of that path if other streams write to it, else a new one. */
static struct logfile *open_shared(struct output *o, const char *path)
{
    for (struct output_stream *s = o->streams; s; s = s->next) {
        if (s->is_shared && strcmp(logwriter_path(s->file), path) == 0) {
            return logwriter_share(o->writer, s->file);
        }
    }
    return logwriter_open(o->writer, path);
}

static int open_stream(struct output_stream *s, int fd, const char *path,
                       struct error *e)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return error_set(e, errno, "read the output of rank %u", s->rank);
    }
    if (path) {
        s->file = s->is_shared ? open_shared(s->o, path)
                               : logwriter_open(s->o->writer, path);
        if (!s->file) {
            return error_set(e, ENOMEM, "read the output of rank %u", s->rank);
        }
    }
    if (uv_poll_init(s->o->loop, &s->poll, fd) < 0) {
        if (s->file) {
            logwriter_close(s->o->writer, s->file);
        }
        return error_text(e, EINVAL, "descriptor %d of rank %u is no pipe", fd,
                          s->rank);
    }
    return 0;
}

int output_open(struct output *o, int fd, const struct output_source *from,
                const char *path, struct output_stream **ret, struct error *e)
{
    _close_ int owned = fd;
    struct output_stream *s = calloc(1, sizeof(*s));
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "read the output of rank %u", from->rank);
    }
    s->o = o;
    s->rank = from->rank;
    s->which = from->which;
    s->is_shared = path && from->shares_file;
    rc = open_stream(s, fd, path, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->poll.data = s;
    s->fd = take_fd(&owned);
    s->next = o->streams;
    o->streams = s;
    output_stream_update(s);
    *ret = s;
    return 0;
}
