/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two who save into one directory: two leads of a run, two saves of one step, two generations,
 * and two runs.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/machine.h"
#include "base/proc.h"
#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = COMMIT_BED_RANKS };

/* Of two leads one may come late. */
static void test_late(struct commit_bed *b)
{
    struct error e;

    commit_bed_save(b, 50);
    commit_bed_save(b, 51);
    commit_bed_write(b, 49, N);
    is_int(commit_bed_commit(b, 49, N, UINT64_MAX, NULL, &e), 0, "an older one: %s", e.text);
    ok(commit_bed_has(b, 50, "COMMIT") && commit_bed_has(b, 51, "COMMIT"), "the newest stay");
    ok(commit_bed_has(b, 49, "COMMIT"), "and what is a checkpoint only now");
}

/* Of two of one step the later one counts, whoever made it. */
static void test_twice(struct commit_bed *b)
{
    uint64_t first;

    commit_bed_save(b, 55);
    first = commit_bed_token(b, 55);
    b->nth = 1;
    commit_bed_save(b, 55);
    ok(commit_bed_token(b, 55) > first, "the later one of a step has a higher token");
    b->nth = 0;
}

static int list_none(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    (void)io, (void)dir, (void)each, (void)arg;
    return -EIO;
}

/* Of the save that is there, as `io` finds it. */
static bool counts(struct commit_bed *b, unsigned nth, struct io *io)
{
    char uuid[COMMIT_UUID_BYTES];
    struct error e = {0};
    bool is_last = false;
    struct snap_commit c;

    b->nth = nth;
    c = commit_bed_facts(b, 56, uuid);
    c.ret_is_last = &is_last;
    commit_bed_must(snap_commit(&c, io, NULL, &e), &e);
    return is_last;
}

/* Nobody starts from a later one that is damaged, nor from what cannot be looked at. */
static void test_last_of_few(struct commit_bed *b)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    char uuid[COMMIT_UUID_BYTES], name[STEP_NAME_BYTES], path[PATH_MAX];
    const struct snap_commit c = commit_bed_facts(b, 58, uuid);
    struct error e = {0};

    commit_bed_write(b, 58, N);
    commit_bed_must(snap_commit(&c, io_system(), NULL, &e), &e);
    ok(counts(b, 1, io_system()) && !counts(b, 3, io_system()),
       "one of a later step is not asked about");
    b->nth = 1;
    commit_bed_name(b, 56, name);
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", b->top, name);
    ok(truncate(path, 1) == 0, "the later one is damaged");
    ok(counts(b, 3, io_system()), "the other one counts");
    ops.list = list_none;
    ok(!counts(b, 3, &io), "where nobody can tell it does not");
    b->nth = 0;
}

/* Whoever leads next hears of both, in any order. */
static void test_last(struct commit_bed *b)
{
    struct error e = {0};
    bool is_last[4];

    commit_bed_clear(b);
    for (size_t i = 0; i < 4; i++) {
        char uuid[COMMIT_UUID_BYTES];
        struct snap_commit c;

        b->nth = i % 2 ? 1 : 3;
        c = commit_bed_facts(b, 56, uuid);
        c.ret_is_last = &is_last[i];
        if (i < 2) {
            commit_bed_write(b, 56, N);
        }
        commit_bed_must(snap_commit(&c, io_system(), NULL, &e), &e);
    }
    b->nth = 0;
    ok(is_last[0] && is_last[1], "what is made counts");
    ok(!is_last[2] && is_last[3], "of both that are there the later one does");
    test_last_of_few(b);
}

/* Nor do their names say which of them stay. */
static void test_many(struct commit_bed *b)
{
    static const unsigned order[] = {3, 5, 1, 4, 2};

    commit_bed_clear(b);
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        b->nth = order[i];
        commit_bed_save(b, 57);
    }
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        b->nth = order[i];
        ok(commit_bed_has(b, 57, "COMMIT") == (i >= 3), "save %d of a step, where two are kept",
           (int)i + 1);
    }
    b->nth = 0;
}

/* Two that do not know of each other, above one of a run before. */
static void test_generations(struct commit_bed *b)
{
    struct error e;
    uint64_t tokens[2];

    commit_bed_clear(b);
    for (uint32_t i = 0; i < 3; i++) {
        char uuid[COMMIT_UUID_BYTES];
        struct snap_commit c = commit_bed_facts(b, 80, uuid);

        c.rule = (struct retain_rule){0};
        c.gather.generation = i == 0 ? 5 : i;
        c.gather.token = (uint64_t)c.gather.generation << 32;
        commit_bed_write(b, 80, N);
        commit_bed_must(commit_bed_run(&c, io_system(), NULL, &e), &e);
        if (i > 0) {
            tokens[i - 1] = commit_bed_token(b, 80);
            commit_bed_remove(b, 80);
        }
        b->nth++;
    }
    b->nth = 0;
    ok(tokens[0] > UINT64_C(5) << 32, "a later run's counts more");
    ok(tokens[1] > tokens[0] + UINT32_MAX, "and in it the later generation's");
}

static struct snap_lease *lease_of(struct commit_bed *b, const char *run,
                                   const struct office *office)
{
    struct lease_note own = {.pid = getpid(), .is_alone = true};
    char machine[MACHINE_ID_BYTES];
    struct snap_lease *l = NULL;
    struct proc self = {0};
    struct error e = {0};

    machine_id(machine, sizeof(machine));
    proc_read(getpid(), &self);
    own.start = self.start;
    lease_note_put(&own, run, "here", machine);
    commit_bed_must(snap_lease_create(b->top, &own, office, &l, &e), &e);
    return l;
}

