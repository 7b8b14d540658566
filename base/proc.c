/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descendants come from /proc/PID/task/TID/children where the kernel has it,
 * which costs only what the tree costs; else from a scan of all of /proc.
 */
#include <config.h>

#include "base/proc.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 16 << 20, MAX_DEPTH = 10000, MAX_WALKS = 16 };

static void close_dir(DIR **d)
{
    if (*d) {
        closedir(*d);
    }
}
#define _closedir_ __attribute__((cleanup(close_dir)))

void proc_list_release(struct proc_list *l)
{
    free(l->items);
    *l = (struct proc_list){0};
}

int proc_list_add(struct proc_list *l, const struct proc *p)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct proc *grown = reallocarray(l->items, cap, sizeof(*grown));

        if (!grown) {
            return -ENOMEM;
        }
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = *p;
    return 0;
}

/* A pid from the name of a directory in /proc, or 0. */
static pid_t pid_from(const char *name)
{
    uint64_t v;

    if (str_to_u64(name, &v) < 0 || v == 0 || v >= PROC_PID_LIMIT) {
        return 0;
    }
    return (pid_t)v;
}

/* Reads the start of a small file; the result is terminated. */
static int read_small(const char *path, char *to, size_t size)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return errno == ENOENT ? -ESRCH : -errno;
    }
    n = read(fd, to, size - 1);
    if (n < 0) {
        return -errno;
    }
    to[n] = '\0';
    return 0;
}

/* True for a process that has ended. One whose first thread alone has ended
 * shows as a zombie, too, but still has others. */
static bool has_ended(const struct proc *p, long n_threads)
{
    return p->state == 'X' || (p->state == 'Z' && n_threads <= 1);
}

/* What a stat file tells, but for the pid. Of CPU time it has that of the process, or of the
 * one thread, as `own_ticks`. */
static int parse_stat(const char *path, struct proc *p, uint64_t *own_ticks,
                      long *n_threads)
{
    char text[1024];
    char *open_paren, *close_paren;
    unsigned long long start, ticks[4];
    int rc = read_small(path, text, sizeof(text));

    if (rc < 0) {
        return rc;
    }
    /* The name may hold anything, so it ends at the last parenthesis. */
    open_paren = strchr(text, '(');
    close_paren = strrchr(text, ')');
    if (!open_paren || !close_paren || close_paren < open_paren) {
        return -ESRCH;
    }
    *p = (struct proc){0};
    *close_paren = '\0';
    str_copy(p->name, sizeof(p->name), open_paren + 1);
    if (sscanf(close_paren + 1,
               " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu"
               " %*d %*d %ld %*d %llu",
               &p->state, &p->parent, &p->group, &p->session, &ticks[0],
               &ticks[1], &ticks[2], &ticks[3], n_threads, &start) != 10) {
        return -ESRCH;
    }
    p->start = start;
    *own_ticks = ticks[0] + ticks[1];
    p->cpu_ticks = *own_ticks + ticks[2] + ticks[3];
    return 0;
}

static int read_stat(pid_t pid, struct proc *p, bool *ret_ended)
{
    char path[64];
    uint64_t own_ticks;
    long n_threads;
    int rc;

    if (pid <= 0) {
        return -ESRCH;
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    rc = parse_stat(path, p, &own_ticks, &n_threads);
    if (rc < 0) {
        return rc;
    }
    p->pid = pid;
    *ret_ended = has_ended(p, n_threads);
    return 0;
}

int proc_read(pid_t pid, struct proc *ret)
{
    struct proc p;
    bool ended;
    int rc = read_stat(pid, &p, &ended);

    if (rc == 0) {
        *ret = p;
    }
    return rc;
}

uint64_t proc_thread_ticks(pid_t pid, const char *name)
{
    char path[64];
    const struct dirent *d;
    uint64_t sum = 0;
    _closedir_ DIR *dir = NULL;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        pid_t tid = pid_from(d->d_name);
        struct proc thread;
        uint64_t ticks;
        long n_threads;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
        if (tid && parse_stat(path, &thread, &ticks, &n_threads) == 0 &&
            strcmp(thread.name, name) == 0) {
            sum += ticks;
        }
    }
    return sum;
}

