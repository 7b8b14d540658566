/* SPDX-License-Identifier: Apache-2.0 */
/* How output gets from workers to who shows it. */
#include <config.h>

#include "launcher/output_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_lines(void)
{
    struct output_stream *s;
    struct view v;
    struct stat st;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "a/b/stderr", &s);
    is_int((intmax_t)output_last_ms(s), 0, "no output yet");
    view_put(fd, "one\ntwo\nthr");
    view_turn_until(v.n_pieces);
    is_str(buf_str(&v.got), "one\ntwo\n", "whole lines");
    view_put(fd, "ee\n\n");
    view_turn_until(v.n_pieces > 1);
    is_str(buf_str(&v.got), "one\ntwo\nthree\n\n", "the rest, and an empty one");
    is_str(v.pieces, "LL", "as lines");
    ok(output_last_ms(s) > 0, "output is noticed");
    view_put(fd, "no newline");
    close(fd);
    view_turn_until(v.n_pieces > 2);
    is_str(v.pieces, "LLE", "the end of the stream");
    output_close(s, view_on_closed, &v);
    is_int(v.n_closed, 0, "not told from inside the call");
    view_turn_until(v.n_closed);
    is_int(v.n_closed, 1, "closed");
    view_finish(&v, 5000);
    ok(v.all_done, "all was written");
    {
        _free_ char *text = view_file("a/b/stderr");

        is_str(text, buf_str(&v.got), "the file has the same");
    }
    stat("a/b/stderr", &st);
    is_int(st.st_mode & 0777, 0600, "the file is private");
    stat("a/b", &st);
    is_int(st.st_mode & 0777, 0700, "so is its directory");
    buf_release(&v.got);
}

static void test_partial(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = 30});
    fd = view_open(&v, NULL, &s);
    view_put(fd, "prompt> ");
    view_turn(5);
    is_int((int)v.n_pieces, 0, "waits for the rest of the line");
    view_turn_until(v.n_pieces);
    is_str(buf_str(&v.got), "prompt> ", "but not for long");
    view_put(fd, "\r10%\r20%\r30");
    view_turn_until(v.n_pieces > 1);
    is_str(buf_str(&v.got), "prompt> \r10%\r20%\r", "cut at a return");
    view_turn_until(v.n_pieces > 2);
    is_str(buf_str(&v.got), "prompt> \r10%\r20%\r30", "then the rest");
    view_put(fd, "%\n");
    view_turn_until(v.n_pieces > 3);
    is_str(v.pieces, "CCCL", "marked as parts");
    output_close(s, NULL, NULL);
    close(fd);
    view_finish(&v, 1000);
    buf_release(&v.got);
}

/* `n` bytes that contain every value but a newline. */
static char *noise(size_t n)
{
    char *p = malloc(n + 1);

    for (size_t i = 0; i < n; i++) {
        p[i] = (char)(i * 2654435761u >> 13);
        p[i] = p[i] == '\n' ? 'n' : p[i];
    }
    p[n] = '\0';
    return p;
}

/* 10 MB without a newline. */
static void test_long_line(void)
{
    size_t n = 10 << 20, at = 0, file_len = 0;
    _free_ char *data = noise(n);
    _free_ char *text = NULL;
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "long", &s);
    while (at < n) {
        ssize_t w = write(fd, data + at, n - at);

        at += w > 0 ? (size_t)w : 0;
        uv_run(uv_default_loop(), UV_RUN_NOWAIT);
    }
    close(fd);
    view_turn_until(v.got.len == n);
    is_int((intmax_t)v.got.len, (intmax_t)n, "all of it");
    ok(memcmp(v.got.data, data, n) == 0, "as it was");
    ok(v.largest <= 128 << 10, "in pieces of at most 128 KiB (%zu)", v.largest);
    ok(strspn(v.pieces, "C") >= 100, "marked as parts");
    output_close(s, NULL, NULL);
    view_finish(&v, 10000);
    fs_read("long", 64 << 20, &text, &file_len, NULL);
    ok(file_len == n && memcmp(text, data, n) == 0, "and in the file");
    buf_release(&v.got);
}

