/* SPDX-License-Identifier: Apache-2.0 */
/* The other buffer of a rank is mapped as soon as it is there, and not before. */
#include <config.h>

#include "ckpt/save_ahead.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 12 << 20 };

static char dir_path[PATH_MAX];
static int dir = -1;

static struct snap *make(const char *name)
{
    const struct snap_want want = {.room = ROOM};
    struct snap *s = NULL;

    if (snap_create(dir, name, &want, &s, NULL) < 0) {
        bail_out("no snapshot");
    }
    return s;
}

static ino_t file_of(const struct snap *s)
{
    struct stat st;

    return fstat(s->fd, &st) == 0 ? st.st_ino : 0;
}

/* Whether a process has mapped that file, which /proc/self/maps names. */
static bool is_mapped(const char *name)
{
    _free_ char *maps = NULL;
    char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/%s\n", dir_path, name);
    return fs_read("/proc/self/maps", 1 << 20, &maps, NULL, NULL) == 0 &&
           strstr(maps, path);
}

static bool is_mapped_twice(const char *name)
{
    _free_ char *maps = NULL;
    char path[PATH_MAX + 32];
    const char *once;

    snprintf(path, sizeof(path), "%s/%s\n", dir_path, name);
    if (fs_read("/proc/self/maps", 1 << 20, &maps, NULL, NULL) < 0) {
        return false;
    }
    once = strstr(maps, path);
    return once && strstr(once + 1, path);
}

static struct save_map end_when_mapped(struct save_ahead *a, const char *name,
                                       ino_t file)
{
    uint64_t end = clock_mono_ms() + 30000;
    struct save_map m;

    while (!is_mapped(name) && clock_mono_ms() < end) {
        poll(NULL, 0, 1);
    }
    poll(NULL, 0, 100);
    save_ahead_end(a, file, &m);
    return m;
}

static void test_there(const char *first, const char *second)
{
    _cleanup_(snap) struct snap *a = make(first), *b = make(second);
    struct save_ahead *ahead = save_ahead_create(a->fd);
    struct save_map m;
    ino_t file = file_of(b);

    munmap(b->map, SNAP_PAGE_BYTES + b->room);
    b->map = NULL;
    save_ahead_start(ahead, &(struct save_map){0});
    m = end_when_mapped(ahead, second, file);
    ok(m.at && m.file == file && m.len == ROOM + SNAP_PAGE_BYTES,
       "%s is mapped beside %s", second, first);
    memset(m.at + SNAP_PAGE_BYTES, 7, ROOM);
    munmap(m.at, m.len);
}

