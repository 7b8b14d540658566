/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workers print: read once, written to one file a stream, and handed on
 * by whole lines.
 *
 * A stream is the read end of a pipe. Every byte that comes out of it goes, in
 * order and unchanged, (1) to the stream's file, if it has one, and (2) to the
 * sink. A file that streams share has their lines behind labels
 * (output_lines.c). Files are made and written by one thread of the output, so
 * that a filesystem that hangs or is full never stops the loop. Nothing is
 * dropped to keep up: when the writer is behind by more than its queue, or the sink is
 * paused, the pipes are no longer read, and workers wait in write(). The one
 * exception is a file that cannot be written (no space left, ...): its bytes are
 * counted and told, and the sink still gets them.
 *
 * Threads: all calls and callbacks are on the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_OUTPUT_H
#define MUSTER_LAUNCHER_OUTPUT_H

#include "base/buf.h"
#include "base/error.h"
#include "launcher/log_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct output;
struct output_stream;

#define OUTPUT_NO_RANK UINT32_MAX /* of no worker: into its file only */

enum output_which { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2 };

enum output_piece {
    OUTPUT_LINES, /* whole lines; ends with a newline */
    OUTPUT_CUT,   /* part of a line: longer than 64 KiB, or waited for too long */
    OUTPUT_END,   /* as OUTPUT_CUT, and the stream ended without a newline */
};

/* Gets 1 .. 128 KiB at a time. May call output_pause(): nothing more comes until
 * output_resume(). Must not close or destroy. */
typedef void output_sink_f(void *arg, uint32_t rank, enum output_which which,
                           enum output_piece piece, const char *data,
                           size_t len);

enum output_trouble {
    OUTPUT_UNWRITABLE, /* first bytes lost to a file: text has path and reason */
    OUTPUT_STALLED,    /* the writer has been stuck for stall_ms */
    OUTPUT_RECOVERED,  /* of either */
};

/* Told once for each change, not for each byte. lost_bytes: so far, all files. */
typedef void output_trouble_f(void *arg, enum output_trouble what,
                              uint64_t lost_bytes, const char *text);

struct output_config {
    output_sink_f *sink; /* NULL: nobody */
    output_trouble_f *on_trouble;
    void *arg;
    const char *root;      /* of logwriter_create(); borrowed until that */
    struct log_limits limits; /* of files */
    size_t queue_bytes;    /* high-water mark of the writer; 0: 4 MiB */
    unsigned stall_ms;     /* 0: 10 s */
    unsigned partial_ms;   /* a part of a line waits so long for its rest; 0: 250 */
};

int output_create(uv_loop_t *loop, const struct output_config *config,
                  struct output **ret, struct error *e);

/* Lets the sink (once resumed) and the writer finish, for at most `deadline_ms`,
 * then calls `done` with whether all was delivered and written, and frees the
 * output. output_close() must have been called for all streams. A writer that
 * hangs in a filesystem is left behind with its memory; it ends with the
 * process. `done` may be NULL. */
typedef void output_done_f(void *arg, bool all_done);
void output_destroy(struct output *o, unsigned deadline_ms,
                    output_done_f *done, void *arg);

struct output_source {
    uint32_t rank;
    enum output_which which;
    bool shares_file; /* with all streams of the same path */
};

/* Reads `fd` (owned from now on, also on failure) as the output of `from`
 * (copied). `path`: the file, made with its directories by the writer, appended
 * to; NULL for none. */
int output_open(struct output *o, int fd, const struct output_source *from,
                const char *path, struct output_stream **ret, struct error *e);

/* Reads what lies in the pipe now, even while the sink is paused or the writer
 * is behind (what a pipe holds is bounded), so that output_tail() is complete for
 * a worker that has ended. */
void output_drain(struct output_stream *s);

/* Drains, then closes the pipe, although some process might still hold its other
 * end. The stream belongs to the output from now on: what is left goes to the
 * sink as it takes it, then `closed` is called (may be NULL; never from inside
 * this call) and the stream is freed. */
typedef void output_closed_f(void *arg);
void output_close(struct output_stream *s, output_closed_f *closed, void *arg);

/* The last lines of the stream, at most `n_lines` and 4 KiB, appended to `b`; a
 * longer line is cut at its front. Of what a progress bar writes over itself the last one
 * is there (redrawn_drop()). */
void output_tail(const struct output_stream *s, unsigned n_lines,
                 struct buf *b);

/* When the stream last gave something (clock_mono_ms), for hang detection; 0 if
 * never. */
uint64_t output_last_ms(const struct output_stream *s);

/* Credit of the sink. While paused, pipes are not read. */
void output_pause(struct output *o);
void output_resume(struct output *o);
bool output_is_paused(const struct output *o);
/* Pipes are not read now, or some are not: workers may have to wait. */
bool output_is_held(const struct output *o);

/* Bytes lost to files so far. */
uint64_t output_lost_bytes(const struct output *o);

#endif
