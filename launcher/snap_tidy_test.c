/* SPDX-License-Identifier: Apache-2.0 */
/* What goes when a save has become a checkpoint, and above all what stays. */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/fs.h"
#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { N = COMMIT_BED_RANKS };

static int n_holds = -1; /* that the lease is held for; below 0: there is none */

int __wrap_snap_lease_hold(struct snap_lease *l, struct io *io, int root, struct error *e);

int __wrap_snap_lease_hold(struct snap_lease *l, struct io *io, int root, struct error *e)
{
    (void)l, (void)io, (void)root;
    return n_holds-- > 0 ? 0 : error_text(e, EBUSY, "another run saves there");
}

/* One more, by a lead that knows more: what `change` says. */
static void save_with(struct commit_bed *b, uint64_t step,
                      void (*change)(struct snap_commit *c))
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);
    struct error e = {0};

    change(&c);
    commit_bed_write(b, step, N);
    is_int(commit_bed_run(&c, io_system(), NULL, &e), 0, "step %d: %s", (int)step, e.text);
}

/* Workers that start from an earlier one save lower steps than are there. */
static void test_lower_step(struct commit_bed *b)
{
    commit_bed_save(b, 80);
    commit_bed_save(b, 81);
    commit_bed_save(b, 50);
    ok(commit_bed_has(b, 50, "COMMIT"), "what was saved just now stays");
    ok(commit_bed_has(b, 80, "COMMIT") && commit_bed_has(b, 81, "COMMIT"), "so do others");
    commit_bed_save(b, 51);
    ok(commit_bed_has(b, 51, "COMMIT") && !commit_bed_has(b, 50, ""), "until the next one");
    commit_bed_clear(b);
}

static char source[STEP_NAME_BYTES];

static void from_source(struct snap_commit *c)
{
    c->source = source;
}

static void test_source(struct commit_bed *b)
{
    commit_bed_save(b, 1);
    commit_bed_name(b, 1, source);
    for (uint64_t step = 2; step < 5; step++) {
        save_with(b, step, from_source);
    }
    ok(commit_bed_has(b, 1, "COMMIT"), "one that workers are starting from stays");
    ok(!commit_bed_has(b, 2, ""), "others of before do not");
    commit_bed_save(b, 5);
    ok(!commit_bed_has(b, 1, ""), "nor does it when they have started");
    commit_bed_clear(b);
}

static void test_damaged(struct commit_bed *b)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    commit_bed_save(b, 1);
    commit_bed_name(b, 1, name);
    snprintf(path, sizeof(path), "%s/%s/COMMIT", b->top, name);
    is_int(fs_write_replace(path, "junk", 4, NULL), 0, "one is damaged");
    for (uint64_t step = 2; step < 6; step++) {
        commit_bed_save(b, step);
    }
    ok(commit_bed_has(b, 1, "COMMIT") && commit_bed_has(b, 1, "r00000.safetensors"),
       "it is nobody's to remove");
    commit_bed_clear(b);
}

/* What was never finished counts for nothing: it goes when it is older than all that stay
 * as the newest, and no sooner. */
static void test_unfinished(struct commit_bed *b)
{
    commit_bed_save(b, 20);
    commit_bed_write(b, 22, 1);
    commit_bed_write(b, 25, 1);
    commit_bed_write(b, 19, 1);
    b->nth = 1;
    commit_bed_write(b, 20, 1);
    b->nth = 0;
    commit_bed_save(b, 30);
    ok(commit_bed_has(b, 20, "COMMIT"), "two that are whole stay");
    ok(commit_bed_has(b, 22, "") && commit_bed_has(b, 25, ""), "and what was begun in between");
    b->nth = 1;
    ok(commit_bed_has(b, 20, ""), "or of the older one's step");
    b->nth = 0;
    ok(!commit_bed_has(b, 19, ""), "but not before that");
    commit_bed_clear(b);
}

static void keep_all(struct snap_commit *c)
{
    c->rule.keep = 0;
}

static void test_keep_all(struct commit_bed *b)
{
    commit_bed_write(b, 1, 1);
    for (uint64_t step = 2; step < 6; step++) {
        save_with(b, step, keep_all);
    }
    ok(commit_bed_has(b, 1, "") && commit_bed_has(b, 2, "COMMIT"),
       "where no number is to be kept nothing goes");
    commit_bed_clear(b);
}

/* Removing takes its time, in which another run may begin to save there. */
static void test_other_run(struct commit_bed *b)
{
    enum { LAST = 6, ASKED = 3 };
    char uuid[COMMIT_UUID_BYTES], any;
    struct snap_commit c = commit_bed_facts(b, LAST, uuid);
    int n_left = 0;

    for (uint64_t step = 1; step <= LAST; step++) {
        save_with(b, step, keep_all);
    }
    c.lease = (struct snap_lease *)&any; /* only ever told apart */
    n_holds = ASKED;
    snap_tidy(&c, io_system());
    for (uint64_t step = 1; step <= LAST; step++) {
        n_left += commit_bed_has(b, step, "COMMIT");
    }
    is_int(n_left, LAST - (ASKED - 1), "another run begins as some go: no more do");
    ok(commit_bed_has(b, LAST, "COMMIT") && commit_bed_has(b, LAST - 1, "COMMIT"),
       "and none of those that stay");
    n_holds = -1;
    commit_bed_clear(b);
}

/* The name of a directory has eight digits of its save: another one may have the same. */
static void test_same_name(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 7, uuid);
    bool was_there = true;
    struct error e = {0};

    commit_bed_save(b, 7);
    c.ret_was_there = &was_there;
    uuid[COMMIT_UUID_BYTES - 2] ^= 1;
    is_int(snap_commit(&c, io_system(), NULL, &e), -EEXIST, "a save by the name of another one");
    like(e.text, "is of another save", "%s", e.text);
    ok(!was_there, "is no checkpoint");
    ok(commit_bed_has(b, 7, "COMMIT") && commit_bed_has(b, 7, "r00001.safetensors"),
       "the other one is as it was");
    commit_bed_clear(b);
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_tidy_test");
    test_lower_step(&b);
    test_source(&b);
    test_damaged(&b);
    test_unfinished(&b);
    test_keep_all(&b);
    test_other_run(&b);
    test_same_name(&b);
    commit_bed_close(&b);
    return tap_done();
}
