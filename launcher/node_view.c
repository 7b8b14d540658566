/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/node_view.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "launcher/probe.h"
#include "launcher/runview.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum {
    /* Of the index, newest first: a run that is alive is among them. */
    MAX_RUNS = 500,
    SLOW_MS = 100, /* for each, once one did not answer */
    /* What a GPU shows as used when nobody uses it, at most. In a container the
     * library hides the processes of others, but not their memory. */
    IDLE_GPU_BYTES = 256 << 20,
};

/* --- answers --- */

static void take_text(char *to, size_t size, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    str_copy(to, size, s ? s : "");
}

static uint64_t take_u64(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));

    return v > 0 ? (uint64_t)v : 0;
}

static void take_gpu(struct gpu *g, const json_t *o)
{
    const json_t *pids = json_object_get(o, "pids");

    g->index = (unsigned)take_u64(o, "index");
    g->used_bytes = take_u64(o, "used");
    g->total_bytes = take_u64(o, "total");
    take_text(g->uuid, sizeof(g->uuid), o, "uuid");
    take_text(g->name, sizeof(g->name), o, "name");
    for (size_t i = 0; i < json_array_size(pids) && i < GPUS_MAX_PIDS; i++) {
        g->pids[g->n_pids++] =
            (pid_t)json_integer_value(json_array_get(pids, i));
    }
}

static void take_answer(struct node_view *v, const json_t *o)
{
    const json_t *gpus = json_object_get(o, "gpus");
    char version[64];

    take_text(version, sizeof(version), o, "version");
    take_text(v->problem, sizeof(v->problem), o, "error");
    take_text(v->host, sizeof(v->host), o, "host");
    take_text(v->slurm_node, sizeof(v->slurm_node), o, "slurm_node");
    if (!v->problem[0] && strcmp(version, build_name()) != 0) {
        snprintf(v->problem, sizeof(v->problem), "has muster %s, this machine "
                 "has %s", version[0] ? version : "?", build_name());
    }
    v->cpus = (uint32_t)take_u64(o, "cpus");
    jsonw_read_num(json_object_get(o, "load"), &v->load);
    v->memory_bytes = take_u64(o, "memory");
    v->memory_free_bytes = take_u64(o, "memory_free");
    v->gpus.is_detailed = json_is_true(json_object_get(o, "gpus_detailed"));
    for (size_t i = 0; i < json_array_size(gpus) && i < GPUS_MAX; i++) {
        take_gpu(&v->gpus.items[v->gpus.n++], json_array_get(gpus, i));
    }
}

static void take_silence(struct node_view *v, const struct fanout_task *t)
{
    char line[300];

    if (t->problem[0]) {
        str_copy(v->problem, sizeof(v->problem), t->problem);
        return;
    }
    fanout_last_line(t, line, sizeof(line));
    snprintf(v->problem, sizeof(v->problem), t->status == 127
             ? "muster is not installed there at the same path (%s)"
             : "cannot be reached (%s)", line[0] ? line : "no output");
}

void node_view_take(struct node_view *v, const struct fanout_task *task)
{
    json_t *o = fanout_answer(task);

    if (o) {
        take_answer(v, o);
    } else {
        take_silence(v, task);
    }
    json_decref(o);
}

/* --- asking --- */

struct asking {
    const struct host_list *hosts;
    struct node_view *views;
    struct fanout_task *tasks; /* one a host; or only one, for all of Slurm's */
    size_t n_tasks;
};

static int add_task(struct asking *a, const struct host *host,
                    char *const *ssh, struct error *e)
{
    struct strlist *argv = &a->tasks[a->n_tasks++].argv;
    char muster[PATH_MAX];
    int rc;

    if (!host->is_local) {
        return probe_argv(ssh, host->name, argv, e);
    }
    rc = fs_program(muster, sizeof(muster), e);
    strlist_add(argv, muster);
    strlist_add(argv, "probe");
    return rc;
}

static int add_tasks(struct asking *a, char *const *ssh, struct error *e)
{
    char muster[PATH_MAX];
    int rc = 0;

    if (a->hosts->source == HOSTS_SLURM) {
        rc = fs_program(muster, sizeof(muster), e);
        for (size_t n, at = 0; (n = slurm_probe_batch(a->hosts, at)); at += n) {
            slurm_probe_argv("srun", a->hosts, at, n, muster,
                             &a->tasks[a->n_tasks++].argv);
        }
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < a->hosts->n; i++) {
        rc = add_task(a, &a->hosts->items[i], ssh, e);
    }
    return rc;
}

/* Slurm's name of the node, which is what was asked for. */
static struct node_view *find_view(struct node_view *views, size_t n,
                                   const json_t *o)
{
    char name[HOSTS_NAME_BYTES];

    take_text(name, sizeof(name), o, "slurm_node");
    for (size_t i = 0; i < n; i++) {
        if (strcmp(views[i].name, name) == 0) {
            return &views[i];
        }
    }
    return NULL;
}

/* What one srun said of its hosts. */
static void take_batch(const struct fanout_task *task, struct node_view *views,
                       size_t n)
{
    size_t at = 0;
    json_t *o;

    while ((o = fanout_next(task, &at))) {
        struct node_view *v = find_view(views, n, o);

        if (v && !v->host[0]) {
            take_answer(v, o);
        }
        json_decref(o);
    }
    for (size_t i = 0; i < n; i++) {
        if (!views[i].host[0] && !views[i].problem[0]) {
            take_silence(&views[i], task);
        }
    }
}

