/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in the way of a run that wants a directory, and what does not: who comes first,
 * who goes on, and what others have put there.
 */
#include <config.h>

#include "ckpt/lease_odd_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct lease_odd_bed w;

/* --- who goes on --- */

static void test_not_inherited(void)
{
    struct lease a, b;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m1", 2);
    lease_bed_put_note(&w.bed, &a, ".muster-run-a", LEASE_WANTS);
    is_int(lease_bed_adopt(&w.bed, &a), 0, "a file of a lead that only wanted it");
    ok(!a.is_held, "is no more than that");
    lease_bed_put_note(&w.bed, &b, ".muster-run-a", LEASE_HAS);
    is_int(lease_bed_adopt(&w.bed, &a), 0, "one with the words of another run");
    ok(!a.is_held, "neither");
    lease_bed_put(&w.bed, ".muster-run-a", "muster-run 1 has a", 18);
    is_int(lease_bed_adopt(&w.bed, &a), 0, "one that is cut");
    ok(!a.is_held, "nor that");
    lease_bed_put_note(&w.bed, &a, ".muster-run-a", LEASE_HAS);
    is_int(lease_bed_adopt(&w.bed, &a), 0, "but one that has it");
    ok(a.is_held, "goes on");
    lease_bed_end(&w.bed);
}

/* The heir of one that has it: who else is there. */
static void inherit(const char *other, const char *text, int want, const char *what)
{
    struct lease a, b;
    char want_names[64];

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, other + strlen(LEASE_PREFIX), "m1", 2);
    lease_bed_put_note(&w.bed, &a, ".muster-run-a", LEASE_HAS);
    if (text) {
        lease_bed_put(&w.bed, other, text, strlen(text));
    } else {
        lease_bed_put_note(&w.bed, &b, other, LEASE_WANTS);
    }
    w.bed.is_ending = true; /* it waits for nobody */
    is_int(lease_bed_adopt(&w.bed, &a), want, "%s", what);
    snprintf(want_names, sizeof(want_names), ".muster-run-a %s ", other);
    is_str(lease_bed_names(&w.bed), want_names, "the other one's stays, and its own");
    lease_bed_end(&w.bed);
}

static void test_heir(void)
{
    inherit(".muster-run-0", NULL, 0, "one that only wants it does not hinder who has it");
    inherit(".muster-run-z", NULL, 0, "whatever its name");
    inherit(".muster-run-z", "?", -ECANCELED, "a file that says nothing is watched first");
}

/* --- who comes first --- */

static void wants(const char *other, int want, const char *what)
{
    struct lease a, b;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, other + strlen(LEASE_PREFIX), "m1", 2);
    lease_bed_put_note(&w.bed, &b, other, LEASE_WANTS);
    is_int(lease_bed_hold(&w.bed, &a, &e), want, "%s: %s", what, e.text);
    like(lease_bed_names(&w.bed), other, "and leaves that one's file");
    lease_bed_end(&w.bed);
}

static void test_order(void)
{
    wants(".muster-run-0", -EBUSY, "two want it: that with the first name goes before");
    wants(".muster-run-b", 0, "any other one does not");
}

/* Two have to be looked at: that one of them is nobody's says nothing of the other. */
static void test_watches_all(void)
{
    struct lease a, b, c;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m2", 2);
    c = lease_bed_run(&w.bed, "c", "m1", 3);
    c.own.start++; /* another process has that number now */
    lease_bed_put_note(&w.bed, &b, ".muster-run-b", LEASE_HAS);
    lease_bed_put_note(&w.bed, &c, ".muster-run-c", LEASE_HAS);
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "one elsewhere, and one here that is gone");
    is_int((int)w.bed.n_waits, LEASE_STALE_MS / 1000 + 1, "a minute has to pass");
    is_str(lease_bed_names(&w.bed), ".muster-run-a ", "before it has it");
    lease_bed_end(&w.bed);

    lease_odd_bed_begin(&w);
    lease_bed_put_note(&w.bed, &c, ".muster-run-c", LEASE_HAS);
    lease_bed_put_note(&w.bed, &b, ".muster-run-b", LEASE_HAS);
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "in the other order");
    is_int((int)w.bed.n_waits, LEASE_STALE_MS / 1000 + 1, "likewise");
    lease_bed_end(&w.bed);
}

