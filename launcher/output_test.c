/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fifo without a reader stands for a filesystem that hangs (open blocks), and
 * /dev/full for one without space.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/output.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uv_loop_t loop;
static char dir[64] = "/tmp/output-test.XXXXXX";

/* What a test sees of its output. */
struct view {
    struct output *o;
    struct buf got;     /* all bytes */
    char pieces[4096];  /* L, C or E a call */
    size_t n_pieces;
    size_t largest;
    unsigned pause_after; /* calls; 0: never */
    char troubles[64];
    uint64_t lost;
    char text[512];
    int n_closed;
    int n_done;
    bool all_done;
};

static void on_sink(void *arg, uint32_t rank, enum output_which which,
                    enum output_piece piece, const char *data, size_t len)
{
    struct view *v = arg;

    (void)rank;
    (void)which;
    buf_append(&v->got, data, len);
    v->largest = len > v->largest ? len : v->largest;
    if (v->n_pieces < sizeof(v->pieces) - 1) {
        v->pieces[v->n_pieces] = "LCE"[piece];
    }
    v->n_pieces++;
    if (v->pause_after && v->n_pieces >= v->pause_after) {
        v->pause_after = 0;
        output_pause(v->o);
    }
}

static void on_trouble(void *arg, enum output_trouble what, uint64_t lost,
                       const char *text)
{
    struct view *v = arg;
    size_t n = strlen(v->troubles);

    if (n < sizeof(v->troubles) - 1) {
        v->troubles[n] = "USR"[what];
    }
    v->lost = lost;
    snprintf(v->text, sizeof(v->text), "%s", text);
}

static void on_closed(void *arg)
{
    ((struct view *)arg)->n_closed++;
}

static void on_done(void *arg, bool all_done)
{
    struct view *v = arg;

    v->n_done++;
    v->all_done = all_done;
}

