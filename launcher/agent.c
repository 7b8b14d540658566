/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an agent:
 *
 *   up       listens for its companion and for other agents, and says "ready"
 *   joined   the companion brought the run, the key and the roster: the agent
 *            takes its place in the control tree
 *   working  the job has come down the tree: member and, on the first node,
 *            lead take over
 *   leaving  the verdict goes to the companion, output and records are
 *            finished, links and sockets close
 *
 * It keeps nothing open that came from mpirun, so that it outlives it.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "launcher/commands.h"
#include "launcher/jsonw.h"
#include "launcher/node_facts.h"
#include "launcher/options.h"
#include "rendezvous/lead.h"
#include "spec/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    START_MS = 120000,        /* for the run to become known */
    OUTPUT_MS = 5000,         /* at the end, for output to get out */
    OUTPUT_SUCCESS_MS = 30000,
    LEAVE_MS = 45000,         /* then the process ends, whatever is left */
    FIRST_LEASE_MS = 10000,   /* until the job says heartbeat.timeout */
    ARITY = 32,
};

/* --- talking --- */

void agent_log(const struct agent *a, const char *fmt, ...)
{
    char when[32];
    va_list ap;

    clock_format(clock_wall_ns(), when, sizeof(when));
    fprintf(stderr, "%s agent %u on %s: ", when, a->index, a->host);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static void send_fact(struct agent *a, struct jsonw *w)
{
    jsonw_end_object(w);
    if (!w->to->failed && a->tree) {
        tree_event(a->tree, w->to->data, w->to->len);
    }
}

void agent_note(struct agent *a, const char *fmt, ...)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    agent_log(a, "%s", text);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "note");
    jsonw_str(&w, "text", text);
    send_fact(a, &w);
}

bool agent_on_one_host(const struct agent *a)
{
    for (uint32_t i = 1; i < a->roster.n; i++) {
        if (strcmp(a->roster.entries[i].boot_id,
                   a->roster.entries[0].boot_id) != 0 ||
            strcmp(a->roster.entries[i].host, a->roster.entries[0].host) !=
                0) {
            return false;
        }
    }
    return true;
}

/* --- leaving --- */

static void free_memory(struct agent *a)
{
    member_destroy(a->member);
    run_config_release(&a->config);
    roster_release(&a->roster);
    strlist_release(&a->addrs);
}

static void remove_file(const struct agent *a, const char *kind)
{
    char path[PATH_MAX];

    if (fs_path(path, sizeof(path), NULL, "%s/agent-%u.%s", a->dir, a->index,
                kind) == 0) {
        unlink(path);
    }
}

/* The lock goes last, while it is held: who waits for it sees that the file is
 * another one by then. The directory itself goes with the last agent of the
 * host, and with it what is in it: the key, where the front end put one here, and
 * what dead processes of this run left. */
static void remove_files(struct agent *a)
{
    remove_file(a, "log");
    remove_file(a, "lock");
    leftover_remove(a->dir, NULL);
}

static void close_loop(struct agent *a)
{
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++) {
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    }
    uv_close((uv_handle_t *)&a->start_timer, NULL);
    uv_close((uv_handle_t *)&a->member_timer, NULL);
    uv_close((uv_handle_t *)&a->soon_timer, NULL);
    uv_unref((uv_handle_t *)&a->leave_timer);
}

/* The second half of leaving: all output is out, or its time is over. */
static void on_output_gone(void *arg, bool all_done)
{
    struct agent *a = arg;

    if (!all_done) {
        agent_log(a, "some output could not be delivered or written");
    }
    a->output_gone = true;
    agent_lead_stop(a);
    tree_close(a->tree);
    a->tree = NULL;
    companion_link_destroy(a->companion);
    link_listener_close(a->listener);
    control_server_destroy(a->control);
    child_table_destroy(a->children);
    close_loop(a);
}

static void on_leave_late(uv_timer_t *t)
{
    struct agent *a = t->data;

    agent_log(a, "could not end in order");
    _exit(a->status);
}

