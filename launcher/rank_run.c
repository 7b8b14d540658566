/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_run.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/seqsock.h"
#include "launcher/exec.h"
#include "launcher/outfit.h"
#include "launcher/rank_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct running {
    const struct rank_program *program;
    int seat;    /* -1 once it is gone */
    int parent;  /* likewise: a pidfd; -1 also where the kernel has none */
    int signals; /* SIGCHLD, and what says that the launch ends this rank */
    pid_t starter; /* the daemon */
    int status;  /* what muster-exec reports */
    struct buf report;
    pid_t pid;
    int wait_status;
    bool is_over;
    bool told_start;
    bool by_launch; /* the daemon has told it to end, or is gone */
};

static int take_signals(struct running *r, struct error *e)
{
    sigset_t all, ours;

    /* Inherited as ignored, it would make the kernel reap for us. */
    signal(SIGCHLD, SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    sigaddset(&ours, SIGTERM);
    r->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals < 0 ? error_set(e, errno, "take signals") : 0;
}

/* Who has started this process, the daemon of its MPI world most often: Open MPI
 * leaves ranks beside a daemon that is killed alive. No parent-death signal: that
 * comes with the end of the thread that forked, and some daemons fork in threads
 * that end. */
static void watch_parent(struct running *r)
{
    r->starter = getppid();
    r->parent = r->starter > 1
                    ? (int)syscall(SYS_pidfd_open, r->starter, 0) : -1;
}

/* --- the start --- */

static int spawn(struct running *r, int status_fd, char *const *argv,
                 const char *helper, struct error *e)
{
    const struct rank_program *p = r->program;
    posix_spawn_file_actions_t actions;
    int rc;

    posix_spawn_file_actions_init(&actions);
    if (p->out >= 0) {
        posix_spawn_file_actions_adddup2(&actions, p->out, 1);
    }
    if (p->err >= 0) {
        posix_spawn_file_actions_adddup2(&actions, p->err, 2);
    }
    /* Onto itself: so it stays open there. */
    posix_spawn_file_actions_adddup2(&actions, status_fd, status_fd);
    rc = posix_spawn(&r->pid, helper, &actions, NULL, argv,
                     p->offer->env.items);
    posix_spawn_file_actions_destroy(&actions);
    return rc ? error_set(e, rc, "run %s", helper) : 0;
}

static int start(struct running *r, struct error *e)
{
    const struct rank_program *p = r->program;
    static const int stdin_fd = 0;
    struct exec_options o = {
        .cwd = p->offer->cwd[0] ? p->offer->cwd : NULL,
        .umask = p->offer->umask[0] ? p->offer->umask : NULL,
        .oom_score_adj = p->seat >= 0 ? OUTFIT_OOM_SCORE_ADJ : 0,
        .same_session = true,
        .gate_fd = -1,
        .keep = &stdin_fd,
        .n_keep = p->keeps_stdin,
    };
    _strlist_ struct strlist argv = {0};
    _close_ int near = -1, far = -1;
    char helper[PATH_MAX];
    int ends[2];
    int rc = fs_helper("muster-exec", helper, sizeof(helper), e);

    if (rc < 0) {
        return rc;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    near = ends[0];
    far = ends[1];
    o.status_fd = far;
    exec_argv(&argv, &o, p->offer->argv.items);
    if (argv.failed) {
        return error_set(e, ENOMEM, "start %s", p->offer->argv.items[0]);
    }
    rc = spawn(r, far, argv.items, helper, e);
    r->status = rc < 0 ? -1 : take_fd(&near);
    return rc;
}

/* --- while it runs --- */

static void tell(const struct running *r, enum seat_type type,
                 const struct buf *b)
{
    if (r->seat >= 0) {
        seqsock_send(r->seat, (uint16_t)type, b, NULL, 0);
    }
}

static void read_status(struct running *r)
{
    char *to = buf_reserve(&r->report, EXEC_RECORD_MAX);
    ssize_t n = to ? read(r->status, to, EXEC_RECORD_MAX) : -1;

    if (n > 0) {
        r->report.len += (size_t)n;
        return;
    }
    close_fd(&r->status);
    if (n == 0 && r->report.len == 0 && !r->told_start) {
        _buf_ struct buf b = {0};

        r->told_start = true;
        seat_number_encode((uint32_t)r->pid, &b);
        tell(r, SEAT_STARTED, &b);
    }
}

/* SIGTERM goes to the group of this process, to the program that is. */
static void read_signals(struct running *r)
{
    struct signalfd_siginfo info;

    while (read(r->signals, &info, sizeof(info)) == sizeof(info)) {
        r->by_launch = r->by_launch ||
                       (info.ssi_signo == SIGTERM &&
                        (pid_t)info.ssi_pid == r->starter);
    }
}

/* The signal that ended the program came to the two at once: it is there to be
 * read once the program is known to have ended. */
static void reap(struct running *r)
{
    read_signals(r);
    if (waitpid(r->pid, &r->wait_status, WNOHANG) == r->pid) {
        r->is_over = true;
        read_signals(r);
    }
}

/* To the program's group, which is that of this process: where it is a group of
 * our own. */
static void pass_on(const struct running *r, int sig)
{
    bool is_group = getpgrp() == getpid() && sig != SIGKILL;

    if (sig > 0 && sig < NSIG) {
        kill(is_group ? -getpid() : r->pid, sig);
    }
}

/* Without the stand-in nobody wants the program any more. */
static void serve_seat(struct running *r)
{
    _seqsock_msg_ struct seqsock_msg m;
    uint32_t sig;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(r->seat, &m);
    if (rc == 1 && m.type == SEAT_SIGNAL &&
        seat_number_decode(&m.data, &sig) == 0) {
        pass_on(r, (int)sig);
    } else if (rc <= 0 && rc != -EAGAIN) {
        close_fd(&r->seat);
        pass_on(r, SIGKILL);
    }
}

static void wait_for_end(struct running *r)
{
    while (!r->is_over) {
        struct pollfd fds[] = {{.fd = r->signals, .events = POLLIN},
                               {.fd = r->status, .events = POLLIN},
                               {.fd = r->seat, .events = POLLIN},
                               {.fd = r->parent, .events = POLLIN}};

        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR) {
            pass_on(r, SIGKILL);
        }
        if (fds[1].revents) {
            read_status(r);
        }
        if (fds[2].revents) {
            serve_seat(r);
        }
        if (fds[3].revents) {
            close_fd(&r->parent);
            r->by_launch = true;
            pass_on(r, SIGKILL);
        }
        if (fds[0].revents) {
            reap(r);
        }
    }
    while (r->status >= 0) {
        read_status(r);
    }
}

/* --- the end --- */

static bool find_report(struct running *r, struct seat_end *end)
{
    struct exec_report report;

    if (exec_report_decode(&r->report, &report) != 1) {
        return false;
    }
    end->code = (uint32_t)exec_report_status(&report);
    exec_report_text(&report, r->program->offer->argv.items[0], end->text,
                     sizeof(end->text));
    return true;
}

static void tell_end(const struct running *r, const struct seat_end *end,
                     bool failed)
{
    _buf_ struct buf b = {0};

    seat_end_encode(end, &b);
    tell(r, failed ? SEAT_FAILED : SEAT_ENDED, &b);
}

int rank_run(const struct rank_program *p, struct seat_end *ret_end,
             bool *ret_failed, struct error *e)
{
    struct running r = {.program = p, .seat = p->seat, .signals = -1,
                        .parent = -1, .status = -1, .pid = -1};
    struct seat_end end = {0};
    int rc = take_signals(&r, e);

    watch_parent(&r);
    rc = rc < 0 ? rc : start(&r, e);
    if (rc < 0) {
        return rc;
    }
    wait_for_end(&r);
    if (WIFSIGNALED(r.wait_status)) {
        end.signal = (uint32_t)WTERMSIG(r.wait_status);
    } else {
        end.code = (uint32_t)WEXITSTATUS(r.wait_status);
    }
    end.by_launch = r.by_launch;
    *ret_failed = find_report(&r, &end);
    tell_end(&r, &end, *ret_failed);
    rank_sweep(p->offer->mark, end.code || end.signal ? 0 : RANK_LINGER_MS);
    tell(&r, SEAT_SWEPT, NULL);
    *ret_end = end;
    buf_release(&r.report);
    return 0;
}

_Noreturn void rank_leave(const struct seat_end *end)
{
    struct rlimit no_core = {0, 0};
    sigset_t one;

    if (end->signal) {
        setrlimit(RLIMIT_CORE, &no_core); /* the program has left its own */
        signal((int)end->signal, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, (int)end->signal);
        raise((int)end->signal);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        _exit(128 + (int)end->signal);
    }
    _exit((int)end->code);
}
