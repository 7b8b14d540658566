/* SPDX-License-Identifier: Apache-2.0 */
/* The public API: checks arguments, keeps the last failure, and passes on. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "comm/client.h"
#include "comm/ops.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

struct muster {
    pid_t pid;             /* who may use this: not its forked children */
    struct client *client; /* NULL without an agent */
    const struct comm_ops *ops; /* NULL before the first collective */
    void *comm;
    struct error broken; /* what all collectives fail with from now on */
    struct worker_welcome who;
    uint32_t checkpoint_requests; /* told to the caller so far */
    bool asks;           /* should_stop was called: SIGTERM is outlived */
    struct error error;
};

struct client *client_of(struct muster *m)
{
    return m ? m->client : NULL;
}

static void on_term(int sig)
{
    (void)sig;
}

/* Puts `to` in the place of `from`; a handler of the program's own stays. */
static void replace_handler(void (*from)(int), void (*to)(int))
{
    struct sigaction now, sa = {.sa_handler = to, .sa_flags = SA_RESTART};

    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == from) {
        sigaction(SIGTERM, &sa, NULL);
    }
}

/* SIGTERM comes with the word to stop. Whoever asks for that word means to save
 * and to leave by itself, and must not die of the signal before. */
static void outlive_sigterm(struct muster *m)
{
    if (!m->asks && m->client && m->pid == getpid()) {
        m->asks = true;
        replace_handler(SIG_DFL, on_term);
    }
}

static void muster_destroy(struct muster *m)
{
    if (!m) {
        return;
    }
    if (m->asks && m->pid == getpid()) {
        replace_handler(on_term, SIG_DFL);
    }
    if (m->ops && m->pid == getpid() && !m->broken.code) {
        m->ops->finish(m->comm);
    }
    if (m->ops) {
        m->ops->destroy(m->comm);
    }
    client_destroy(m->client);
    free(m);
}

DEFINE_CLEANUP(muster);

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    uint64_t n;

    return text && str_to_u64(text, &n) == 0 && n <= INT32_MAX ? (uint32_t)n
                                                               : otherwise;
}

/* Without an agent a process is alone, but for a rank of `mpirun muster exec`,
 * which is told its numbers: to be alone would make it add up wrongly. */
static void read_self(struct worker_welcome *who)
{
    bool is_rank = getenv("MUSTER_SEAT");

    *who = (struct worker_welcome){
        .world = 1, .local_world = 1, .n_nodes = 1, .generation = 1,
    };
    if (is_rank) {
        who->rank = number_of("MUSTER_RANK", 0);
        who->world = number_of("MUSTER_WORLD_SIZE", 1);
        who->local_rank = number_of("MUSTER_LOCAL_RANK", 0);
        who->local_world = number_of("MUSTER_LOCAL_WORLD_SIZE", 1);
        who->node = number_of("MUSTER_NODE", 0);
        who->n_nodes = number_of("MUSTER_N_NODES", 1);
    }
}

PUBLIC int muster_init(struct muster **ret)
{
    _cleanup_(muster) struct muster *m = NULL;
    const char *path = getenv("MUSTER_SOCKET");
    int rc;

    if (!ret) {
        return -EINVAL;
    }
    m = calloc(1, sizeof(*m));
    if (!m) {
        return -ENOMEM;
    }
    m->pid = getpid();
    read_self(&m->who);
    if (path && path[0] != '\0') {
        rc = client_connect(path, &m->client, &m->error);
        if (rc < 0) {
            return rc;
        }
        m->who = *client_welcome(m->client);
    }
    *ret = take_ptr(&m);
    return 0;
}

PUBLIC void muster_finalize(struct muster *m)
{
    muster_destroy(m);
}

PUBLIC const char *muster_error_text(const struct muster *m)
{
    return m ? m->error.text : "";
}

PUBLIC int muster_rank(const struct muster *m)
{
    return m ? (int)m->who.rank : -EINVAL;
}

PUBLIC int muster_world(const struct muster *m)
{
    return m ? (int)m->who.world : -EINVAL;
}

PUBLIC int muster_local_rank(const struct muster *m)
{
    return m ? (int)m->who.local_rank : -EINVAL;
}

PUBLIC int muster_local_world(const struct muster *m)
{
    return m ? (int)m->who.local_world : -EINVAL;
}

PUBLIC int muster_node(const struct muster *m)
{
    return m ? (int)m->who.node : -EINVAL;
}