void agent_leave(struct agent *a, uint8_t status, const char *reason)
{
    if (a->leaving) {
        return;
    }
    a->leaving = true;
    a->status = status;
    agent_log(a, "leaving: %u %s", status, reason);
    uv_timer_start(&a->leave_timer, on_leave_late, LEAVE_MS, 0);
    if (a->companion) {
        companion_link_verdict(a->companion, status, reason);
    }
    agent_member_stop(a);
    if (a->crew) {
        /* Not dead after repeated SIGKILL: muster-watch goes on after us. */
        agent_log(a, "leaving %u workers to muster-watch", crew_alive(a));
        _exit(status);
    }
    if (a->output) {
        output_destroy(a->output, status == RUN_SUCCEEDED ? OUTPUT_SUCCESS_MS
                                                          : OUTPUT_MS,
                       on_output_gone, a);
        a->output = NULL;
    } else {
        on_output_gone(a, true);
    }
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

/* --- output --- */

static void on_output(void *arg, uint32_t rank, enum output_which which,
                      enum output_piece piece, const char *data, size_t len)
{
    struct agent *a = arg;
    struct tree_output o = {
        .node = a->rank,
        .generation = a->generation,
        .rank = rank,
        .which = which == OUTPUT_STDERR,
        .piece = (uint8_t)piece,
        .data = data,
        .len = len,
    };

    if (!tree_output(a->tree, &o)) {
        output_pause(a->output);
    }
}

static void on_output_trouble(void *arg, enum output_trouble what,
                              uint64_t lost_bytes, const char *text)
{
    struct agent *a = arg;

    if (what == OUTPUT_RECOVERED) {
        agent_note(a, "log files on %s are written again (%llu bytes were "
                   "lost)", a->host, (unsigned long long)lost_bytes);
    } else {
        agent_note(a, "log files on %s: %s", a->host, text);
    }
}

static void on_writable(void *ctx)
{
    struct agent *a = ctx;

    if (a->output) {
        output_resume(a->output);
    }
}

/* --- the job --- */

static uint32_t share_of(uint32_t total, uint32_t n, uint32_t i)
{
    return total / n + (i < total % n);
}

/* How many processes this agent runs: the node's number, divided evenly among
 * the agents on it. */
static int count_procs(struct agent *a, struct error *e)
{
    uint32_t n_here = 0, node_total;
    struct procs_node node;
    int rc;

    node_facts(&a->config.env, &node);
    rc = procs_count(&a->config.job->procs, &node, &node_total, e);
    if (rc < 0) {
        return error_wrap(e, "%s", a->host);
    }
    for (uint32_t i = 0; i < a->roster.n; i++) {
        n_here += strcmp(a->roster.entries[i].host, a->host) == 0;
    }
    if (a->run.agent_is_node) {
        n_here = 1;
    }
    node_total = n_here == 1 ? node_total
                             : share_of(node_total, n_here,
                                        a->roster.entries[a->rank].host_index);
    if (node_total > UINT16_MAX) {
        return error_text(e, ERANGE, "%s: %u processes on one node", a->host,
                          node_total);
    }
    a->n_procs = (uint16_t)node_total;
    return 0;
}

static int begin_work(struct agent *a, struct error *e)
{
    struct output_config config = {.sink = on_output,
                                   .on_trouble = on_output_trouble, .arg = a};
    int rc = count_procs(a, e);

    rc = rc < 0 ? rc : output_create(&a->loop, &config, &a->output, e);
    if (rc < 0) {
        return rc;
    }
    a->workers_host.loop = &a->loop;
    a->workers_host.children = a->children;
    a->workers_host.output = a->output;
    a->workers_host.node = a->host;
    rc = fs_helper("muster-exec", a->workers_host.exec_path,
                   sizeof(a->workers_host.exec_path), e);
    rc = rc < 0 || a->rank != 0 ? rc : agent_lead_start(a, e);
    return rc < 0 ? rc : agent_member_start(a, e);
}

static void tell_pid(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "agent");
    jsonw_int(&w, "pid", getpid());
    send_fact(a, &w);
}

static void on_config(void *ctx, const void *data, size_t len)
{
    struct agent *a = ctx;
    struct error e = {0};

    if (a->has_config || a->leaving) {
        return;
    }
    if (run_config_decode(data, len, &a->config, &e) < 0) {
        agent_note(a, "%s", e.text);
        agent_leave(a, RUN_FAILED, e.text);
        return;
    }
    a->has_config = true;
    tree_set_lease(a->tree, a->config.job->heartbeat_timeout_ms);
    umask((mode_t)a->config.umask);
    uv_timer_stop(&a->start_timer);
    if (begin_work(a, &e) < 0) {
        agent_note(a, "%s", e.text);
        agent_leave(a, RUN_FAILED, e.text);
        return;
    }
    tell_pid(a);
}

/* --- the tree --- */