bool proc_is_killed(pid_t pid)
{
    _free_ char *text = NULL;
    char path[64];
    const char *pending;

    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    if (pid <= 0 || fs_read(path, 64 << 10, &text, NULL, NULL) < 0) {
        return false;
    }
    pending = strstr(text, "\nShdPnd:");
    return pending &&
           (strtoull(pending + strlen("\nShdPnd:"), NULL, 16) &
            1ULL << (SIGKILL - 1));
}

int proc_list_add_living(struct proc_list *l, pid_t pid)
{
    struct proc p;
    bool ended;

    if (read_stat(pid, &p, &ended) < 0 || ended) {
        return 0;
    }
    return proc_list_add(l, &p);
}

/* Whom to leave out. */
struct skip {
    proc_skip_f *f;
    void *arg;
};
static const struct skip skip_none;

static bool is_skipped(const struct skip *s, pid_t pid)
{
    return s->f && s->f(s->arg, pid);
}

/* The pids in one file of blank-separated numbers. */
static int add_numbers(struct proc_list *l, char *text, const struct skip *skip)
{
    char *next = text;

    for (;;) {
        long v = strtol(text, &next, 10);
        int rc;

        if (next == text || v <= 0 || v >= PROC_PID_LIMIT) {
            return 0;
        }
        rc = is_skipped(skip, (pid_t)v) ? 0 : proc_list_add_living(l, (pid_t)v);
        if (rc < 0) {
            return rc;
        }
        text = next;
    }
}

/* The children of one process, from the lists of all its threads. */
static int add_children(struct proc_list *l, pid_t pid, const struct skip *skip)
{
    char path[96];
    _closedir_ DIR *dir = NULL;
    struct dirent *d;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        _free_ char *text = NULL;
        pid_t tid = pid_from(d->d_name);
        int rc;

        if (!tid) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid,
                 (int)tid);
        rc = fs_read(path, MAX_FILE_BYTES, &text, NULL, NULL);
        if (rc == 0) {
            rc = add_numbers(l, text, skip);
        }
        if (rc == -ENOMEM) {
            return rc;
        }
    }
    return 0;
}

