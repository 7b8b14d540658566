/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a directory that runs want: what is left of them where one call fails, what
 * goes with a run that is gone, and which process counts as one that runs.
 */
#include <config.h>

#include "base/fs.h"
#include "base/proc.h"
#include "ckpt/lease.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct odd {
    struct io io;
    struct io_ops ops;
    bool no_rename, is_stale;
    int first; /* descriptor of the first run's file */
    int gone; /* the process that has ended */
} odd;

static char path[] = "/tmp/lease_files_test.XXXXXX";
static int root = -1;

static struct io *disk(void)
{
    return io_system();
}

static int rename_odd(struct io *io, int dir, const char *from, const char *to)
{
    (void)io;
    return odd.no_rename ? -EIO : disk()->ops->rename(disk(), dir, from, to);
}

/* A file server that has it no more, for who opened it before. */
static int size_odd(struct io *io, int fd, uint64_t *ret)
{
    (void)io;
    return odd.is_stale && fd == odd.first ? -ESTALE : disk()->ops->size(disk(), fd, ret);
}

static int open_odd(struct io *io, int dir, const char *name)
{
    int fd = disk()->ops->open_file(disk(), dir, name);

    (void)io;
    odd.first = strcmp(name, ".muster-run-a") == 0 ? fd : -1;
    return fd;
}

static void begin(void)
{
    memset(&odd, 0, sizeof(odd));
    unlinkat(root, ".muster-run-a", 0);
    unlinkat(root, ".muster-run-b", 0);
    odd.ops = *disk()->ops;
    odd.ops.rename = rename_odd;
    odd.ops.size = size_odd;
    odd.ops.open_file = open_odd;
    odd.io.ops = &odd.ops;
}

static uint64_t now(void *arg)
{
    (void)arg;
    return 1000000;
}

static bool runs(void *arg, int pid, uint64_t start)
{
    (void)arg, (void)start;
    return pid != odd.gone;
}

static bool nobody_waits(void *arg, unsigned ms)
{
    (void)arg, (void)ms;
    return false;
}

static struct lease run_of(const char *id, int pid)
{
    const struct lease_world world = {.now_ms = now, .is_running = runs,
                                      .wait = nobody_waits};
    struct lease_note own = {.pid = pid, .is_alone = true};
    struct lease l;

    lease_note_put(&own, id, "m", "m");
    lease_init(&l, &own, world);
    return l;
}

static int hold(struct lease *l, struct error *e)
{
    *e = (struct error){0};
    return lease_hold(l, &odd.io, root, e);
}

static int add_name(void *arg, const char *name)
{
    char *names = arg;
    size_t n = strlen(names);

    snprintf(names + n, 512 - n, "%s ", name);
    return 0;
}

static const char *names(void)
{
    static char all[512];

    all[0] = '\0';
    disk()->ops->list(disk(), root, add_name, all);
    return all;
}

static void test_no_rename(void)
{
    struct lease a = run_of("a", 1);
    struct error e;

    begin();
    odd.no_rename = true;
    is_int(hold(&a, &e), -EIO, "a file that cannot be put there: %s", e.text);
    is_str(names(), "", "leaves nothing");
    odd.no_rename = false;
    is_int(hold(&a, &e), 0, "the next time it can");
}

/* Killed while it wrote it anew. */
static void test_gone(void)
{
    struct lease a = run_of("a", 1), b = run_of("b", 2);
    struct error e;
    int fd;

    begin();
    is_int(hold(&a, &e), 0, "a run has it");
    fd = disk()->ops->create(disk(), root, ".muster-run-a.new");
    disk()->ops->close(disk(), fd);
    is_int(hold(&b, &e), -EBUSY, "another one does not get it");
    odd.gone = 1;
    is_int(hold(&b, &e), 0, "but when the first one is gone: %s", e.text);
    is_str(names(), ".muster-run-b ", "with all that it had begun to write");
}

static void test_stale(void)
{
    struct lease a = run_of("a", 1), b = run_of("b", 2);
    struct error e;

    begin();
    is_int(hold(&a, &e), 0, "a run has it");
    odd.is_stale = true;
    is_int(hold(&b, &e), 0, "its file goes while it is read: it has just ended (%s)", e.text);
}

/* By the kernel: one that has ended, and that nobody has waited for, runs no more. */
static void test_running(void)
{
    struct lease_world w = lease_world(NULL);
    struct proc own, child;
    int pid = fork();

    if (pid == 0) {
        pause();
        _exit(0);
    }
    ok(proc_read(getpid(), &own) == 0 && w.is_running(w.arg, getpid(), own.start), "this one");
    ok(!w.is_running(w.arg, getpid(), own.start + 1), "but not one that had its number before");
    ok(proc_read(pid, &child) == 0 && w.is_running(w.arg, pid, child.start), "a child");
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
    ok(!w.is_running(w.arg, pid, child.start), "one that has ended does not");
    waitpid(pid, NULL, 0);
    ok(!w.is_running(w.arg, pid, child.start), "nor one of which nothing is left");
}

int main(void)
{
    root = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", path);
    }
    test_no_rename();
    test_gone();
    test_stale();
    test_running();
    close(root);
    fs_remove_tree(path, NULL);
    return tap_done();
}
