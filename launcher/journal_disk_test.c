/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a journal does with its files when these take a part only, are interrupted, full
 * or gone: --wrap stands for such a filesystem. The journal around it is in journal_test.
 */
#include <config.h>

#include "launcher/journal_disk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/status_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/journal-disk-XXXXXX";

/* --- the filesystem --- */

/* What becomes of each write() in turn: so many bytes at most, or a code. Behind the
 * last one all work. */
static const int *plan;
static size_t n_plan;
static int n_syncs, sync_code;
static int status_code; /* of replacing status.json; 0: it works */

ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __real_write(int fd, const void *data, size_t len);
int __wrap_fsync(int fd);
int __real_fsync(int fd);
int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);
int __real_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    int next;

    if (n_plan == 0) {
        return __real_write(fd, data, len);
    }
    next = *plan++;
    n_plan--;
    if (next < 0) {
        errno = -next;
        return -1;
    }
    return __real_write(fd, data, len < (size_t)next ? len : (size_t)next);
}

int __wrap_fsync(int fd)
{
    n_syncs++;
    errno = sync_code;
    return sync_code ? -1 : __real_fsync(fd);
}

int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e)
{
    return status_code && str_ends(path, "/status.json")
               ? error_set(e, status_code, "write %s", path)
               : __real_fs_write_replace(path, data, len, e);
}

#define plan_writes(...)                          \
    static const int plan_[] = {__VA_ARGS__};     \
    plan = plan_;                                 \
    n_plan = ARRAY_SIZE(plan_)

/* --- the bed --- */

static const char *path_in(const struct journal_disk *d, const char *name)
{
    static char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", d->dir, name);
    return path;
}

/* In a directory of its own. */
static void start(struct journal_disk *d, const char *name)
{
    char dir[64];

    snprintf(dir, sizeof(dir), "%s/%s", top, name);
    if (mkdir(dir, 0700) < 0) {
        bail_out("no %s", dir);
    }
    memset(d, 0, sizeof(*d));
    is_int(journal_disk_init(d, dir, NULL), 0, "%s: starts", name);
}

static void finish(struct journal_disk *d)
{
    struct error e = {0};

    journal_disk_close(d, &e);
    is_int(e.code, 0, "closed");
    journal_disk_release(d);
}

static void take(struct journal_disk *d, enum journal_file file, const char *text)
{
    _buf_ struct buf b = {0};

    buf_puts(&b, text);
    journal_disk_take(d, file, &b);
    is_int((intmax_t)b.len, 0, "taken");
}

static void check_file(const struct journal_disk *d, const char *name,
                       const char *want, const char *what)
{
    _free_ char *text = NULL;

    fs_read(path_in(d, name), 1 << 20, &text, NULL, NULL);
    is_str(text ? text : "none", want, "%s", what);
}

static void put_file(const struct journal_disk *d, const char *name, const char *text)
{
    if (__real_fs_write_replace(path_in(d, name), text, strlen(text), NULL) < 0) {
        bail_out("no %s", name);
    }
}

static bool has_file(const struct journal_disk *d, const char *name)
{
    return access(path_in(d, name), F_OK) == 0;
}

/* --- what waits --- */

static void test_takes(void)
{
    _buf_ struct buf more = {0};
    struct journal_disk d;

    start(&d, "takes");
    ok(!journal_disk_has_work(&d), "nothing to do");
    is_int(d.generation, INT_MIN, "no generation is on the disk");
    take(&d, JOURNAL_EVENTS, "");
    ok(!journal_disk_has_work(&d), "nor where nothing came");
    take(&d, JOURNAL_METRICS, "a\n");
    ok(journal_disk_has_work(&d), "a metric is work");
    is_int((intmax_t)journal_disk_left(&d, JOURNAL_METRICS), 2, "of two bytes");
    is_int((intmax_t)journal_disk_left(&d, JOURNAL_EVENTS), 0, "of that file alone");
    buf_puts(&more, "b\n");
    journal_disk_take(&d, JOURNAL_METRICS, &more);
    is_str(buf_str(&more), "b\n", "nothing is taken while a batch waits");
    is_int(journal_disk_write(&d, NULL), 0, "written");
    ok(!journal_disk_has_work(&d), "nothing is left");
    journal_disk_take(&d, JOURNAL_METRICS, &more);
    is_int((intmax_t)more.len, 0, "then it is");
    is_int(journal_disk_write(&d, NULL), 0, "written");
    check_file(&d, "metrics.jsonl", "a\nb\n", "one after the other");
    ok(!has_file(&d, "events.jsonl"), "no file without a line");
    finish(&d);
}

