/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One read a stream a turn of the loop, of at most CHUNK bytes: no stream can
 * starve another one or the control traffic. A stream's bytes go to its file at
 * once; for the sink they wait in `line` until they are whole lines. What is
 * there at the end of a turn is at most one chunk over the longest line, so
 * memory is bounded by the number of streams.
 */
#include <config.h>

#include "launcher/output.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/logwriter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK = 64 << 10,
    LINE_MAX_BYTES = 64 << 10,
    PIECE_MAX_BYTES = 128 << 10,
    DRAIN_MAX_BYTES = 4 << 20, /* more than an unprivileged pipe can hold */
    TAIL_BYTES = 4 << 10,
};

struct output_stream {
    struct output *o;
    struct output_stream *next;
    uv_poll_t poll;
    int fd; /* -1 after the end of file */
    uint32_t rank;
    enum output_which which;
    struct logfile *file;   /* or NULL */
    struct buf line;        /* not yet taken by the sink */
    struct buf tail;
    uint64_t partial_since_ms;
    uint64_t last_ms;
    bool is_polling;
    bool handle_closed;
    bool is_closing;
    output_closed_f *closed;
    void *closed_arg;
};

struct output {
    uv_loop_t *loop;
    struct output_config config;
    struct logwriter *writer;
    struct output_stream *streams;
    uv_async_t wake;
    uv_timer_t partial, stall, deadline;
    unsigned n_handles;
    bool is_paused;
    bool is_full; /* the writer's queue, as far as we have acted on it */
    bool told_unwritable, told_stalled;
    bool is_ending, is_closed, all_done;
    output_done_f *done;
    void *done_arg;
    char chunk[CHUNK];
};

static void on_readable(uv_poll_t *h, int status, int events);

static bool may_read(const struct output_stream *s)
{
    return s->fd >= 0 && !s->o->is_paused && !(s->o->is_full && s->file) &&
           s->line.len < PIECE_MAX_BYTES;
}

static void update(struct output_stream *s)
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

static void update_all(struct output *o)
{
    for (struct output_stream *s = o->streams; s; s = s->next) {
        update(s);
    }
}

static void tell_trouble(struct output *o, enum output_trouble what,
                         const struct logwriter_state *st)
{
    if (o->config.on_trouble) {
        o->config.on_trouble(o->config.arg, what, st->lost_bytes, st->reason);
    }
}

/* Stuck is worth a word only when it holds workers up. */
static void on_stall(uv_timer_t *t)
{
    struct output *o = t->data;
    struct logwriter_state st;

    logwriter_look(o->writer, &st);
    if (o->is_full && !o->told_stalled) {
        o->told_stalled = true;
        snprintf(st.reason, sizeof(st.reason), "files of output have not been "
                 "written for %u ms: is a filesystem hanging?",
                 o->config.stall_ms);
        tell_trouble(o, OUTPUT_STALLED, &st);
    }
}

static void look_at_writer(struct output *o)
{
    bool was_full = o->is_full;
    struct logwriter_state st;

    o->is_full = logwriter_is_full(o->writer);
    logwriter_look(o->writer, &st);
    if (o->is_full && !was_full) {
        uv_timer_start(&o->stall, on_stall, o->config.stall_ms, 0);
        /* Nobody reads now: the writer's word must still find a loop. */
        uv_ref((uv_handle_t *)&o->wake);
        update_all(o);
    } else if (!o->is_full && was_full) {
        uv_timer_stop(&o->stall);
        if (!o->is_ending) {
            uv_unref((uv_handle_t *)&o->wake);
        }
        update_all(o);
        if (o->told_stalled) {
            o->told_stalled = false;
            tell_trouble(o, OUTPUT_RECOVERED, &st);
        }
    }
    if (st.failing != o->told_unwritable) {
        o->told_unwritable = st.failing;
        tell_trouble(o, st.failing ? OUTPUT_UNWRITABLE : OUTPUT_RECOVERED,
                     &st);
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
static size_t whole_lines(const struct output_stream *s)
{
    size_t n = s->line.len < PIECE_MAX_BYTES ? s->line.len : PIECE_MAX_BYTES;
    const char *end = n ? memrchr(s->line.data, '\n', n) : NULL;

    return end ? (size_t)(end - s->line.data) + 1 : 0;
}

/* Hands on what the sink may have now. */
static void deliver(struct output_stream *s)
{
    struct output *o = s->o;

    if (!o->config.sink) {
        buf_clear(&s->line);
    }
    while (s->line.len && !o->is_paused) {
        size_t n = whole_lines(s);

        if (n) {
            give(s, OUTPUT_LINES, n);
        } else if (s->line.len >= LINE_MAX_BYTES) {
            give(s, OUTPUT_CUT, LINE_MAX_BYTES);
        } else if (s->fd < 0) {
            give(s, OUTPUT_END, s->line.len);
        } else {
            break;
        }
    }
}

static void on_partial(uv_timer_t *t);

static void await_rest(struct output_stream *s)
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
        if (s->line.len && s->partial_since_ms + o->config.partial_ms <= now) {
            give_partial(s);
            s->partial_since_ms = s->line.len ? now : 0;
        }
        more = more || s->partial_since_ms;
    }
    if (more) {
        uv_timer_start(t, on_partial, o->config.partial_ms, 0);
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
        buf_consume(&s->tail, s->tail.len - TAIL_BYTES);
    }
}