PUBLIC int muster_n_nodes(const struct muster *m)
{
    return m ? (int)m->who.n_nodes : -EINVAL;
}

PUBLIC int muster_generation(const struct muster *m)
{
    return m ? (int)m->who.generation : -EINVAL;
}

PUBLIC const char *muster_run_dir(const struct muster *m)
{
    return m && m->who.run_dir[0] ? m->who.run_dir : NULL;
}

PUBLIC const char *muster_resume_path(const struct muster *m)
{
    return m && m->who.resume_path[0] ? m->who.resume_path : NULL;
}

/* What every call on `m` checks first. */
static int check_owner(struct muster *m)
{
    if (!m) {
        return -EINVAL;
    }
    if (m->pid != getpid()) {
        return error_text(&m->error, EINVAL,
                          "called in a forked child of the worker");
    }
    return 0;
}

/* Becomes a member of the group, at the first collective: a program that only
 * reports never needs to be one. */
static int join(struct muster *m)
{
    struct comm_group group = {
        .rank = (int)m->who.rank,
        .world = (int)m->who.world,
        .local_rank = (int)m->who.local_rank,
        .segment_fd = -1,
        .event_fd = -1,
        .agent_fd = -1,
    };
    const struct comm_ops *ops = &comm_solo;
    int rc = 0;

    if (m->who.world > 1 && !m->client) {
        return error_text(&m->error, ENOTCONN, "no agent: under `mpirun muster "
                          "exec` collectives are MPI's alone; start by `muster "
                          "run -- mpirun -n %u PROGRAM` to have muster's",
                          m->who.world);
    }
    if (m->who.world > 1) {
        ops = &comm_shm;
        group.agent_fd = client_fd(m->client);
        rc = client_join(m->client, &group.segment_fd, &group.event_fd,
                         &m->error);
    }
    if (rc == 0) {
        rc = ops->init(&group, &m->comm, &m->error);
    }
    close_fd(&group.segment_fd);
    close_fd(&group.event_fd);
    if (rc < 0) {
        return rc;
    }
    m->ops = ops;
    return 0;
}

/* After every collective. A group in which one failed has no common state to
 * go on from. */
static int leave(struct muster *m, int rc)
{
    if (rc < 0) {
        m->broken = m->error;
    }
    return rc;
}

/* Before every collective. */
static int enter(struct muster *m)
{
    if (m->broken.code) {
        m->error = m->broken;
        return -m->broken.code;
    }
    return m->ops ? 0 : leave(m, join(m));
}

static bool overlaps(const void *a, const void *b, size_t len)
{
    uintptr_t x = (uintptr_t)a;
    uintptr_t y = (uintptr_t)b;

    return x != y && (x < y ? y - x : x - y) < len;
}

static int check_allreduce(struct muster *m, const void *send,
                           const void *recv, size_t count,
                           enum muster_type type, enum muster_op op)
{
    size_t size = comm_type_size(type);

    if (size == 0) {
        return error_text(&m->error, EINVAL, "allreduce: unknown type %d",
                          (int)type);
    }
    if ((unsigned)op > MUSTER_MAX) {
        return error_text(&m->error, EINVAL, "allreduce: unknown operation %d",
                          (int)op);
    }
    if (count > PTRDIFF_MAX / size) {
        return error_text(&m->error, EINVAL, "allreduce: %zu elements", count);
    }
    if (count > 0 && (!send || !recv)) {
        return error_text(&m->error, EINVAL, "allreduce: a NULL buffer");
    }
    if (count > 0 && overlaps(send, recv, count * size)) {
        return error_text(&m->error, EINVAL,
                          "allreduce: the buffers overlap in part");
    }
    return 0;
}

PUBLIC int muster_allreduce(struct muster *m, const void *send, void *recv,
                            size_t count, enum muster_type type,
                            enum muster_op op)
{
    int rc = check_owner(m);

    if (rc == 0) {
        rc = check_allreduce(m, send, recv, count, type, op);
    }
    if (rc == 0) {
        rc = enter(m);
    }
    if (rc < 0) {
        return rc;
    }
    return leave(m, m->ops->allreduce(m->comm, send, recv, count, type, op,
                                      &m->error));
}

