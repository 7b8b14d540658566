/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told of a wait, when, and how it ends: the linker's hand passes the time. */
#include <config.h>

#include "launcher/last_wait.h"

#include "base/str.h"
#include "tests/lib/tap.h"

static uint64_t now_ms;
static uv_timer_cb due;
static uint64_t due_ms; /* from now on; due is NULL: never */

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t repeat);
int __wrap_uv_timer_stop(uv_timer_t *t);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

static uv_timer_t *timer;

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
    (void)repeat;
    timer = t;
    due = cb;
    due_ms = ms;
    return 0;
}

int __wrap_uv_timer_stop(uv_timer_t *t)
{
    (void)t;
    due = NULL;
    return 0;
}

static char said[64];
static int n_said, n_late;

static void say(void *arg, const char *span, bool is_late)
{
    ok(arg == said, "to whom it was asked for");
    str_copy(said, sizeof(said), span);
    n_said++;
    n_late += is_late;
}

/* What is due comes; false: nothing is. */
static bool pass(void)
{
    uv_timer_cb cb = due;

    if (!cb) {
        return false;
    }
    now_ms += due_ms;
    due = NULL;
    cb(timer);
    return true;
}

static void begin(struct last_wait *w, uint64_t limit_ms)
{
    n_said = n_late = 0;
    said[0] = '\0';
    last_wait_begin(w, limit_ms);
}

static void test_told(struct last_wait *w)
{
    begin(w, 600000);
    is_int((intmax_t)due_ms, 2000, "whoever looks on is told soon");
    pass();
    is_str(said, "2s", "for how long");
    pass();
    is_str(said, "32s", "and again, not too often");
    is_int(n_late, 0, "it goes on");
    last_wait_end(w);
    ok(!pass(), "until it ends");
}

static void test_limit(struct last_wait *w)
{
    begin(w, 40000);
    pass();
    pass();
    is_int((intmax_t)due_ms, 8000, "the last time comes with the limit");
    pass();
    is_int(n_late, 1, "which is the end");
    is_int(n_said, 3, "and told once");
    ok(!pass(), "nothing comes afterwards");
    begin(w, 500);
    pass();
    is_int(n_late, 1, "a short one is told of at its end alone");
    begin(w, UINT64_MAX);
    is_int((intmax_t)due_ms, 2000, "one without a limit, as others");
    last_wait_end(w);
}

static void test_shorter(struct last_wait *w)
{
    begin(w, 600000);
    last_wait_shorten(w, 5000);
    is_int((intmax_t)due_ms, 5000, "made shorter, it ends then");
    pass();
    is_int(n_late, 1, "late");
    begin(w, 4000);
    last_wait_shorten(w, 5000);
    is_int((intmax_t)due_ms, 2000, "but never longer");
    pass();
    pass();
    is_int(n_late, 1, "nor later");
}

int main(void)
{
    uv_loop_t loop;
    struct last_wait *w;

    uv_loop_init(&loop);
    w = last_wait_create(&loop, say, said);
    if (!w) {
        bail_out("no memory");
    }
    now_ms = 1000;
    test_told(w);
    test_limit(w);
    test_shorter(w);
    last_wait_close(w);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return tap_done();
}
