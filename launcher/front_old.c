/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mpirun of the front end before, a child of nobody we know. It ends with its
 * world, but for Open MPI 4.1 when it has lost a daemon, or one that hangs. On this
 * host it is signalled. On another one `muster end` does it, over srun or ssh, once:
 * when the world is lost, else at the end of the run. What is known of it says
 * which process is meant: pid, start time and machine.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/remote.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    KILL_MS = 3000,   /* between SIGTERM and SIGKILL */
    REACH_MS = 30000, /* for another host */
    BY_ITSELF_S = 5,  /* there, at the end of a run */
};

/* --- where it is --- */

/* True for the short and the long name of one host, too. */
static bool is_host(const char *a, const char *b)
{
    size_t n = strcspn(a, "."), m = strcspn(b, ".");

    return n == m && strncmp(a, b, n) == 0 &&
           (!a[n] || !b[m] || strcmp(a, b) == 0);
}

/* As its user calls it, if it is one of the run's; else NULL. */
static const char *name_in_run(const struct front_record *was)
{
    for (size_t i = 0; i < was->hosts.n; i++) {
        if (is_host(was->hosts.items[i].name, was->host)) {
            return was->hosts.items[i].name;
        }
    }
    return NULL;
}

void front_old_find(struct front *f)
{
    const struct front_record *was = f->config->attach->was;
    char host[HOSTS_NAME_BYTES] = "";
    struct proc p;

    gethostname(host, sizeof(host) - 1);
    if (was->mpirun_pid > 0 && strcmp(host, was->host) != 0) {
        f->old_is_elsewhere = was->machine[0] != '\0';
    } else if (front_record_find(was, &p)) {
        f->old_mpirun = p;
    }
}

/* --- here --- */

static bool lives_here(const struct front *f)
{
    struct proc p;

    return f->old_mpirun.pid && proc_read(f->old_mpirun.pid, &p) == 0 &&
           p.start == f->old_mpirun.start && p.state != 'Z' && p.state != 'X';
}

/* --- elsewhere --- */

static void say_left(struct front *f, const char *why)
{
    const struct front_record *was = f->config->attach->was;

    screen_note(f->screen, "the mpirun that the front end before started may be "
                "left, as process %lld on %s: %s", (long long)was->mpirun_pid,
                was->host, why);
}

static void on_ender_exit(void *arg, const struct child_exit *how)
{
    struct front *f = arg;
    char why[PATH_MAX + 64];

    f->old_ender = -1;
    if (how->code != 0) {
        snprintf(why, sizeof(why), "status %d of the way there, see %s",
                 child_shell_status(how), f->log_path);
        say_left(f, why);
    }
    front_finish_if_done(f);
}

static int add_command(const struct front_record *was, unsigned wait_s,
                       struct strlist *to, struct error *e)
{
    char muster[PATH_MAX];
    int rc = fs_program(muster, sizeof(muster), e);

    strlist_add(to, muster);
    strlist_add(to, "end");
    strlist_addf(to, "--machine=%s", was->machine);
    strlist_addf(to, "--start=%llu", (unsigned long long)was->mpirun_start);
    strlist_addf(to, "--wait=%u", wait_s);
    strlist_addf(to, "%lld", (long long)was->mpirun_pid);
    return rc;
}

static int spawn(struct front *f, unsigned wait_s, struct error *e)
{
    const struct front_record *was = f->config->attach->was;
    const char *name = name_in_run(was), *path_env = getenv("PATH");
    char srun[PATH_MAX], path[PATH_MAX];
    bool has_srun = name && fs_which("srun", path_env, srun, sizeof(srun)) == 0;
    struct remote there = {.host = name ? name : was->host, .was = was,
                           .srun = has_srun ? srun : NULL,
                           .job_name = "muster-end"};
    _strlist_ struct strlist command = {0}, argv = {0}, env = {0};
    _close_ int log = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND |
                           O_CLOEXEC, 0600);
    struct child_spec spec = {.path = path, .stdio = {-1, log, log},
                              .new_session = true};
    int rc = add_command(was, wait_s, &command, e);

    rc = rc < 0 ? rc : remote_argv(&there, &command, &argv, e);
    slurm_step_env(environ, &env);
    if (rc < 0 || env.failed) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "go to %s", there.host);
    }
    rc = fs_which(argv.items[0], path_env, path, sizeof(path));
    if (rc < 0) {
        return error_set(e, -rc, "run %s", argv.items[0]);
    }
    spec.argv = argv.items;
    spec.envp = env.items;
    return child_spawn(f->children, &spec, on_ender_exit, f, &f->old_ender, e);
}

static void end_there(struct front *f, unsigned wait_s)
{
    struct error e = {0};

    f->old_is_elsewhere = false;
    f->old_ender_until_ms = front_now_ms(f) + REACH_MS;
    if (spawn(f, wait_s, &e) < 0) {
        f->old_ender = -1;
        say_left(f, e.text);
    }
}

static void limit_ender(struct front *f)
{
    if (f->old_ender > 0 && (front_now_ms(f) >= f->old_ender_until_ms ||
                             f->leaves_ms || f->n_signals > 2)) {
        child_kill(f->children, f->old_ender, SIGKILL);
    }
}

/* --- both --- */

void front_old_end(struct front *f, uint64_t wait_ms)
{
    f->end_old_at_ms = front_now_ms(f) + wait_ms;
}

/* What it has started is in its session, and ends with it. */
static void see_end(struct front *f)
{
    if (f->old_mpirun.pid && !lives_here(f)) {
        proc_end_session(f->old_mpirun.pid, NULL);
        f->old_mpirun.pid = 0;
    }
}

/* From the kill on: who stands still himself may be late with it. */
bool front_old_is_ending(const struct front *f)
{
    return f->end_old_at_ms && lives_here(f) &&
           (!f->old_killed_at_ms ||
            front_now_ms(f) < f->old_killed_at_ms + KILL_MS);
}

static void signal_old(struct front *f, uint64_t now)
{
    bool is_late = now >= f->end_old_at_ms + KILL_MS;

    if (is_late && !f->old_killed_at_ms) {
        f->old_killed_at_ms = now;
    }
    proc_signal(&f->old_mpirun, is_late ? SIGKILL : SIGTERM);
}

void front_old_tick(struct front *f)
{
    uint64_t now = front_now_ms(f);

    limit_ender(f);
    see_end(f);
    if (!f->end_old_at_ms || now < f->end_old_at_ms) {
        return;
    }
    if (f->old_is_elsewhere) {
        end_there(f, 0);
    } else if (lives_here(f)) {
        signal_old(f, now);
    }
}

bool front_old_is_gone(struct front *f, int sig)
{
    if (f->old_is_elsewhere) {
        end_there(f, BY_ITSELF_S);
    }
    if (sig && lives_here(f)) {
        proc_signal(&f->old_mpirun, sig);
    }
    see_end(f);
    return f->old_ender <= 0 && !lives_here(f);
}