static void feed(struct output_stream *s, const char *data, size_t len)
{
    struct output *o = s->o;

    s->last_ms = clock_mono_ms();
    keep_tail(s, data, len);
    if (s->file) {
        logwriter_write(o->writer, s->file, data, len);
    }
    if (o->config.sink) {
        buf_append(&s->line, data, len);
        s->line.failed = false;
        deliver(s);
        await_rest(s);
    }
}

static void on_poll_closed(uv_handle_t *h);

/* The pipe is done with; what is in `line` may still wait for the sink. */
static void close_pipe(struct output_stream *s)
{
    if (s->fd < 0) {
        return;
    }
    uv_poll_stop(&s->poll);
    s->is_polling = false;
    uv_close((uv_handle_t *)&s->poll, on_poll_closed);
    close_fd(&s->fd);
    s->partial_since_ms = 0;
    deliver(s);
}

/* One read. Returns 1 for bytes, 0 for none now, -1 at the end. */
static int read_some(struct output_stream *s)
{
    ssize_t n;

    do {
        n = read(s->fd, s->o->chunk, CHUNK);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        feed(s, s->o->chunk, (size_t)n);
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
    update(s);
    if (s->file && !s->o->is_full && logwriter_is_full(s->o->writer)) {
        look_at_writer(s->o);
    }
}

void output_drain(struct output_stream *s)
{
    for (size_t n = 0; s->fd >= 0 && n < DRAIN_MAX_BYTES; n += CHUNK) {
        int rc = read_some(s);

        if (rc < 0) {
            close_pipe(s);
        }
        if (rc <= 0) {
            break;
        }
    }
    if (s->fd >= 0) {
        update(s);
    }
}

static void free_stream(struct output_stream *s)
{
    buf_release(&s->line);
    buf_release(&s->tail);
    free(s);
}

static void end_step(struct output *o);

/* Frees the streams that are closed and delivered. */
static void finish_streams(struct output *o)
{
    struct output_stream **at = &o->streams;

    while (*at) {
        struct output_stream *s = *at;

        if (!s->is_closing || !s->handle_closed || s->line.len) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (s->closed) {
            s->closed(s->closed_arg);
            /* Which may have opened or closed others. */
            at = &o->streams;
        }
        free_stream(s);
    }
    if (o->is_ending) {
        end_step(o);
    }
}

static void on_poll_closed(uv_handle_t *h)
{
    struct output_stream *s = h->data;

    s->handle_closed = true;
    finish_streams(s->o);
}

static void on_wake(uv_async_t *h)
{
    struct output *o = h->data;

    look_at_writer(o);
    finish_streams(o);
}

static void wake_loop(void *arg)
{
    struct output *o = arg;

    uv_async_send(&o->wake);
}

void output_close(struct output_stream *s, output_closed_f *closed, void *arg)
{
    output_drain(s);
    close_pipe(s);
    if (s->file) {
        logwriter_close(s->o->writer, s->file);
        s->file = NULL;
    }
    s->is_closing = true;
    s->closed = closed;
    s->closed_arg = arg;
    uv_async_send(&s->o->wake);
}

void output_pause(struct output *o)
{
    if (!o->is_paused) {
        o->is_paused = true;
        update_all(o);
    }
}

void output_resume(struct output *o)
{
    if (!o->is_paused) {
        return;
    }
    o->is_paused = false;
    for (struct output_stream *s = o->streams; s && !o->is_paused;
         s = s->next) {
        deliver(s);
        s->partial_since_ms = 0;
        await_rest(s);
    }
    update_all(o);
    uv_async_send(&o->wake);
}

bool output_is_paused(const struct output *o)
{
    return o->is_paused;
}

uint64_t output_lost_bytes(const struct output *o)
{
    struct logwriter_state st;

    logwriter_look(o->writer, &st);
    return st.lost_bytes;
}

uint64_t output_last_ms(const struct output_stream *s)
{
    return s->last_ms;
}

void output_tail(const struct output_stream *s, unsigned n_lines,
                 struct buf *b)
{
    size_t from = s->tail.len > TAIL_BYTES ? s->tail.len - TAIL_BYTES : 0;
    size_t at = s->tail.len;

    if (!at || !n_lines) {
        return;
    }
    /* The newline at the very end ends the last line and begins no other. */
    at -= s->tail.data[at - 1] == '\n';
    while (at > from && !(s->tail.data[at - 1] == '\n' && --n_lines == 0)) {
        at--;
    }
    buf_append(b, s->tail.data + at, s->tail.len - at);
}

int output_open(struct output *o, int fd, uint32_t rank,
                enum output_which which, const char *path,
                struct output_stream **ret, struct error *e)
{
    _close_ int owned = fd;
    struct output_stream *s = calloc(1, sizeof(*s));
    int flags = fcntl(fd, F_GETFL);

    if (!s) {
        return error_set(e, ENOMEM, "read the output of rank %u", rank);
    }
    s->o = o;
    s->rank = rank;
    s->which = which;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        free(s);
        return error_set(e, errno, "read the output of rank %u", rank);
    }
    s->file = path ? logwriter_open(o->writer, path) : NULL;
    if (path && !s->file) {
        free(s);
        return error_set(e, ENOMEM, "read the output of rank %u", rank);
    }
    if (uv_poll_init(o->loop, &s->poll, fd) < 0) {
        if (s->file) {
            logwriter_close(o->writer, s->file);
        }
        free(s);
        return error_text(e, EINVAL, "descriptor %d of rank %u is no pipe", fd,
                          rank);
    }
    s->poll.data = s;
    s->fd = take_fd(&owned);
    s->next = o->streams;
    o->streams = s;
    update(s);
    *ret = s;
    return 0;
}

