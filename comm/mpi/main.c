/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-mpi: the companion of one agent, and the only process of a run that
 * is an MPI rank. It finds or starts its agent, then joins the MPI world, tells
 * the agent who else is there, and moves bulk data for it until the agent says
 * how the run ended. It makes no decision, and it may die at any time: the
 * agent and its workers go on.
 *
 * With one rank there is nothing to move, and MPI is not even initialised.
 *
 * Started by the front end it is told which run it belongs to. Started by hand
 * (`mpirun ... muster run`), only rank 0 knows, and the others learn it by MPI.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/key.h"
#include "base/open_files.h"
#include "base/proc_env.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "comm/agent_find.h"
#include "comm/mpi/main_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    AGENT_DEAD_MS = 5000,
    SWEEP_ROUNDS = 100,
    SWEEP_PAUSE_MS = 20,
    MAX_ABANDONED = 512 * 1024 * 1024, /* bytes, see bulk.h */
    ATTACH_SECONDS = 60,
    FINALIZE_SECONDS = 3,
    VERDICT_MS = 3000,
    AGENT_END_MS = 2000,
    MAX_POLL = 2 + BULK_GROUPS_MAX,
    STATUS_NOT_GATHERED = 69,
    STATUS_RESUMABLE = 75,
    STATUS_USAGE = 2,
};

/* Signal handlers can reach only this. */
static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t exit_status_on_alarm = STATUS_NOT_GATHERED;

static void on_signal(int sig)
{
    int saved = errno;
    char byte = (char)sig;

    if (write(signal_pipe[1], &byte, 1) < 0) {
        /* full: the reader has enough to do */
    }
    errno = saved;
}

static void on_alarm(int sig)
{
    static const char text[] = "muster-mpi: MPI did not finish in time\n";

    (void)sig;
    if (write(2, text, sizeof(text) - 1) < 0) {
        /* nobody listens */
    }
    _exit(exit_status_on_alarm);
}

