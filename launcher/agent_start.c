/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of an agent: it keeps nothing open that came from mpirun, so that it
 * outlives it, listens for its companion and for other agents, and says so.
 */
#include <config.h>

#include "launcher/agent.h"
#include "launcher/agent_files.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/machine.h"
#include "base/open_files.h"
#include "launcher/commands.h"
#include "launcher/node_facts.h"
#include "launcher/options.h"
#include "rendezvous/restart.h"
#include "spec/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { START_MS = 120000 }; /* for the run to become known */

static int describe_self(struct agent *a, struct buf *ret, struct error *e)
{
    struct roster_entry entry = {.host_index = a->index};
    struct procs_node node;
    int rc = machine_boot_id(entry.boot_id, sizeof(entry.boot_id), e);

    rc = rc < 0 ? rc : addr_local(false, &a->addrs, e);
    if (rc < 0) {
        return rc;
    }
    str_copy(entry.host, sizeof(entry.host), a->host);
    str_copy(entry.version, sizeof(entry.version), build_name());
    node_facts(NULL, &node);
    entry.slots = procs_cpus(&node);
    entry.port = link_listener_port(a->listener);
    for (size_t i = 0; i < a->addrs.n && i < ROSTER_MAX_ADDRS; i++) {
        str_copy(entry.addrs[entry.n_addrs++], ROSTER_ADDR_BYTES,
                 a->addrs.items[i]);
    }
    roster_entry_encode(&entry, ret);
    return ret->failed ? error_set(e, ENOMEM, "describe this agent") : 0;
}

/* As long as its companion waits for the others (gang.timeout, which only
 * muster-mpi knows), so does the agent. */
static void on_start_late(uv_timer_t *t)
{
    struct agent *a = t->data;

    if (!a->has_run && companion_link_is_up(a->companion)) {
        uv_timer_start(t, on_start_late, START_MS, 0);
        return;
    }
    agent_leave(a, RUN_RESUMABLE, "nobody told which run this is");
}

/* SIGTERM: the operator, or the death of muster-watch. */
static void on_signal(uv_signal_t *s, int sig)
{
    struct agent *a = s->data;
    struct member_event event = {.type = MEMBER_LEAVE};
    char text[64];

    snprintf(text, sizeof(text), "its agent got %s", child_signal_name(sig));
    event.text = text;
    if (a->member) {
        agent_member_step(a, &event);
    } else {
        agent_leave(a, RUN_RESUMABLE, text);
    }
}

static void take_signals(struct agent *a)
{
    static const int sigs[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        uv_signal_init(&a->loop, &a->signals[i]);
        a->signals[i].data = a;
        uv_signal_start(&a->signals[i], on_signal, sigs[i]);
        uv_unref((uv_handle_t *)&a->signals[i]);
    }
}

static void start_timers(struct agent *a)
{
    uv_timer_init(&a->loop, &a->start_timer);
    uv_timer_init(&a->loop, &a->member_timer);
    uv_timer_init(&a->loop, &a->soon_timer);
    uv_timer_init(&a->loop, &a->leave_timer);
    uv_timer_init(&a->loop, &a->drain_timer);
    uv_timer_init(&a->loop, &a->strand_timer);
    uv_timer_init(&a->loop, &a->procs_timer);
    a->start_timer.data = a->member_timer.data = a->strand_timer.data = a;
    a->soon_timer.data = a->leave_timer.data = a->drain_timer.data = a;
    a->procs_timer.data = a;
    uv_timer_start(&a->start_timer, on_start_late, START_MS, 0);
}

static int come_up(struct agent *a, struct error *e)
{
    _buf_ struct buf info = {0};
    char path[PATH_MAX];
    int rc;

    if (gethostname(a->host, sizeof(a->host)) < 0) {
        return error_set(e, errno, "find this host's name");
    }
    a->host[sizeof(a->host) - 1] = '\0';
    if ((rc = child_become_subreaper(e)) < 0 ||
        (rc = child_table_create(&a->loop, &a->children, e)) < 0 ||
        (rc = link_listen(&a->loop, false, &a->listener, e)) < 0 ||
        (rc = describe_self(a, &info, e)) < 0 ||
        (rc = fs_path(path, sizeof(path), e, "%s/mpi-%u", a->dir,
                      a->index)) < 0) {
        return rc;
    }
    return companion_link_create(&a->loop, path, &info, &agent_companion_ops, a,
                                 &a->companion, e);
}

