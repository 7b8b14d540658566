/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream, byte by byte: where it is cut, how long a part of a line waits, and what
 * is left when it ends. --wrap makes up the clock, and what read() comes to; the streams
 * are drained, so that nothing depends on when the loop turns.
 */
#include <config.h>

#include "launcher/output_bed.h"
#include "launcher/output_priv.h"
#include "launcher/redrawn.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 64 << 10, /* longer ones are cut */
    PIECE_MAX_BYTES = 128 << 10,
    MOST_DRAINED = 4 << 20,
    TAIL_BYTES = 4 << 10, /* of what came last, that can be told */
    FOR_EVER_MS = 3600000,
};

static uint64_t now_ms; /* 0: the real one */

/* What the next read() is to come to instead, once; or for ever, of zero bytes. */
static int read_code;
static bool is_endless;
static size_t n_endless;

uint64_t __real_clock_mono_ms(void);
uint64_t __wrap_clock_mono_ms(void);
ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);

uint64_t __wrap_clock_mono_ms(void)
{
    return now_ms ? now_ms : __real_clock_mono_ms();
}

ssize_t __wrap_read(int fd, void *to, size_t len)
{
    if (read_code) {
        errno = read_code;
        read_code = 0;
        return -1;
    }
    if (is_endless) {
        memset(to, 'x', len);
        n_endless += len;
        return (ssize_t)len;
    }
    return __real_read(fd, to, len);
}

/* Its time may be over before the loop looks for the first time, which would wait for
 * something else then. */
static void on_turned(uv_timer_t *t)
{
    *(bool *)t->data = true;
    uv_stop(t->loop);
}

/* Until every timer that ends within `ms` from now has. */
static void turn_past(unsigned ms)
{
    bool is_over = false;
    uv_timer_t t;

    uv_timer_init(uv_default_loop(), &t);
    t.data = &is_over;
    uv_timer_start(&t, on_turned, ms + 1, 0);
    while (!is_over) {
        uv_run(uv_default_loop(), UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(uv_default_loop(), UV_RUN_NOWAIT);
}

static void put_bytes(int fd, char byte, size_t n)
{
    _free_ char *text = malloc(n + 1);

    if (!text) {
        bail_out("no memory");
    }
    memset(text, byte, n);
    text[n] = '\0';
    view_put(fd, text);
}

static void finish(struct view *v, struct output_stream *s, int fd)
{
    close(fd);
    output_close(s, NULL, NULL);
    view_finish(v, 60000);
    buf_release(&v->got);
}

/* --- cuts --- */

static void test_longest_line(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = FOR_EVER_MS});
    fd = view_open(&v, NULL, &s);
    put_bytes(fd, 'x', LINE_MAX_BYTES - 1);
    output_drain(s);
    is_int((intmax_t)v.n_pieces, 0, "one byte less than 64 KiB waits");
    view_put(fd, "\n");
    output_drain(s);
    is_str(v.pieces, "L", "and is a line with its newline");
    is_int((intmax_t)v.largest, LINE_MAX_BYTES, "as long as can be");
    ok(strspn(v.got.data, "x") == LINE_MAX_BYTES - 1, "as it came");
    put_bytes(fd, 'y', LINE_MAX_BYTES - 1);
    output_drain(s);
    view_put(fd, "zrest");
    output_drain(s);
    is_str(v.pieces, "LC", "one of 64 KiB is cut");
    is_int((intmax_t)v.got.len, 2 * LINE_MAX_BYTES, "there");
    view_put(fd, "\n");
    output_drain(s);
    is_str(v.got.data + 2 * LINE_MAX_BYTES - 1, "zrest\n", "its rest is a line");
    finish(&v, s, fd);
}

/* A part before it, and another one behind it. */
static void test_parts(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = FOR_EVER_MS});
    fd = view_open(&v, NULL, &s);
    view_put(fd, "ab");
    output_drain(s);
    view_put(fd, "c");
    output_drain(s);
    is_int((intmax_t)v.n_pieces, 0, "a part waits");
    view_put(fd, "def\nghi\njk");
    output_drain(s);
    is_str(buf_str(&v.got), "abcdef\nghi\n", "it goes with the rest of its line");
    view_put(fd, "l\n");
    output_drain(s);
    is_str(buf_str(&v.got), "abcdef\nghi\njkl\n", "so does what was behind it");
    is_str(v.pieces, "LL", "in two pieces");
    finish(&v, s, fd);
}

