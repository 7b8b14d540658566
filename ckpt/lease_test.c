/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs want one directory one after the other, on one machine and on several, with clocks that
 * jump, and with files of others in it. Never have two of them got it.
 */
#include <config.h>

#include "ckpt/lease_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- one after the other --- */

static void test_one(void)
{
    struct lease_bed w;
    struct lease a, b;
    struct error e;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    b = lease_bed_run(&w, "b", "m1", 2);
    is_int(lease_bed_hold(&w, &a, &e), 0, "nobody is there: %s", e.text);
    is_str(lease_bed_names(&w), ".muster-run-a ", "one file");
    lease_bed_set_time(&w, w.now_ms + LEASE_BED_MINUTE / 3);
    is_int(lease_bed_hold(&w, &a, &e), 0, "it still has it");
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "another one does not get it");
    like(e.text, "run a on m1 saves there, since ", "is told whose it is: %s", e.text);
    like(e.text, "muster cancel a", "and what to do");
    ok(!strstr(e.text, "killed"), "and that it is alive");
    is_str(lease_bed_names(&w), ".muster-run-a ", "and leaves nothing");
    lease_bed_set_time(&w, w.now_ms + 100 * LEASE_BED_MINUTE);
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY,
           "nor while it was stopped for long, on this machine");
    is_int(lease_bed_hold(&w, &a, &e), 0, "which goes on");
    lease_bed_drop(&w, &a);
    is_str(lease_bed_names(&w), "", "at its end");
    lease_bed_drop(&w, &a);
    is_int(lease_bed_hold(&w, &b, &e), 0, "the next one has it");
    lease_bed_drop(&w, &b);
    is_int((int)w.n_waits, 0, "nobody has waited");
    lease_bed_end(&w);
}

static void test_killed_here(void)
{
    struct lease_bed w;
    struct lease a, b;
    struct error e;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    b = lease_bed_run(&w, "b", "m1", 2);
    lease_bed_hold(&w, &a, &e);
    w.dead = 1;
    is_int(lease_bed_hold(&w, &b, &e), 0, "one that was killed here leaves it to the next at once");
    is_str(lease_bed_names(&w), ".muster-run-b ", "with nothing of its own");
    is_int((int)w.n_waits, 0, "without a wait");
    lease_bed_drop(&w, &b);
    a.own.is_alone = false;
    w.dead = 0;
    lease_bed_hold(&w, &a, &e);
    w.dead = 1;
    w.renewed = &a;
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "but not one that others lead on: %s", e.text);
    is_int((int)w.n_waits, 1, "which is seen as soon as they renew it");
    w.renewed = NULL;
    is_int(lease_bed_hold(&w, &b, &e), 0, "unless they do not");
    is_int((int)w.n_waits, 1 + LEASE_STALE_MS / 1000 + 1, "for a minute");
    lease_bed_end(&w);
}

static void test_ours(void)
{
    struct lease_bed w;
    struct lease a, again, other;
    struct error e;
    int64_t since;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    again = lease_bed_run(&w, "a", "m2", 9);
    other = lease_bed_run(&w, "b", "m2", 9);
    is_int(lease_bed_adopt(&w, &again), 0, "nothing to go on with");
    ok(!again.is_held && !lease_bed_names(&w)[0], "is not taken");
    lease_bed_hold(&w, &a, &e);
    since = a.own.since_s;
    is_int(lease_bed_adopt(&w, &other), 0, "nor is another's");
    ok(!other.is_held, "it is not");
    is_int(lease_bed_adopt(&w, &again), 0, "the same run, elsewhere");
    ok(again.is_held && again.own.since_s == since, "goes on with it");
    is_int((int)w.n_waits, 0, "at once");
    is_int(lease_bed_hold(&w, &other, &e), -EBUSY, "another one does not get it");
    like(e.text, "run a on m2", "from the one that leads now");
    lease_bed_drop(&w, &a);
    is_str(lease_bed_names(&w), ".muster-run-a ", "what led before does not let go of it");
    lease_bed_drop(&w, &again);
    is_str(lease_bed_names(&w), "", "the last one does");
    lease_bed_end(&w);
}

/* --- by clocks --- */