static int take_signals(struct error *e)
{
    static const int told[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        sigaction(told[i], &sa, NULL);
    }
    sa.sa_handler = on_alarm;
    sigaction(SIGALRM, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

/* Until the agent's process has ended, and closed its end by that: when mpirun has
 * ended nobody should find anything of the run on its hosts. An agent that has output
 * to get rid of takes longer. */
static void await_agent(const struct companion *c)
{
    uint64_t until_ms = clock_mono_ms() + AGENT_END_MS, now_ms;
    struct pollfd p = {.fd = c->agent_fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;

    seqsock_msg_init(&m);
    while ((now_ms = clock_mono_ms()) < until_ms &&
           poll(&p, 1, (int)(until_ms - now_ms)) == 1 &&
           seqsock_recv(c->agent_fd, &m) > 0) {
        seqsock_msg_release(&m);
    }
}

/* Leaves MPI politely if the others do too, and in any case. */
static _Noreturn void leave(struct companion *c, int status)
{
    bulk_destroy(c->bulk);
    exit_status_on_alarm = c->report_status ? status : 0;
    if (c->in_mpi) {
        alarm(FINALIZE_SECONDS);
        MPI_Finalize();
        alarm(0);
    }
    await_agent(c);
    _exit(c->report_status ? status : 0);
}

static void tell_silent(void *arg, const struct proc *p)
{
    char text[256];

    (void)arg;
    proc_env_word(p, text, sizeof(text));
    fprintf(stderr, "muster-mpi: %s; it is left alone\n", text);
}

/* The connection to the agent ended without a verdict: a newer companion has
 * taken it over, or it died. What it leaves is killed by its watch; where that is
 * dead too, this does it. */
static _Noreturn void lose_agent(struct companion *c)
{
    struct proc_env env = {.on_silent = tell_silent};
    struct error e = {0};
    char entry[256];
    int lock = -1;

    if (agent_is_dead(c->tag, (unsigned)c->local_rank, AGENT_DEAD_MS, &lock)) {
        fprintf(stderr, "muster-mpi: the agent of this node is gone\n");
        snprintf(entry, sizeof(entry), "MUSTER_AGENT=%s.%d", c->tag,
                 c->local_rank);
        /* First, as mpirun kills this process soon after another one has ended; it waits
         * as long as we have the lock. */
        if (agent_tidy_after(c->tag, (unsigned)c->local_rank, &e) < 0) {
            fprintf(stderr, "muster-mpi: %s\n", e.text);
        }
        for (int round = 0;
             round < SWEEP_ROUNDS && proc_sweep_env(&env, entry, NULL) > 0;
             round++) {
            poll(NULL, 0, SWEEP_PAUSE_MS);
        }
        close_fd(&lock);
    }
    /* The others may be in MPI: no goodbye there. */
    _exit(c->report_status ? STATUS_RESUMABLE : 0);
}

/* This world is of no use. A front end makes a new one; by hand nobody does, but a
 * run that is over needs none, and its verdict is on the way. */
static _Noreturn void give_up_world(struct companion *c, const char *why)
{
    struct pollfd p = {.fd = c->agent_fd, .events = POLLIN};

    while (c->report_status && poll(&p, 1, VERDICT_MS) == 1) {
        _seqsock_msg_ struct seqsock_msg m;
        struct companion_outcome o;

        seqsock_msg_init(&m);
        if (seqsock_recv(c->agent_fd, &m) <= 0) {
            lose_agent(c);
        }
        if (m.type == COMPANION_VERDICT &&
            companion_outcome_decode(&m.data, &o) == 0) {
            _exit(o.status); /* the others may be in MPI: no goodbye there */
        }
    }
    if (c->report_status) {
        fprintf(stderr, "muster-mpi: rank %d: %s\n", c->rank, why);
    }
    _exit(STATUS_RESUMABLE);
}

static void attach(struct companion *c, const struct seqsock_msg *m)
{
    struct companion_attach a;
    struct companion_outcome outcome = {0};
    struct error e = {0};
    _buf_ struct buf b = {0};
    int rc;

    if (companion_attach_decode(&m->data, &a) < 0 || !c->bulk) {
        return;
    }
    alarm(ATTACH_SECONDS);
    rc = bulk_attach(c->bulk, a.tag, (const int *)a.members, a.n_members,
                     m->fds[0], m->fds[1], &e);
    alarm(0);
    free(a.members);
    outcome.tag = a.tag;
    outcome.ok = rc == 0;
    str_copy(outcome.text, sizeof(outcome.text), e.text);
    companion_outcome_encode(&outcome, &b);
    seqsock_send(c->agent_fd, COMPANION_ATTACHED, &b, NULL, 0);
    if (rc < 0) {
        give_up_world(c, e.text);
    }
}

static void serve_agent(struct companion *c)
{
    _seqsock_msg_ struct seqsock_msg m;
    struct companion_outcome o;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(c->agent_fd, &m);
    if (rc <= 0) {
        lose_agent(c);
    }
    switch (m.type) {
    case COMPANION_ATTACH:
        attach(c, &m);
        break;
    case COMPANION_DETACH:
        if (c->bulk && companion_outcome_decode(&m.data, &o) == 0) {
            bulk_detach(c->bulk, o.tag);
        }
        break;
    case COMPANION_VERDICT:
        leave(c, companion_outcome_decode(&m.data, &o) == 0 ? o.status
                                                            : STATUS_RESUMABLE);
    default:
        break;
    }
}

static void serve_signals(struct companion *c)
{
    char sigs[16];
    ssize_t n = read(signal_pipe[0], sigs, sizeof(sigs));

    for (ssize_t i = 0; i < n; i++) {
        if (sigs[i] == SIGTERM || sigs[i] == SIGINT) {
            seqsock_send(c->agent_fd, COMPANION_TERM, NULL, NULL, 0);
        } else if (sigs[i] == SIGUSR1 || sigs[i] == SIGUSR2) {
            seqsock_send(c->agent_fd, COMPANION_NOTICE, NULL, NULL, 0);
        }
    }
}

static int poll_ms(const struct companion *c)
{
    int64_t us = c->bulk ? bulk_wait_us(c->bulk) : -1;

    return us < 0 ? -1 : (int)((us + 999) / 1000);
}

static void serve(struct companion *c)
{
    struct pollfd fds[MAX_POLL];

    for (;;) {
        size_t n = 2;

        fds[0] = (struct pollfd){.fd = c->agent_fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = signal_pipe[0], .events = POLLIN};
        if (c->bulk) {
            n += bulk_poll_fds(c->bulk, fds + 2, MAX_POLL - 2);
        }
        if (poll(fds, n, poll_ms(c)) < 0 && errno != EINTR) {
            return;
        }
        if (fds[0].revents) {
            serve_agent(c);
        }
        if (fds[1].revents) {
            serve_signals(c);
        }
        if (c->bulk) {
            bulk_step(c->bulk);
        }
        if (c->bulk && bulk_abandoned_bytes(c->bulk) > MAX_ABANDONED) {
            _exit(STATUS_RESUMABLE); /* a new world starts with clean memory */
        }
    }
}

int main(int argc, char **argv)
{
    struct companion c = {.agent_fd = -1, .epoch = 1, .gather_seconds = 300};
    struct error e = {0};

    if (companion_parse_args(&c, argc, argv) < 0) {
        return STATUS_USAGE;
    }
    if (c.is_probe) {
        return 0; /* that it starts is all that was asked */
    }
    /* Its daemon is gone, and the MPI world with it; Open MPI 5 leaves ranks
     * beside a dead mpirun alive. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    companion_read_place(&c);
    if (open_files_need(0, &e) < 0 || take_signals(&e) < 0 ||
        companion_assemble(&c, &e) < 0) {
        if (e.code != ERR_LOST) { /* else another rank says what is wrong */
            fprintf(stderr, "muster-mpi: rank %d: %s\n", c.rank, e.text);
        }
        _exit(STATUS_RESUMABLE); /* MPI_Finalize would wait for the others */
    }
    exit_status_on_alarm = STATUS_RESUMABLE;
    secret_forget();
    serve(&c);
    return STATUS_RESUMABLE;
}
