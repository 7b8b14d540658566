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
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/status-file-XXXXXX";
static int no_room; /* what replacing status.json comes to; 0: it works */
static int n_synced, sync_code;
static bool has_no_exchange;
static long blocks = -1; /* of any file that is open; -1: as it is */

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
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);

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
    errno = sync_code ? sync_code : EINTR;
    return sync_code ? -1 : __real_fsync(fd);
}

int __wrap_fstat(int fd, struct stat *st)
{
    int rc = __real_fstat(fd, st);

    st->st_blocks = blocks < 0 ? st->st_blocks : blocks;
    return rc;
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags)
{
    errno = EINVAL;
    return has_no_exchange ? -1 : __real_renameat2(from_fd, from, to_fd, to, flags);
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

static const char *path_of(const char *name)
{
    static char path[64];

    snprintf(path, sizeof(path), "%s/%s", base, name);
    return path;
}

static ino_t inode_of(const char *name)
{
    struct stat st = {0};

    return stat(path_of(name), &st) == 0 ? st.st_ino : 0;
}

/* A spare file of so many bytes, and no other one. */
static void put_spare(size_t size)
{
    _free_ char *blank = malloc(size + 1);

    if (!blank) {
        bail_out("no memory");
    }
    memset(blank, ' ', size);
    status_file_unreserve(base);
    if (__real_fs_write_replace(path_of(".status.spare-0"), blank, size, NULL) < 0) {
        bail_out("no spare file");
    }
}

/* Whether a status finds its place where there is no other room. */
static bool write_without_room(const struct run_status *s)
{
    bool is_reduced = false;

    unlink(path_of("status.json"));
    no_room = ENOSPC;
    status_file_write(base, s, &is_reduced, NULL);
    no_room = 0;
    return is_reduced;
}

static struct run_status *make_bare(enum status_run_state state)
{
    struct run_status *s = status_bed_make(state, 0);

    s->n_nodes = 0; /* what is left out has room for more words */
    s->failure.is_set = true;
    memset(s->failure.reason, 'r', sizeof(s->failure.reason) - 1);
    return s;
}

/* How long what is written of it then is. */
static size_t reduced_bytes(const struct run_status *s)
{
    struct run_status reduced = *s;
    _buf_ struct buf text = {0};

    snprintf(reduced.trouble, sizeof(reduced.trouble),
             "records cannot be written: %s", strerror(ENOSPC));
    run_status_to_json(&reduced, &text);
    return text.len;
}

/* What fits: as much as the file has, or the blocks that it has. */
static void test_capacity(void)
{
    _cleanup_(run_status) struct run_status *s = make_bare(STATUS_RUNNING);
    size_t len = reduced_bytes(s);
    struct {
        const char *what;
        size_t size;
        long blocks;
        bool fits;
        size_t want; /* bytes of the file afterwards */
    } cases[] = {
        {"as long as the file", len, 0, true, len},
        {"a byte longer", len - 1, 0, false, 0},
        {"a byte shorter", len + 1, 0, true, len + 1},
        {"in the blocks behind the file", 1, (long)(len + 511) / 512, true, len},
        {"in one block less", 1, (long)(len - 1) / 512, false, 0},
        {"in fewer blocks than bytes", 4 * len, 1, true, 4 * len},
        {"in no file", 0, 0, false, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct stat st = {0};
        _free_ char *text = NULL;
        size_t got = 0;

        put_spare(cases[i].size);
        blocks = cases[i].blocks;
        ok(write_without_room(s) == cases[i].fits, "a status %s: %d", cases[i].what,
           cases[i].fits);
        blocks = -1;
        stat(path_of("status.json"), &st);
        is_int(st.st_size, (intmax_t)cases[i].want, "bytes that are there");
        if (cases[i].fits) {
            fs_read(path_of("status.json"), 1 << 20, &text, &got, NULL);
            ok(got && text[got - 1] == '\n', "which end with a newline");
        }
    }
    status_file_unreserve(base);
}

/* There each is spent. */
static void test_no_exchange(void)
{
    _cleanup_(run_status) struct run_status *s = make_bare(STATUS_RUNNING);

    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    has_no_exchange = true;
    ok(write_without_room(s), "where files cannot change places");
    ok(!inode_of(".status.spare-0") && inode_of(".status.spare-1"), "one is spent");
    ok(write_without_room(s), "and the other one");
    ok(!write_without_room(s), "and then none is left");
    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    mkdir(path_of("status.json"), 0700);
    no_room = ENOSPC;
    is_int(status_file_write(base, s, &(bool){false}, NULL), -ENOSPC,
           "what cannot be replaced");
    no_room = 0;
    ok(rmdir(path_of("status.json")) == 0, "stays");
    has_no_exchange = false;
}

/* The last word that may not outlive the node is not told as written. */
static void test_no_sync(void)
{
    _cleanup_(run_status) struct run_status *s = make_bare(STATUS_FAILED);

    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    sync_code = EIO;
    ok(!write_without_room(s), "what cannot be synced is not written");
    ok(!inode_of("status.json"), "nor takes its place");
    sync_code = 0;
    ok(write_without_room(s), "what can is");
}

static void test_reserve(void)
{
    char dir[PATH_MAX];
    ino_t before, other;
    struct stat st = {0};
    bool is_reduced = true;
    _cleanup_(run_status) struct run_status *s = make_bare(STATUS_RUNNING);
    _free_ char *text = NULL;

    put_spare(STATUS_SPARE_BYTES - 1);
    other = inode_of(".status.spare-0");
    is_int(status_file_reserve(base, NULL), 0, "room is kept");
    is_int(stat(path_of(".status.spare-0"), &st), 0, "in a file");
    is_int(st.st_size, STATUS_SPARE_BYTES, "of its size");
    ok(st.st_ino != other, "in place of one that had not");
    fs_read(path_of(".status.spare-1"), 1 << 20, &text, NULL, NULL);
    ok(text && strspn(text, " ") == STATUS_SPARE_BYTES, "blanks");
    ok(!inode_of(".status.spare-2"), "and in one more");
    before = inode_of(".status.spare-1");
    other = inode_of(".status.spare-0");
    is_int(status_file_reserve(base, NULL), 0, "once");
    ok(inode_of(".status.spare-1") == before && inode_of(".status.spare-0") == other,
       "where they are there they stay");
    status_file_unreserve(base);
    ok(!inode_of(".status.spare-0") && !inode_of(".status.spare-1"), "both go");
    memset(dir, 'x', sizeof(dir));
    dir[PATH_MAX - 1] = '\0';
    is_int(status_file_reserve(dir, NULL), -ENAMETOOLONG, "too long a path");
    is_int(status_file_write(dir, s, &is_reduced, NULL), -ENAMETOOLONG, "for any file");
    ok(!is_reduced, "nothing is written");
    status_file_unreserve(dir);
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
    test_capacity();
    test_no_exchange();
    test_no_sync();
    test_reserve();
    fs_remove_tree(base, NULL);
    return tap_done();
}
