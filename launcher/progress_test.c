/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/progress.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/show.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const struct progress_view full = {
    .name = "tiny", .state = "Running", .generation = 2, .n_alive = 7,
    .n_workers = 8, .n_nodes = 2, .restarts = 1, .max_restarts = 3,
    .step = 120, .has_loss = true, .loss = 2.34567, .elapsed_ms = 61000,
};

static void test_line(void)
{
    static const struct {
        size_t width;
        const char *want;
    } cases[] = {
        {200, "tiny  Running  7/8 workers  step 120  loss 2.346  restarts 1/3"
              "  generation 2  1m01s"},
        {70, "tiny  Running  7/8 workers  step 120  loss 2.346  restarts 1/3"
             "  1m01s"},
        {60, "tiny  Running  7/8 workers  step 120  loss 2.346  1m01s"},
        {50, "Running  7/8 workers  step 120  loss 2.346  1m01s"},
        {42, "Running  7/8 workers  step 120  loss 2.346"},
        {31, "Running  7/8 workers  step 120"},
        {20, "Running  7/8 workers"},
        {10, "Running"},
        {3, "Run"},
        {0, ""},
    };
    struct progress_view v = {.name = "", .state = "Joining", .step = -1};
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf line = {0};

        progress_line(&full, cases[i].width, &line);
        is_str(buf_str(&line), cases[i].want, "width %zu", cases[i].width);
    }
    progress_line(&v, 80, &b);
    like(buf_str(&b), "Joining  0s", "at the start");
    buf_clear(&b);
    v.name = "evil\x1b[2J\n";
    v.has_loss = true;
    v.loss = NAN;
    progress_line(&v, 80, &b);
    is_str(buf_str(&b), "evil?[2J?  Joining  loss nan  0s",
           "control characters are shown as '?'");
}

static void test_view(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();
    struct progress_view v;

    s->state = STATUS_RUNNING;
    run_status_set_workers(s, 3);
    s->workers[0].state = STATUS_WORKER_RUNNING;
    s->workers[2].state = STATUS_WORKER_STOPPING;
    run_status_metric(s, "loss", 0.5, 7, 0);
    s->step = 7;
    v = progress_view(s, 9);
    ok(v.n_alive == 2 && v.n_workers == 3 && v.step == 7 && v.has_loss &&
       v.loss == 0.5 && v.elapsed_ms == 9, "view of a status");
}

/* What was written to the pipe so far. */
static const char *drain(int fd, char *to, size_t size)
{
    ssize_t n = read(fd, to, size - 1);

    to[n > 0 ? n : 0] = '\0';
    return to;
}

static void say(struct progress *p, unsigned rank, bool is_err,
                const char *label, const char *data, size_t len)
{
    struct progress_source from = {.generation = 1, .stream = 2 * rank + is_err,
                                   .is_err = is_err};

    progress_output(p, &from, label, data, len);
}

static void test_plain(void)
{
    struct progress_view v = full;
    int out[2], err[2];
    struct progress *p;
    char text[4096];

    if (pipe2(out, O_NONBLOCK) < 0 || pipe2(err, O_NONBLOCK) < 0) {
        bail_out("pipe");
    }
    p = progress_create(out[1], err[1]);
    progress_update(p, &v, 1000);
    like(drain(err[0], text, sizeof(text)), "muster: tiny  Running", "first");
    v.step++;
    progress_update(p, &v, 2000);
    is_str(drain(err[0], text, sizeof(text)), "", "not again at once");
    v.restarts++;
    progress_update(p, &v, 3000);
    like(drain(err[0], text, sizeof(text)), "restarts 2/3", "on a change");
    progress_update(p, &v, 12999);
    is_str(drain(err[0], text, sizeof(text)), "", "not before 10 s");
    progress_update(p, &v, 13000);
    like(drain(err[0], text, sizeof(text)), "step 121", "every 10 s");

    say(p, 0, false, "[0] ", "a\nb", 3);
    is_str(drain(out[0], text, sizeof(text)), "[0] a\n", "whole lines only");
    say(p, 1, false, "[1] ", "x\n", 2);
    is_str(drain(out[0], text, sizeof(text)), "[1] x\n", "of another");
    say(p, 0, true, "[0] ", "e\n", 2);
    is_str(drain(err[0], text, sizeof(text)), "[0] e\n", "stderr apart");
    say(p, 0, false, "[0] ", "c\nd\n\ne", 6);
    is_str(drain(out[0], text, sizeof(text)), "[0] bc\n[0] d\n[0] \n",
           "the rest joins what was held");
    say(p, 2, false, "", "bare\n", 5);
    is_str(drain(out[0], text, sizeof(text)), "bare\n", "without a label");
    say(p, 2, false, "", NULL, 0);
    progress_note(p, "%s", "two\nlines");
    is_str(drain(err[0], text, sizeof(text)), "muster: two?lines\n", "a note");
    progress_destroy(p);
    is_str(drain(out[0], text, sizeof(text)), "[0] e\n", "flushed at the end");
    progress_destroy(NULL);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(err[i]);
    }
}