static void test_elsewhere(void)
{
    struct lease_bed w;
    struct lease a, b;
    struct error e;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    b = lease_bed_run(&w, "b", "m2", 2);
    w.dead = 1; /* of which m2 sees nothing */
    lease_bed_hold(&w, &a, &e);
    lease_bed_set_time(&w, w.now_ms + LEASE_BED_MINUTE + 1);
    w.renewed = &a;
    a.good_ms = w.now_ms;
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "one who renews it under our eyes");
    like(e.text, "run a on m1", "is told of: %s", e.text);
    is_int((int)w.n_waits, 1, "after a wait");
    w.renewed = NULL;
    is_int(lease_bed_hold(&w, &b, &e), 0, "one who does not has it no more: %s", e.text);
    is_int((int)w.n_waits, 1 + LEASE_STALE_MS / 1000 + 1, "a minute later");
    is_str(lease_bed_names(&w), ".muster-run-b ", "and nothing of it is left");
    w.renewed = &b;
    is_int(lease_bed_hold(&w, &a, &e), -EBUSY, "it is told when it comes back");
    is_int(lease_bed_adopt(&w, &a), 0, "gives it up");
    lease_bed_drop(&w, &a);
    is_str(lease_bed_names(&w), ".muster-run-b ", "and changes nothing");
    lease_bed_end(&w);
}

static void test_ends_meanwhile(void)
{
    struct lease_bed w;
    struct lease a, b;
    struct error e;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    b = lease_bed_run(&w, "b", "m2", 2);
    lease_bed_hold(&w, &a, &e);
    lease_bed_set_time(&w, w.now_ms + 2 * LEASE_BED_MINUTE);
    w.is_ending = true;
    is_int(lease_bed_hold(&w, &b, &e), -ECANCELED, "its own end comes first: %s", e.text);
    is_str(lease_bed_names(&w), ".muster-run-a ", "nothing was touched");
    lease_bed_end(&w);
}

static void test_clock_jumps(void)
{
    struct lease_bed w;
    struct lease a, b;
    struct error e;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    b = lease_bed_run(&w, "b", "m2", 2);
    lease_bed_hold(&w, &a, &e);
    w.ahead_ms += 24 * 60 * LEASE_BED_MINUTE;
    w.renewed = &a;
    lease_bed_set_time(&w, w.now_ms + 1000);
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "a day ahead: who is alive keeps it");
    is_int(lease_bed_hold(&w, &a, &e), 0, "and has it");
    w.renewed = NULL;
    w.ahead_ms -= 48 * 60 * LEASE_BED_MINUTE;
    lease_bed_set_time(&w, w.now_ms + 1000);
    w.n_waits = 0;
    is_int(lease_bed_hold(&w, &b, &e), 0, "two days back: it may be alive: %s", e.text);
    is_int((int)w.n_waits, LEASE_STALE_MS / 1000, "but not without a word for a minute");
    lease_bed_end(&w);
}

/* --- what others put there --- */

static void test_strange(void)
{
    struct lease_bed w;
    struct lease b;
    struct error e;
    char name[64];

    lease_bed_begin(&w);
    b = lease_bed_run(&w, "b", "m2", 2);
    lease_bed_put(&w, ".muster-run-x", "", 0);
    lease_bed_put(&w, ".muster-run-z.new", "muster-run 1 wan", 16);
    lease_bed_put(&w, ".muster", "?", 1);
    w.renews = ".muster-run-x";
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "an empty one is somebody's");
    like(e.text, ".muster-run-x that is damaged", "which is named: %s", e.text);
    w.renews = NULL;
    is_int(lease_bed_hold(&w, &b, &e), 0, "as long as it is renewed: %s", e.text);
    is_str(lease_bed_names(&w), ".muster-run-b .muster-run-z.new .muster ",
           "and goes; what is being written, or is none, does not");
    lease_bed_drop(&w, &b);
    for (int i = 0; i <= LEASE_MAX_OTHERS; i++) {
        snprintf(name, sizeof(name), ".muster-run-%d", i);
        lease_bed_put(&w, name, "", 0);
    }
    lease_bed_set_time(&w, w.now_ms + 9 * LEASE_BED_MINUTE);
    is_int(lease_bed_hold(&w, &b, &e), -EBUSY, "too many: %s", e.text);
    like(e.text, "remove those of runs that are over", "says what to do");
    lease_bed_end(&w);
}

int main(void)
{
    test_one();
    test_killed_here();
    test_ours();
    test_elsewhere();
    test_ends_meanwhile();
    test_clock_jumps();
    test_strange();
    return tap_done();
}