static void on_order(void *ctx, const void *data, size_t len)
{
    agent_member_order(ctx, data, len);
}

static void on_word(void *ctx, uint64_t age_ms)
{
    struct member_event event = {.type = MEMBER_WORD, .age_ms = age_ms};

    agent_member_step(ctx, &event);
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    struct agent *a = ctx;
    struct member_event event = {
        .type = up ? MEMBER_UPLINK_UP : MEMBER_UPLINK_LOST};

    if (!up) {
        agent_log(a, "the link up is gone: %s", why);
    }
    if (a->rank == 0) {
        agent_lead_front(a, up);
    } else {
        agent_member_soon(a, &event);
    }
}

static void on_refused(void *ctx, const char *why)
{
    agent_log(ctx, "the parent refuses: %s", why);
}

static void on_report(void *ctx, const void *data, size_t len)
{
    agent_lead_report(ctx, data, len);
}

static void on_lost(void *ctx, uint32_t rank, const char *why)
{
    agent_lead_lost(ctx, rank, why);
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    agent_lead_fact(ctx, rank, data, len);
}

/* From the front end: as a fact of node 0. */
static void on_request(void *ctx, const void *data, size_t len)
{
    agent_lead_fact(ctx, 0, data, len);
}

static const struct tree_ops tree_ops_ = {
    .on_config = on_config,
    .on_order = on_order,
    .on_word = on_word,
    .on_uplink = on_uplink,
    .on_refused = on_refused,
    .on_writable = on_writable,
    .on_report = on_report,
    .on_lost = on_lost,
    .on_event = on_event,
    .on_request = on_request,
};

/* --- commands on this host --- */

static int on_control(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e)
{
    struct agent *a = arg;
    bool force = json_is_true(json_object_get(body, "force"));
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    if (a->lead) {
        return agent_lead_request(a, op, force, "a command", e);
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "request");
    jsonw_str(&w, "op", op);
    jsonw_bool(&w, "force", force);
    send_fact(a, &w);
    jsonw_str(reply, "text", "passed on to the lead");
    return 0;
}

/* --- the companion --- */

/* This agent's place: by its address, which nobody else has. */
static bool find_rank(struct agent *a)
{
    for (uint32_t i = 0; i < a->roster.n; i++) {
        const struct roster_entry *entry = &a->roster.entries[i];

        if (strcmp(entry->host, a->host) == 0 &&
            entry->host_index == a->index &&
            entry->port == link_listener_port(a->listener)) {
            a->rank = i;
            return true;
        }
    }
    return false;
}

static int join_tree(struct agent *a, struct error *e)
{
    _strlist_ struct strlist front = {0};
    struct tree_config config = {
        .loop = &a->loop,
        .roster = &a->roster,
        .rank = a->rank,
        .arity = ARITY,
        .lease_ms = FIRST_LEASE_MS,
        .run_id = a->run.id,
        .version = PACKAGE_VERSION,
        .key = a->run.key,
        .listener = a->listener,
        .front_port = a->run.front_port,
        .ops = &tree_ops_,
        .ctx = a,
    };
    char name[32];

    for (size_t i = 0; a->run.has_front && i < COMPANION_MAX_FRONT &&
                       a->run.front_addrs[i][0]; i++) {
        strlist_add(&front, a->run.front_addrs[i]);
    }
    config.front_addrs = front.items;
    snprintf(name, sizeof(name), "agent-%u", a->index);
    if (control_server_create(&a->loop, a->run.id, name, on_control, a,
                              &a->control, e) < 0) {
        agent_log(a, "commands cannot reach this agent: %s", e->text);
    }
    return tree_create(&config, &a->tree, e);
}

/* The front end makes a new world when one is lost. */
static void tell_mpi(struct agent *a, const char *fact, const char *what)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);
    char text[ROSTER_HOST_BYTES + 64];

    snprintf(text, sizeof(text), "%s %s", a->host, what);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", fact);
    jsonw_int(&w, "epoch", (int64_t)a->epoch);
    jsonw_str(&w, "text", text);
    send_fact(a, &w);
}

/* A later world of the run: agents keep their ranks and get new MPI ranks;
 * newcomers wait in the tree, as spares, until somebody wants them. */
static int renew_roster(struct agent *a, const struct roster *roster)
{
    uint32_t n_before = a->roster.n;

    for (uint32_t i = 0; i < roster->n; i++) {
        if (i >= a->roster.n && roster_add(&a->roster, &roster->entries[i])) {
            return -ENOMEM;
        }
        a->roster.entries[i].origin = roster->entries[i].origin;
    }
    return a->roster.n > n_before ? tree_grow(a->tree) : 0;
}

