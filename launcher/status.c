/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/status.h"

#include "base/clock.h"
#include "base/str.h"
#include "launcher/jsonw.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const run_names[STATUS_N_STATES] = {
    [STATUS_CREATED] = "Created",       [STATUS_JOINING] = "Joining",
    [STATUS_RUNNING] = "Running",       [STATUS_RESTARTING] = "Restarting",
    [STATUS_STOPPING] = "Stopping",     [STATUS_SUCCEEDED] = "Succeeded",
    [STATUS_FAILED] = "Failed",         [STATUS_STOPPED] = "Stopped",
    [STATUS_SUSPENDED] = "Suspended",
};

static const char *const node_names[STATUS_NODE_N_STATES] = {
    [STATUS_NODE_JOINING] = "Joining",  [STATUS_NODE_READY] = "Ready",
    [STATUS_NODE_RUNNING] = "Running",  [STATUS_NODE_SPARE] = "Spare",
    [STATUS_NODE_LOST] = "Lost",        [STATUS_NODE_LEFT] = "Left",
    [STATUS_NODE_EXCLUDED] = "Excluded",
};

static const char *const worker_names[STATUS_WORKER_N_STATES] = {
    [STATUS_WORKER_WAITING] = "Waiting",
    [STATUS_WORKER_RUNNING] = "Running",
    [STATUS_WORKER_STOPPING] = "Stopping",
    [STATUS_WORKER_EXITED] = "Exited",
    [STATUS_WORKER_LOST] = "Lost",
};

static const char *const asked_names[STATUS_ASKED_N_STATES] = {
    [STATUS_ASKED_TOLD] = "Told",
    [STATUS_ASKED_HEARD] = "Heard",
    [STATUS_ASKED_SAVING] = "Saving",
    [STATUS_ASKED_SAVED] = "Saved",
    [STATUS_ASKED_FAILED] = "Failed",
    [STATUS_ASKED_REFUSED] = "Refused",
};

uint64_t run_status_elapsed_ms(const struct run_status *s, uint64_t now_ns)
{
    uint64_t from_ns = s->updated_ns;

    if (s->elapsed_ms && s->ended_ns) {
        return s->elapsed_ms;
    }
    if (!s->elapsed_ms) { /* of a lead that did not tell, or of none so far */
        from_ns = s->started_ns ? s->started_ns : s->created_ns;
        now_ns = s->ended_ns ? s->ended_ns : now_ns;
    }
    return s->elapsed_ms + (now_ns > from_ns ? (now_ns - from_ns) / 1000000u : 0);
}

static enum status_run_state final_state(int status, bool is_suspended)
{
    switch (status) {
    case RUN_SUCCEEDED:
        return STATUS_SUCCEEDED;
    case RUN_RESUMABLE:
        return is_suspended ? STATUS_SUSPENDED : STATUS_STOPPED;
    case RUN_DEADLINE:
    case RUN_CANCELLED:
        return STATUS_STOPPED;
    default:
        return STATUS_FAILED;
    }
}

void run_status_end(struct run_status *s, int status, bool is_suspended,
                    const char *reason)
{
    s->state = final_state(status, is_suspended);
    s->ended_ns = clock_wall_ns();
    s->verdict.is_set = true;
    s->verdict.exit_status = status;
    s->verdict.is_resumable = s->state == STATUS_STOPPED ||
                              s->state == STATUS_SUSPENDED;
    str_copy(s->verdict.reason, sizeof(s->verdict.reason), reason);
}

bool status_run_is_over(enum status_run_state state)
{
    return state >= STATUS_SUCCEEDED && state < STATUS_N_STATES;
}

const char *status_run_name(enum status_run_state state)
{
    return (unsigned)state < STATUS_N_STATES ? run_names[state] : "Unknown";
}

const char *status_node_name(enum status_node_state state)
{
    return (unsigned)state < STATUS_NODE_N_STATES ? node_names[state]
                                                  : "Unknown";
}

const char *status_worker_name(enum status_worker_state state)
{
    return (unsigned)state < STATUS_WORKER_N_STATES ? worker_names[state]
                                                    : "Unknown";
}

const char *status_asked_name(enum status_asked_state state)
{
    return (unsigned)state < STATUS_ASKED_N_STATES ? asked_names[state] : "Unknown";
}

struct run_status *run_status_create(void)
{
    struct run_status *s = calloc(1, sizeof(*s));

    if (s) {
        s->step = -1;
        s->resume_step = -1;
        s->stored_step = -1;
        s->failure.rank = -1;
        s->failure.node = -1;
    }
    return s;
}

