/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_sweep.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proc_env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 1,
    MAX_PAUSE_MS = 50,
    SWEEP_MS = 5000,
};

/* Who is silent may be anybody's. */
static void tell_silent(void *arg, const struct proc *p)
{
    char text[256];

    (void)arg;
    proc_env_word(p, text, sizeof(text));
    fprintf(stderr, "muster: %s; it is left alone\n", text);
}

static bool is_anybody(struct proc_env *env, const char *mark)
{
    _proc_list_ struct proc_list l = {0};

    return proc_env_list(env, mark, &l, NULL, NULL) == 0 && l.n > 0;
}

void rank_sweep(const char *mark, unsigned linger_ms)
{
    _proc_env_ struct proc_env env = {.on_silent = tell_silent};
    uint64_t kill_at = clock_mono_ms() + linger_ms;
    int pause_ms = FIRST_PAUSE_MS;

    for (;;) {
        uint64_t now = clock_mono_ms();
        bool is_left = now < kill_at ? is_anybody(&env, mark)
                                     : proc_sweep_env(&env, mark, NULL) > 0;

        if (!is_left || now > kill_at + SWEEP_MS) {
            return;
        }
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms * 2 < MAX_PAUSE_MS ? pause_ms * 2 : MAX_PAUSE_MS;
    }
}

/* Of the descriptors only the pipe stays, at 0. */
static void drop_all_but(int fd)
{
    int null;

    dup2(fd, 0);
    null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    if (syscall(SYS_close_range, 3U, ~0U, 0) < 0) {
        for (int i = 3; i < 65536; i++) {
            close(i);
        }
    }
}

/* All signals are blocked. */
static _Noreturn void guard(int fd, const char *mark,
                            void last(const void *arg), const void *arg)
{
    char c;

    setsid();
    drop_all_but(fd);
    while (read(0, &c, 1) < 0 && errno == EINTR) {
        /* again */
    }
    rank_sweep(mark, 0);
    if (last) {
        last(arg);
    }
    _exit(0);
}

int rank_guard(const char *mark, void last(const void *arg), const void *arg,
               struct error *e)
{
    sigset_t all, was;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &was);
    pid = fork();
    if (pid == 0) {
        close(ends[1]);
        guard(ends[0], mark, last, arg);
    }
    sigprocmask(SIG_SETMASK, &was, NULL);
    close(ends[0]);
    /* The other end stays open for the life of this process. */
    return pid < 0 ? error_set(e, errno, "start a guard") : 0;
}
