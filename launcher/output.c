/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/output_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void update_all(struct output *o)
{
    for (struct output_stream *s = o->streams; s; s = s->next) {
        output_stream_update(s);
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

void output_look_at_writer(struct output *o)
{
    bool was_full = o->is_full;
    struct logwriter_state st;

    o->is_full = logwriter_is_full(o->writer);
    logwriter_look(o->writer, &st);
    if (o->is_full && !was_full) {
        uv_timer_start(&o->stall, on_stall, o->config.stall_ms, 0);
        /* Nobody reads now: the writer's word must still find a loop. */
        waker_hold_loop(o->wake, true);
        update_all(o);
    } else if (!o->is_full && was_full) {
        uv_timer_stop(&o->stall);
        if (!o->is_ending) {
            waker_hold_loop(o->wake, false);
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

static void end_step(struct output *o);

void output_finish_streams(struct output *o)
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
        output_stream_free(s);
    }
    if (o->is_ending) {
        end_step(o);
    }
}

static void on_wake(void *arg)
{
    struct output *o = arg;

    output_look_at_writer(o);
    output_finish_streams(o);
}

static void wake_loop(void *arg)
{
    struct output *o = arg;

    waker_send(o->wake);
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
        output_stream_deliver(s);
        s->partial_since_ms = 0;
        output_stream_await(s);
    }
    update_all(o);
    waker_send(o->wake);
}

bool output_is_paused(const struct output *o)
{
    return o->is_paused;
}

bool output_is_held(const struct output *o)
{
    return o->is_paused || o->is_full;
}

uint64_t output_lost_bytes(const struct output *o)
{
    struct logwriter_state st;

    logwriter_look(o->writer, &st);
    return st.lost_bytes;
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
    struct logwriter_config writer = {.limits = config->limits,
                                      .root = config->root, .wake = wake_loop,
                                      .arg = o};
    int rc;

    if (!o) {
        return error_set(e, ENOMEM, "read output");
    }
    o->loop = loop;
    o->config = *config;
    o->config.queue_bytes = config->queue_bytes ? config->queue_bytes : 4 << 20;
    o->config.stall_ms = config->stall_ms ? config->stall_ms : 10000;
    o->config.partial_ms = config->partial_ms ? config->partial_ms : 250;
    rc = waker_create(loop, on_wake, o, &o->wake, e);
    if (rc < 0) {
        free(o);
        return rc;
    }
    writer.wake_fd = waker_fd(o->wake);
    init_timer(o, &o->partial);
    init_timer(o, &o->stall);
    init_timer(o, &o->deadline);
    writer.high_bytes = o->config.queue_bytes;
    rc = logwriter_create(&writer, &o->writer, e);
    o->config.root = NULL;
    if (rc < 0) {
        output_destroy(o, 0, NULL, NULL);
        return rc;
    }
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
    waker_destroy(o->wake);
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
        output_stream_free(s);
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
    waker_hold_loop(o->wake, true);
    uv_timer_start(&o->deadline, on_deadline, deadline_ms, 0);
    waker_send(o->wake);
}