static void test_long_path(void)
{
    char dir[PATH_MAX + 8];
    struct journal_disk d = {0};

    memset(dir, 'x', sizeof(dir) - 1);
    dir[sizeof(dir) - 1] = '\0';
    is_int(journal_disk_init(&d, dir, NULL), -ENAMETOOLONG, "too long a path");
    dir[PATH_MAX - 5] = '\0';
    is_int(journal_disk_init(&d, dir, NULL), 0, "a path without room behind it");
    take(&d, JOURNAL_EVENTS, "a\n");
    is_int(journal_disk_write(&d, &(struct error){0}), -ENAMETOOLONG,
           "has no room for a file");
    journal_disk_take_status(&d, status_bed_make(STATUS_RUNNING, 1));
    is_int(journal_disk_write(&d, &(struct error){0}), -ENAMETOOLONG,
           "nor a status");
    journal_disk_release(&d);
}

/* --- lines --- */

/* What is on the disk is what came, whatever each call wrote of it. */
static void test_parts(void)
{
    struct error e = {0};
    struct journal_disk d;

    start(&d, "parts");
    take(&d, JOURNAL_EVENTS, "first\nsecond\n");
    {
        plan_writes(3, -EINTR, 1, -ENOSPC);
        is_int(journal_disk_write(&d, &e), -ENOSPC, "full: %s", e.text);
    }
    like(e.text, "parts/events.jsonl", "which file");
    is_int((intmax_t)journal_disk_left(&d, JOURNAL_EVENTS), 9, "the rest is left");
    check_file(&d, "events.jsonl", "firs", "in the middle of a line");
    is_int(journal_disk_write(&d, &e), 0, "it has room again");
    check_file(&d, "events.jsonl", "first\nsecond\n", "the line is whole");
    take(&d, JOURNAL_EVENTS, "third\n");
    is_int(journal_disk_write(&d, &e), 0, "the next one");
    check_file(&d, "events.jsonl", "first\nsecond\nthird\n", "follows");
    finish(&d);
}

/* One that was killed has left part of a line. */
static void test_torn(void)
{
    struct journal_disk d;

    start(&d, "torn");
    put_file(&d, "events.jsonl", "whole\n{\"tor");
    put_file(&d, "metrics.jsonl", "whole\n");
    take(&d, JOURNAL_EVENTS, "new\n");
    take(&d, JOURNAL_METRICS, "new\n");
    {
        plan_writes(-ENOSPC, 0);
        is_int(journal_disk_write(&d, &(struct error){0}), -ENOSPC,
               "no room for a newline");
    }
    check_file(&d, "events.jsonl", "whole\n{\"tor", "then nothing comes behind it");
    check_file(&d, "metrics.jsonl", "whole\nnew\n", "what is whole needs none");
    {
        plan_writes(-EINTR, 1, 2);
        is_int(journal_disk_write(&d, NULL), 0, "it has room, and is interrupted");
    }
    check_file(&d, "events.jsonl", "whole\n{\"tor\nnew\n", "each has a line");
    take(&d, JOURNAL_EVENTS, "more\n");
    is_int(journal_disk_write(&d, NULL), 0, "more");
    check_file(&d, "events.jsonl", "whole\n{\"tor\nnew\nmore\n", "has one, too");
    finish(&d);

    start(&d, "torn-soon");
    put_file(&d, "events.jsonl", "{");
    put_file(&d, "metrics.jsonl", "");
    take(&d, JOURNAL_EVENTS, "new\n");
    take(&d, JOURNAL_METRICS, "new\n");
    is_int(journal_disk_write(&d, NULL), 0, "the first byte alone is there, or none");
    check_file(&d, "events.jsonl", "{\nnew\n", "that one is torn");
    check_file(&d, "metrics.jsonl", "new\n", "nothing is not");
    finish(&d);
}

