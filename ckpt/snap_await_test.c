/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for blocks that somebody else fills in. --wrap makes up the time: it passes where
 * somebody sleeps, and there whoever fills them is at work.
 */
#include <config.h>

#include "base/clock.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <string.h>
#include <time.h>

enum { MANY = 100000 };

static _Alignas(8) char page[SNAP_PAGE_BYTES];
static uint64_t now_ns;
static int n_sleeps;
static uint64_t every_ns; /* a block is filled in; 0: none ever is */
static uint64_t gives_up_at; /* of so many; 0: never */

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
uint64_t __wrap_clock_mono_ms(void);

static void fill(void)
{
    uint64_t n = every_ns ? now_ns / every_ns : 0;
    bool has_given_up = gives_up_at && n >= gives_up_at;

    atomic_store(snap_filled(page), has_given_up ? SNAP_NO_MORE : n);
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    now_ns += (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
    if (++n_sleeps > MANY) {
        bail_out("it waits for ever");
    }
    fill();
    return 0;
}

uint64_t __wrap_clock_mono_ms(void)
{
    return now_ns / 1000000;
}

static void begin(uint64_t every_ms, uint64_t until)
{
    now_ns = 0;
    n_sleeps = 0;
    every_ns = every_ms * 1000000;
    gives_up_at = until;
    fill();
}

static void test_there(void)
{
    begin(0, 0);
    atomic_store(snap_filled(page), 5);
    ok(snap_await(page, 5) && snap_await(page, 0), "what is there is there");
    is_int(n_sleeps, 0, "and not waited for");
}

static void test_comes(void)
{
    begin(20, 0);
    ok(snap_await(page, 3), "the third one comes");
    ok(now_ns >= 60000000 && now_ns < 70000000, "which is seen soon: after %d ms of 60",
       (int)(now_ns / 1000000));
    ok(n_sleeps < 200, "in %d looks", n_sleeps);
}

static void test_no_more(void)
{
    begin(20, 2);
    ok(!snap_await(page, 3), "who fills them gives up before the third one");
    ok(now_ns < 60000000, "which is seen at once");
    ok(!snap_await(page, 1), "what was there before is not to be relied on");
}

static void test_slow(void)
{
    begin(SNAP_STALL_MS - 1000, 0);
    ok(snap_await(page, 3), "each takes long: as long as some come they are waited for");
}

static void test_stalls(void)
{
    begin(0, 0);
    ok(!snap_await(page, 1), "nothing comes");
    ok(now_ns / 1000000 >= SNAP_STALL_MS && now_ns / 1000000 < SNAP_STALL_MS + 100,
       "for as long as that may be: %d ms", (int)(now_ns / 1000000));
}

int main(void)
{
    test_there();
    test_comes();
    test_no_more();
    test_slow();
    test_stalls();
    return tap_done();
}