static void test_pause(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = 10});
    fd = view_open(&v, NULL, &s);
    v.pause_after = 1;
    view_put(fd, "one\n");
    view_turn_until(v.n_pieces);
    ok(output_is_paused(v.o) && output_is_held(v.o),
       "paused from inside the sink");
    view_put(fd, "two\nthree");
    view_turn(60);
    is_str(buf_str(&v.got), "one\n", "nothing more comes");
    output_resume(v.o);
    view_turn_until(v.n_pieces > 2);
    is_str(buf_str(&v.got), "one\ntwo\nthree", "until resumed");
    output_pause(v.o);
    view_put(fd, "\nlast words");
    output_close(s, view_on_closed, &v);
    view_turn(30);
    is_int(v.n_closed, 0, "a closed stream waits for the sink");
    is_str(buf_str(&v.got), "one\ntwo\nthree",
           "which gets nothing of what is read at the end");
    close(fd);
    output_resume(v.o);
    view_turn_until(v.n_closed);
    is_str(buf_str(&v.got), "one\ntwo\nthree\nlast words", "which gets it");
    view_finish(&v, 1000);
    ok(v.all_done, "all done");
    buf_release(&v.got);
}

/* Whoever shows output is stuck, and the agent has to end. */
static void test_paused_at_end(void)
{
    struct output_stream *s, *open;
    struct view v;
    int fd, fd2;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, NULL, &s);
    fd2 = view_open(&v, NULL, &open);
    output_pause(v.o);
    view_put(fd, "x\n");
    output_close(s, view_on_closed, &v);
    output_close(open, NULL, NULL);
    close(fd);
    close(fd2);
    view_finish(&v, 50);
    is_str(buf_str(&v.got), "", "a sink that stays paused gets nothing");
    ok(!v.all_done && v.n_closed == 0, "and does not hold up the end");
    buf_release(&v.got);
}

/* Back-pressure reaches the writer of the pipe while the sink is paused. */
static void test_backpressure(void)
{
    struct output_stream *s;
    static char block[4096];
    struct view v;
    size_t n = 0, most = 1 << 20;
    int fd;

    memset(block, 'x', sizeof(block));
    view_start(&v, (struct output_config){0});
    fd = view_open(&v, NULL, &s);
    output_pause(v.o);
    for (int i = 0; i < 400; i++) {
        ssize_t w = write(fd, block, sizeof(block));

        n += w > 0 ? (size_t)w : 0;
        uv_run(uv_default_loop(), UV_RUN_NOWAIT);
    }
    ok(n < most, "a paused sink stops the pipe (%zu bytes)", n);
    output_resume(v.o);
    view_turn(5);
    ok(write(fd, block, sizeof(block)) > 0, "which goes on after it");
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(&v, 1000);
    buf_release(&v.got);
}

