/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew: the workers of one generation on this node with what belongs to
 * them, namely their sockets, their shared memory for collectives, and what they
 * are told and tell.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/contract.h"
#include "launcher/jsonw.h"
#include "launcher/last_words.h"
#include "launcher/node_facts.h"
#include "launcher/oom.h"
#include "launcher/worker_socket.h"
#include "rendezvous/layout.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    OOM_SCORE_ADJ = 500, /* workers go before their agent */
    SHOWN_LINES = 20,    /* of a worker that failed without a traceback */
    ECHO_MS = 2000,      /* for the cause to show behind what it causes */
};

/* The failure of a worker that lost a peer. The peer's own end, which may take
 * longer (it says its last words, it cleans up), would be hidden by the stop
 * that follows from a failure: so this one is told to the member only when
 * another failure was, when all are to stop, or when ECHO_MS are over. */
struct echo {
    struct echo *next;
    struct failure failure;
};

struct crew_worker {
    struct crew *crew;
    struct worker_socket *socket;
    struct strlist argv;
    struct strlist env;
};

struct crew {
    struct agent *agent;
    uint32_t generation;
    struct layout layout;
    uint32_t n_nodes;    /* that take part */
    uint32_t n_gpus;     /* of this node, for its workers */
    struct workers *workers;
    struct crew_worker *list; /* layout.n_local */
    struct segment *segment;
    uint32_t *members;   /* nodes that take part, by their ranks */
    int64_t oom_kills;   /* in our cgroup, as of the last look */
    bool broken;         /* collectives were ended */
    bool stopping;
    bool start_failed;
    struct echo *echoes; /* not told yet, in order */
    uv_timer_t *echo_timer;
    bool is_gone;        /* likewise not told yet */
};

/* --- facts for the lead --- */

static struct jsonw fact_begin(struct buf *b, const char *kind,
                               const struct crew *c)
{
    struct jsonw w = jsonw_start(b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", kind);
    jsonw_int(&w, "generation", c->generation);
    return w;
}

static void fact_end(struct agent *a, struct jsonw *w)
{
    jsonw_end_object(w);
    if (!w->to->failed) {
        tree_event(a->tree, w->to->data, w->to->len);
    }
}

static void tell_started(struct crew *c)
{
    _buf_ struct buf b = {0};
    struct jsonw w = fact_begin(&b, "started", c);

    jsonw_int(&w, "first", c->layout.first_rank);
    jsonw_array(&w, "pids");
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        jsonw_int(&w, NULL, worker_pid(c->workers, i));
    }
    jsonw_end_array(&w);
    fact_end(c->agent, &w);
}

static void tell_exited(struct crew *c, const struct worker_end *end)
{
    _buf_ struct buf b = {0};
    struct jsonw w = fact_begin(&b, "exited", c);

    jsonw_int(&w, "rank", end->rank);
    jsonw_int(&w, "code", end->how.signal ? 0 : end->how.code);
    jsonw_int(&w, "signal", end->how.signal);
    jsonw_int(&w, "cpu_ms", (int64_t)end->how.cpu_ms);
    jsonw_int(&w, "rss_kib", (int64_t)end->how.rss_kib);
    fact_end(c->agent, &w);
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    struct crew *c = arg;
    _buf_ struct buf b = {0};
    struct jsonw w = fact_begin(&b, "report", c);

    jsonw_int(&w, "rank", c->layout.first_rank + local_rank);
    jsonw_int(&w, "step", report->step);
    jsonw_object(&w, "metrics");
    for (size_t i = 0; i < report->n_metrics; i++) {
        jsonw_num(&w, report->metrics[i].name, report->metrics[i].value);
    }
    jsonw_end_object(&w);
    fact_end(c->agent, &w);
}

static void on_checkpoint_saved(void *arg, uint32_t local_rank,
                                const char *path, int64_t step)
{
    struct crew *c = arg;
    struct member_event event = {.type = MEMBER_SAVED, .text = path,
                                 .step = step, .generation = c->generation};

    (void)local_rank;
    agent_member_soon(c->agent, &event);
}

/* --- collectives --- */

/* Whoever waits in a collective, or comes to one, gets an error at once. */
static void end_collectives(struct crew *c, const char *why)
{
    if (!c->broken) {
        c->broken = true;
        segment_abort(c->segment, SEGMENT_ABORT_LOST, why);
    }
}

