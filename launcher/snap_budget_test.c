/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory snapshots may take: the least of what shared memory, the machine and
 * the cgroup leave, with the reason; and the directories of runs. What the kernel says
 * is made up, by --wrap.
 */
#include <config.h>

#include "launcher/snap_budget.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)

/* What the kernel says; NULL: there is no such file. */
static struct {
    uint64_t free, block; /* of /dev/shm; block 0: nothing is there */
    const char *meminfo, *cgroup, *max, *current, *top_max, *top_current;
} kernel;

int __real_fs_read(const char *path, size_t max, char **ret, size_t *ret_len,
                   struct error *e);
int __wrap_fs_read(const char *path, size_t max, char **ret, size_t *ret_len,
                   struct error *e);
int __wrap_statvfs(const char *path, struct statvfs *st);

int __wrap_fs_read(const char *path, size_t max, char **ret, size_t *ret_len,
                   struct error *e)
{
    const struct {
        const char *path, *text;
    } files[] = {
        {"/proc/meminfo", kernel.meminfo},
        {"/proc/self/cgroup", kernel.cgroup},
        {"/sys/fs/cgroup/a/b/memory.max", kernel.max},
        {"/sys/fs/cgroup/a/b/memory.current", kernel.current},
        {"/sys/fs/cgroup/memory.max", kernel.top_max},
        {"/sys/fs/cgroup/memory.current", kernel.top_current},
    };

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (strcmp(path, files[i].path) == 0) {
            *ret = files[i].text ? strdup(files[i].text) : NULL;
            return *ret ? 0 : error_set(e, ENOENT, "open %s", path);
        }
    }
    return __real_fs_read(path, max, ret, ret_len, e);
}

int __wrap_statvfs(const char *path, struct statvfs *st)
{
    if (!kernel.block || strcmp(path, "/dev/shm") != 0) {
        errno = ENOENT;
        return -1;
    }
    *st = (struct statvfs){.f_bavail = kernel.free, .f_frsize = kernel.block,
                           .f_bsize = 1 << 20, .f_bfree = UINT64_MAX / 1024};
    return 0;
}

static void is_budget(uint64_t bytes, const char *why, const char *what)
{
    struct snap_budget b;

    snap_budget_find(0, &b);
    ok(b.bytes == bytes, "%s: %llu bytes, expected %llu", what,
       (unsigned long long)b.bytes, (unsigned long long)bytes);
    is_str(b.why, why, "and why");
}

static void test_budget(void)
{
    static const char shm[] = "nine tenths of what is free in /dev/shm";
    static const char memory[] = "half of the memory that is free";
    static const char cgroup[] = "half of what the memory limit of the cgroup leaves";

    is_budget(UINT64_MAX, "", "nobody says anything");
    kernel.block = 4096;
    kernel.free = 10 * GIB / 4096;
    is_budget(10 * GIB / 10 * 9, shm, "shared memory");
    kernel.meminfo = "MemTotal:  9999999 kB\nMemFree: 1 kB\n"
                     "MemAvailable:   8388608 kB\nBuffers: 1 kB\n";
    is_budget(4 * GIB, memory, "less in the machine");
    kernel.meminfo = "MemTotal:  9999999 kB\nMemFree: 1 kB\n";
    is_budget(10 * GIB / 10 * 9, shm, "a kernel that does not say what is available");
    kernel.cgroup = "12:memory:/x\n0::/a/b\n";
    kernel.max = "6442450944\n";
    kernel.current = "2147483648\n";
    kernel.top_max = "4096\n";
    kernel.top_current = "0\n";
    is_budget(2 * GIB, cgroup, "its own cgroup, not that of others");
    kernel.current = "6442450945\n";
    is_budget(0, cgroup, "one that has more than its limit");
    kernel.max = "max\n";
    is_budget(2048, cgroup, "one without a limit: that of the container");
    kernel.top_max = "max\n";
    is_budget(10 * GIB / 10 * 9, shm, "that has none, either");
    kernel.top_max = "-4096\n";
    is_budget(10 * GIB / 10 * 9, shm, "or no number");
    kernel.top_max = "4096\n";
    kernel.top_current = NULL;
    is_budget(10 * GIB / 10 * 9, shm, "or nobody knows what is taken");
    kernel.top_current = "-1\n";
    is_budget(10 * GIB / 10 * 9, shm, "or what is none");
    kernel.top_current = NULL;
    kernel.cgroup = "12:memory:/a/b\n";
    kernel.max = "4096\n";
    kernel.current = "0\n";
    is_budget(10 * GIB / 10 * 9, shm, "a cgroup of the first version has no such files");
    kernel.top_current = "0\n";
    is_budget(2048, cgroup, "but the container may");
}

/* What snapshots have is free for them, in each sum. */
static void test_own(void)
{
    struct snap_budget b;

    memset(&kernel, 0, sizeof(kernel));
    kernel.block = 4096;
    kernel.free = 6 * GIB / 4096;
    snap_budget_find(4 * GIB, &b);
    ok(b.bytes == 10 * GIB / 10 * 9, "of shared memory");
    kernel.meminfo = "MemAvailable:   8388608 kB\n";
    snap_budget_find(4 * GIB, &b);
    ok(b.bytes == 6 * GIB, "of the machine's");
    kernel.cgroup = "0::/a/b\n";
    kernel.max = kernel.current = "6442450944\n";
    snap_budget_find(4 * GIB, &b);
    ok(b.bytes == 2 * GIB, "of the cgroup's");
}

/* --- directories --- */

struct seen {
    const char *id;
    int n, n_empty;
};

