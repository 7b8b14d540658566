/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/writer.h"

#include "base/cleanup.h"
#include "base/turn_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A writer whose standard output is a pipe that holds little. */
struct bench {
    uv_loop_t loop;
    struct writer *writer;
    int n_rooms;
    int reader, old_stdout;
};

enum { LEN = 1 << 20 }; /* more than any pipe has room for */

static int n_sent; /* wakes of the loop, by the writer's thread */

int __real_uv_async_send(uv_async_t *a);
int __wrap_uv_async_send(uv_async_t *a);

int __wrap_uv_async_send(uv_async_t *a)
{
    n_sent++;
    return __real_uv_async_send(a);
}

static void on_room(void *arg)
{
    struct bench *b = arg;

    b->n_rooms++;
}

static void setup(struct bench *b)
{
    int p[2];

    *b = (struct bench){0};
    fflush(stdout);
    if (uv_loop_init(&b->loop) < 0 || pipe2(p, O_CLOEXEC) < 0 ||
        (b->old_stdout = fcntl(1, F_DUPFD_CLOEXEC, 3)) < 0 || dup2(p[1], 1) < 0 ||
        writer_create(&b->loop, on_room, b, &b->writer, NULL) < 0) {
        bail_out("no writer");
    }
    close(p[1]);
    b->reader = p[0];
}

/* What is told of a test comes after this. */
static void restore_stdout(struct bench *b)
{
    dup2(b->old_stdout, 1);
    close_fd(&b->old_stdout);
}

static void teardown(struct bench *b)
{
    writer_destroy(b->writer);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    uv_loop_close(&b->loop);
    close_fd(&b->reader);
}

static void put(struct bench *b, size_t len)
{
    _buf_ struct buf data = {0};

    for (size_t i = 0; i < len; i++) {
        buf_putc(&data, (char)('a' + i % 26));
    }
    writer_take(b->writer, 1, &data);
}

/* Reads `len` bytes; whether they are what was put. */
static bool take(struct bench *b, size_t len)
{
    _free_ char *got = malloc(len);
    size_t n = 0;
    ssize_t now = 1;
    bool is_right;

    while (got && n < len && (now = read(b->reader, got + n, len - n)) > 0) {
        n += (size_t)now;
    }
    is_right = got && n == len;

    for (size_t i = 0; is_right && i < len; i++) {
        is_right = got[i] == (char)('a' + i % 26);
    }
    return is_right;
}

static void test_watched(void)
{
    struct bench b;
    size_t pending;
    bool is_right, comes;
    int before;

    setup(&b);
    put(&b, LEN);
    pending = writer_pending(b.writer);
    uv_run(&b.loop, UV_RUN_NOWAIT);
    before = b.n_rooms;
    is_right = take(&b, LEN);
    comes = turn_until(&b.loop, &b.n_rooms, 1);
    restore_stdout(&b);
    is_int((intmax_t)pending, LEN, "what nobody reads is pending");
    is_int(before, 0, "there is no room yet");
    ok(is_right, "it is read");
    ok(comes, "then there is room, for who has seen that there was none");
    is_int((intmax_t)writer_pending(b.writer), 0, "nothing is pending");
    teardown(&b);
}

/* Most of the time nobody waits for room, and the loop is not woken. */
static void test_unwatched(void)
{
    struct bench b;
    bool is_right = true, comes;

    setup(&b);
    n_sent = 0;
    for (int i = 0; i < 10; i++) {
        put(&b, 1000);
        is_right = is_right && take(&b, 1000);
    }
    put(&b, LEN);
    writer_pending(b.writer);
    is_right = take(&b, LEN) && is_right;
    comes = turn_until(&b.loop, &b.n_rooms, 1);
    restore_stdout(&b);
    ok(is_right, "all is read");
    ok(comes, "room is told of when it was asked for");
    teardown(&b); /* ends the thread */
    is_int(n_sent, 1, "and not before");
}

static void test_nobody_reads(void)
{
    struct bench b;
    size_t pending;
    bool comes;
    int error;

    setup(&b);
    put(&b, LEN);
    writer_pending(b.writer);
    close_fd(&b.reader);
    comes = turn_until(&b.loop, &b.n_rooms, 1);
    error = writer_error(b.writer, 1);
    put(&b, 10);
    for (int i = 0; i < 60000 && writer_pending(b.writer); i++) {
        usleep(1000);
    }
    pending = writer_pending(b.writer);
    restore_stdout(&b);
    ok(comes, "there is room when nobody reads any more");
    is_int(error, EPIPE, "a pipe that nobody reads has failed");
    is_int(writer_error(b.writer, 2), 0, "standard error has not");
    is_int((intmax_t)pending, 0, "what is for it is dropped");
    teardown(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    test_watched();
    test_unwatched();
    test_nobody_reads();
    return tap_done();
}