static int scan_all(struct proc_list *all)
{
    _closedir_ DIR *dir = opendir("/proc");
    struct dirent *d;

    if (!dir) {
        return -errno;
    }
    while ((d = readdir(dir))) {
        pid_t pid = pid_from(d->d_name);
        int rc = pid ? proc_list_add_living(all, pid) : 0;

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int add_children_of(const struct proc_list *all, pid_t pid,
                           struct proc_list *l, const struct skip *skip)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct proc *p = &all->items[i];
        int rc = p->parent == pid && !is_skipped(skip, p->pid)
                     ? proc_list_add(l, p) : 0;

        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int collect(pid_t root, struct proc_list *l, const struct skip *skip)
{
    bool has_lists = access("/proc/thread-self/children", R_OK) == 0;
    _proc_list_ struct proc_list all = {0};
    size_t from = l->n;
    int rc = has_lists ? add_children(l, root, skip) : scan_all(&all);

    if (rc == 0 && !has_lists) {
        rc = add_children_of(&all, root, l, skip);
    }
    for (size_t i = from; rc == 0 && i < l->n; i++) {
        pid_t pid = l->items[i].pid;

        rc = has_lists ? add_children(l, pid, &skip_none)
                       : add_children_of(&all, pid, l, &skip_none);
        /* A cycle can only come from pids that were used again meanwhile. */
        if (l->n - from > PROC_PID_LIMIT) {
            return -EAGAIN;
        }
    }
    return rc;
}

int proc_descendants(pid_t root, struct proc_list *l, struct error *e)
{
    return proc_descendants_but(root, NULL, NULL, l, e);
}

int proc_descendants_but(pid_t root, proc_skip_f *f, void *arg,
                         struct proc_list *l, struct error *e)
{
    const struct skip skip = {f, arg};
    int rc = collect(root, l, &skip);

    return rc == 0 ? 0
                   : error_set(e, -rc, "list the descendants of process %d",
                               (int)root);
}

/* -EAGAIN where one of the line has ended meanwhile: its child has another parent
 * by now. One that /proc hides (hidepid) is of another user, and ends the line. */
static int walk_up(pid_t pid, pid_t root)
{
    for (int i = 0; i < MAX_DEPTH && pid > 0; i++) {
        struct proc p = {0};

        if (pid == root) {
            return 1;
        }
        if (proc_read(pid, &p) < 0) {
            bool is_hidden = kill(pid, 0) == 0 || errno == EPERM;

            return i == 0 ? -ESRCH : is_hidden ? 0 : -EAGAIN;
        }
        pid = p.parent;
    }
    return pid > 0 ? -EAGAIN : 0;
}

int proc_is_below(pid_t pid, pid_t root)
{
    for (int i = 0; i < MAX_WALKS; i++) {
        int rc = walk_up(pid, root);

        if (rc != -EAGAIN) {
            return rc;
        }
    }
    return -ESRCH;
}

int proc_list_mine(const char *root, struct proc_list *l, struct error *e)
{
    _closedir_ DIR *dir = opendir(root);
    struct dirent *d;

    if (!dir) {
        return error_set(e, errno, "open %s", root);
    }
    while ((d = readdir(dir))) {
        pid_t pid = pid_from(d->d_name);
        struct stat st;

        if (!pid || fstatat(dirfd(dir), d->d_name, &st, 0) < 0 ||
            st.st_uid != geteuid() || pid == getpid()) {
            continue;
        }
        if (proc_list_add(l, &(struct proc){.pid = pid}) < 0) {
            return error_set(e, ENOMEM, "list processes");
        }
    }
    return 0;
}

/* No number is given anew while it is that of a session. Had it been before this,
 * its owner would be there. */
int proc_end_session(pid_t leader, struct error *e)
{
    _proc_list_ struct proc_list mine = {0}, l = {0};
    int rc = leader > 1 ? proc_list_mine("/proc", &mine, e) : -EINVAL;
    int n = 0;

    for (size_t i = 0; rc == 0 && i < mine.n; i++) {
        rc = proc_list_add_living(&l, mine.items[i].pid);
    }
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        if (l.items[i].pid == leader) {
            return 0;
        }
    }
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        if (l.items[i].session == leader) {
            proc_signal(&l.items[i], SIGKILL);
            n++;
        }
    }
    return rc < 0 ? rc : n;
}

void proc_wait_name(pid_t pid, char *to, size_t size)
{
    _free_ char *text = NULL;
    char path[64];
    size_t len;

    to[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%ld/wchan", (long)pid);
    if (pid <= 0 || fs_read(path, 4096, &text, NULL, NULL) < 0) {
        return;
    }
    len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       "0123456789_.");
    text[len] = '\0';
    if (strcmp(text, "0") != 0) {
        str_copy(to, size, text);
    }
}

int proc_signal(const struct proc *p, int sig)
{
    _close_ int fd = -1;
    struct proc now = {0};

    if (p->pid <= 0) {
        return -ESRCH;
    }
    fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0 && errno != ENOSYS) {
        return -errno;
    }
    if (proc_read(p->pid, &now) < 0 || now.start != p->start) {
        return -ESRCH;
    }
    if (fd < 0) {
        return kill(p->pid, sig) < 0 ? -errno : 0;
    }
    return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0 ? -errno : 0;
}

static int compare_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

char *proc_fd_inventory(void)
{
    _closedir_ DIR *dir = opendir("/proc/self/fd");
    _buf_ struct buf b = {0};
    struct dirent *d;
    int fds[4096];
    size_t n = 0;

    while (dir && (d = readdir(dir))) {
        uint64_t fd;

        if (n < ARRAY_SIZE(fds) && str_to_u64(d->d_name, &fd) == 0 && fd > 2 &&
            (int)fd != dirfd(dir)) {
            fds[n++] = (int)fd;
        }
    }
    qsort(fds, n, sizeof(fds[0]), compare_ints);
    for (size_t i = 0; i < n; i++) {
        char path[64], to[PATH_MAX];
        ssize_t len;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
        len = readlink(path, to, sizeof(to) - 1);
        to[len < 0 ? 0 : len] = '\0';
        buf_printf(&b, "%s%d:%s", i ? " " : "", fds[i], to);
    }
    return buf_take(&b);
}