/* The process that was in collectives is gone, though the worker (a shell around
 * it, say) may live on: it will not come to the next one. */
static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    const struct crew *c = arg;

    (void)why;
    if (had_joined) {
        segment_leave(c->segment, local_rank);
    }
}

static const struct worker_socket_ops socket_ops = {
    .on_report = on_report,
    .on_checkpoint_saved = on_checkpoint_saved,
    .on_disconnect = on_disconnect,
};

static uint32_t most_procs(const struct order *order)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < order->n_nodes; i++) {
        most = order->n_procs[i] > most ? order->n_procs[i] : most;
    }
    return most;
}

static int make_segment(struct crew *c, const struct order *order,
                        struct error *e)
{
    struct segment_spec spec = {
        .generation = order->generation,
        .n_nodes = c->layout.n_groups,
        .node = c->layout.group,
        .world = c->layout.world,
        .n_local = c->layout.n_local,
        .max_local = most_procs(order),
        .first_rank = c->layout.first_rank,
    };

    return segment_create(&spec, &c->segment, e);
}

void crew_join_world(struct agent *a)
{
    struct crew *c = a->crew;
    struct companion_attach attach = {0};
    _free_ uint32_t *origins = NULL;

    if (!c || c->n_nodes < 2 || c->broken) {
        return;
    }
    origins = calloc(c->n_nodes, sizeof(*origins));
    if (!origins) {
        return;
    }
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        origins[i] = a->roster.entries[c->members[i]].origin;
    }
    attach = (struct companion_attach){c->generation, c->n_nodes, origins};
    companion_link_attach(a->companion, &attach, c->segment->fd,
                          c->segment->event_fd);
}

void crew_attached(struct agent *a, const struct companion_outcome *o)
{
    if (a->crew && a->crew->generation == o->tag && !o->ok) {
        agent_note(a, "MPI cannot connect the nodes of generation %u: %s; a "
                   "new MPI world is needed", o->tag, o->text);
    }
}

/* --- the contract --- */

static const char *or_null(const char *s)
{
    return s[0] ? s : NULL;
}

static int make_socket(struct crew *c, uint32_t i, const struct order *order,
                       struct error *e)
{
    struct agent *a = c->agent;
    struct worker_welcome welcome = {
        .rank = c->layout.first_rank + i,
        .world = c->layout.world,
        .local_rank = i,
        .local_world = c->layout.n_local,
        .node = c->layout.group,
        .n_nodes = c->layout.n_groups,
        .generation = order->generation,
    };
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), e, "%s/a%u-g%u-w%u", a->dir,
                     a->index, order->generation, i);

    if (rc < 0) {
        return rc;
    }
    str_copy(welcome.run_dir, sizeof(welcome.run_dir), a->run.dir);
    str_copy(welcome.resume_path, sizeof(welcome.resume_path),
             order->resume_path);
    rc = worker_socket_create(&a->loop, path, &welcome, &socket_ops, c,
                              &c->list[i].socket, e);
    if (rc == 0) {
        worker_socket_set_segment(c->list[i].socket, c->segment);
    }
    return rc;
}

/* On the node's own disk, where reading it cannot hang the loop. */
static int error_path(const struct crew *c, uint32_t local_rank, char *to,
                      size_t size, struct error *e)
{
    const struct agent *a = c->agent;

    return fs_path(to, size, e, "%s/a%u-g%u-w%u.json", a->dir, a->index,
                   c->generation, local_rank);
}

static int make_contract(struct crew *c, uint32_t i, const struct order *order,
                         struct strlist *warnings, struct error *e)
{
    struct agent *a = c->agent;
    const struct job *job = a->config.job;
    struct crew_worker *w = &c->list[i];
    uint32_t rank = c->layout.first_rank + i;
    char error_file[PATH_MAX];
    const char *tag = strrchr(a->dir, '/');
    _strlist_ struct strlist extra = {0};
    struct contract_facts facts = {
        .run_id = a->run.id,
        .run_dir = a->run.dir,
        .job_name = job->name,
        .generation = order->generation,
        .restart_count = order->n_restarts,
        .max_restarts = order->max_restarts,
        .rank = rank,
        .world = c->layout.world,
        .local_rank = i,
        .local_world = c->layout.n_local,
        .node = c->layout.group,
        .n_nodes = c->layout.n_groups,
        .node_name = a->host,
        .master_addr = order->master_addr,
        .master_port = order->master_port,
        .agent_store = true,
        .error_file = error_file,
        .resume_path = or_null(order->resume_path),
        .jax_port = agent_second_port(order->master_port),
        .n_gpus = c->n_gpus,
        .socket = worker_socket_path(w->socket),
        .extra = &extra,
    };
    int rc;

