/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster keep: the keeper of the agents of one node, the one task there of the
 * step that agents live in (launcher/agent_step.h). It starts agents when
 * muster-mpi asks, and ends when the last of them has ended, or when nobody has
 * asked for one in time: so the step never outlives the run.
 *
 * Signals to a step come from the batch system, which wants the node back or
 * tells of it: they are the run's, not the agent's own. Where the step is killed,
 * agents go with it, as they do with their node.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "comm/agent_find.h"
#include "launcher/commands.h"
#include "launcher/control.h"
#include "launcher/options.h"
#include "launcher/tidy.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    START_MS = 20000, /* for one agent to get ready */
    ASK_MS = 5000,
    MAX_AGENTS = 64,
};

struct keep {
    const char *run_id;
    int64_t wait_s;
    int lock, listener, signals;
    bool was_asked; /* there is, or was, an agent */
    bool is_told;   /* to end before that */
};

static const struct option_def table[] = {
    {"run-id", "ID", "which run", OPTION_STR, offsetof(struct keep, run_id),
     NULL, 0},
    {"wait", "SECONDS", "how long to wait to be asked for an agent",
     OPTION_INT, offsetof(struct keep, wait_s), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "keep",
    .usage = "--run-id=ID --wait=SECONDS",
    .about = "The keeper of the agents of one node in a step of Slurm's; "
             "started by muster run through srun.",
    .table = table,
};

static int take_signals(struct keep *k, struct error *e)
{
    static const int sigs[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;

    /* Whatever ends srun's terminal or its session is nothing to agents. */
    signal(SIGHUP, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        sigaddset(&set, sigs[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signals < 0 ? error_set(e, errno, "take signals") : 0;
}

/* To the run, over the socket of the agent here, as a command would. */
static void pass_on(const struct keep *k, const char *op)
{
    json_t *request = json_pack("{s:i,s:s,s:b,s:s}", "v", 1, "op", op,
                                "force", 0, "from", "Slurm");
    json_t *reply = NULL;
    struct error e = {0};

    if (control_ask(k->run_id, request, ASK_MS, &reply, &e) < 0) {
        fprintf(stderr, "muster keep: %s could not be passed on: %s\n", op,
                e.text);
    }
    json_decref(reply);
    json_decref(request);
}

static void serve_signals(struct keep *k)
{
    struct signalfd_siginfo info;

    while (read(k->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            continue;
        }
        if (k->was_asked) {
            pass_on(k, info.ssi_signo == SIGINT ? "cancel" : "preempt");
        } else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
            k->is_told = true;
        }
    }
}

/* Reaps; true while a child lives. */
static bool has_agents(void)
{
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
    } while (pid > 0);
    return pid == 0;
}

static int keep(struct keep *k)
{
    uint64_t until = clock_mono_ms() + (uint64_t)k->wait_s * 1000;

    for (;;) {
        struct pollfd fds[] = {{.fd = k->listener, .events = POLLIN},
                               {.fd = k->signals, .events = POLLIN}};
        uint64_t now = clock_mono_ms();
        struct error e = {0};

        if (k->is_told || (k->was_asked && !has_agents())) {
            return EXIT_OK;
        }
        if (!k->was_asked && now >= until) {
            fprintf(stderr, "muster keep: nobody has asked for an agent\n");
            return EXIT_NOT_GATHERED;
        }
        if (poll(fds, 2, k->was_asked ? -1 : (int)(until - now)) < 0 &&
            errno != EINTR) {
            return EXIT_FAILED;
        }
        if (fds[1].revents) {
            serve_signals(k);
        }
        if (fds[0].revents) {
            int rc = agent_keeper_serve(k->listener, k->run_id, START_MS, &e);

            if (rc < 0) {
                fprintf(stderr, "muster keep: %s\n", e.text);
            }
            k->was_asked = k->was_asked || rc > 0;
        }
    }
}

int cmd_keep(int argc, char **argv)
{
    struct keep k = {.lock = -1, .listener = -1, .signals = -1};
    _option_args_ struct option_args args = {0};
    struct error e = {0};
    int status = options_start(&options, argc, argv, &k, &args);

    if (status >= 0 || !k.run_id || k.wait_s < 0 || k.wait_s > 1000000) {
        return status >= 0 ? status : EXIT_USAGE;
    }
    if (take_signals(&k, &e) < 0) {
        return command_fail(&e);
    }
    k.listener = agent_keeper_open(k.run_id, &k.lock, &e);
    if (k.listener < 0) {
        return command_fail(&e);
    }
    if (write(1, "up\n", 3) != 3) {
        fprintf(stderr, "muster keep: nobody waits for this keeper\n");
    }
    status = keep(&k);
    for (unsigned i = 0; i < MAX_AGENTS; i++) {
        tidy_up(k.run_id, i, false, NULL); /* after those that were killed */
    }
    close(k.signals);
    close(k.listener);
    close(k.lock);
    agent_remove_leftovers(k.run_id);
    return status;
}