/* Each file fails by itself, and the first one is told. */
static void test_one_fails(void)
{
    struct error e = {0};
    struct journal_disk d;

    start(&d, "fails");
    mkdir(path_in(&d, "events.jsonl"), 0700);
    take(&d, JOURNAL_EVENTS, "event\n");
    ok(journal_disk_has_work(&d), "an event is work");
    take(&d, JOURNAL_METRICS, "metric\n");
    journal_disk_take_status(&d, status_bed_make(STATUS_RUNNING, 1));
    is_int(journal_disk_write(&d, &e), -EISDIR, "events fail");
    like(e.text, "open ", "told: %s", e.text);
    like(e.text, "fails/events.jsonl", "which");
    check_file(&d, "metrics.jsonl", "metric\n", "metrics are written");
    ok(!d.status && has_file(&d, "status.json"), "and the status");
    rmdir(path_in(&d, "events.jsonl"));
    take(&d, JOURNAL_METRICS, "metric 2\n");
    {
        plan_writes(100, -EIO);
        is_int(journal_disk_write(&d, &e), -EIO, "then metrics do");
    }
    like(e.text, "fails/metrics.jsonl", "which");
    check_file(&d, "events.jsonl", "event\n", "events are written");
    take(&d, JOURNAL_EVENTS, "event 2\n");
    {
        plan_writes(-EDQUOT, -EIO);
        is_int(journal_disk_write(&d, &e), -EDQUOT, "of two that fail");
    }
    like(e.text, "fails/events.jsonl", "the first one is told");
    is_int(journal_disk_write(&d, &e), 0, "nothing is lost");
    check_file(&d, "events.jsonl", "event\nevent 2\n", "of events");
    check_file(&d, "metrics.jsonl", "metric\nmetric 2\n", "and metrics");
    finish(&d);
}

/* --- the status --- */

static void test_status(void)
{
    struct run_status *s = status_bed_make(STATUS_RUNNING, 1);
    uint64_t before = clock_mono_ns();
    struct error e = {0};
    struct journal_disk d;

    start(&d, "status");
    s->generation = 4;
    journal_disk_take_status(&d, s);
    ok(journal_disk_has_work(&d), "a status is work");
    status_code = EIO;
    is_int(journal_disk_write(&d, &e), -EIO, "it fails: %s", e.text);
    ok(d.status_at_ns >= before, "when is known");
    is_int(d.generation, INT_MIN, "its generation is not on the disk");
    ok(journal_disk_has_work(&d), "it is still to be written");
    s = status_bed_make(STATUS_RUNNING, 1);
    s->generation = 5;
    journal_disk_take_status(&d, s);
    status_code = 0;
    is_int(journal_disk_write(&d, &e), 0, "written");
    is_int(d.generation, 5, "the newest one");
    ok(!journal_disk_has_work(&d), "once");
    finish(&d);
}

static void write_status(struct journal_disk *d, int code)
{
    journal_disk_take_status(d, status_bed_make(STATUS_RUNNING, 1));
    status_code = code;
    is_int(journal_disk_write(d, &(struct error){0}), -code, "a status: %s",
           code ? strerror(code) : "written");
    status_code = 0;
}

/* Room is kept from the first status on, and again where it was spent. */
static void test_reserve(void)
{
    struct journal_disk d;

    start(&d, "reserve");
    write_status(&d, 0);
    ok(has_file(&d, ".status.spare-0") && has_file(&d, ".status.spare-1"),
       "room is kept");
    unlink(path_in(&d, ".status.spare-0"));
    write_status(&d, 0);
    ok(!has_file(&d, ".status.spare-0"), "once");
    write_status(&d, ENOSPC);
    ok(!d.status && d.generation == 0, "written all the same");
    write_status(&d, 0);
    ok(has_file(&d, ".status.spare-0"), "what was spent is kept again");
    finish(&d);
}