void run_status_destroy(struct run_status *s)
{
    if (s) {
        free(s->nodes);
        free(s->workers);
        free(s->held);
        free(s->failure.lines);
        free(s);
    }
}

static void *copy_array(const void *from, size_t n, size_t size)
{
    void *to = n ? reallocarray(NULL, n, size) : NULL;

    if (to) {
        memcpy(to, from, n * size);
    }
    return to;
}

struct run_status *run_status_copy(const struct run_status *s)
{
    struct run_status *c = malloc(sizeof(*c));

    if (!c) {
        return NULL;
    }
    *c = *s;
    c->nodes = copy_array(s->nodes, s->n_nodes, sizeof(*s->nodes));
    c->workers = copy_array(s->workers, s->n_workers, sizeof(*s->workers));
    c->held = copy_array(s->held, s->n_held, sizeof(*s->held));
    c->failure.lines = s->failure.lines ? strdup(s->failure.lines) : NULL;
    if ((s->n_nodes && !c->nodes) || (s->n_workers && !c->workers) ||
        (s->n_held && !c->held) ||
        (s->failure.lines && !c->failure.lines)) {
        run_status_destroy(c);
        return NULL;
    }
    return c;
}

/* Room for `n`, the new ones zero; *failed where there is no memory. */
static void *resize(void *items, size_t old, size_t n, size_t size,
                    bool *failed)
{
    char *grown;

    if (n == 0) {
        free(items);
        return NULL;
    }
    grown = reallocarray(items, n, size);
    if (!grown) {
        *failed = true;
        return items;
    }
    if (n > old) {
        memset(grown + old * size, 0, (n - old) * size);
    }
    return grown;
}

int run_status_set_nodes(struct run_status *s, size_t n)
{
    bool failed = false;

    if (n > STATUS_MAX_NODES) {
        return -E2BIG;
    }
    s->nodes = resize(s->nodes, s->n_nodes, n, sizeof(*s->nodes), &failed);
    if (failed) {
        return -ENOMEM;
    }
    for (size_t i = s->n_nodes; i < n; i++) {
        s->nodes[i].rank = (int)i;
    }
    s->n_nodes = n;
    return 0;
}

int run_status_set_workers(struct run_status *s, size_t n)
{
    bool failed = false;

    if (n > STATUS_MAX_WORKERS) {
        return -E2BIG;
    }
    s->workers = resize(s->workers, s->n_workers, n, sizeof(*s->workers),
                        &failed);
    if (failed) {
        return -ENOMEM;
    }
    for (size_t i = s->n_workers; i < n; i++) {
        s->workers[i].rank = (int)i;
    }
    s->n_workers = n;
    return 0;
}

int run_status_set_held(struct run_status *s, size_t n)
{
    bool failed = false;

    if (n > STATUS_MAX_HELD) {
        return -E2BIG;
    }
    s->held = resize(s->held, s->n_held, n, sizeof(*s->held), &failed);
    s->n_held = failed ? s->n_held : n;
    return failed ? -ENOMEM : 0;
}

void run_status_metric(struct run_status *s, const char *name, double value,
                       int64_t step, int rank)
{
    struct status_metric *m = s->metrics;
    struct status_metric *end = m + s->n_metrics;

    while (m < end && strcmp(m->name, name) != 0) {
        m++;
    }
    if (m == end) {
        if (s->n_metrics == STATUS_MAX_METRICS ||
            strlen(name) >= sizeof(m->name)) {
            return;
        }
        s->n_metrics++;
        str_copy(m->name, sizeof(m->name), name);
    } else if (rank > m->rank) {
        return;
    }
    m->value = value;
    m->step = step;
    m->rank = rank;
}

int run_status_set_lines(struct run_status *s, const char *lines, size_t len)
{
    size_t skip = len > STATUS_MAX_LINES_BYTES ? len - STATUS_MAX_LINES_BYTES
                                               : 0;
    char *copy = malloc(len - skip + 1);

    if (!copy) {
        return -ENOMEM;
    }
    memcpy(copy, lines + skip, len - skip);
    copy[len - skip] = '\0';
    free(s->failure.lines);
    s->failure.lines = copy;
    return 0;
}

static void put_time(struct jsonw *w, const char *key, uint64_t wall_ns)
{
    if (wall_ns) {
        jsonw_time(w, key, wall_ns);
    }
}