static void on_world(void *ctx, const struct companion_world *w,
                     const struct roster *roster)
{
    struct agent *a = ctx;
    struct error e = {0};

    if (a->leaving) {
        return;
    }
    if (a->has_run) {
        if (renew_roster(a, roster) < 0) {
            agent_leave(a, RUN_FAILED, "out of memory");
            return;
        }
        a->epoch = w->epoch;
        tell_mpi(a, "mpi_joined", "is in a new MPI world");
        crew_join_world(a);
        return;
    }
    a->has_run = true;
    a->run = w->run;
    a->epoch = w->epoch;
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster_add(&a->roster, &roster->entries[i]) < 0) {
            agent_leave(a, RUN_FAILED, "out of memory");
            return;
        }
        a->roster.entries[i].origin = roster->entries[i].origin;
    }
    if (!find_rank(a)) {
        agent_leave(a, RUN_FAILED, "this agent is not in its own roster");
        return;
    }
    companion_link_set_rank(a->companion, a->rank);
    if (join_tree(a, &e) < 0) {
        agent_leave(a, RUN_FAILED, e.text);
    }
}

static void on_attached(void *ctx, const struct companion_outcome *o)
{
    crew_attached(ctx, o);
}

static void on_term(void *ctx)
{
    struct agent *a = ctx;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "term");
    send_fact(a, &w);
}

static void on_companion_lost(void *ctx)
{
    struct agent *a = ctx;

    if (a->leaving) {
        return;
    }
    if (!a->has_run) {
        agent_leave(a, RUN_RESUMABLE, "muster-mpi ended before the run began");
        return;
    }
    tell_mpi(a, "mpi_lost", "has lost its MPI world; training goes on");
}

static const struct companion_link_ops companion_ops = {
    .on_world = on_world,
    .on_attached = on_attached,
    .on_term = on_term,
    .on_lost = on_companion_lost,
};

/* --- coming up --- */

static int read_boot_id(char *to, size_t size, struct error *e)
{
    _free_ char *text = NULL;
    int rc = fs_read("/proc/sys/kernel/random/boot_id", 256, &text, NULL, e);

    if (rc < 0) {
        return rc;
    }
    text[strcspn(text, "\n")] = '\0';
    str_copy(to, size, text);
    return 0;
}

static int describe_self(struct agent *a, struct buf *ret, struct error *e)
{
    struct roster_entry entry = {.host_index = a->index};
    struct procs_node node;
    int rc = read_boot_id(entry.boot_id, sizeof(entry.boot_id), e);

    rc = rc < 0 ? rc : addr_local(false, &a->addrs, e);
    if (rc < 0) {
        return rc;
    }
    str_copy(entry.host, sizeof(entry.host), a->host);
    str_copy(entry.version, sizeof(entry.version), PACKAGE_VERSION);
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
    a->start_timer.data = a->member_timer.data = a;
    a->soon_timer.data = a->leave_timer.data = a;
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
    return companion_link_create(&a->loop, path, &info, &companion_ops, a,
                                 &a->companion, e);
}

struct agent_options {
    const char *dir;
    int64_t index;
    int64_t lock_fd;
    int64_t ready_fd;
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

/* Several descriptors a worker: the soft limit, 1024 as a rule, is meant for
 * programs that use select(). muster-exec sets that of workers. */
static void raise_open_files(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
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
    raise_open_files();
    str_copy(a->dir, sizeof(a->dir), o.dir);
    a->index = (unsigned)o.index;
    open_log(a);
    a->status = RUN_FAILED;
    uv_loop_init(&a->loop);
    start_timers(a);
    take_signals(a);
    if (come_up(a, &e) < 0) {
        agent_log(a, "%s", e.text);
        return EXIT_FAILED;
    }
    if (o.ready_fd >= 0 && write((int)o.ready_fd, "r", 1) == 1) {
        close((int)o.ready_fd);
    }
    uv_run(&a->loop, UV_RUN_DEFAULT);
    remove_files(a);
    free_memory(a);
    status = a->status;
    uv_close((uv_handle_t *)&a->leave_timer, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    uv_loop_close(&a->loop);
    sodium_memzero(a, sizeof(*a)); /* the key */
    free(a);
    return status;
}
