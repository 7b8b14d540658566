/* SPDX-License-Identifier: Apache-2.0 */
/* This program has a write() of its own, which takes as much as it is told to. */
#include <config.h>

#include "launcher/logwriter.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/str.h"
#include "base/thread.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    size_t most;       /* bytes a call */
    int fails_after;   /* calls; 0: never */
    int interrupts;    /* calls that do nothing, first */
    int n_calls;
    sigset_t blocked;  /* in the thread that writes */
} how;

/* The times of a log are not what this is about. */
static bool is_times(int fd)
{
    char link[40], name[128] = "";

    snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
    return readlink(link, name, sizeof(name) - 1) > 0 &&
           str_ends(name, LOG_INDEX_SUFFIX);
}

ssize_t write(int fd, const void *data, size_t len)
{
    if (fd > 2 && !is_times(fd)) {
        pthread_sigmask(SIG_BLOCK, NULL, &how.blocked);
        how.n_calls++;
        if (how.n_calls <= how.interrupts) {
            errno = EINTR;
            return -1;
        }
        if (how.fails_after && how.n_calls > how.fails_after) {
            errno = ENOSPC;
            return -1;
        }
        len = how.most && len > how.most ? how.most : len;
    }
    return syscall(SYS_write, fd, data, len);
}

static char dir[] = "/tmp/logwriter-test-XXXXXX";
static _Atomic int n_wakes;

static void wake(void *arg)
{
    (void)arg;
    n_wakes++;
}

static struct logwriter *start(const char *root)
{
    struct logwriter *w = NULL;
    struct error e = {0};

    n_wakes = 0;
    how.n_calls = 0;
    if (logwriter_create(&(struct logwriter_config){.high_bytes = 1 << 20,
                                                    .root = root,
                                                    .wake = wake},
                         &w, &e) < 0) {
        bail_out("%s", e.text);
    }
    return w;
}

/* Until all that was queued is written or lost. */
static struct logwriter_state settle(struct logwriter *w)
{
    struct logwriter_state st = {0};

    logwriter_finish(w);
    for (int i = 0; i < 60000 && !st.finished; i++) {
        usleep(1000);
        logwriter_look(w, &st);
    }
    ok(st.finished, "the writer comes to its end");
    return st;
}

static void put(struct logwriter *w, const char *name, const char *text)
{
    char path[200];
    struct logfile *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = logwriter_open(w, path);
    logwriter_write(w, f, text, strlen(text));
    logwriter_close(w, f);
}

static void check_file(const char *name, const char *want, const char *what)
{
    char path[200];
    _free_ char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fs_read(path, 4096, &text, NULL, NULL);
    is_str(text, want, "%s", what);
}

static void test_short(void)
{
    struct logwriter *w = start(NULL);
    struct logwriter_state st;

    how.most = 3;
    how.interrupts = 2;
    put(w, "short", "abcdefghij\n");
    st = settle(w);
    check_file("short", "abcdefghij\n", "what a write left out comes next");
    is_int(how.n_calls, 2 + 4, "in as many calls");
    is_int((int)st.lost_bytes, 0, "nothing is lost");
    logwriter_release(w);
    how.interrupts = 0;

    w = start(NULL);
    how.fails_after = 2;
    put(w, "cut", "abcdefghij\n");
    st = settle(w);
    check_file("cut", "abcdef", "until a write fails");
    is_int((int)st.lost_bytes, 5, "the rest is counted");
    like(st.reason, "/cut: No space left on device", "and why");
    logwriter_release(w);
    how.most = 0;
    how.fails_after = 0;
}

/* A signal that a thread takes is one that the loop does not see. */
static void test_signals(void)
{
    struct logwriter *w = start(NULL);
    sigset_t mine;
    int n_open = 0;

    put(w, "signals", "x\n");
    settle(w);
    for (int sig = 1; sig < 32; sig++) {
        n_open += sig != SIGKILL && sig != SIGSTOP &&
                  !sigismember(&how.blocked, sig);
    }
    is_int(n_open, 0, "the thread takes no signals");
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    ok(!sigismember(&mine, SIGTERM) && !sigismember(&mine, SIGCHLD),
       "but its owner does");
    logwriter_release(w);
}

/* A child would have to close its copy, and where the filesystem hangs that hangs. */
static void test_apart(void)
{
    char path[200];
    struct logwriter *w = start(NULL);
    struct logfile *f;
    struct stat st = {0};
    _free_ char *open = NULL;

    snprintf(path, sizeof(path), "%s/apart", dir);
    f = logwriter_open(w, path);
    logwriter_write(w, f, "x\n", 2);
    for (int i = 0; i < 60000 && st.st_size != 2; i++) {
        usleep(1000);
        stat(path, &st);
    }
    is_int(st.st_size, 2, "a log is written");
    open = proc_fd_inventory();
    ok(!strstr(open, dir) == thread_can_be_apart(),
       "and no child gets it: %s", open);
    logwriter_close(w, f);
    settle(w);
    logwriter_release(w);
}

static void wait_written(const char *path)
{
    struct stat st = {0};

    for (int i = 0; i < 60000 && (stat(path, &st) < 0 || !st.st_size); i++) {
        usleep(1000);
    }
}

static void test_removed(void)
{
    char root[100], path[200];
    struct logwriter *w;
    struct logfile *f;
    struct logwriter_state st = {0};

    snprintf(root, sizeof(root), "%s/run", dir);
    snprintf(path, sizeof(path), "%s/open", root);
    w = start(root); /* which is not there: another host's, say */
    put(w, "run/1/stdout", "made\n");
    settle(w);
    logwriter_release(w);
    check_file("run/1/stdout", "made\n", "directories are made");

    w = start(root);
    f = logwriter_open(w, path);
    logwriter_write(w, f, "x\n", 2);
    wait_written(path); /* all that is made beside it is there, too */
    is_int(fs_remove_tree(root, NULL), 0, "its root goes");
    logwriter_write(w, f, "y\n", 2);
    logwriter_close(w, f);
    put(w, "run/2/stdout", "lost\n");
    put(w, "run/3/stdout", "lost\n");
    put(w, "elsewhere", "kept\n");
    st = settle(w);
    is_int(access(root, F_OK), -1, "a root that was removed stays so");
    is_int((int)st.lost_bytes, 10, "what was for it is lost");
    ok(st.failing, "for good");
    is_int(n_wakes, 2, "which is told once, and then the end");
    like(st.reason, "/run was removed: nothing more is written there", "so");
    check_file("elsewhere", "kept\n", "other files are written");
    logwriter_release(w);
}

int main(void)
{
    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    test_short();
    test_signals();
    test_apart();
    test_removed();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