struct agent_options {
    const char *dir;
    int64_t index;
    int64_t lock_fd;
    int64_t ready_fd;
    bool is_kept;
};

static const struct option_def option_table[] = {
    {"dir", "DIR", "where its sockets are", OPTION_STR,
     offsetof(struct agent_options, dir), NULL, 0},
    {"index", "N", "which agent of this host it is", OPTION_INT,
     offsetof(struct agent_options, index), NULL, 0},
    {"lock-fd", "FD", "the lock that says that it lives", OPTION_INT,
     offsetof(struct agent_options, lock_fd), NULL, 0},
    {"ready-fd", "FD", "where to write a byte when it listens", OPTION_INT,
     offsetof(struct agent_options, ready_fd), NULL, 0},
    {"kept", NULL, "a keeper waits for all that it has started", OPTION_FLAG,
     offsetof(struct agent_options, is_kept), NULL, 0},
    {0},
};

static const struct options agent_options = {
    .command = "agent",
    .usage = "--dir=DIR --index=N",
    .about = "The supervisor of one node; started by muster-mpi.",
    .table = option_table,
};

/* muster-watch keeps nothing open that mpirun gave it; what this agent has to
 * say to nobody in particular goes to a file of its own. */
static void open_log(const struct agent *a)
{
    char path[PATH_MAX];
    int fd;

    if (fs_path(path, sizeof(path), NULL, "%s/agent-%u.log", a->dir,
                a->index) < 0) {
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dup2(fd, 2);
        close(fd);
        setvbuf(stderr, NULL, _IOLBF, 0);
    }
}

static int hold_descriptors(const struct agent_options *o)
{
    int fds[] = {(int)o->lock_fd, (int)o->ready_fd};

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        if (fds[i] > 2 && fcntl(fds[i], F_SETFD, FD_CLOEXEC) < 0) {
            return -errno;
        }
    }
    return 0;
}

static void free_memory(struct agent *a)
{
    member_destroy(a->member);
    run_config_release(&a->config);
    roster_release(&a->roster);
    free(a->front_ways);
    buf_release(&a->passed);
    strlist_release(&a->addrs);
}

int cmd_agent(int argc, char **argv)
{
    struct agent *a = calloc(1, sizeof(*a));
    struct agent_options o = {.lock_fd = -1, .ready_fd = -1};
    _option_args_ struct option_args args = {0};
    struct error e = {0};
    int status = options_start(&agent_options, argc, argv, &o, &args);

    if (status >= 0 || !a || !o.dir) {
        free(a);
        return status >= 0 ? status : EXIT_USAGE;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* muster-watch's death is ours */
    hold_descriptors(&o);
    /* Several a worker: the soft limit, 1024 as a rule, is meant for programs that use
     * select(). muster-exec sets that of workers. */
    open_files_raise();
    str_copy(a->dir, sizeof(a->dir), o.dir);
    a->index = (unsigned)o.index;
    a->watch = getppid();
    a->is_kept = o.is_kept;
    open_log(a);
    a->status = RUN_FAILED;
    uv_loop_init(&a->loop);
    start_timers(a);
    take_signals(a);
    if (open_files_need(0, &e) < 0 || come_up(a, &e) < 0) {
        agent_log(a, "%s", e.text);
        return EXIT_FAILED;
    }
    if (o.ready_fd >= 0 && write((int)o.ready_fd, "r", 1) == 1) {
        close((int)o.ready_fd);
    }
    uv_run(&a->loop, UV_RUN_DEFAULT);
    agent_files_remove(a);
    free_memory(a);
    status = a->status;
    uv_close((uv_handle_t *)&a->leave_timer, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    uv_loop_close(&a->loop);
    key_drop(a->key);
    free(a);
    return status;
}