/* Somebody removes the run, which does not come back as half of one. */
static void test_removed(void)
{
    struct error e = {0};
    struct journal_disk d;

    start(&d, "removed");
    write_status(&d, 0);
    put_file(&d, "run.json", "{}");
    write_status(&d, 0);
    unlink(path_in(&d, "run.json"));
    unlink(path_in(&d, "status.json"));
    journal_disk_take_status(&d, status_bed_make(STATUS_RUNNING, 1));
    is_int(journal_disk_write(&d, &e), -ENOENT, "not without its run.json");
    like(e.text, "removed was removed", "which is said");
    ok(!has_file(&d, "status.json"), "nothing is made there");
    ok(d.status, "it waits");
    put_file(&d, "run.json", "{}");
    is_int(journal_disk_write(&d, &e), 0, "until that is back");
    finish(&d);
}

/* --- the end --- */

static void test_close(void)
{
    static const struct {
        int code, want;
    } cases[] = {{0, 0}, {EIO, EIO}, {ENOSPC, ENOSPC}, {EINVAL, 0}, {EROFS, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        struct journal_disk d;
        char name[16];
        int fds[JOURNAL_N_FILES];

        snprintf(name, sizeof(name), "close-%zu", i);
        start(&d, name);
        take(&d, JOURNAL_EVENTS, "event\n");
        take(&d, JOURNAL_METRICS, "metric\n");
        is_int(journal_disk_write(&d, &e), 0, "written");
        fds[0] = d.sinks[0].fd;
        fds[1] = d.sinks[1].fd;
        n_syncs = 0;
        sync_code = cases[i].code;
        journal_disk_close(&d, &e);
        sync_code = 0;
        is_int(n_syncs, 2, "both are synced");
        is_int(e.code, cases[i].want, "%s: %s", strerror(cases[i].code), e.text);
        ok(!e.code || strstr(e.text, "/events.jsonl"), "the first one is told");
        ok(fcntl(fds[0], F_GETFD) < 0 && fcntl(fds[1], F_GETFD) < 0, "both are closed");
        journal_disk_release(&d);
    }
}

/* What was wrong before is what is told. */
static void test_close_after_error(void)
{
    struct error e = {.code = EDQUOT, .text = "before"};
    struct journal_disk d;

    start(&d, "after");
    take(&d, JOURNAL_EVENTS, "event\n");
    is_int(journal_disk_write(&d, &e), 0, "written");
    sync_code = EIO;
    journal_disk_close(&d, &e);
    sync_code = 0;
    is_str(e.text, "before", "the first error stays");
    journal_disk_release(&d);
}

/* What waits goes with it: lines, and a status, in place of another one. */
static void live_once(void *arg)
{
    struct journal_disk d = {0};

    (void)arg;
    if (journal_disk_init(&d, top, NULL) < 0) {
        bail_out("no journal");
    }
    for (int i = 0; i < JOURNAL_N_FILES; i++) {
        _buf_ struct buf b = {0};

        buf_puts(&b, "line\n");
        journal_disk_take(&d, i, &b);
    }
    for (int i = 0; i < 2; i++) {
        journal_disk_take_status(&d, status_bed_make(STATUS_RUNNING, 1));
    }
    journal_disk_release(&d);
}

int main(void)
{
    if (!mkdtemp(top)) {
        bail_out("no temporary directory");
    }
    test_takes();
    test_long_path();
    test_parts();
    test_torn();
    test_one_fails();
    test_status();
    test_reserve();
    test_removed();
    test_close();
    test_close_after_error();
    is_int(tap_leak(live_once, NULL), 0, "no memory is left behind");
    fs_remove_tree(top, NULL);
    return tap_done();
}