/* A clock of the disk that says 0, as one that is not set. */
static void test_zero_time(void)
{
    struct lease a, b;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m2", 2);
    w.bed.ahead_ms = -LEASE_BED_START;
    lease_bed_set_time(&w.bed, LEASE_BED_START);
    lease_bed_put_note(&w.bed, &b, ".muster-run-b", LEASE_HAS);
    w.bed.is_ending = true;
    is_int(lease_bed_hold(&w.bed, &a, &e), -ECANCELED, "a file of time 0 was not seen before");
    is_str(lease_bed_names(&w.bed), ".muster-run-b ", "and stays");
    lease_bed_end(&w.bed);
}

/* --- what others put there --- */

static void test_strange_names(void)
{
    static const char large[8 * LEASE_NOTE_BYTES] = "muster-run 1 has";
    static const int errors[] = {EINVAL, ELOOP, ESTALE, ENOENT};
    struct lease a, b;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m1", 2);
    lease_bed_put_note(&w.bed, &b, ".muster-run-x", LEASE_HAS);
    w.bed.is_ending = true;
    is_int(lease_bed_hold(&w.bed, &a, &e), -ECANCELED,
           "a copy under another name is not believed, and watched");
    lease_bed_put(&w.bed, ".muster-run-x", large, sizeof(large));
    is_int(lease_bed_hold(&w.bed, &a, &e), -ECANCELED, "likewise one that is larger than any");
    lease_bed_end(&w.bed);

    lease_odd_bed_begin(&w);
    lease_bed_put_note(&w.bed, &b, ".muster-run-b", LEASE_HAS);
    w.name = ".muster-run-b";
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        a = lease_bed_run(&w.bed, "a", "m1", 1);
        w.error = errors[i];
        w.at_open = 1;
        is_int(lease_bed_hold(&w.bed, &a, &e), -EBUSY,
               "no file any more at the first look: %s", strerror(w.error));
        like(w.calls, "rename close close create", "wants it, and then has it");
        w.calls[0] = '\0';
    }
    w.error = EACCES;
    w.at_open = 1;
    is_int(lease_bed_hold(&w.bed, &a, &e), -EACCES, "one that cannot be looked at is somebody's");
    like(e.text, "read .muster-run-b, by which another run saves there", "which is named");
    lease_bed_end(&w.bed);
}

/* It is written while it is read. */
static void test_cut_now(void)
{
    struct lease a, b;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    b = lease_bed_run(&w.bed, "b", "m1", 2);
    lease_bed_hold(&w.bed, &a, &e);
    w.name = ".muster-run-a";
    w.too_long = 10;
    w.bed.is_ending = true;
    is_int(lease_bed_hold(&w.bed, &b, &e), -ECANCELED,
           "one that is shorter than it was just now is watched: %s", e.text);
    is_str(lease_bed_names(&w.bed), ".muster-run-a ", "and stays");
    lease_bed_end(&w.bed);
}

static void test_many_names(void)
{
    struct lease a, b;
    struct error e;
    unsigned n_other = 0;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    w.n_long = LEASE_MAX_OTHERS + 1;
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "names that no run has count for none");
    lease_bed_end(&w.bed);

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    for (int i = 0; i <= LEASE_MAX_OTHERS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "%d", i);
        b = lease_bed_run(&w.bed, name, "m1", 2);
        lease_bed_put_note(&w.bed, &b, b.name, LEASE_HAS);
        n_other += lease_bed_hold(&w.bed, &a, &e) != -EBUSY ||
                   !strstr(e.text, " on m1 saves there");
        lease_bed_remove(&w.bed, b.name);
    }
    is_int((int)n_other, 0, "one after the other has it");
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "and they count no more once they went: %s", e.text);
    lease_bed_end(&w.bed);
}

/* Gone at the first look, then away, and there again: by then it is nobody that is gone. */
static void test_comes_back(void)
{
    struct lease a, c;
    struct error e;

    lease_odd_bed_begin(&w);
    a = lease_bed_run(&w.bed, "a", "m1", 1);
    c = lease_bed_run(&w.bed, "c", "m1", 3);
    c.own.start++;
    lease_bed_put_note(&w.bed, &c, ".muster-run-c", LEASE_HAS);
    w.name = ".muster-run-c";
    w.error = ENOENT;
    w.at_open = 2;
    is_int(lease_bed_hold(&w.bed, &a, &e), 0, "one that was gone, and then not there");
    is_str(lease_bed_names(&w.bed), ".muster-run-c .muster-run-a ", "is not removed");
    lease_bed_end(&w.bed);
}

int main(void)
{
    test_not_inherited();
    test_heir();
    test_order();
    test_watches_all();
    test_zero_time();
    test_strange_names();
    test_cut_now();
    test_many_names();
    test_comes_back();
    return tap_done();
}