static void take_all_of_slurm(struct asking *a)
{
    for (size_t i = 0, at = 0; i < a->n_tasks; i++) {
        size_t n = slurm_probe_batch(a->hosts, at);

        take_batch(&a->tasks[i], a->views + at, n);
        at += n;
    }
}

static void take_answers(struct asking *a)
{
    if (a->hosts->source == HOSTS_SLURM) {
        take_all_of_slurm(a);
        return;
    }
    for (size_t i = 0; i < a->n_tasks; i++) {
        node_view_take(&a->views[i], &a->tasks[i]);
    }
}

static int ask(struct asking *a, char *const *ssh, unsigned timeout_ms,
               struct error *e)
{
    _buf_ struct buf question = {0};
    _strlist_ struct strlist env = {0};
    struct fanout f = {.tasks = a->tasks, .input = &question,
                       .timeout_ms = timeout_ms};
    int rc = add_tasks(a, ssh, e);

    if (rc < 0) {
        return rc;
    }
    if (a->hosts->source == HOSTS_SLURM) {
        slurm_step_env(environ, &env);
    } else {
        strlist_add_all(&env, environ);
    }
    buf_puts(&question, "{\"v\":1,\"want\":\"node\"}\n");
    if (env.failed || question.failed) {
        return error_set(e, ENOMEM, "ask hosts");
    }
    f.n = a->n_tasks;
    f.env = env.items;
    rc = fanout_run(&f, e);
    if (rc == 0) {
        take_answers(a);
    }
    return rc;
}

int node_views_ask(const struct host_list *hosts, char *const *ssh,
                   unsigned timeout_ms, struct node_view **ret,
                   struct error *e)
{
    struct asking a = {.hosts = hosts};
    int rc;

    a.views = calloc(hosts->n + 1, sizeof(*a.views));
    a.tasks = calloc(hosts->n + 1, sizeof(*a.tasks));
    for (size_t i = 0; a.views && i < hosts->n; i++) {
        struct node_view *v = &a.views[i];

        str_copy(v->name, sizeof(v->name), hosts->items[i].name);
        v->slots = hosts->items[i].slots;
        memset(v->gpu_use, -1, sizeof(v->gpu_use));
    }
    rc = a.views && a.tasks ? ask(&a, ssh, timeout_ms, e)
                            : error_set(e, ENOMEM, "ask hosts");
    for (size_t i = 0; a.tasks && i < a.n_tasks; i++) {
        fanout_task_release(&a.tasks[i]);
    }
    free(a.tasks);
    if (rc < 0) {
        free(a.views);
        return rc;
    }
    *ret = a.views;
    return 0;
}

/* --- runs --- */

bool node_view_gpu_is_taken(const struct gpu *g)
{
    return g->n_pids || g->used_bytes > IDLE_GPU_BYTES;
}

static bool computes_on(const struct gpu *g, int64_t pid)
{
    for (size_t i = 0; i < g->n_pids; i++) {
        if (g->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

static void put_gpus(struct node_view *v, const struct run_status *s,
                     int node, int use)
{
    for (size_t i = 0; i < s->n_workers; i++) {
        const struct status_worker *w = &s->workers[i];

        for (size_t k = 0; w->node == node && k < v->gpus.n; k++) {
            if (w->pid > 0 && computes_on(&v->gpus.items[k], w->pid)) {
                v->gpu_use[k] = use;
            }
        }
    }
}

static bool is_there(const struct status_node *n)
{
    return n->state != STATUS_NODE_LOST && n->state != STATUS_NODE_LEFT;
}

/* Several agents of a run may be on one host. */
static int find_use(struct node_view *v, const struct run_status *s)
{
    for (size_t i = 0; i < v->n_uses; i++) {
        if (strcmp(v->uses[i].id, s->id) == 0) {
            return (int)i;
        }
    }
    if (v->n_uses == NODE_MAX_USES) {
        return -1;
    }
    str_copy(v->uses[v->n_uses].id, sizeof(v->uses->id), s->id);
    str_copy(v->uses[v->n_uses].name, sizeof(v->uses->name), s->name);
    return (int)v->n_uses++;
}

static void put_run(struct node_view *v, const struct run_status *s)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct status_node *n = &s->nodes[i];
        int use;

        if (!is_there(n) || !v->host[0] || strcmp(n->host, v->host) != 0) {
            continue;
        }
        use = find_use(v, s);
        if (use >= 0) {
            v->uses[use].n_workers += n->n_procs;
            put_gpus(v, s, n->rank, use);
        }
    }
}

int node_views_add_runs(struct node_view *views, size_t n, struct error *e)
{
    _free_ struct rundir_entry *entries = NULL;
    unsigned patience_ms = RUN_VIEW_BRIEF_MS;
    size_t n_entries = 0;
    int rc = rundir_index(NULL, &entries, &n_entries, e);

    for (size_t i = 0; rc == 0 && i < n_entries && i < MAX_RUNS; i++) {
        _run_view_ struct run_view run = {0};

        int found = run_view_entry(&entries[i], patience_ms, &run, NULL);

        if (found == -ETIMEDOUT) {
            patience_ms = SLOW_MS; /* of others there, too */
        }
        if (found < 0 || !run_view_is_alive(&run)) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            put_run(&views[k], run.status);
        }
    }
    return rc;
}