PUBLIC int muster_broadcast(struct muster *m, void *data, size_t len, int root)
{
    int rc = check_owner(m);

    if (rc < 0) {
        return rc;
    }
    if (root < 0 || root >= muster_world(m)) {
        return error_text(&m->error, EINVAL,
                          "broadcast: root %d in a world of %d", root,
                          muster_world(m));
    }
    if (len > PTRDIFF_MAX || (len > 0 && !data)) {
        return error_text(&m->error, EINVAL, "broadcast: %zu bytes at %p", len,
                          data);
    }
    rc = enter(m);
    if (rc < 0) {
        return rc;
    }
    return leave(m, m->ops->broadcast(m->comm, data, len, root, &m->error));
}

PUBLIC int muster_barrier(struct muster *m)
{
    int rc = check_owner(m);

    if (rc == 0) {
        rc = enter(m);
    }
    if (rc < 0) {
        return rc;
    }
    return leave(m, m->ops->barrier(m->comm, &m->error));
}

static int copy_metrics(struct muster *m, struct worker_report *to,
                        const struct muster_metric *metrics, size_t n)
{
    if (n > WORKER_METRICS_MAX) {
        return error_text(&m->error, EINVAL, "report: %zu metrics, at most %d",
                          n, WORKER_METRICS_MAX);
    }
    if (n > 0 && !metrics) {
        return error_text(&m->error, EINVAL, "report: %zu metrics, and NULL for them", n);
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = metrics[i].name;

        if (!name || !worker_name_is_valid(name)) {
            return error_text(&m->error, EINVAL,
                              "report: metric name '%.80s', expected "
                              "[A-Za-z0-9_./-]{1,64}", name ? name : "");
        }
        memcpy(to->metrics[i].name, name, strlen(name) + 1);
        to->metrics[i].value = metrics[i].value;
    }
    to->n_metrics = n;
    return 0;
}

PUBLIC int muster_report(struct muster *m, int64_t step,
                         const struct muster_metric *metrics, size_t n_metrics)
{
    struct worker_report report = {.step = step};
    int rc = check_owner(m);

    if (rc == 0) {
        rc = copy_metrics(m, &report, metrics, n_metrics);
    }
    if (rc < 0 || !m->client) {
        return rc;
    }
    return client_report(m->client, &report, &m->error);
}

/* The agent has another working directory: relative paths become absolute. And without what
 * says nothing in them, as from Python: a checkpoint is known by its directory and its name. */
static int absolute_path(struct muster *m, const char *path,
                         char to[WORKER_PATH_SIZE])
{
    char cwd[PATH_MAX] = "";
    int rc;

    if (path[0] != '/' && !getcwd(cwd, sizeof(cwd))) {
        return error_set(&m->error, errno, "working directory");
    }
    rc = path[0] == '/' ? fs_path(to, WORKER_PATH_SIZE, &m->error, "%s", path)
                        : fs_path(to, WORKER_PATH_SIZE, &m->error, "%s/%s", cwd, path);
    if (rc == 0) {
        fs_tidy(to);
    }
    return rc;
}

PUBLIC int muster_checkpoint_saved(struct muster *m, const char *path,
                                   int64_t step)
{
    char full[WORKER_PATH_SIZE];
    int rc = check_owner(m);

    if (rc < 0) {
        return rc;
    }
    if (!path || path[0] == '\0') {
        return error_text(&m->error, EINVAL, "checkpoint saved: no path");
    }
    rc = absolute_path(m, path, full);
    if (rc < 0 || !m->client) {
        return rc;
    }
    return client_checkpoint_saved(m->client, full, step, &m->error);
}

static int read_state(struct muster *m, struct worker_state *ret)
{
    int rc = check_owner(m);

    *ret = (struct worker_state){0};
    if (rc < 0 || !m->client) {
        return rc;
    }
    return client_state(m->client, ret, &m->error);
}

PUBLIC int muster_should_stop(struct muster *m)
{
    struct worker_state state;
    int rc;

    if (m) {
        outlive_sigterm(m);
    }
    rc = read_state(m, &state);
    return rc < 0 ? rc : state.should_stop;
}

PUBLIC int muster_checkpoint_requested(struct muster *m)
{
    struct worker_state state;
    int rc = read_state(m, &state);

    if (rc < 0) {
        return rc;
    }
    if ((int32_t)(state.checkpoint_requests - m->checkpoint_requests) <= 0) {
        return 0;
    }
    m->checkpoint_requests++;
    /* For who waits: the program has heard of it, whatever comes of telling. */
    client_checkpoint_heard(m->client, m->checkpoint_requests, "", 0, NULL);
    return 1;
}