    /* Whose it is, for whoever has to sweep up after this agent. */
    strlist_addf(&extra, "MUSTER_AGENT=%s.%u", tag ? tag + 1 : a->dir,
                 a->index);
    rc = error_path(c, i, error_file, sizeof(error_file), e);
    rc = rc < 0 ? rc : contract_env(&a->config.env, &job->env, &facts, &w->env,
                                    i == 0 ? warnings : NULL, e);
    return rc < 0 ? rc : contract_argv(job->command.items, &w->env, &w->argv,
                                       e);
}

/* --- workers --- */

static void on_started(void *arg)
{
    struct crew *c = arg;
    struct member_event event = {.type = MEMBER_STARTED,
                                 .generation = c->generation};

    tell_started(c);
    agent_member_step(c->agent, &event);
}

/* Without "worker 3 on n1: ", which whoever tells it says in words of its own. */
static const char *why_not_run(const char *text)
{
    const char *why = strstr(text, ": cannot run ");

    return why ? why + 2 : text;
}

/* The kernel counts before it kills. */
static bool is_oom_kill(struct crew *c, const struct worker_end *end)
{
    int64_t before = c->oom_kills;

    if (end->how.signal != SIGKILL || end->stopped) {
        return false;
    }
    c->oom_kills = oom_kills(NULL, NULL);
    return before >= 0 && c->oom_kills > before;
}

/* The end of `from`, where not all of it fits. */
static void copy_end(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);

    str_copy(to, size, len < size ? from : from + len - size + 1);
}

/* What the worker said: in its error file, which goes to the run's records, or
 * else in its last lines. */
static void quote(struct crew *c, const struct worker_end *end,
                  struct failure *f)
{
    _free_ char *words = NULL;
    char *json = NULL;
    char path[PATH_MAX];
    struct error e = {0};
    int rc = error_path(c, end->local_rank, path, sizeof(path), &e);

    rc = rc < 0 ? rc : last_words_read(path, &words, &json, &e);
    if (rc == 0) {
        agent_keep_error(c->agent, c->generation, end->rank, json);
        last_words_summary(words, f->what, sizeof(f->what));
        if (!f->what[0]) {
            last_words_line(words, f->what, sizeof(f->what));
        }
        copy_end(f->text, sizeof(f->text), words);
        return;
    }
    if (rc != -ENOENT) {
        agent_log(c->agent, "%s", e.text);
    }
    if (f->signal != SIGKILL) {
        last_words_summary(end->tail, f->what, sizeof(f->what));
    }
    copy_end(f->text, sizeof(f->text),
             last_words_start(end->tail, SHOWN_LINES));
}

static void fill_failure(struct crew *c, const struct worker_end *end,
                         struct failure *f)
{
    const struct agent *a = c->agent;

    f->kind = end->exec_failed ? FAILURE_EXEC
              : is_oom_kill(c, end) ? FAILURE_OOM
              : end->how.signal ? FAILURE_SIGNAL : FAILURE_EXIT;
    f->generation = c->generation;
    f->node = a->rank;
    f->rank = (int32_t)end->rank;
    f->local_rank = (int32_t)end->local_rank;
    f->pid = end->how.pid;
    f->exit_code = (uint8_t)(end->how.signal ? 0 : end->status);
    f->signal = (uint8_t)end->how.signal;
    f->core_dumped = end->how.core;
    f->killed_by_us = end->stopped;
    f->wall_ns = end->at_wall_ns;
    str_copy(f->host, sizeof(f->host), a->host);
    str_copy(f->program, sizeof(f->program), a->config.job->command.items[0]);
    if (end->exec_failed) {
        str_copy(f->text, sizeof(f->text), why_not_run(end->text));
    } else {
        quote(c, end, f);
    }
}