static void put_nodes(struct jsonw *w, const struct run_status *s)
{
    jsonw_array(w, "nodes");
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct status_node *n = &s->nodes[i];

        jsonw_object(w, NULL);
        jsonw_int(w, "rank", n->rank);
        jsonw_str(w, "host", n->host);
        jsonw_str(w, "state", status_node_name(n->state));
        jsonw_int(w, "agent_pid", n->agent_pid);
        jsonw_int(w, "n_procs", n->n_procs);
        jsonw_opt_str(w, "why", n->why);
        jsonw_opt_str(w, "excluded", exclusion_name(n->excluded));
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void put_workers(struct jsonw *w, const struct run_status *s)
{
    jsonw_array(w, "workers");
    for (size_t i = 0; i < s->n_workers; i++) {
        const struct status_worker *x = &s->workers[i];

        jsonw_object(w, NULL);
        jsonw_int(w, "rank", x->rank);
        jsonw_int(w, "node", x->node);
        jsonw_int(w, "pid", x->pid);
        jsonw_str(w, "state", status_worker_name(x->state));
        if (x->state == STATUS_WORKER_EXITED) {
            jsonw_int(w, x->signal ? "signal" : "exit_code",
                      x->signal ? x->signal : x->exit_code);
        }
        if (x->slow_percent) {
            jsonw_int(w, "slow_percent", x->slow_percent);
        }
        put_time(w, "started", x->started_ns);
        put_time(w, "ended", x->ended_ns);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void put_avoid(struct jsonw *w, const struct avoid *a)
{
    if (a->n_deaths) {
        jsonw_int(w, "resume_deaths", a->n_deaths);
    }
    if (a->is_spent) {
        jsonw_bool(w, "resume_spent", true);
    }
    if (a->n == 0) {
        return;
    }
    jsonw_array(w, "avoided");
    for (uint32_t i = 0; i < a->n && i < AVOID_MAX; i++) {
        jsonw_object(w, NULL);
        jsonw_str(w, "path", a->list[i].path);
        if (a->list[i].step >= 0) {
            jsonw_int(w, "step", a->list[i].step);
        }
        jsonw_int(w, "deaths", a->list[i].n_deaths);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void put_held(struct jsonw *w, const struct run_status *s)
{
    jsonw_object(w, "in_memory");
    jsonw_int(w, "step", s->held_step);
    jsonw_int(w, "ranks", s->held_ranks);
    jsonw_array(w, "held");
    for (size_t i = 0; i < s->n_held; i++) {
        jsonw_object(w, NULL);
        jsonw_int(w, "first", s->held[i].first);
        jsonw_int(w, "ranks", s->held[i].n);
        jsonw_int(w, "node", s->held[i].node);
        if (s->held[i].copied_to >= 0) {
            jsonw_int(w, "copied_to", s->held[i].copied_to);
        }
        if (s->held[i].has_parity) {
            jsonw_bool(w, "parity", true);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_end_object(w);
}

static void put_metrics(struct jsonw *w, const struct run_status *s)
{
    jsonw_array(w, "metrics");
    for (size_t i = 0; i < s->n_metrics; i++) {
        jsonw_object(w, NULL);
        jsonw_str(w, "name", s->metrics[i].name);
        jsonw_num(w, "value", s->metrics[i].value);
        jsonw_int(w, "step", s->metrics[i].step);
        jsonw_int(w, "rank", s->metrics[i].rank);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void put_failure(struct jsonw *w, const struct status_failure *f)
{
    jsonw_object(w, "failure");
    jsonw_int(w, "generation", f->generation);
    jsonw_int(w, "rank", f->rank);
    jsonw_int(w, "node", f->node);
    jsonw_str(w, "host", f->host);
    jsonw_int(w, "pid", f->pid);
    jsonw_int(w, f->signal ? "signal" : "exit_code",
              f->signal ? f->signal : f->exit_code);
    put_time(w, "t", f->at_ns);
    jsonw_str(w, "reason", f->reason);
    jsonw_opt_str(w, "advice", f->advice);
    jsonw_opt_str(w, "error_file", f->error_file);
    jsonw_opt_str(w, "lines", f->lines);
    jsonw_end_object(w);
}

static void put_asked(struct jsonw *w, const struct run_status *s)
{
    jsonw_array(w, "asked");
    for (size_t i = 0; i < s->n_asked; i++) {
        const struct status_asked *x = &s->asked[i];

        jsonw_object(w, NULL);
        jsonw_str(w, "id", x->id);
        jsonw_str(w, "state", status_asked_name(x->state));
        jsonw_int(w, "generation", x->generation);
        put_time(w, "t", x->at_ns);
        if (x->step >= 0) {
            jsonw_int(w, "step", x->step);
        }
        jsonw_opt_str(w, "save", x->save);
        jsonw_opt_str(w, "path", x->path);
        jsonw_opt_str(w, "why", x->why);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void put_verdict(struct jsonw *w, const struct status_verdict *v)
{
    jsonw_object(w, "verdict");
    jsonw_int(w, "exit_status", v->exit_status);
    jsonw_bool(w, "resumable", v->is_resumable);
    jsonw_str(w, "reason", v->reason);
    jsonw_end_object(w);
}

void status_put_plan(struct jsonw *w, const struct status_plan *p)
{
    jsonw_num(w, "every", p->every_s);
    jsonw_num(w, "cost", p->cost_s);
    jsonw_bool(w, "assumed", p->is_assumed);
    jsonw_num(w, "mtbf", p->mtbf_s);
    jsonw_int(w, "failures", (int64_t)p->n_failures);
    jsonw_num(w, "ran", p->ran_s);
}

void run_status_to_json(const struct run_status *s, struct buf *to)
{
    struct jsonw w = jsonw_start(to);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", STATUS_VERSION);
    jsonw_str(&w, "id", s->id);
    jsonw_str(&w, "name", s->name);
    jsonw_str(&w, "muster", s->version);
    jsonw_str(&w, "run_dir", s->run_dir);
    jsonw_str(&w, "state", status_run_name(s->state));
    jsonw_int(&w, "generation", s->generation);
    jsonw_int(&w, "lead", s->lead);
    jsonw_int(&w, "restarts", s->restarts);
    jsonw_int(&w, "max_restarts", s->max_restarts);
    jsonw_int(&w, "node_failures", s->node_failures);
    if (s->want_nodes) {
        jsonw_int(&w, "min_nodes", s->min_nodes);
        jsonw_int(&w, "max_nodes", s->max_nodes);
        jsonw_int(&w, "want_nodes", s->want_nodes);
    }
    jsonw_int(&w, "starts", s->starts);
    jsonw_num(&w, "ran", (double)s->ran_ms / 1e3);
    if (s->elapsed_ms) {
        jsonw_num(&w, "elapsed", (double)s->elapsed_ms / 1e3);
    }
    put_time(&w, "deadline", s->deadline_ns);
    put_time(&w, "time_limit", s->time_limit_ns);
    jsonw_int(&w, "mpi_epoch", s->mpi_epoch);
    jsonw_int(&w, "mpi_lost", s->mpi_lost);
    if (s->mpi_late) {
        jsonw_int(&w, "mpi_late", s->mpi_late);
    }
    put_time(&w, "created", s->created_ns);
    put_time(&w, "started", s->started_ns);
    put_time(&w, "updated", s->updated_ns);
    put_time(&w, "ended", s->ended_ns);
    if (s->step >= 0) {
        jsonw_int(&w, "step", s->step);
    }
    jsonw_opt_str(&w, "resume_path", s->resume_path);
    if (s->resume_path[0] && s->resume_step >= 0) {
        jsonw_int(&w, "resume_step", s->resume_step);
    }
    put_avoid(&w, &s->avoid);
    jsonw_opt_str(&w, "stored_path", s->stored_path);
    if (s->stored_path[0] && s->stored_step >= 0) {
        jsonw_int(&w, "stored_step", s->stored_step);
    }
    jsonw_opt_str(&w, "storing", s->storing_path);
    put_time(&w, "saved", s->saved_ns);
    if (s->saving_ranks) {
        jsonw_object(&w, "saving");
        jsonw_int(&w, "step", s->saving_step);
        jsonw_int(&w, "written", s->saving_written);
        jsonw_int(&w, "ranks", s->saving_ranks);
        jsonw_end_object(&w);
    }
    if (s->held_ranks) {
        put_held(&w, s);
    }
    if (s->n_asked) {
        put_asked(&w, s);
    }
    if (s->save_plan.is_set) {
        jsonw_object(&w, "save_plan");
        status_put_plan(&w, &s->save_plan);
        jsonw_end_object(&w);
        status_put_levels(&w, s);
    }
    if (s->checkpoint_is_late) {
        jsonw_bool(&w, "checkpoint_late", true);
    }
    put_metrics(&w, s);
    if (s->failure.is_set) {
        put_failure(&w, &s->failure);
    }
    if (s->verdict.is_set) {
        put_verdict(&w, &s->verdict);
    }
    jsonw_opt_str(&w, "trouble", s->trouble);
    put_nodes(&w, s);
    put_workers(&w, s);
    jsonw_end_object(&w);
    buf_putc(to, '\n');
}