static void see(void *arg, const char *run_id)
{
    struct seen *s = arg;

    s->n += strcmp(run_id, s->id) == 0;
    s->n_empty += run_id[0] == '\0';
}

static void make_dir(unsigned uid, const char *id, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s%s", uid, id, name);
    if (mkdir(path, 0700) < 0) {
        bail_out("make %s", path);
    }
}

static void test_dirs(void)
{
    unsigned me = (unsigned)geteuid();
    char id[64], path[PATH_MAX], nameless[PATH_MAX], small[16];
    struct seen s = {.id = id};

    snprintf(id, sizeof(id), "budget-test-%ld", (long)getpid());
    ok(snap_dir(id, small, sizeof(small), NULL) < 0, "no room for the path");
    is_int(snap_dir(id, path, sizeof(path), NULL), 0, "with it");
    is_int(snap_dir_remove(id, NULL), 0, "nothing is there: nothing to remove");
    make_dir(me, id, "");
    make_dir(me, id, "/x");
    make_dir(me + 1, id, "");
    make_dir(me, "", "");
    snap_dir_each(see, &s);
    is_int(s.n, 1, "one is there, and that of somebody else");
    is_int(s.n_empty, 0, "none without an id");
    snprintf(nameless, sizeof(nameless), "/dev/shm/muster-%u-", me);
    ok(rmdir(nameless) == 0, "which is somebody's who made it by hand");
    is_int(snap_dir_remove(id, NULL), 0, "removed");
    ok(access(path, F_OK) < 0, "with all that is in it");
    s.n = 0;
    snap_dir_each(see, &s);
    is_int(s.n, 0, "it is gone");
    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s", me + 1, id);
    ok(rmdir(path) == 0, "that of somebody else is there");
}

static bool has(const char *id, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s/%s", (unsigned)geteuid(), id,
             name);
    return access(path, F_OK) == 0;
}

static void test_agent(void)
{
    static const char *const names[] = {"snap-1-0-0", "copy-1-3-1", "snap-11-0-0",
                                        "snap-0-1-0", "snap-1-0"};
    static const char page[4096];
    unsigned me = (unsigned)geteuid();
    char id[64], path[PATH_MAX];

    snprintf(id, sizeof(id), "budget-agent-%ld", (long)getpid());
    snap_dir_remove_agent(id, 1); /* there is nothing */
    make_dir(me, id, "");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int fd;

        snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s/%s", me, id, names[i]);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0) {
            bail_out("make %s", path);
        }
        ok(ftruncate(fd, 1 << 20) == 0 &&
               pwrite(fd, page, sizeof(page), 0) == sizeof(page), "%s", names[i]);
        close(fd);
    }
    is_int((int)snap_dir_agent_bytes(id, 1), 2 * sizeof(page), "what they take, of one");
    ok(snap_dir_has_agent(id, 11) && !snap_dir_has_agent(id, 3), "whose they are");
    snap_dir_remove_agent(id, 1);
    ok(!snap_dir_has_agent(id, 1), "one has none any more");
    ok(!has(id, names[0]) && !has(id, names[1]), "what one agent held is gone");
    ok(has(id, names[2]) && has(id, names[3]), "that of others is not");
    ok(has(id, names[4]), "nor what is no snapshot");
    is_int(snap_dir_remove(id, NULL), 0, "which is left goes with the run");
    make_dir(me, id, "");
    snap_dir_remove_agent(id, 1);
    ok(!has(id, ""), "an empty directory goes");
}

/* Anybody may make something of that name: nothing is removed, or counted, elsewhere. */
static void test_not_ours(void)
{
    static const char page[4096];
    unsigned me = (unsigned)geteuid();
    char id[64], other[64], path[PATH_MAX], link[PATH_MAX];
    int fd, n_open = fds_n_open();

    snprintf(id, sizeof(id), "budget-ours-%ld", (long)getpid());
    snprintf(other, sizeof(other), "budget-link-%ld", (long)getpid());
    make_dir(me, id, "");
    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s", me, id);
    snprintf(link, sizeof(link), "/dev/shm/muster-%u-%s", me, other);
    if (symlink(path, link) < 0) {
        bail_out("%s", link);
    }
    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s/snap-1-0-0", me, id);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page)) {
        bail_out("%s", path);
    }
    close_fd(&fd);
    ok(!snap_dir_has_agent(other, 1) && snap_dir_agent_bytes(other, 1) == 0,
       "a link to a directory has nothing");
    snap_dir_remove_agent(other, 1);
    ok(has(id, "snap-1-0-0"), "and nothing goes by it");
    unlink(link);
    snprintf(link, sizeof(link), "/dev/shm/muster-%u-%s/snap-1-1-0", me, id);
    if (symlink(path, link) < 0) {
        bail_out("%s", link);
    }
    is_int((intmax_t)snap_dir_agent_bytes(id, 1), sizeof(page), "nor does a link to a file");
    snprintf(path, sizeof(path), "/dev/shm/muster-%u-%s", me, id);
    if (me != 0) {
        skip("only root can give a directory away");
    } else if (chown(path, 12345, (gid_t)-1) == 0) {
        ok(!snap_dir_has_agent(id, 1), "that of another user has nothing");
        snap_dir_remove_agent(id, 1);
        ok(has(id, "snap-1-0-0"), "and keeps it");
    }
    fs_remove_tree(path, NULL);
    is_int(fds_n_open(), n_open, "nothing stays open");
}

int main(void)
{
    test_budget();
    test_own();
    if (access("/dev/shm", W_OK) == 0) {
        test_dirs();
        test_agent();
        test_not_ours();
    }
    return tap_done();
}