/* What is drained while the sink is paused comes in pieces of 128 KiB. */
static void test_pieces(void)
{
    enum { LINE = 100, N = 500, TIMES = 6 }; /* 50,000 bytes fit in a pipe */
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = FOR_EVER_MS});
    fd = view_open(&v, NULL, &s);
    output_pause(v.o);
    for (int k = 0; k < TIMES; k++) {
        for (int i = 0; i < N; i++) {
            put_bytes(fd, 'x', LINE - 1);
            view_put(fd, "\n");
        }
        output_drain(s);
    }
    is_int((intmax_t)v.n_pieces, 0, "nothing comes while it is paused");
    output_resume(v.o);
    is_str(v.pieces, "LLL", "then whole lines");
    is_int((intmax_t)v.largest, PIECE_MAX_BYTES / LINE * LINE, "as many as fit");
    is_int((intmax_t)v.got.len, LINE * N * TIMES, "all of them");
    output_pause(v.o);
    for (int k = 0; k < 3; k++) {
        put_bytes(fd, 'y', LINE_MAX_BYTES - 10);
        output_drain(s);
    }
    output_resume(v.o);
    is_str(v.pieces, "LLLCC", "a long line is cut");
    view_put(fd, "\n");
    output_drain(s);
    is_str(v.pieces, "LLLCCL", "up to its end");
    finish(&v, s, fd);
}

/* --- time --- */

static void put_and_drain(int fd, struct output_stream *s, const char *text)
{
    view_put(fd, text);
    output_drain(s);
}

static void test_partial(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    now_ms = 1000;
    view_start(&v, (struct output_config){.partial_ms = 5});
    fd = view_open(&v, NULL, &s);
    put_and_drain(fd, s, "prompt> ");
    is_int((intmax_t)output_last_ms(s), 1000, "when it last said something");
    now_ms = 1004;
    turn_past(5);
    is_int((intmax_t)v.n_pieces, 0, "a part of a line waits");
    now_ms = 1005;
    turn_past(5);
    is_str(buf_str(&v.got), "prompt> ", "until its time is over");
    put_and_drain(fd, s, "10%\r20");
    turn_past(5);
    is_str(buf_str(&v.got), "prompt> ", "then the next one does");
    now_ms = 1010;
    turn_past(5);
    is_str(buf_str(&v.got), "prompt> 10%\r", "up to the return");
    now_ms = 1014;
    turn_past(5);
    is_str(buf_str(&v.got), "prompt> 10%\r", "and its rest");
    now_ms = 1015;
    turn_past(5);
    is_str(buf_str(&v.got), "prompt> 10%\r20", "as long again");
    is_int((intmax_t)output_last_ms(s), 1005, "which says nothing new");
    ok(!uv_is_active((uv_handle_t *)&v.o->partial), "and nothing is waited for");
    put_and_drain(fd, s, "%\n");
    turn_past(5);
    now_ms = 1100;
    turn_past(5);
    is_str(v.pieces, "CCCL", "nor behind whole lines");
    now_ms = 0;
    finish(&v, s, fd);
}

/* A part waits from when it came, whatever was before it. */
static void test_partial_after_line(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    now_ms = 1000;
    view_start(&v, (struct output_config){.partial_ms = 5});
    fd = view_open(&v, NULL, &s);
    put_and_drain(fd, s, "a");
    now_ms = 1003;
    put_and_drain(fd, s, "b\nc");
    now_ms = 1007;
    turn_past(5);
    is_str(buf_str(&v.got), "ab\n", "not from when the line before it began");
    put_and_drain(fd, s, "d");
    now_ms = 1008;
    turn_past(5);
    is_str(buf_str(&v.got), "ab\ncd", "but more of it gives it no more time");
    now_ms = 0;
    finish(&v, s, fd);
}

/* What is behind a cut waits from when it came. */
static void test_partial_after_cut(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    now_ms = 1000;
    view_start(&v, (struct output_config){.partial_ms = 5});
    fd = view_open(&v, NULL, &s);
    put_and_drain(fd, s, "a");
    now_ms = 1003;
    put_bytes(fd, 'x', LINE_MAX_BYTES - 1);
    output_drain(s);
    put_and_drain(fd, s, "rest");
    now_ms = 1007;
    turn_past(5);
    is_str(v.pieces, "C", "not from when the line began");
    now_ms = 1008;
    turn_past(5);
    is_str(v.pieces, "CC", "as long as any other part");
    now_ms = 0;
    finish(&v, s, fd);
}

