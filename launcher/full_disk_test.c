/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run directory and journal on a filesystem that is full, has no inodes left, or
 * is read-only: small tmpfs mounts in a mount namespace of this process. Skipped
 * where that is not allowed.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/journal.h"
#include "launcher/log_store.h"
#include "launcher/rundir.h"
#include "launcher/status_bed.h"
#include "launcher/status_file.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 20000 };

static char base[] = "/tmp/full-disk-XXXXXX";

static bool mount_small(const char *options)
{
    return mount("tmpfs", base, "tmpfs", 0, options) == 0;
}

static void unmount(void)
{
    if (umount2(base, MNT_DETACH) < 0) {
        bail_out("umount %s", base);
    }
}

/* A file that takes all the room there is. */
static void fill(const char *path)
{
    _close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    char block[4096] = {1};

    while (write(fd, block, sizeof(block)) > 0) {
    }
}

/* Run directories of the name "tiny". */
static int count_entries(void)
{
    char path[64];
    struct dirent *d;
    DIR *dir;
    int n = 0;

    snprintf(path, sizeof(path), "%s/tiny", base);
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        n += d->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static void check_create(int want, const char *what)
{
    struct rundir_params p = {.name = "tiny", .base = base};
    struct rundir *r = NULL;
    struct error e = {0};
    int rc = rundir_create(&p, &r, &e);

    is_int(rc, want, "%s: %s", what, e.text);
    like(e.text, base, "%s: the place is named", what);
    is_int(count_entries(), 0, "%s: nothing is left half-made", what);
    if (rc == 0) {
        rundir_destroy(r);
    }
}

static void test_create(void)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/fill", base);
    ok(mount_small("size=64k"), "small filesystem");
    fill(path);
    check_create(-ENOSPC, "full");
    unmount();

    ok(mount_small("nr_inodes=4"), "few inodes");
    check_create(-ENOSPC, "no inodes");
    unmount();

    ok(mount("tmpfs", base, "tmpfs", MS_RDONLY, "size=64k") == 0, "read-only");
    check_create(-EROFS, "read-only");
    unmount();
}

struct errors {
    atomic_int n;
    char text[1024];
};

static void on_error(void *arg, const char *text)
{
    struct errors *x = arg;

    str_copy(x->text, sizeof(x->text), text);
    atomic_fetch_add(&x->n, 1);
}

static void put_event(struct journal *j, int i)
{
    struct buf line = {0};
    struct jsonw w = journal_event_begin(&line, clock_wall_ns(), "test", 1);

    jsonw_int(&w, "i", i);
    journal_event_end(j, &w);
}

/* All numbers from 0 on, each on a line of its own that is whole. */
static void check_events(const char *path, int n)
{
    _free_ char *text = NULL;
    int want = 0, bad = 0;

    if (fs_read(path, 64 << 20, &text, NULL, NULL) < 0) {
        ok(false, "no %s", path);
        return;
    }
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *i = json_object_get(o, "i");

        bad += !i || json_integer_value(i) != want;
        want++;
        json_decref(o);
    }
    is_int(want, n, "all events are there");
    is_int(bad, 0, "whole, in order, each once");
}

static void test_journal(void)
{
    char filler[64], events[64];
    struct errors x = {0};
    struct journal_config c = {.run_dir = base, .on_error = on_error,
                               .arg = &x};
    struct timespec pause = {.tv_nsec = 1000000};
    struct journal *j = NULL;
    struct error e = {0};
    struct run_status *s;
    int n = 0;

    snprintf(filler, sizeof(filler), "%s/fill", base);
    snprintf(events, sizeof(events), "%s/events.jsonl", base);
    ok(mount_small("size=256k"), "small filesystem");
    journal_create(&c, &j, NULL);
    put_event(j, n++);
    while (access(events, F_OK) < 0) {
        nanosleep(&pause, NULL);
    }
    fill(filler);
    /* More than the rest of a page: the write stops inside a line. */
    while (n < 1000) {
        put_event(j, n++);
    }
    for (int i = 0; i < WAIT_MS && !atomic_load(&x.n); i++) {
        nanosleep(&pause, NULL);
    }
    is_int(atomic_load(&x.n), 1, "told once");
    like(x.text, "No space left on device", "what is wrong");
    s = run_status_create();
    s->state = STATUS_FAILED;
    journal_status(j, s);
    unlink(filler);
    put_event(j, n++);
    is_int(journal_close(j, WAIT_MS, &e), 0, "there is room again: %s", e.text);
    check_events(events, n);
    snprintf(filler, sizeof(filler), "%s/status.json", base);
    ok(access(filler, F_OK) == 0, "and a status");
    unmount();
}