static void finish(struct crew *c)
{
    struct agent *a = c->agent;
    struct member_event event = {.type = MEMBER_GONE,
                                 .generation = c->generation};

    crew_destroy(a);
    agent_member_step(a, &event);
}

static void on_echo_timer(uv_timer_t *t)
{
    struct crew *c = t->data;

    while (c->echoes) {
        struct echo *echo = c->echoes;
        struct member_event event = {.type = MEMBER_EXITED,
                                     .generation = c->generation,
                                     .failure = &echo->failure};

        c->echoes = echo->next;
        agent_member_step(c->agent, &event);
        free(echo);
    }
    if (c->is_gone) {
        finish(c);
    }
}

/* Tells what is left to tell, from the loop. */
static void hurry_echoes(struct crew *c)
{
    if (c->echoes) {
        uv_timer_start(c->echo_timer, on_echo_timer, 0, 0);
    }
}

static bool keep_echo(struct crew *c, const struct failure *f)
{
    struct echo *echo = calloc(1, sizeof(*echo));
    struct echo **at = &c->echoes;

    if (!echo) {
        return false;
    }
    echo->failure = *f;
    while (*at) {
        at = &(*at)->next;
    }
    *at = echo;
    if (!uv_is_active((uv_handle_t *)c->echo_timer)) {
        uv_timer_start(c->echo_timer, on_echo_timer, ECHO_MS, 0);
    }
    return true;
}

static void on_exit_(void *arg, const struct worker_end *end)
{
    struct crew *c = arg;
    struct failure f = {0};
    struct member_event event = {.type = MEMBER_EXITED,
                                 .generation = c->generation};

    tell_exited(c, end);
    if (end->status == 0) {
        /* What it has completed, others can complete; nothing more. */
        segment_leave(c->segment, end->local_rank);
    } else {
        end_collectives(c, end->text);
        fill_failure(c, end, &f);
        event.failure = &f;
        if (end->exec_failed) {
            /* None was released; the first one to say why speaks for all. */
            if (c->start_failed) {
                return;
            }
            c->start_failed = true;
            event.type = MEMBER_START_FAILED;
        }
    }
    if (event.type == MEMBER_EXITED && end->status != 0 && !end->stopped) {
        if (last_words_is_echo(f.what) && keep_echo(c, &f)) {
            return;
        }
        hurry_echoes(c);
    }
    agent_member_step(c->agent, &event);
}

static void on_stuck(void *arg, const struct worker_survivor *who, size_t n)
{
    const struct crew *c = arg;

    for (size_t i = 0; i < n; i++) {
        agent_note(c->agent, "process %ld (%s) on %s does not die of SIGKILL "
                   "(state %c)", (long)who[i].pid, who[i].name, c->agent->host,
                   who[i].state);
    }
}

static void on_gone(void *arg)
{
    struct crew *c = arg;

    if (!c->echoes) {
        finish(c);
        return;
    }
    c->is_gone = true;
    if (c->n_nodes == 1) {
        hurry_echoes(c);
    }
}

static int spawn(struct crew *c, const struct order *order, struct error *e)
{
    struct agent *a = c->agent;
    const struct job *job = a->config.job;
    struct worker_spec *specs = calloc(c->layout.n_local, sizeof(*specs));
    struct workers_events events = {.on_started = on_started,
                                    .on_exit = on_exit_, .on_stuck = on_stuck,
                                    .on_gone = on_gone, .arg = c};
    struct workers_config config = {
        .workers = specs,
        .n = c->layout.n_local,
        .cwd = job->workdir ? job->workdir : a->config.cwd,
        .oom_score_adj = OOM_SCORE_ADJ,
    };
    char logs[PATH_MAX];
    int rc;

    if (!specs) {
        return error_set(e, ENOMEM, "start workers");
    }
    c->oom_kills = oom_kills(NULL, NULL);
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        specs[i] = (struct worker_spec){
            .argv = c->list[i].argv.items,
            .envp = c->list[i].env.items,
            .rank = c->layout.first_rank + i,
        };
    }
    rc = fs_path(logs, sizeof(logs), e, "%s/logs/%u", a->run.dir,
                 order->generation);
    if (rc == 0) {
        config.logs_dir = job->logs.files == JOB_FILES_NONE ? NULL : logs;
        rc = workers_start(&a->workers_host, &config, &events, &c->workers, e);
    }
    free(specs);
    return rc;
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