/* The rest of what a killed worker printed never comes. */
static void test_generations(void)
{
    struct progress_source one = {.generation = 1, .stream = 6};
    struct progress_source two = {.generation = 2, .stream = 6};
    char text[4096];
    int out[2];
    struct progress *p;

    if (pipe2(out, O_NONBLOCK) < 0) {
        bail_out("pipe");
    }
    p = progress_create(out[1], -1);
    progress_output(p, &one, "[3] ", "torn", 4);
    progress_output(p, &two, "[3] ", "new\nli", 6);
    is_str(drain(out[0], text, sizeof(text)), "[3] torn\n[3] new\n",
           "a torn line stays apart from the next generation's");
    progress_output(p, &two, "[3] ", "ne\n", 3);
    is_str(drain(out[0], text, sizeof(text)), "[3] line\n",
           "whose own parts are joined");
    progress_destroy(p);
    close(out[0]);
    close(out[1]);
}

static void test_long_line(void)
{
    _free_ char *line = malloc(100000);
    int null = open("/dev/null", O_WRONLY), tmp;
    char name[] = "/tmp/progress-test-XXXXXX";
    struct progress *p;

    memset(line, 'x', 100000);
    tmp = mkostemp(name, O_CLOEXEC);
    unlink(name);
    p = progress_create(tmp, null);
    for (int i = 0; i < 10; i++) {
        say(p, 0, false, "L", line, 30000);
    }
    progress_destroy(p);
    ok(lseek(tmp, 0, SEEK_END) >= 300000, "a line without end is cut, not "
       "kept: %ld bytes", (long)lseek(tmp, 0, SEEK_END));
    close(null);
    close(tmp);
}

static void test_closed_pipe(void)
{
    int fds[2];
    struct progress *p;

    signal(SIGPIPE, SIG_IGN);
    if (pipe(fds) < 0) {
        bail_out("pipe");
    }
    close(fds[0]);
    p = progress_create(fds[1], fds[1]);
    say(p, 0, false, "", "x\n", 2);
    progress_note(p, "x");
    progress_destroy(p);
    ok(true, "a reader that went away does no harm");
    close(fds[1]);
}

/* A terminal passes on what was written when it gets to it. */
static void is_shown(int master, const char *want, const char *name)
{
    struct pollfd p = {.fd = master, .events = POLLIN};
    char text[4096];
    size_t len = 0;

    while (len < strlen(want) && poll(&p, 1, 60000) == 1) {
        ssize_t n = read(master, text + len, sizeof(text) - 1 - len);

        if (n <= 0) {
            break;
        }
        len += (size_t)n;
    }
    text[len] = '\0';
    is_str(text, want, "%s", name);
}

static void test_terminal(void)
{
    struct winsize size = {.ws_row = 24, .ws_col = 40};
    int master, slave;
    struct progress *p;

    setenv("TERM", "xterm", 1);
    if (openpty(&master, &slave, NULL, NULL, &size) < 0) {
        skip("no pseudo-terminal here");
        return;
    }
    fcntl(master, F_SETFL, O_NONBLOCK);
    p = progress_create(slave, slave);
    progress_update(p, &full, 1000);
    is_shown(master, "Running  7/8 workers  step 120", "fits the terminal");
    say(p, 0, false, "[0] ", "hello\n", 6);
    is_shown(master, "\r\x1b[K[0] hello\r\nRunning  7/8 workers  step 120",
             "output goes above the line");
    progress_update(p, &full, 1050);
    progress_update(p, &full, 1100);
    is_shown(master, "\r\x1b[KRunning  7/8 workers  step 120",
             "redrawn in place, not too often");
    progress_destroy(p);
    is_shown(master, "\r\x1b[K", "taken away");
    close(master);
    close(slave);
}

int main(void)
{
    test_line();
    test_view();
    test_plain();
    test_generations();
    test_long_line();
    test_closed_pipe();
    test_terminal();
    return tap_done();
}