static void init_timer(struct output *o, uv_timer_t *t)
{
    uv_timer_init(o->loop, t);
    t->data = o;
    o->n_handles++;
}

int output_create(uv_loop_t *loop, const struct output_config *config,
                  struct output **ret, struct error *e)
{
    struct output *o = calloc(1, sizeof(*o));
    int rc;

    if (!o) {
        return error_set(e, ENOMEM, "read output");
    }
    o->loop = loop;
    o->config = *config;
    o->config.queue_bytes = config->queue_bytes ? config->queue_bytes : 4 << 20;
    o->config.stall_ms = config->stall_ms ? config->stall_ms : 10000;
    o->config.partial_ms = config->partial_ms ? config->partial_ms : 250;
    rc = uv_async_init(loop, &o->wake, on_wake);
    if (rc < 0) {
        free(o);
        return error_set(e, -rc, "read output");
    }
    o->wake.data = o;
    o->n_handles = 1;
    init_timer(o, &o->partial);
    init_timer(o, &o->stall);
    init_timer(o, &o->deadline);
    rc = logwriter_create(o->config.queue_bytes, wake_loop, o, &o->writer, e);
    if (rc < 0) {
        output_destroy(o, 0, NULL, NULL);
        return rc;
    }
    /* An idle output keeps no loop running. */
    uv_unref((uv_handle_t *)&o->wake);
    *ret = o;
    return 0;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct output *o = h->data;

    if (--o->n_handles) {
        return;
    }
    if (o->done) {
        o->done(o->done_arg, o->all_done);
    }
    free(o);
}

static void close_handles(struct output *o)
{
    o->is_closed = true;
    logwriter_release(o->writer);
    uv_close((uv_handle_t *)&o->wake, on_handle_closed);
    uv_close((uv_handle_t *)&o->partial, on_handle_closed);
    uv_close((uv_handle_t *)&o->stall, on_handle_closed);
    uv_close((uv_handle_t *)&o->deadline, on_handle_closed);
}

/* Once the streams are gone the writer is told to finish; once it has, all is. */
static void end_step(struct output *o)
{
    struct logwriter_state st;

    if (o->is_closed || o->streams) {
        return;
    }
    logwriter_finish(o->writer);
    logwriter_look(o->writer, &st);
    if (st.finished) {
        o->all_done = true;
        close_handles(o);
    }
}

static void on_deadline(uv_timer_t *t)
{
    struct output *o = t->data;

    for (struct output_stream *s = o->streams; s; s = s->next) {
        if (!s->handle_closed) {
            uv_timer_start(t, on_deadline, 1, 0);
            return;
        }
    }
    while (o->streams) {
        struct output_stream *s = o->streams;

        o->streams = s->next;
        free_stream(s);
    }
    if (!o->is_closed) {
        close_handles(o);
    }
}

void output_destroy(struct output *o, unsigned deadline_ms,
                    output_done_f *done, void *arg)
{
    if (!o) {
        return;
    }
    o->done = done;
    o->done_arg = arg;
    o->is_ending = true;
    if (!o->writer) {
        close_handles(o);
        return;
    }
    uv_ref((uv_handle_t *)&o->wake);
    uv_timer_start(&o->deadline, on_deadline, deadline_ms, 0);
    uv_async_send(&o->wake);
}
