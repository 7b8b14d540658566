/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that wants a directory, killed at each call to the filesystem, and with each call
 * failing: the next one has it.
 */
#include <config.h>

#include "ckpt/lease_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

static uint64_t calls_of_life(void)
{
    struct lease_bed w;
    struct lease a;
    struct error e;
    uint64_t n;

    lease_bed_begin(&w);
    a = lease_bed_run(&w, "a", "m1", 1);
    lease_bed_hold(&w, &a, &e);
    lease_bed_hold(&w, &a, &e);
    lease_bed_drop(&w, &a);
    n = disk_n_calls(w.disk);
    disk_destroy(w.disk);
    return n;
}

static void test_killed_at_each_call(void)
{
    uint64_t n = calls_of_life();
    unsigned n_stuck = 0, n_left = 0;

    for (uint64_t at = 1; at <= n; at++) {
        for (int same = 0; same < 2; same++) {
            struct lease_bed w;
            struct lease a, b;
            struct error e;

            lease_bed_begin(&w);
            a = lease_bed_run(&w, "a", "m1", 1);
            b = lease_bed_run(&w, same ? "a" : "b", "m1", 2);
            disk_stop_at(w.disk, at);
            lease_bed_hold(&w, &a, &e);
            lease_bed_hold(&w, &a, &e);
            lease_bed_drop(&w, &a);
            disk_restart(w.disk);
            w.dead = 1;
            n_stuck += lease_bed_hold(&w, &b, &e) < 0 || w.n_waits > 0;
            lease_bed_drop(&w, &b);
            /* What it was writing when nothing else of it was there is nobody's: the
             * second to the fourth call, before the first rename. */
            n_left += strcmp(lease_bed_names(&w),
                             !same && at > 1 && at < 5 ? ".muster-run-a.new " : "") != 0;
            disk_destroy(w.disk);
        }
    }
    is_int((int)n_stuck, 0, "killed at each of %u calls: the next one has it at once",
           (unsigned)n);
    is_int((int)n_left, 0, "and nothing of either is left");
}

static void test_errors(void)
{
    static const int errors[] = {ENOSPC, EIO, EROFS, EACCES, EDQUOT};
    uint64_t n = calls_of_life();
    unsigned n_wrong = 0;

    for (uint64_t at = 1; at <= n; at++) {
        for (size_t i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
            struct lease_bed w;
            struct lease a, b;
            struct error e;
            int rc;

            lease_bed_begin(&w);
            a = lease_bed_run(&w, "a", "m1", 1);
            b = lease_bed_run(&w, "b", "m1", 2);
            disk_fail_at(w.disk, at, errors[i / 2], i % 2);
            rc = lease_bed_hold(&w, &a, &e);
            n_wrong += rc < 0 ? rc != -errors[i / 2] || !e.text[0] || a.is_held : !a.is_held;
            lease_bed_hold(&w, &a, &e);
            disk_fail_at(w.disk, 0, 0, false);
            n_wrong += lease_bed_hold(&w, &a, &e) < 0 || !a.is_held;
            n_wrong += lease_bed_hold(&w, &b, &e) != -EBUSY;
            n_wrong += disk_n_open(w.disk) > 0;
            disk_destroy(w.disk);
        }
    }
    is_int((int)n_wrong, 0, "each of %u calls fails: it says of what, and has it later",
           (unsigned)n);
}

/* One that is led on by another agent, which fails of a call: it has it still. */
static void test_inherits_errors(void)
{
    unsigned n_lost = 0, n_failed = 0;

    for (uint64_t at = 1; at < 12; at++) {
        struct lease_bed w;
        struct lease a, heir;
        struct error e;

        lease_bed_begin(&w);
        a = lease_bed_run(&w, "a", "m1", 1);
        heir = lease_bed_run(&w, "a", "m2", 2);
        lease_bed_hold(&w, &a, &e);
        disk_fail_at(w.disk, disk_n_calls(w.disk) + at, EIO, false);
        n_failed += lease_bed_hold(&w, &heir, &e) < 0;
        n_lost += !strstr(lease_bed_names(&w), ".muster-run-a ");
        disk_destroy(w.disk);
    }
    ok(n_failed > 2 && n_lost == 0, "each of %u calls fails, and it has the directory still",
       n_failed);
}

int main(void)
{
    test_killed_at_each_call();
    test_errors();
    test_inherits_errors();
    return tap_done();
}