/* Writes and reads a status of so many workers, which finds no room. */
static void check_reduced(enum status_run_state state, size_t n, size_t n_want)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(state, n);
    _cleanup_(run_status) struct run_status *back = NULL;
    bool is_reduced = false;
    struct error e = {0};

    is_int(status_file_write(base, s, &is_reduced, &e), -ENOSPC,
           "no room for %zu workers", n);
    ok(is_reduced, "but it is written");
    back = status_bed_read(base);
    is_int(back->state, state, "as %s", status_run_name(state));
    is_int(back->n_workers, n_want, "with what fits");
    like(back->trouble, "No space left on device", "and the reason");
}

/* The spare files take whatever state the run comes to, again and again. */
static void test_status(const char *options)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(STATUS_JOINING, 4);
    bool is_reduced = true;
    char path[64];

    snprintf(path, sizeof(path), "%s/fill", base);
    ok(mount_small(options), "small filesystem: %s", options);
    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    is_int(status_file_write(base, s, &is_reduced, NULL), 0, "a status");
    ok(!is_reduced, "in full");
    fill(path);
    for (int i = 0; i < 3; i++) {
        check_reduced(STATUS_RUNNING, 4, 4);
        check_reduced(STATUS_RUNNING, 10000, 0);
    }
    check_reduced(STATUS_FAILED, 10000, 0);
    unlink(path);
    is_int(status_file_write(base, s, &is_reduced, NULL), 0, "room again");
    ok(!is_reduced, "for all");
    is_int(status_file_reserve(base, NULL), 0, "and for the next time");
    status_file_unreserve(base);
    snprintf(path, sizeof(path), "%s/.status.spare-1", base);
    ok(access(path, F_OK) < 0, "given back at the end");
    unmount();
}

/* A log that cannot grow loses what does not fit, says so, and goes on when there
 * is room; it never waits. */
static void test_log(void)
{
    static const struct log_limits limits = {.max_bytes = 128 << 10,
                                             .keep = 1};
    _free_ char *data = malloc(64 << 10);
    char path[64], filler[64];
    struct log_store s;
    size_t lost;
    int code;

    snprintf(path, sizeof(path), "%s/log", base);
    snprintf(filler, sizeof(filler), "%s/fill", base);
    ok(data && mount_small("size=512k"), "a small filesystem");
    memset(data, '\n', 64 << 10);
    s = log_store(path, &limits, NULL);
    is_int((intmax_t)log_store_append(&s, data, 64 << 10, 1, &code), 0,
           "a log on it");
    fill(filler);
    lost = log_store_append(&s, data, 64 << 10, 2, &code);
    ok(lost > 0, "on a full disk some of it is lost");
    is_int(code, -ENOSPC, "for want of space");
    unlink(filler);
    for (int i = 0; i < 10; i++) {
        is_int((intmax_t)log_store_append(&s, data, 64 << 10, 3, &code), 0,
               "with room again all is written");
    }
    log_store_close(&s);
    unmount();
}

int main(void)
{
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0) {
        skip("no mount namespace of one's own here: %s", strerror(errno));
        return tap_done();
    }
    setenv("XDG_STATE_HOME", "/proc/nonexistent", 1);
    unsetenv("SLURM_JOB_ID");
    if (!mkdtemp(base)) {
        bail_out("mkdtemp");
    }
    test_create();
    test_log();
    test_journal();
    test_status("size=256k");
    test_status("size=4m,nr_inodes=5");
    rmdir(base);
    return tap_done();
}