static void test_tail(void)
{
    static const struct { const char *in; unsigned n; const char *want; } c[] = {
        {"", 5, ""},
        {"a\nb\nc\n", 2, "b\nc\n"},
        {"a\nb\nc", 2, "b\nc"},
        {"a\nb\nc\n", 3, "a\nb\nc\n"},
        {"a\nb\nc\n", 9, "a\nb\nc\n"},
        {"a\n\n\n", 2, "\n\n"},
        {"a\n", 0, ""},
        {"\n", 1, "\n"},
    };
    _buf_ struct buf big = {0};

    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        _buf_ struct buf b = {0};
        struct output_stream *s;
        struct view v;
        int fd;

        view_start(&v, (struct output_config){0});
        fd = view_open(&v, NULL, &s);
        view_put(fd, c[i].in);
        output_drain(s);
        output_tail(s, c[i].n, &b);
        is_str(buf_str(&b), c[i].want, "tail %zu, right after a drain", i);
        close(fd);
        output_close(s, NULL, NULL);
        output_destroy(v.o, 0, NULL, NULL);
        view_turn(2);
        buf_release(&v.got);
    }
    {
        struct output_stream *s;
        struct view v;
        size_t total = 0;
        int fd, n_short = 0;

        view_start(&v, (struct output_config){0});
        fd = view_open(&v, NULL, &s);
        for (int i = 0; i < 9000; i++) {
            char line[32];

            total += (size_t)snprintf(line, sizeof(line), "%d\n", i);
            view_put(fd, line);
            output_drain(s);
            buf_clear(&big);
            output_tail(s, 100000, &big);
            n_short += big.len != (total < 4096 ? total : 4096);
        }
        is_int(n_short, 0, "the end is whole at any time");
        buf_clear(&big);
        output_tail(s, 2, &big);
        is_str(buf_str(&big), "8998\n8999\n", "of much output");
        buf_clear(&big);
        output_tail(s, 100000, &big);
        is_int((int)big.len, 4096, "at most 4 KiB");
        for (int i = 0; i < 9000; i++) {
            view_put(fd, i % 100 ? "\r 10%|#" : "\nstep");
            output_drain(s);
        }
        buf_clear(&big);
        output_tail(s, 3, &big);
        is_str(buf_str(&big), " 10%|#\n 10%|#\n 10%|#",
               "of progress bars as they are at last");
        buf_clear(&big);
        output_tail(s, 100000, &big);
        ok(strstr(buf_str(&big), "\n8999\n"), "and what was before them");
        close(fd);
        output_close(s, NULL, NULL);
        view_finish(&v, 1000);
        buf_release(&v.got);
    }
}

static void test_many(void)
{
    enum { N = 64 };
    struct output_stream *s[N];
    int fds[N], bad = 0;
    struct view v;
    char name[32];

    view_start(&v, (struct output_config){.queue_bytes = 4096});
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "many/%d/stdout", i);
        fds[i] = view_open(&v, name, &s[i]);
    }
    for (int k = 0; k < 200; k++) {
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof(name), "%d.%d\n", i, k);
            view_put(fds[i], name);
        }
        uv_run(uv_default_loop(), UV_RUN_NOWAIT);
    }
    for (int i = 0; i < N; i++) {
        close(fds[i]);
        output_close(s[i], view_on_closed, &v);
    }
    view_turn_until(v.n_closed == N);
    is_int(v.n_closed, N, "64 streams closed");
    view_finish(&v, 10000);
    for (int i = 0; i < N; i++) {
        _free_ char *text = NULL;
        _buf_ struct buf want = {0};

        snprintf(name, sizeof(name), "many/%d/stdout", i);
        text = view_file(name);
        for (int k = 0; k < 200; k++) {
            buf_printf(&want, "%d.%d\n", i, k);
        }
        bad += !text || strcmp(text, buf_str(&want)) != 0;
    }
    is_int(bad, 0, "each file has its lines, in order");
    is_int((int)v.got.len, 64 * 200 * 3 + 200 * (10 + 54 * 2) +
               64 * (10 + 90 * 2 + 100 * 3) - 64 * 200,
           "the sink has as many bytes");
    buf_release(&v.got);
}

static void test_errors(void)
{
    struct output_source from = {.which = OUTPUT_STDOUT};
    struct output_stream *s;
    struct error e = {0};
    struct view v;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    view_start(&v, (struct output_config){0});
    ok(output_open(v.o, -1, &from, NULL, &s, &e) < 0,
       "no descriptor");
    ok(output_open(v.o, open("a/b/stderr", O_RDONLY | O_CLOEXEC),
                   &from, "x", &s, &e) < 0,
       "a file instead of a pipe");
    close(fd);
    view_finish(&v, 1000);
    ok(v.all_done, "nothing was begun");
    output_destroy(NULL, 0, NULL, NULL);
}

int main(void)
{
    view_bed_up();
    test_lines();
    test_partial();
    test_long_line();
    test_pause();
    test_paused_at_end();
    test_backpressure();
    test_tail();
    test_many();
    test_errors();
    view_bed_down();
    return tap_done();
}