/* Each has its own time, whichever comes first among all. */
static void test_partial_of_two(void)
{
    for (int first = 0; first < 2; first++) {
        struct output_stream *s[2];
        struct view v;
        int fd[2];

        now_ms = 1000;
        view_start(&v, (struct output_config){.partial_ms = 5});
        fd[0] = view_open(&v, NULL, &s[0]);
        fd[1] = view_open(&v, NULL, &s[1]);
        put_and_drain(fd[first], s[first], "a");
        now_ms = 1001;
        put_and_drain(fd[!first], s[!first], "b");
        now_ms = 1005;
        turn_past(5);
        is_str(buf_str(&v.got), "a", "stream %d is first", first);
        now_ms = 1006;
        turn_past(5);
        is_str(buf_str(&v.got), "ab", "the other one follows");
        now_ms = 0;
        close(fd[0]);
        output_close(s[0], NULL, NULL);
        finish(&v, s[1], fd[1]);
    }
}

static void test_partial_paused(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    now_ms = 1000;
    view_start(&v, (struct output_config){.partial_ms = 5});
    fd = view_open(&v, NULL, &s);
    put_and_drain(fd, s, "part");
    output_pause(v.o);
    now_ms = 2000;
    turn_past(5);
    is_str(buf_str(&v.got), "", "nothing comes while the sink is paused");
    output_resume(v.o);
    turn_past(5);
    is_str(buf_str(&v.got), "", "and its time begins again");
    now_ms = 2005;
    turn_past(5);
    is_str(buf_str(&v.got), "part", "after that");
    now_ms = 0;
    finish(&v, s, fd);
}

/* --- reading --- */

static void test_read_fails(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){.partial_ms = FOR_EVER_MS});
    fd = view_open(&v, NULL, &s);
    view_put(fd, "one\n");
    read_code = EINTR;
    output_drain(s);
    is_str(v.pieces, "L", "interrupted, it reads on");
    put_and_drain(fd, s, "two");
    read_code = EIO;
    output_drain(s);
    is_str(v.pieces, "LE", "what cannot be read has ended");
    finish(&v, s, fd);
}

/* Much that comes at once. */
static void test_tail(void)
{
    _buf_ struct buf text = {0}, tail = {0};
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, NULL, &s);
    for (int i = 0; i < 4000; i++) {
        buf_printf(&text, "%d\n", i);
    }
    put_and_drain(fd, s, buf_str(&text));
    output_tail(s, 2, &tail);
    is_str(buf_str(&tail), "3998\n3999\n", "the last lines are known");
    finish(&v, s, fd);
}

/* Pauses are for those that go on. */
static void test_pause_after_end(void)
{
    struct output_stream *s, *other;
    struct view v;
    int fd, fd2;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, NULL, &s);
    fd2 = view_open(&v, NULL, &other);
    put_and_drain(fd, s, "end\n");
    close(fd);
    output_drain(s);
    output_pause(v.o);
    put_and_drain(fd2, other, "more\n");
    output_resume(v.o);
    is_str(buf_str(&v.got), "end\nmore\n", "one has ended, another one goes on");
    output_close(s, NULL, NULL);
    finish(&v, other, fd2);
}

/* Somebody writes as fast as it is read. */
static void test_endless(void)
{
    struct output_stream *s;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = view_open(&v, NULL, &s);
    is_endless = true;
    output_drain(s);
    is_endless = false;
    is_int((intmax_t)n_endless, MOST_DRAINED, "4 MiB are drained, and no more");
    ok(s->tail.len >= TAIL_BYTES && s->tail.len <= 4 * TAIL_BYTES,
       "of which little is kept (%zu)", s->tail.len);
    output_close(s, NULL, NULL);
    ok(write(fd, "x", 1) < 0 && errno == EPIPE, "then nobody reads it");
    close(fd);
    view_finish(&v, 60000);
    buf_release(&v.got);
}

/* --- files --- */

static int open_shared(struct view *v, int rank, struct output_stream **ret)
{
    struct output_source from = {.rank = (uint32_t)rank, .which = OUTPUT_STDOUT,
                                 .shares_file = true};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0 ||
        output_open(v->o, p[0], &from, "shared", ret, NULL) < 0) {
        bail_out("no stream");
    }
    ok(fcntl(p[0], F_GETFL) & O_NONBLOCK, "reading does not wait");
    return p[1];
}

/* One that is closed, but not delivered, shares its file with none that comes. */
static void test_share_closed(void)
{
    struct output_stream *s, *next;
    _free_ char *text = NULL;
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    fd = open_shared(&v, 1, &s);
    put_and_drain(fd, s, "a\n");
    output_pause(v.o);
    put_and_drain(fd, s, "b\n");
    close(fd);
    output_close(s, view_on_closed, &v);
    fd = open_shared(&v, 2, &next);
    put_and_drain(fd, next, "c\n");
    is_int(v.n_closed, 0, "one waits for the sink");
    output_resume(v.o);
    finish(&v, next, fd);
    is_int(v.n_closed, 1, "and is told");
    text = view_file("shared");
    is_str(text, "[1 out] a\n[1 out] b\n[2 out] c\n", "all of both is in the file");
}

