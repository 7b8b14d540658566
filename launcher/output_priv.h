/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the output. Private to output*.c.
 *
 *   output.c         all of it: its sink, its writer, its end
 *   output_stream.c  one stream: from the pipe to its file and, by lines, to the
 *                    sink
 *   output_lines.c   lines of several streams in one file
 */
#ifndef MUSTER_LAUNCHER_OUTPUT_PRIV_H
#define MUSTER_LAUNCHER_OUTPUT_PRIV_H

#include "base/buf.h"
#include "base/waker.h"
#include "launcher/logwriter.h"
#include "launcher/output.h"

enum {
    OUTPUT_CHUNK = 64 << 10,    /* of one read */
    OUTPUT_LINE_MAX = 64 << 10, /* longer ones are cut */
};

struct output_stream {
    struct output *o;
    struct output_stream *next;
    uv_poll_t poll;
    int fd; /* -1 after the end of file */
    uint32_t rank;
    enum output_which which;
    struct logfile *file;   /* or NULL */
    bool is_shared;         /* that file has lines of other streams, too */
    struct buf rest;        /* with it: not yet a line */
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
    struct waker *wake;
    uv_timer_t partial, stall, deadline;
    unsigned n_handles;
    bool is_paused;
    bool is_full; /* the writer's queue, as far as we have acted on it */
    bool told_unwritable, told_stalled;
    bool is_ending, is_closed, all_done;
    output_done_f *done;
    void *done_arg;
    /* What a read gives, with room before it for the part of a line that it
     * continues. */
    char chunk[OUTPUT_LINE_MAX + OUTPUT_CHUNK];
};

/* --- output.c --- */

/* The writer's queue was filled or emptied, or it has trouble. */
void output_look_at_writer(struct output *o);
/* Frees the streams that are closed and delivered. */
void output_finish_streams(struct output *o);

/* --- output_stream.c --- */

/* Reads on, or stops to, as pauses and queues ask. */
void output_stream_update(struct output_stream *s);
/* Hands on what the sink may have now. */
void output_stream_deliver(struct output_stream *s);
/* Sees to it that what is left does not wait for ever for its newline. */
void output_stream_await(struct output_stream *s);
void output_stream_free(struct output_stream *s);

/* --- output_lines.c --- */

/* To a shared file, by lines. */
void output_lines_write(struct output_stream *s, const char *data, size_t len);
/* The stream has ended: what is left is no whole line. */
void output_lines_end(struct output_stream *s);

#endif
