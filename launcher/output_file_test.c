/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of output, also those that cannot be written. A fifo without a reader
 * stands for a filesystem that hangs (open blocks), and /dev/full for one
 * without space.
 */
#include <config.h>

#include "launcher/output_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A log that is there already, of an earlier life, is written on. */
static void test_appends(void)
{
    struct output_stream *s;
    _free_ char *text = NULL;
    struct view v;
    int fd;

    fs_write_replace("appended", "before\n", 7, NULL);
    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "appended", &s);
    view_put(fd, "after\n");
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(&v, 1000);
    fs_read("appended", 100, &text, NULL, NULL);
    is_str(text, "before\nafter\n", "appended to");
    buf_release(&v.got);
}

static void test_no_space(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "/dev/full", &s);
    view_put(fd, "one\n");
    view_turn_until(v.troubles[0]);
    is_str(v.troubles, "U", "told");
    is_int((intmax_t)v.lost, 4, "how much was lost");
    is_str(v.text, "/dev/full: No space left on device", "where and why");
    view_put(fd, "two\n");
    view_turn_until(output_lost_bytes(v.o) == 8);
    is_int((intmax_t)output_lost_bytes(v.o), 8, "the rest is counted");
    is_str(v.troubles, "U", "and told once");
    is_str(buf_str(&v.got), "one\ntwo\n", "the sink has it all");
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(&v, 1000);
    buf_release(&v.got);
}

static void test_unwritable(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    fd = open("plain", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    view_put(fd, "x");
    close(fd);
    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "plain/stderr", &s);
    view_put(fd, "one\n");
    view_turn_until(v.troubles[0]);
    is_str(v.troubles, "U", "a path that cannot be");
    unlink("plain");
    view_put(fd, "two\n");
    view_turn_until(v.troubles[1]);
    is_str(v.troubles, "UR", "and then can");
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(&v, 1000);
    {
        _free_ char *text = view_file("plain/stderr");

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
        uv_run(uv_default_loop(), UV_RUN_NOWAIT);
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
    pthread_t t;
    struct view v;
    void *read_bytes;
    int fd, fd2;
    size_t n;

    mkfifo("fifo", 0600);
    view_start(&v, c);
    fd = view_open(&v, "fifo", &s);
    fd2 = view_open(&v, NULL, &other);
    n = fill(fd);
    ok(n < 1000000, "the pipe fills (%zu bytes)", n);
    view_turn_until(v.troubles[0]);
    is_str(v.troubles, "S", "a writer that is stuck is told");
    ok(output_is_held(v.o), "and holds workers up");
    view_put(fd2, "alive\n");
    view_turn(10);
    like(buf_str(&v.got) + v.got.len - 6, "alive\n",
         "a stream without a file goes on");
    pthread_create(&t, NULL, read_fifo, (void *)"fifo");
    view_turn_until(v.troubles[1]);
    is_str(v.troubles, "SR", "and that it goes on");
    ok(!output_is_held(v.o), "which holds up nobody");
    ok(write(fd, "more\n", 5) == 5, "the pipe, too");
    close(fd);
    close(fd2);
    output_close(s, NULL, NULL);
    output_close(other, NULL, NULL);
    view_finish(&v, 10000);
    ok(v.all_done, "all was written");
    pthread_join(t, &read_bytes);
    is_int((intmax_t)(size_t)read_bytes, (intmax_t)n + 5, "every byte");
    buf_release(&v.got);
}

static void test_hang_at_end(void)
{
    struct output_stream *s;
    struct view v;
    uint64_t t;
    int fd;

    mkfifo("fifo2", 0600);
    view_start(&v, (struct output_config){0});
    fd = view_open(&v, "fifo2", &s);
    view_put(fd, "x\n");
    close(fd);
    view_turn(5);
    output_close(s, NULL, NULL);
    t = clock_mono_ms();
    view_finish(&v, 50);
    ok(!v.all_done, "a writer that hangs does not hold up the end");
    ok(clock_mono_ms() - t < 5000, "beyond the deadline");
    /* Lets the thread that was left behind go. */
    fd = open("fifo2", O_RDONLY | O_CLOEXEC);
    {
        char c[8];

        is_int(read(fd, c, sizeof(c)), 2, "it writes when it can");
        is_int(read(fd, c, sizeof(c)), 0, "and ends");
    }
    close(fd);
    buf_release(&v.got);
}

static int open_stream_in(struct view *v, const char *path, uint32_t rank,
                          enum output_which which, struct output_stream **ret)
{
    struct output_source from = {.rank = rank, .which = which,
                                 .shares_file = true};
    struct error e = {0};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0 ||
        output_open(v->o, p[0], &from, path, ret, &e) < 0) {
        bail_out("no stream: %s", e.text);
    }
    return p[1];
}

static int open_shared_stream(struct view *v, uint32_t rank,
                              enum output_which which,
                              struct output_stream **ret)
{
    return open_stream_in(v, "shared/node-0", rank, which, ret);
}

/* Only those of one path share. */
static void test_other_file(void)
{
    struct view v = {0};
    struct output_stream *one, *other;
    _free_ char *first = NULL, *second = NULL;
    int a, b;

    view_start(&v, (struct output_config){0});
    a = open_stream_in(&v, "shared/a", 1, OUTPUT_STDOUT, &one);
    b = open_stream_in(&v, "shared/b", 2, OUTPUT_STDOUT, &other);
    view_put(a, "one\n");
    view_put(b, "two\n");
    close(a);
    close(b);
    output_close(one, NULL, NULL);
    output_close(other, NULL, NULL);
    view_finish(&v, 60000);
    first = view_file("shared/a");
    second = view_file("shared/b");
    is_str(first, "[1 out] one\n", "a file");
    is_str(second, "[2 out] two\n", "and another one");
    buf_release(&v.got);
}

/* Lines of several streams in one file stay whole, and nothing is lost. */
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

    view_start(&v, (struct output_config){0});
    a = open_shared_stream(&v, 0, OUTPUT_STDOUT, &out);
    b = open_shared_stream(&v, 12, OUTPUT_STDERR, &err);
    view_put(a, "one\ntw");
    view_turn_until(strstr(buf_str(&v.got), "one\n"));
    view_put(b, "complaint\n");
    view_turn_until(strstr(buf_str(&v.got), "complaint\n"));
    close(b);
    output_close(err, NULL, NULL);
    view_put(a, "o\n");
    ok(write(a, "a\0b\xff\n\nno newline", 16) == 16, "any bytes");
    close(a);
    output_close(out, NULL, NULL);
    view_finish(&v, 60000);
    ok(v.all_done, "all was written");
    fs_read("shared/node-0", 1 << 20, &text, &len, NULL);
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
    unlink("shared/node-0");
    view_start(&v, (struct output_config){0});
    fd = open_shared_stream(&v, 5, OUTPUT_STDOUT, &s);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (size_t at = 0; at < N + 1;) {
        ssize_t w = write(fd, line + at, N + 1 - at);

        at += w > 0 ? (size_t)w : 0;
        view_turn(0);
    }
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(&v, 60000);
    fs_read("shared/node-0", 1 << 20, &text, &len, NULL);
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
    view_bed_up();
    test_appends();
    test_no_space();
    test_unwritable();
    test_hang();
    test_hang_at_end();
    test_other_file();
    test_shared_file();
    test_shared_long_line();
    view_bed_down();
    return tap_done();
}
