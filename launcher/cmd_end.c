/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster end: ends one process of this user on this host, for a front end that is
 * on another one. Which process is known by machine, pid and start time: where the
 * host was started anew since, or the pid is somebody else's by now, it has ended.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/proc.h"
#include "base/str.h"
#include "launcher/options.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    TERM_MS = 3000, /* between SIGTERM and SIGKILL */
    KILL_MS = 5000, /* and then, until the kernel has done it */
    LOOK_MS = 20,
};

struct end_options {
    const char *machine;
    int64_t start, wait_s;
};

static const struct option_def table[] = {
    {"machine", "ID", "where it is, as machine_id() tells", OPTION_STR,
     offsetof(struct end_options, machine), NULL, 0},
    {"start", "TICKS", "when it was started", OPTION_INT,
     offsetof(struct end_options, start), NULL, 0},
    {"wait", "SECONDS", "for it to end by itself", OPTION_INT,
     offsetof(struct end_options, wait_s), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "end",
    .usage = "--machine=ID --start=TICKS [--wait=SECONDS] PID",
    .about = "Ends one process; run by muster attach on the host of the front "
             "end before it.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

static bool lives(const struct proc *p)
{
    struct proc now;

    return proc_read(p->pid, &now) == 0 && now.start == p->start &&
           now.state != 'Z' && now.state != 'X';
}

static bool ends_within(const struct proc *p, uint64_t ms)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000l};
    uint64_t until = clock_mono_ms() + ms;

    while (lives(p) && clock_mono_ms() < until) {
        nanosleep(&pause, NULL);
    }
    return !lives(p);
}

static int end_process(const struct proc *p, uint64_t wait_ms,
                       struct error *e)
{
    static const struct {
        int sig;
        uint64_t ms;
    } ways[] = {{SIGTERM, TERM_MS}, {SIGKILL, KILL_MS}};

    if (ends_within(p, wait_ms)) {
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        int rc = proc_signal(p, ways[i].sig);

        if (rc < 0 && rc != -ESRCH) {
            return error_set(e, -rc, "signal process %d", (int)p->pid);
        }
        if (ends_within(p, ways[i].ms)) {
            return 0;
        }
    }
    return error_text(e, ETIMEDOUT, "process %d does not end by SIGKILL",
                      (int)p->pid);
}

/* 1 for this machine, 0 where it has been started anew. */
static int find_machine(const char *want, struct error *e)
{
    char here[MACHINE_ID_BYTES];
    const char *host = strrchr(want, '/');

    machine_id(here, sizeof(here));
    if (strcmp(want, here) == 0) {
        return 1;
    }
    return host && strcmp(host, strrchr(here, '/')) == 0 &&
                   strncmp(want, here, strcspn(here, "/")) != 0
               ? 0 : error_text(e, ERR_LOST, "this is not the machine that was "
                                "meant: %s, not %.128s", here, want);
}

static int parse(const struct end_options *o, const char *pid,
                 struct proc *ret, struct error *e)
{
    int64_t v;

    if (str_to_i64(pid, &v) < 0 || v <= 1 || v >= PROC_PID_LIMIT) {
        return error_text(e, ERR_USAGE, "'%.40s' is not the pid of a process "
                          "to end", pid);
    }
    if (!o->machine || o->start <= 0 || o->wait_s < 0) {
        return error_text(e, ERR_USAGE, "expected --machine and --start, which "
                          "say which process %lld it is", (long long)v);
    }
    ret->pid = (pid_t)v;
    ret->start = (uint64_t)o->start;
    return 0;
}

int cmd_end(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct end_options set = {0};
    struct proc p = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    rc = parse(&set, args.words.items[0], &p, &e);
    rc = rc < 0 ? rc : find_machine(set.machine, &e);
    if (rc == 1) {
        rc = end_process(&p, (uint64_t)set.wait_s * 1000, &e);
    }
    return rc < 0 ? command_fail(&e) : EXIT_OK;
}