static void end_lease(struct snap_lease *l)
{
    uint64_t end_ms = clock_mono_ms() + 20000;

    snap_lease_drop(l);
    while (!snap_lease_end(l)) {
        if (clock_mono_ms() > end_ms) {
            bail_out("the thread of a lease does not end");
        }
        usleep(1000);
    }
}

static int run_as(struct commit_bed *b, uint64_t step, struct snap_lease *l, struct error *e)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.rule = (struct retain_rule){.keep = 1};
    c.lease = l;
    commit_bed_write(b, step, N);
    *e = (struct error){0};
    return commit_bed_run(&c, io_system(), NULL, e);
}

/* Another run that saves there: nothing of either is taken for the other's. */
static void test_other_run(struct commit_bed *b)
{
    struct office office;
    struct snap_lease *one, *other;
    char uuid[COMMIT_UUID_BYTES], path[PATH_MAX];
    struct snap_commit c;
    struct error e;

    commit_bed_clear(b);
    office_begin(&office);
    one = lease_of(b, "one", &office);
    other = lease_of(b, "other", &office);
    is_int(run_as(b, 91, one, &e), 0, "a run saves: %s", e.text);
    commit_bed_write(b, 90, 1);
    is_int(run_as(b, 95, other, &e), -EBUSY, "another one does not");
    like(e.text, b->top, "is told where: %s", e.text);
    like(e.text, "run one on here saves there", "and who does");
    ok(commit_bed_has(b, 91, "COMMIT") && commit_bed_has(b, 90, "r00000.part"),
       "what is there stays");
    ok(!commit_bed_has(b, 95, ""), "but for its own");
    c = commit_bed_facts(b, 95, uuid);
    c.rule = (struct retain_rule){.keep = 1};
    c.lease = other;
    commit_bed_save(b, 94); /* by one who does not ask */
    snap_tidy(&c, io_system());
    ok(commit_bed_has(b, 91, "COMMIT") && commit_bed_has(b, 94, "COMMIT"),
       "nor does it tidy up there");
    is_int(run_as(b, 96, one, &e), 0, "the first one goes on: %s", e.text);
    ok(!commit_bed_has(b, 91, "") && !commit_bed_has(b, 94, ""), "and tidies up");
    snap_lease_hurry(other);
    snprintf(path, sizeof(path), "%s/.muster-run-one", b->top);
    fs_write_replace(path, "?", 1, NULL); /* of whom nobody knows whether it is alive */
    is_int(run_as(b, 93, other, &e), -ECANCELED, "one that ends does not wait: %s", e.text);
    ok(commit_bed_has(b, 93, "r00000.part"), "what it has written stays, for its next life");
    unlink(path);
    end_lease(other);
    other = lease_of(b, "other", &office);
    end_lease(one);
    is_int(run_as(b, 97, other, &e), 0, "once it is over the other one saves: %s", e.text);
    end_lease(other);
    commit_bed_clear(b);
}

static struct commit_bed *bed;
static int n_gone;

static void rename_in(struct commit_bed *b, const char *from, const char *to)
{
    if (renameat(b->root, from, b->root, to) < 0) {
        bail_out("rename %s: %s", from, strerror(errno));
    }
}

/* Who removes is stopped then, for so long that another run takes the directory. */
static int remove_dir_late(struct io *io, int dir, const char *name)
{
    int rc = io_system_ops.remove_dir(io, dir, name);

    if (n_gone++ == 0) {
        unlinkat(bed->root, ".muster-run-one", 0);
        rename_in(bed, "kept", ".muster-run-other");
    }
    return rc;
}

/* What is there from then on is not this one's to remove. */
static void test_lost_while_tidying(struct commit_bed *b)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    char uuid[COMMIT_UUID_BYTES];
    struct snap_lease *one, *other;
    struct snap_commit c;
    struct office office;
    struct error e = {0};

    commit_bed_clear(b);
    bed = b;
    office_begin(&office);
    other = lease_of(b, "other", &office);
    is_int(run_as(b, 101, other, &e), 0, "a run saves: %s", e.text);
    rename_in(b, ".muster-run-other", "kept");
    end_lease(other);
    one = lease_of(b, "one", &office);
    for (uint64_t step = 102; step <= 104; step++) {
        c = commit_bed_facts(b, step, uuid);
        commit_bed_write(b, step, N);
        commit_bed_must(snap_commit(&c, io_system(), NULL, &e), &e);
    }
    c.rule = (struct retain_rule){.keep = 1};
    c.lease = one;
    ops.remove_dir = remove_dir_late;
    snap_tidy(&c, &io);
    ok(!commit_bed_has(b, 103, "") && n_gone == 1, "another run takes the directory meanwhile");
    ok(commit_bed_has(b, 102, "COMMIT") && commit_bed_has(b, 101, "COMMIT"),
       "nothing more goes then");
    end_lease(one);
    commit_bed_clear(b);
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_commit_two_test");
    test_late(&b);
    test_twice(&b);
    test_last(&b);
    test_many(&b);
    test_generations(&b);
    test_other_run(&b);
    test_lost_while_tidying(&b);
    commit_bed_close(&b);
    return tap_done();
}
