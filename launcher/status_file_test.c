/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.json where the filesystem has no room, by quota too, made up by --wrap: the last
 * word of a run is on the disk when it is told, the words before it need not be; and what
 * is too long for the spare files is left out. launcher/full_disk_test has real ones.
 */
#include <config.h>

#include "launcher/status_file.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/status_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/status-file-XXXXXX";
static int no_room; /* what replacing status.json comes to; 0: it works */
static int n_synced;

int __real_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);
int __real_fs_write_atomic(const char *path, const void *data, size_t len,
                           struct error *e);
int __real_fsync(int fd);
int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e);
int __wrap_fs_write_atomic(const char *path, const void *data, size_t len,
                           struct error *e);
int __wrap_fsync(int fd);

static bool has_no_room(const char *path)
{
    return no_room && str_ends(path, "/status.json");
}

int __wrap_fs_write_replace(const char *path, const void *data, size_t len,
                            struct error *e)
{
    return has_no_room(path) ? error_set(e, no_room, "write %s", path)
                             : __real_fs_write_replace(path, data, len, e);
}

int __wrap_fs_write_atomic(const char *path, const void *data, size_t len,
                           struct error *e)
{
    return has_no_room(path) ? error_set(e, no_room, "write %s", path)
                             : __real_fs_write_atomic(path, data, len, e);
}

int __wrap_fsync(int fd)
{
    n_synced++;
    return __real_fsync(fd);
}

static void check(int code, enum status_run_state state, size_t n_workers)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(state, n_workers);
    _cleanup_(run_status) struct run_status *back = NULL;
    bool is_reduced = false;

    no_room = code;
    n_synced = 0;
    is_int(status_file_write(base, s, &is_reduced, NULL), -code, "%s",
           strerror(code));
    no_room = 0;
    ok(is_reduced, "it is written all the same");
    is_int(n_synced, state == STATUS_FAILED ? 1 : 0, "and on the disk, if it is the last");
    back = status_bed_read(base);
    is_int(back->state, state, "as %s", status_run_name(state));
    like(back->trouble, strerror(code), "with the reason");
}

static void test_no_room(void)
{
    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    check(ENOSPC, STATUS_RUNNING, 2);
    check(EDQUOT, STATUS_RUNNING, 2);
    check(EDQUOT, STATUS_FAILED, 2);
}

static void test_other_trouble(void)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(STATUS_RUNNING, 1);
    bool is_reduced = true;

    no_room = EIO;
    is_int(status_file_write(base, s, &is_reduced, NULL), -EIO, "other trouble");
    ok(!is_reduced, "spends no spare");
    no_room = 0;
}

/* The lines of a worker that has failed may be longer than a spare file. */
static void test_lines(void)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(STATUS_RUNNING, 2);
    _cleanup_(run_status) struct run_status *back = NULL;
    _free_ char *lines = malloc(STATUS_MAX_LINES_BYTES);
    bool is_reduced = false;

    if (!lines) {
        bail_out("no memory");
    }
    memset(lines, 1, STATUS_MAX_LINES_BYTES); /* each is six bytes of JSON */
    s->failure.is_set = true;
    run_status_set_lines(s, lines, STATUS_MAX_LINES_BYTES);
    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    no_room = ENOSPC;
    status_file_write(base, s, &is_reduced, NULL);
    no_room = 0;
    ok(is_reduced, "lines that do not fit are left out");
    back = status_bed_read(base);
    ok(!back->failure.lines && back->n_workers == 0, "with nodes and workers");
    like(back->trouble, "nodes and workers are left out here", "which is said");
}

/* Nobody leads it to a file elsewhere. */
static void test_link(void)
{
    _cleanup_(run_status) struct run_status *s = status_bed_make(STATUS_RUNNING, 1);
    char path[64], other[64], blank[STATUS_SPARE_BYTES];
    bool is_reduced = true;
    _free_ char *text = NULL;
    size_t len = 0;

    memset(blank, ' ', sizeof(blank));
    snprintf(other, sizeof(other), "%s/other", base);
    fs_write_replace(other, blank, sizeof(blank), NULL);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/.status.spare-%d", base, i);
        unlink(path);
        if (symlink("other", path) < 0) {
            bail_out("a link");
        }
    }
    no_room = ENOSPC;
    status_file_write(base, s, &is_reduced, NULL);
    no_room = 0;
    ok(!is_reduced, "spare files that are links are none");
    ok(fs_read(other, 1 << 20, &text, &len, NULL) == 0 && len == sizeof(blank) &&
           memcmp(text, blank, len) == 0, "and what they point to stays as it is");
}

int main(void)
{
    if (!mkdtemp(base)) {
        bail_out("no temporary directory");
    }
    test_no_room();
    test_other_trouble();
    test_lines();
    test_link();
    fs_remove_tree(base, NULL);
    return tap_done();
}