static void crew_free(struct crew *c)
{
    for (uint32_t i = 0; c->list && i < c->layout.n_local; i++) {
        char path[PATH_MAX];

        if (error_path(c, i, path, sizeof(path), NULL) == 0) {
            unlink(path);
        }
        worker_socket_destroy(c->list[i].socket);
        strlist_release(&c->list[i].argv);
        strlist_release(&c->list[i].env);
    }
    free(c->list);
    free(c->members);
    while (c->echoes) {
        struct echo *echo = c->echoes;

        c->echoes = echo->next;
        free(echo);
    }
    if (c->echo_timer) {
        uv_close((uv_handle_t *)c->echo_timer, free_timer);
    }
    segment_destroy(c->segment);
    workers_destroy(c->workers);
    free(c);
}

static int list_members(struct crew *c, const struct order *order,
                        struct error *e)
{
    c->members = calloc(order->n_nodes, sizeof(*c->members));
    if (!c->members) {
        return error_set(e, ENOMEM, "list nodes");
    }
    for (uint32_t i = 0; i < order->n_nodes; i++) {
        if (order->n_procs[i]) {
            c->members[c->n_nodes++] = i;
        }
    }
    return 0;
}

static int equip(struct crew *c, const struct order *order, struct error *e)
{
    _strlist_ struct strlist warnings = {0};
    struct procs_node node;
    int rc = list_members(c, order, e);

    node_facts(&c->agent->config.env, &node);
    c->n_gpus = procs_gpus(&node);
    c->echo_timer = rc < 0 ? NULL : calloc(1, sizeof(*c->echo_timer));
    if (!c->echo_timer) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "start workers");
    }
    uv_timer_init(&c->agent->loop, c->echo_timer);
    c->echo_timer->data = c;
    rc = rc < 0 ? rc : make_segment(c, order, e);
    for (uint32_t i = 0; rc == 0 && i < c->layout.n_local; i++) {
        rc = make_socket(c, i, order, e);
        rc = rc < 0 ? rc : make_contract(c, i, order, &warnings, e);
    }
    for (size_t i = 0; c->layout.first_rank == 0 && order->n_restarts == 0 &&
                       i < warnings.n; i++) {
        agent_note(c->agent, "%s", warnings.items[i]);
    }
    return rc;
}

int crew_start(struct agent *a, const struct order *order, struct error *e)
{
    struct crew *c = calloc(1, sizeof(*c));
    int rc;

    if (!c) {
        return error_set(e, ENOMEM, "start workers");
    }
    c->agent = a;
    c->generation = order->generation;
    c->layout = layout_of(order->n_procs, order->n_nodes, a->rank);
    c->list = calloc(c->layout.n_local + 1, sizeof(*c->list));
    rc = c->list ? equip(c, order, e)
                 : error_set(e, ENOMEM, "start workers");
    rc = rc < 0 ? rc : spawn(c, order, e);
    if (rc < 0) {
        crew_free(c);
        return rc;
    }
    a->crew = c;
    a->generation = order->generation;
    crew_join_world(a);
    return 0;
}

void crew_stop(struct agent *a, bool kill)
{
    struct crew *c = a->crew;
    const struct order *order = member_order(a->member);

    if (!c) {
        return;
    }
    if (!c->stopping) {
        c->stopping = true;
        for (uint32_t i = 0; i < c->layout.n_local; i++) {
            worker_socket_set_state(c->list[i].socket, true, 0);
        }
    }
    if (kill || order->broken) {
        end_collectives(c, order->broken ? "another worker or node is gone"
                                         : "the workers are being killed");
    }
    hurry_echoes(c);
    if (!c->is_gone) {
        /* The member says when the grace is over. */
        workers_stop(c->workers, kill ? 0 : UINT32_MAX);
    }
}

unsigned crew_alive(const struct agent *a)
{
    return a->crew ? workers_alive(a->crew->workers) : 0;
}

void crew_destroy(struct agent *a)
{
    struct crew *c = a->crew;

    if (!c) {
        return;
    }
    if (c->n_nodes > 1) {
        companion_link_detach(a->companion, c->generation);
    }
    a->crew = NULL;
    crew_free(c);
}
