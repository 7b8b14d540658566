/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that has a directory: for how long, where it does not renew that, in which order its
 * file comes, and what a single call that fails means.
 */
#include <config.h>

#include "ckpt/lease_odd_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

static struct lease_odd_bed w;

/* --- for how long --- */

/* Another one is about to get what was not renewed for too long; its file is still there. */
static void test_asleep(void)
{
    struct lease a, b;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m1", 2);
    lease_bed_hold(&w.bed, &a, &e);
    lease_bed_put_note(&w.bed, &b, ".muster-run-b", LEASE_HAS);
    lease_bed_set_time(&w.bed, LEASE_BED_START + LEASE_GOOD_MS);
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "what was renewed so long ago is still had");
    lease_bed_set_time(&w.bed, LEASE_BED_START + 2 * LEASE_GOOD_MS);
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "and as long again once it is renewed");
    lease_bed_set_time(&w.bed, LEASE_BED_START + 3 * LEASE_GOOD_MS + 1);
    is_int(lease_bed_hold(&w.bed, &a, &e), -EBUSY,
           "a moment longer: it looks who is there (%s)", e.text);
    ok(!a.is_held, "and has it no more");
    is_str(lease_bed_names(&w.bed), ".muster-run-b ", "nor says so");
    lease_bed_remove(&w.bed, ".muster-run-b");
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "it may have it again");
    lease_bed_set_time(&w.bed, w.bed.now_ms + LEASE_GOOD_MS + 1);
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "also after it slept where nobody came");
    lease_bed_end(&w.bed);
}

/* Time counts from before it was written: that may take long. */
static void test_slow_disk(void)
{
    struct lease a;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    w.slow_ms = 1000;
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "written slowly");
    ok(w.bed.now_ms == LEASE_BED_START + 4000, "with a second for each file, and look");
    ok(a.good_ms == LEASE_BED_START + 2000, "good from when the second file was begun");
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "renewed slowly");
    ok(a.good_ms == LEASE_BED_START + 4000 && w.bed.now_ms == LEASE_BED_START + 5000,
       "good from before that");
    lease_bed_end(&w.bed);
}

static void test_renewal_fails(void)
{
    struct lease a;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    lease_bed_hold(&w.bed, &a, &e);
    lease_bed_set_time(&w.bed, LEASE_BED_START + 1000);
    w.error_touch = EIO;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EIO, "an error: %s", e.text);
    like(e.text, "renew .muster-run-a", "which says of what");
    ok(a.is_held && a.good_ms == LEASE_BED_START, "it has it, and as long as before");
    w.calls[0] = '\0';
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "the next time it is renewed");
    is_str(w.calls, "close ", "and not taken once more");
    lease_bed_end(&w.bed);
}

static void test_drop(void)
{
    struct lease a, again;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    again = lease_bed_run(&w.bed, "a", "m1", 1);
    lease_bed_hold(&w.bed, &a, &e);
    again.own = a.own;
    lease_bed_drop(&w.bed, &again);
    is_str(lease_bed_names(&w.bed), ".muster-run-a ", "who does not have it does not let go of it");
    lease_bed_drop(&w.bed, &a);
    ok(!a.is_held, "who has let go has it no more");
    is_str(lease_bed_names(&w.bed), "", "and no file");
    lease_bed_end(&w.bed);
}

static void test_file_is_gone(void)
{
    static const int errors[] = {ENOENT, EINVAL, ELOOP, ESTALE};
    struct lease a;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    lease_bed_hold(&w.bed, &a, &e);
    lease_bed_remove(&w.bed, ".muster-run-a");
    is_int(lease_bed_adopt(&w.bed, &a), 0, "who has it, and whose file somebody removed,");
    is_str(lease_bed_names(&w.bed), ".muster-run-a ", "puts it there again");
    w.name = ".muster-run-a";
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        w.error = errors[i];
        w.at_open = 1;
        w.calls[0] = '\0';
        is_int(lease_bed_hold(&w.bed, &a, &e), 0,
               "so does who finds something else: %s", strerror(w.error));
        like(w.calls, "rename", "written anew");
    }
    w.error = EACCES;
    w.at_open = 1;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EACCES, "but not who cannot look");
    w.is_lost = true;
    lease_bed_remove(&w.bed, ".muster-run-a");
    is_int(lease_bed_hold(&w.bed, &a, &e), -ENOENT, "a file that goes again and again: %s", e.text);
    ok(!a.is_held, "is not had");
    lease_bed_end(&w.bed);
}

/* --- its file --- */

static void test_order_of_calls(void)
{
    struct lease a;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    w.is_lost = true;
    is_int(lease_bed_hold(&w.bed, &a, &e), -ENOENT,
           "a file that is not there when it was put: %s", e.text);
    is_str(w.calls, "create write sync close rename unlink ",
           "on the disk first, and then under its name");
    lease_bed_end(&w.bed);
}

static void test_one_call_fails(void)
{
    struct lease a;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    w.error_sync = EIO;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EIO, "not on the disk");
    is_str(lease_bed_names(&w.bed), "", "leaves nothing");
    w.error_close = EDQUOT;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EDQUOT, "or not closed: %s", e.text);
    is_str(lease_bed_names(&w.bed), "", "likewise");
    lease_bed_put(&w.bed, ".muster-run-a.new", "m", 1);
    w.name = ".muster-run-a.new";
    w.at_unlink = 1;
    w.error = EACCES;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EACCES, "what somebody left cannot be removed");
    lease_bed_remove(&w.bed, ".muster-run-a.new");
    w.at_create = 1;
    w.error = EEXIST;
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "or is gone just then: %s", e.text);
    lease_bed_end(&w.bed);
}

int main(void)
{
    test_asleep();
    test_slow_disk();
    test_renewal_fails();
    test_drop();
    test_file_is_gone();
    test_order_of_calls();
    test_one_call_fails();
    return tap_done();
}
