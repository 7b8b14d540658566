/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lead whose office is over changes nothing, wherever it was stopped in committing a
 * save: for the next lead that is whole, or none.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>

enum { N = COMMIT_BED_RANKS };

/* The kernel's calls, of which the n-th that changes something is the last one of an
 * office: a stop that began there has lasted for too long. */
static struct office office;
static int n_left, n_late;

static int turn(int rc)
{
    n_late += n_left <= 0;
    if (--n_left == 0) {
        office_set(&office, 1);
    }
    return rc;
}

static int late_create(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.create(io, dir, name));
}

static int late_rename(struct io *io, int dir, const char *from, const char *to)
{
    return turn(io_system_ops.rename(io, dir, from, to));
}

static int late_remove_dir(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.remove_dir(io, dir, name));
}

static int late_unlink(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.unlink(io, dir, name));
}

static int commit_late(struct commit_bed *b, uint64_t step, int n, const struct error *why,
                       struct error *e)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.office = &office;
    ops.create = late_create;
    ops.rename = late_rename;
    ops.unlink = late_unlink;
    ops.remove_dir = late_remove_dir;
    office_begin(&office);
    office_set(&office, n ? UINT64_MAX : 1);
    n_left = n;
    n_late = 0;
    *e = (struct error){0};
    return commit_bed_run(&c, &io, why, e);
}

/* Returns whether it came to its end before. */
static bool stop_at(struct commit_bed *b, int n)
{
    struct error e, next;
    bool was_whole;
    int rc;

    commit_bed_clear(b);
    commit_bed_save(b, 70);
    commit_bed_save(b, 71);
    commit_bed_write(b, 72, N);
    rc = commit_late(b, 72, n, NULL, &e);
    if (n_left > 0) {
        return true;
    }
    was_whole = commit_bed_has(b, 72, "COMMIT");
    ok(rc == (was_whole ? 0 : -ESTALE) && n_late == 0,
       "stopped at %d: no more is changed, and it says so: %s", n, e.text);
    ok(commit_bed_has(b, 71, "COMMIT") && (was_whole || commit_bed_has(b, 70, "COMMIT")),
       "what is to be kept is there");
    rc = commit_bed_commit(b, 72, N, UINT64_MAX, NULL, &next);
    ok(rc == 0 && commit_bed_token(b, 72) > 0, "the next lead makes it whole: %s", next.text);
    ok(!commit_bed_has(b, 72, "r00000.part") && !commit_bed_has(b, 72, "r00001.part") &&
           !commit_bed_has(b, 72, ".COMMIT.new"), "and leaves nothing else in it");
    return false;
}

static void test_stopped(struct commit_bed *b)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    struct error e;
    int n = 1;

    commit_bed_clear(b);
    commit_bed_write(b, 73, N);
    is_int(commit_late(b, 73, 0, NULL, &e), -ESTALE, "the office is over: %s", e.text);
    is_int(commit_late(b, 73, 0, &why, &e), -ESTALE, "also of one that has failed");
    is_int(commit_bed_commit(b, 73, N, UINT64_MAX, NULL, &e), 0,
           "the next lead commits it: %s", e.text);
    is_int(commit_late(b, 73, 0, &why, &e), 0, "which is what the other one finds");
    ok(commit_bed_has(b, 73, "COMMIT"), "and leaves");
    e = why;
    n_left = 0;
    office_set(&office, UINT64_MAX);
    is_int(snap_commit(&(struct snap_commit){.root = "/nonexistent", .office = &office},
                       io_system(), NULL, &e), -ENOENT, "a directory that is gone");
    office_set(&office, 1);
    is_int(snap_commit(&(struct snap_commit){.root = "/nonexistent", .office = &office},
                       io_system(), NULL, &e), -ESTALE,
           "is no matter of one whose office is over, though it has changed nothing: %s", e.text);
    while (n < 100 && !stop_at(b, n)) {
        n++;
    }
    ok(n > 8 && n < 100, "at each of %d changes", n - 1);
    commit_bed_write(b, 74, N);
    is_int(commit_late(b, 74, 1, &why, &e), -ESTALE, "one that was being removed");
}

/* From when its token is chosen until the save is closed, whose directory has been
 * looked at once before that. */
static int n_closes;

static int late_list(struct io *io, int dir, int (*each)(void *arg, const char *name),
                     void *arg)
{
    office_set(&office, 1);
    n_closes = 2;
    return io_system_ops.list(io, dir, each, arg);
}

static int again_close(struct io *io, int fd)
{
    if (n_closes > 0 && --n_closes == 0) {
        office_set(&office, UINT64_MAX);
    }
    return io_system_ops.close(io, fd);
}

static int stale_make_file(struct io *io, int dir, const char *name)
{
    (void)io, (void)dir, (void)name;
    return -ESTALE;
}

/* Its word was not good for a moment, in which it has left something undone: it is looked
 * at again. What a server calls stale is a failure like any other. */
static void test_interrupted(struct commit_bed *b)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 75, uuid);
    struct error e = {0};

    c.office = &office;
    commit_bed_clear(b);
    commit_bed_write(b, 75, N);
    ops.list = late_list;
    ops.close = again_close;
    office_begin(&office);
    office_set(&office, UINT64_MAX);
    is_int(commit_bed_run(&c, &io, NULL, &e), -ESTALE, "between two changes: %s", e.text);
    ok(office_holds(&office) && commit_bed_has(b, 75, "r00001.part"),
       "nothing more was done");
    is_int(commit_bed_commit(b, 75, N, UINT64_MAX, NULL, &e), 0,
           "and it is made one then: %s", e.text);
    commit_bed_write(b, 76, N);
    ops.list = io_system_ops.list;
    ops.create = stale_make_file;
    c = commit_bed_facts(b, 76, uuid);
    c.office = &office;
    is_int(commit_bed_run(&c, &io, NULL, &e), -EIO, "a stale file of a server: %s", e.text);
    is_int(e.code, EIO, "by its code, too");
    ok(!commit_bed_has(b, 76, ""), "the save has failed of it");
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_commit_office_test");
    test_stopped(&b);
    test_interrupted(&b);
    commit_bed_close(&b);
    return tap_done();
}