/* Only the file is wanted. */
static void test_no_sink(void)
{
    struct output_source from = {.rank = 1, .which = OUTPUT_STDOUT};
    _free_ char *text = NULL;
    _buf_ struct buf tail = {0};
    struct output_stream *s;
    struct view v = {0};
    int p[2];

    if (output_create(uv_default_loop(), &(struct output_config){0}, &v.o, NULL) < 0 ||
        pipe2(p, O_CLOEXEC) < 0 ||
        output_open(v.o, p[0], &from, "unseen", &s, NULL) < 0) {
        bail_out("no stream");
    }
    put_and_drain(p[1], s, "one\ntwo");
    output_tail(s, 1, &tail);
    is_str(buf_str(&tail), "two", "its last lines are known");
    close(p[1]);
    output_close(s, view_on_closed, &v);
    view_turn_until(v.n_closed);
    is_int(v.n_closed, 1, "closed");
    view_finish(&v, 60000);
    text = view_file("unseen");
    is_str(text, "one\ntwo", "written");
}

/* A descriptor that is refused is closed all the same, and none is left open. */
static void test_refused(void)
{
    struct output_source from = {.rank = 1, .which = OUTPUT_STDOUT};
    struct output_stream *s;
    struct error e = {0};
    struct view v;
    int fd;

    view_start(&v, (struct output_config){0});
    for (int shares = 0; shares < 2; shares++) {
        from.shares_file = shares;
        fs_write_replace("plain", "x", 1, NULL);
        fd = open("plain", O_RDONLY | O_CLOEXEC);
        is_int(output_open(v.o, fd, &from, "refused", &s, &e), -EINVAL,
               "no pipe: %s", e.text);
        ok(fcntl(fd, F_GETFD) < 0, "it is closed");
        is_int(output_open(v.o, 1 << 20, &from, NULL, &s, &e), -EBADF,
               "nor a descriptor: %s", e.text);
        like(e.text, "rank 1", "whose");
    }
    view_finish(&v, 60000);
    ok(access("refused", F_OK) < 0, "no file is made for it");
}

static void live_once(void *arg)
{
    struct view *v = arg;
    struct output_stream *s;
    int fd;

    fd = view_open(v, NULL, &s);
    put_and_drain(fd, s, "line\npart");
    close(fd);
    output_close(s, NULL, NULL);
    turn_past(1);
    buf_release(&v->got);
}

static void test_leak(void)
{
    struct view v;

    view_start(&v, (struct output_config){0});
    is_int(tap_leak(live_once, &v), 0, "a stream that has ended leaves no memory");
    view_finish(&v, 60000);
}

/* Each also where it comes in two pieces. */
static void test_redrawn(void)
{
    static const struct {
        const char *text, *want;
    } all[] = {
        {"", ""},
        {"a\nb", "a\nb"},
        {"\n\n", "\n\n"},
        {"a\r\nb\r\n", "a\nb\n"},
        {"start\n\r 10%|#\r 20%|##\r 30%|###\nend\n", "start\n 30%|###\nend\n"},
        {" 10%\r 20%\r\r", " 20%\r\r"},
        {" 10%\r 20%Traceback\n", " 20%Traceback\n"},
        {"\r\r\n\r", "\n\r"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        size_t len = strlen(all[i].text), n_same = 0;

        for (size_t cut = 0; cut <= len; cut++) {
            _buf_ struct buf b = {0};

            buf_append(&b, all[i].text, cut);
            redrawn_drop(&b);
            buf_append(&b, all[i].text + cut, len - cut);
            redrawn_drop(&b);
            n_same += strcmp(buf_str(&b), all[i].want) == 0;
        }
        is_int((int)n_same, (int)len + 1, "text %zu: what was drawn last", i);
    }
    redrawn_drop(&(struct buf){0});
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    view_bed_up();
    test_longest_line();
    test_parts();
    test_pieces();
    test_partial();
    test_partial_after_line();
    test_partial_after_cut();
    test_partial_of_two();
    test_partial_paused();
    test_read_fails();
    test_redrawn();
    test_tail();
    test_pause_after_end();
    test_endless();
    test_share_closed();
    test_no_sink();
    test_refused();
    test_leak();
    view_bed_down();
    return tap_done();
}