static void start(struct view *v, struct output_config c)
{
    struct error e = {0};

    memset(v, 0, sizeof(*v));
    c.sink = on_sink;
    c.on_trouble = on_trouble;
    c.arg = v;
    if (output_create(&loop, &c, &v->o, &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* A stream of the output; the write end, which does not block, is returned. */
static int open_stream(struct view *v, const char *path,
                       struct output_stream **ret)
{
    struct output_source from = {.rank = 3, .which = OUTPUT_STDERR};
    struct error e = {0};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0 || fcntl(p[1], F_SETFL, O_NONBLOCK) < 0 ||
        output_open(v->o, p[0], &from, path, ret, &e) < 0) {
        bail_out("no stream: %s", e.text);
    }
    return p[1];
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* Turns the loop for a while. */
static void turn(unsigned ms)
{
    uint64_t until = clock_mono_ms() + ms;
    uv_timer_t t;

    uv_timer_init(&loop, &t);
    uv_timer_start(&t, on_tick, 1, 1);
    do {
        uv_run(&loop, UV_RUN_ONCE);
    } while (clock_mono_ms() < until);
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

#define turn_until(cond)                                  \
    for (int turns_ = 0; turns_ < 5000 && !(cond); turns_++) \
    turn(2)

static void finish(struct view *v, unsigned deadline_ms)
{
    output_destroy(v->o, deadline_ms, on_done, v);
    turn_until(v->n_done);
    is_int(v->n_done, 1, "destroyed");
}

static void put(int fd, const char *s)
{
    if (fs_write_all(fd, s, strlen(s)) < 0) {
        bail_out("pipe is full");
    }
}

static char *file_of(const char *name)
{
    char path[128];
    char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fs_read(path, 64 << 20, &text, NULL, NULL);
    return text;
}

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void test_lines(void)
{
    struct output_stream *s;
    struct view v;
    struct stat st;
    int fd;

    start(&v, (struct output_config){0});
    fd = open_stream(&v, path_of("a/b/stderr"), &s);
    is_int((intmax_t)output_last_ms(s), 0, "no output yet");
    put(fd, "one\ntwo\nthr");
    turn_until(v.n_pieces);
    is_str(buf_str(&v.got), "one\ntwo\n", "whole lines");
    put(fd, "ee\n\n");
    turn_until(v.n_pieces > 1);
    is_str(buf_str(&v.got), "one\ntwo\nthree\n\n", "the rest, and an empty one");
    is_str(v.pieces, "LL", "as lines");
    ok(output_last_ms(s) > 0, "output is noticed");
    put(fd, "no newline");
    close(fd);
    turn_until(v.n_pieces > 2);
    is_str(v.pieces, "LLE", "the end of the stream");
    output_close(s, on_closed, &v);
    is_int(v.n_closed, 0, "not told from inside the call");
    turn_until(v.n_closed);
    is_int(v.n_closed, 1, "closed");
    finish(&v, 5000);
    ok(v.all_done, "all was written");
    {
        _free_ char *text = file_of("a/b/stderr");

        is_str(text, buf_str(&v.got), "the file has the same");
    }
    stat(path_of("a/b/stderr"), &st);
    is_int(st.st_mode & 0777, 0600, "the file is private");
    stat(path_of("a/b"), &st);
    is_int(st.st_mode & 0777, 0700, "so is its directory");
    buf_release(&v.got);
}

static void test_partial(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    start(&v, (struct output_config){.partial_ms = 30});
    fd = open_stream(&v, NULL, &s);
    put(fd, "prompt> ");
    turn(5);
    is_int((int)v.n_pieces, 0, "waits for the rest of the line");
    turn_until(v.n_pieces);
    is_str(buf_str(&v.got), "prompt> ", "but not for long");
    put(fd, "\r10%\r20%\r30");
    turn_until(v.n_pieces > 1);
    is_str(buf_str(&v.got), "prompt> \r10%\r20%\r", "cut at a return");
    turn_until(v.n_pieces > 2);
    is_str(buf_str(&v.got), "prompt> \r10%\r20%\r30", "then the rest");
    put(fd, "%\n");
    turn_until(v.n_pieces > 3);
    is_str(v.pieces, "CCCL", "marked as parts");
    output_close(s, NULL, NULL);
    close(fd);
    finish(&v, 1000);
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

    start(&v, (struct output_config){0});
    fd = open_stream(&v, path_of("long"), &s);
    while (at < n) {
        ssize_t w = write(fd, data + at, n - at);

        at += w > 0 ? (size_t)w : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(fd);
    turn_until(v.got.len == n);
    is_int((intmax_t)v.got.len, (intmax_t)n, "all of it");
    ok(memcmp(v.got.data, data, n) == 0, "as it was");
    ok(v.largest <= 128 << 10, "in pieces of at most 128 KiB (%zu)", v.largest);
    ok(strspn(v.pieces, "C") >= 100, "marked as parts");
    output_close(s, NULL, NULL);
    finish(&v, 10000);
    fs_read(path_of("long"), 64 << 20, &text, &file_len, NULL);
    ok(file_len == n && memcmp(text, data, n) == 0, "and in the file");
    buf_release(&v.got);
}

static void test_pause(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    start(&v, (struct output_config){.partial_ms = 10});
    fd = open_stream(&v, NULL, &s);
    v.pause_after = 1;
    put(fd, "one\n");
    turn_until(v.n_pieces);
    ok(output_is_paused(v.o), "paused from inside the sink");
    put(fd, "two\nthree");
    turn(60);
    is_str(buf_str(&v.got), "one\n", "nothing more comes");
    output_resume(v.o);
    turn_until(v.n_pieces > 2);
    is_str(buf_str(&v.got), "one\ntwo\nthree", "until resumed");
    output_pause(v.o);
    put(fd, "\nlast words");
    output_close(s, on_closed, &v);
    turn(30);
    is_int(v.n_closed, 0, "a closed stream waits for the sink");
    close(fd);
    output_resume(v.o);
    turn_until(v.n_closed);
    is_str(buf_str(&v.got), "one\ntwo\nthree\nlast words", "which gets it");
    finish(&v, 1000);
    ok(v.all_done, "all done");
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
    start(&v, (struct output_config){0});
    fd = open_stream(&v, NULL, &s);
    output_pause(v.o);
    for (int i = 0; i < 400; i++) {
        ssize_t w = write(fd, block, sizeof(block));

        n += w > 0 ? (size_t)w : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ok(n < most, "a paused sink stops the pipe (%zu bytes)", n);
    output_resume(v.o);
    turn(5);
    ok(write(fd, block, sizeof(block)) > 0, "which goes on after it");
    close(fd);
    output_close(s, NULL, NULL);
    finish(&v, 1000);
    buf_release(&v.got);
}

/* A log that is there already, of an earlier life, is written on. */
static void test_appends(void)
{
    struct output_stream *s;
    _free_ char *text = NULL;
    char path[128];
    struct view v;
    int fd;

    snprintf(path, sizeof(path), "%s/appended", dir);
    fs_write_replace(path, "before\n", 7, NULL);
    start(&v, (struct output_config){0});
    fd = open_stream(&v, path, &s);
    put(fd, "after\n");
    close(fd);
    output_close(s, NULL, NULL);
    finish(&v, 1000);
    fs_read(path, 100, &text, NULL, NULL);
    is_str(text, "before\nafter\n", "appended to");
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

        start(&v, (struct output_config){0});
        fd = open_stream(&v, NULL, &s);
        put(fd, c[i].in);
        output_drain(s);
        output_tail(s, c[i].n, &b);
        is_str(buf_str(&b), c[i].want, "tail %zu, right after a drain", i);
        close(fd);
        output_close(s, NULL, NULL);
        output_destroy(v.o, 0, NULL, NULL);
        turn(2);
        buf_release(&v.got);
    }
    {
        struct output_stream *s;
        struct view v;
        size_t total = 0;
        int fd, n_short = 0;

        start(&v, (struct output_config){0});
        fd = open_stream(&v, NULL, &s);
        for (int i = 0; i < 9000; i++) {
            char line[32];

            total += (size_t)snprintf(line, sizeof(line), "%d\n", i);
            put(fd, line);
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
        close(fd);
        output_close(s, NULL, NULL);
        finish(&v, 1000);
        buf_release(&v.got);
    }
}

static void test_no_space(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    start(&v, (struct output_config){0});
    fd = open_stream(&v, "/dev/full", &s);
    put(fd, "one\n");
    turn_until(v.troubles[0]);
    is_str(v.troubles, "U", "told");
    is_int((intmax_t)v.lost, 4, "how much was lost");
    is_str(v.text, "/dev/full: No space left on device", "where and why");
    put(fd, "two\n");
    turn_until(output_lost_bytes(v.o) == 8);
    is_int((intmax_t)output_lost_bytes(v.o), 8, "the rest is counted");
    is_str(v.troubles, "U", "and told once");
    is_str(buf_str(&v.got), "one\ntwo\n", "the sink has it all");
    close(fd);
    output_close(s, NULL, NULL);
    finish(&v, 1000);
    buf_release(&v.got);
}

static void test_unwritable(void)
{
    struct output_stream *s;
    struct view v;
    char path[128];
    int fd;

    put((fd = open(path_of("plain"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)),
        "x");
    close(fd);
    snprintf(path, sizeof(path), "%s/plain/stderr", dir);
    start(&v, (struct output_config){0});
    fd = open_stream(&v, path, &s);
    put(fd, "one\n");
    turn_until(v.troubles[0]);
    is_str(v.troubles, "U", "a path that cannot be");
    unlink(path_of("plain"));
    put(fd, "two\n");
    turn_until(v.troubles[1]);
    is_str(v.troubles, "UR", "and then can");
    close(fd);
    output_close(s, NULL, NULL);
    finish(&v, 1000);
    {
        _free_ char *text = file_of("plain/stderr");

        is_str(text, "two\n", "what came after is there");
    }
    buf_release(&v.got);
}

/* Fills a pipe whose file hangs, until nothing more is taken. */
static size_t fill(int fd)
{
    static char block[4096];
    size_t n = 0;

    memset(block, 'y', sizeof(block));
    block[4095] = '\n';
    for (int i = 0; i < 1000; i++) {
        ssize_t w = write(fd, block, sizeof(block));

        n += w > 0 ? (size_t)w : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return n;
}

static void *read_fifo(void *arg)
{
    int fd = open(arg, O_RDONLY | O_CLOEXEC);
    static char block[65536];
    size_t n = 0;
    ssize_t r;

    while ((r = read(fd, block, sizeof(block))) > 0) {
        n += (size_t)r;
    }
    close(fd);
    return (void *)n;
}

static void test_hang(void)
{
    struct output_config c = {.queue_bytes = 100000, .stall_ms = 30};
    struct output_stream *s, *other;
    char fifo[128];
    pthread_t t;
    struct view v;
    void *read_bytes;
    int fd, fd2;
    size_t n;

    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    mkfifo(fifo, 0600);
    start(&v, c);
    fd = open_stream(&v, fifo, &s);
    fd2 = open_stream(&v, NULL, &other);
    n = fill(fd);
    ok(n < 1000000, "the pipe fills (%zu bytes)", n);
    turn_until(v.troubles[0]);
    is_str(v.troubles, "S", "a writer that is stuck is told");
    put(fd2, "alive\n");
    turn(10);
    like(buf_str(&v.got) + v.got.len - 6, "alive\n",
         "a stream without a file goes on");
    pthread_create(&t, NULL, read_fifo, fifo);
    turn_until(v.troubles[1]);
    is_str(v.troubles, "SR", "and that it goes on");
    ok(write(fd, "more\n", 5) == 5, "the pipe, too");
    close(fd);
    close(fd2);
    output_close(s, NULL, NULL);
    output_close(other, NULL, NULL);
    finish(&v, 10000);
    ok(v.all_done, "all was written");
    pthread_join(t, &read_bytes);
    is_int((intmax_t)(size_t)read_bytes, (intmax_t)n + 5, "every byte");
    buf_release(&v.got);
}

static void test_hang_at_end(void)
{
    struct output_stream *s;
    char fifo[128];
    struct view v;
    uint64_t t;
    int fd;

    snprintf(fifo, sizeof(fifo), "%s/fifo2", dir);
    mkfifo(fifo, 0600);
    start(&v, (struct output_config){0});
    fd = open_stream(&v, fifo, &s);
    put(fd, "x\n");
    close(fd);
    turn(5);
    output_close(s, NULL, NULL);
    t = clock_mono_ms();
    finish(&v, 50);
    ok(!v.all_done, "a writer that hangs does not hold up the end");
    ok(clock_mono_ms() - t < 5000, "beyond the deadline");
    /* Lets the thread that was left behind go. */
    fd = open(fifo, O_RDONLY | O_CLOEXEC);
    {
        char c[8];

        is_int(read(fd, c, sizeof(c)), 2, "it writes when it can");
        is_int(read(fd, c, sizeof(c)), 0, "and ends");
    }
    close(fd);
    buf_release(&v.got);
}

static void test_many(void)
{
    enum { N = 64 };
    struct output_stream *s[N];
    int fds[N], bad = 0;
    struct view v;
    char name[32];

    start(&v, (struct output_config){.queue_bytes = 4096});
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "many/%d/stdout", i);
        fds[i] = open_stream(&v, path_of(name), &s[i]);
    }
    for (int k = 0; k < 200; k++) {
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof(name), "%d.%d\n", i, k);
            put(fds[i], name);
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < N; i++) {
        close(fds[i]);
        output_close(s[i], on_closed, &v);
    }
    turn_until(v.n_closed == N);
    is_int(v.n_closed, N, "64 streams closed");
    finish(&v, 10000);
    for (int i = 0; i < N; i++) {
        _free_ char *text = NULL;
        _buf_ struct buf want = {0};

        snprintf(name, sizeof(name), "many/%d/stdout", i);
        text = file_of(name);
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

    start(&v, (struct output_config){0});
    ok(output_open(v.o, -1, &from, NULL, &s, &e) < 0,
       "no descriptor");
    ok(output_open(v.o, open(path_of("a/b/stderr"), O_RDONLY | O_CLOEXEC),
                   &from, path_of("x"), &s, &e) < 0,
       "a file instead of a pipe");
    close(fd);
    finish(&v, 1000);
    ok(v.all_done, "nothing was begun");
    output_destroy(NULL, 0, NULL, NULL);
}

static int open_shared_stream(struct view *v, uint32_t rank,
                              enum output_which which,
                              struct output_stream **ret)
{
    struct output_source from = {.rank = rank, .which = which,
                                 .shares_file = true};
    struct error e = {0};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0 ||
        output_open(v->o, p[0], &from, path_of("shared/node-0"), ret, &e) < 0) {
        bail_out("no stream: %s", e.text);
    }
    return p[1];
}

/* Lines of several streams in one file stay whole, and nothing of them is lost. */
static void test_shared_file(void)
{
    static const char want[] = "[0 out] one\n"
                               "[12 err] complaint\n"
                               "[0 out] two\n"
                               "[0 out] a\0b\xff\n"
                               "[0 out] \n"
                               "[0 out+] no newline\n";
    struct view v = {0};
    struct output_stream *out, *err;
    _free_ char *text = NULL;
    size_t len = 0;
    int a, b;

    start(&v, (struct output_config){0});
    a = open_shared_stream(&v, 0, OUTPUT_STDOUT, &out);
    b = open_shared_stream(&v, 12, OUTPUT_STDERR, &err);
    put(a, "one\ntw");
    turn_until(strstr(buf_str(&v.got), "one\n"));
    put(b, "complaint\n");
    turn_until(strstr(buf_str(&v.got), "complaint\n"));
    close(b);
    output_close(err, NULL, NULL);
    put(a, "o\n");
    ok(write(a, "a\0b\xff\n\nno newline", 16) == 16, "any bytes");
    close(a);
    output_close(out, NULL, NULL);
    finish(&v, 60000);
    ok(v.all_done, "all was written");
    fs_read(path_of("shared/node-0"), 1 << 20, &text, &len, NULL);
    ok(len == sizeof(want) - 1 && memcmp(text, want, len) == 0,
       "lines with labels (%.*s)", (int)len, text);
    buf_release(&v.got);
}

/* A line that is too long to wait for its end is cut, and says so. */
static void test_shared_long_line(void)
{
    enum { N = 200000 };
    struct view v = {0};
    struct output_stream *s;
    _free_ char *text = NULL, *line = malloc(N + 1);
    size_t len = 0, n = 0, n_cut = 0;
    int fd;

    if (!line) {
        bail_out("no memory");
    }
    memset(line, 'x', N);
    line[N] = '\n';
    unlink(path_of("shared/node-0"));
    start(&v, (struct output_config){0});
    fd = open_shared_stream(&v, 5, OUTPUT_STDOUT, &s);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (size_t at = 0; at < N + 1;) {
        ssize_t w = write(fd, line + at, N + 1 - at);

        at += w > 0 ? (size_t)w : 0;
        turn(0);
    }
    close(fd);
    output_close(s, NULL, NULL);
    finish(&v, 60000);
    fs_read(path_of("shared/node-0"), 1 << 20, &text, &len, NULL);
    for (char *at = text; at && *at; at = strchr(at, '\n') + 1) {
        bool is_cut = str_starts(at, "[5 out+] ");

        n_cut += is_cut;
        n += strcspn(at, "\n") - strlen(is_cut ? "[5 out+] " : "[5 out] ");
    }
    ok(n_cut >= 1 && n_cut <= 3, "cut (%zu times)", n_cut);
    is_int((intmax_t)n, N, "all of it is there");
    buf_release(&v.got);
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("no temporary directory");
    }
    uv_loop_init(&loop);
    test_lines();
    test_partial();
    test_long_line();
    test_pause();
    test_backpressure();
    test_appends();
    test_tail();
    test_no_space();
    test_unwritable();
    test_hang();
    test_hang_at_end();
    test_many();
    test_errors();
    test_shared_file();
    test_shared_long_line();
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "nothing is left on the loop");
    fs_remove_tree(dir, NULL);
    return tap_done();
}