static void test_later(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-1-0"), *b = NULL;
    struct save_ahead *ahead = save_ahead_create(a->fd);
    int fd = openat(dir, "snap-0-1-1", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct save_map m;

    save_ahead_start(ahead, &(struct save_map){0});
    ok(ftruncate(fd, ROOM + SNAP_PAGE_BYTES) == 0, "a file without its memory");
    poll(NULL, 0, 100);
    ok(!is_mapped("snap-0-1-1"), "is not mapped");
    close(fd);
    b = make("snap-0-1-1");
    munmap(b->map, SNAP_PAGE_BYTES + b->room);
    b->map = NULL;
    m = end_when_mapped(ahead, "snap-0-1-1", file_of(b));
    ok(m.at, "it is when that is there");
    munmap(m.at, m.len);
}

static void test_other(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-2-0"), *b = make("snap-0-2-1");
    struct save_ahead *ahead = save_ahead_create(a->fd);
    struct save_map m;

    munmap(b->map, SNAP_PAGE_BYTES + b->room);
    b->map = NULL;
    save_ahead_start(ahead, &(struct save_map){0});
    m = end_when_mapped(ahead, "snap-0-2-1", file_of(a));
    ok(!m.at && !is_mapped("snap-0-2-1"), "where another one is given nothing stays");
}

/* In the end, however busy the machine is. */
static bool touches_first(const struct snap *a, const struct save_map *first, const char *how)
{
    bool is_touched = false;

    for (int ms = 50; !is_touched && ms <= 12800; ms *= 2) {
        struct save_ahead *ahead = save_ahead_create(a->fd);
        struct save_map m;

        save_ahead_start(ahead, first);
        poll(NULL, 0, ms);
        is_touched = save_ahead_end(ahead, 0, &m);
        if (!is_touched) {
            diag("not in %d ms, %s", ms, how);
        }
    }
    return is_touched;
}

/* What the first save has filled without its mapping is touched, too. */
static void test_first(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-5-0"), *b = make("snap-0-5-1");
    const struct save_map first = {.file = file_of(a), .at = a->map,
                                   .len = SNAP_PAGE_BYTES + ROOM};
    struct save_ahead *ahead = save_ahead_create(a->fd);
    uint64_t end = clock_mono_ms() + 30000;
    struct save_map m;

    save_ahead_start(ahead, &first);
    while (!is_mapped_twice("snap-0-5-1") && clock_mono_ms() < end) {
        poll(NULL, 0, 1);
    }
    ok(!save_ahead_end(ahead, file_of(b), &m) || m.is_touched, "the second one has its turn first");
    munmap(m.at, m.len);
    ok(touches_first(a, &first, "with the second one"), "the first one is touched, too");
    snap_cut(b);
    unlinkat(dir, "snap-0-5-1", 0);
    ok(touches_first(a, &first, "without it"), "also where that does not come");
    ahead = save_ahead_create(a->fd);
    ok(!save_ahead_end(ahead, file_of(b), &m), "not where it was not begun");
}

/* The agent needs the memory for others, while it is mapped. */
static void test_cut(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-3-0"), *b = make("snap-0-3-1");
    struct save_ahead *ahead = save_ahead_create(a->fd);
    struct save_map m;

    save_ahead_start(ahead, &(struct save_map){0});
    snap_cut(b);
    poll(NULL, 0, 50);
    save_ahead_end(ahead, file_of(a), &m);
    ok(!m.at, "nobody falls over memory that was cut");
}

static void test_never(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-4-0"), *odd = make("odd");
    struct save_ahead *ahead = save_ahead_create(a->fd);
    uint64_t begin = clock_mono_ms();
    struct save_map m;

    ok(!save_ahead_create(odd->fd), "nothing beside a file of another name");
    save_ahead_start(ahead, &(struct save_map){0});
    poll(NULL, 0, 700); /* it looks less often by then */
    save_ahead_end(ahead, file_of(a), &m);
    ok(!m.at && clock_mono_ms() - begin < 5000, "what does not come is not waited for");
    save_ahead_end(save_ahead_create(a->fd), file_of(a), &m);
    ok(!m.at, "nor if it was not begun");
    save_ahead_end(NULL, 0, &m);
}

static void test_fork(void)
{
    _cleanup_(snap) struct snap *a = make("snap-0-5-0");
    struct save_ahead *ahead = save_ahead_create(a->fd);
    struct save_map m;
    int status = -1;
    pid_t child;

    save_ahead_start(ahead, &(struct save_map){0});
    child = fork();
    if (child == 0) {
        alarm(20);
        save_ahead_end(ahead, 0, &m);
        snap_destroy(a); /* nobody else does where cleanups do not run */
        _exit(m.at ? 1 : 0);
    }
    waitpid(child, &status, 0);
    is_int(status, 0, "a child has no thread to wait for");
    save_ahead_end(ahead, 0, &m);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir_path, sizeof(dir_path), "%s/save_ahead_test.XXXXXX",
             tmp ? tmp : "/tmp");
    dir = mkdtemp(dir_path) ? open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : -1;
    if (dir < 0) {
        bail_out("no directory %s", dir_path);
    }
    test_there("snap-0-0-0", "snap-0-0-1");
    test_there("snap-0-0-1", "snap-0-0-0");
    test_later();
    test_other();
    test_first();
    test_cut();
    test_never();
    test_fork();
    close(dir);
    fs_remove_tree(dir_path, NULL);
    return tap_done();
}
