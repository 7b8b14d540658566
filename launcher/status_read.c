/* SPDX-License-Identifier: Apache-2.0 */
/* status.json back into a struct run_status. The file is another process's, so
 * that every type and size is checked. */
#include <config.h>

#include "launcher/status.h"

#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sticky: the first field of a wrong type or size is remembered in `bad`. */
struct reader {
    const char *where; /* of what the fields are, for the message */
    char bad[160];
};

static void refuse(struct reader *r, const char *key, const char *want)
{
    if (!r->bad[0]) {
        snprintf(r->bad, sizeof(r->bad), "%s%s%s: expected %s", r->where,
                 r->where[0] ? "." : "", key, want);
    }
}

static int64_t get_int(struct reader *r, const json_t *o, const char *key,
                       int64_t min, int64_t max, int64_t missing)
{
    const json_t *v = json_object_get(o, key);

    if (!v) {
        return missing;
    }
    if (!json_is_integer(v) || json_integer_value(v) < min ||
        json_integer_value(v) > max) {
        refuse(r, key, "a whole number in range");
        return missing;
    }
    return json_integer_value(v);
}

static void get_str(struct reader *r, const json_t *o, const char *key,
                    char *to, size_t size)
{
    const json_t *v = json_object_get(o, key);

    if (!v) {
        return;
    }
    if (!json_is_string(v) || json_string_length(v) >= size) {
        refuse(r, key, "a string that is not too long");
        return;
    }
    str_copy(to, size, json_string_value(v));
}

static uint64_t get_time(struct reader *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    uint64_t ns = 0;

    if (v && !jsonw_read_time(v, &ns)) {
        refuse(r, key, "seconds since 1970");
    }
    return ns;
}

static double get_num(struct reader *r, const json_t *o, const char *key)
{
    double v = 0;

    if (!jsonw_read_num(json_object_get(o, key), &v)) {
        refuse(r, key, "a number");
    }
    return v;
}

/* Seconds, as milliseconds. */
static uint64_t get_span(struct reader *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double seconds = v ? json_number_value(v) : 0;

    if (v && (!json_is_number(v) || !(seconds >= 0 && seconds < 1e12))) {
        refuse(r, key, "seconds");
        return 0;
    }
    return (uint64_t)(seconds * 1e3 + 0.5);
}

typedef const char *name_f(int state);

static const char *run_name(int state)
{
    return status_run_name((enum status_run_state)state);
}

static const char *node_name(int state)
{
    return status_node_name((enum status_node_state)state);
}

static const char *worker_name(int state)
{
    return status_worker_name((enum status_worker_state)state);
}

static const char *asked_name(int state)
{
    return status_asked_name((enum status_asked_state)state);
}

static int get_state(struct reader *r, const json_t *o, name_f *name, int n)
{
    const char *s = json_string_value(json_object_get(o, "state"));

    for (int i = 0; s && i < n; i++) {
        if (strcmp(name(i), s) == 0) {
            return i;
        }
    }
    refuse(r, "state", "the name of a state");
    return 0;
}

/* The array under `key`; its size, 0 if missing or wrong. */
static const json_t *get_array(struct reader *r, const json_t *o,
                               const char *key, size_t max, size_t *ret_n)
{
    const json_t *v = json_object_get(o, key);

    *ret_n = 0;
    if (v && (!json_is_array(v) || json_array_size(v) > max)) {
        refuse(r, key, "an array that is not too long");
    } else if (v) {
        *ret_n = json_array_size(v);
    }
    return v;
}

static void read_node(struct reader *r, const json_t *o, struct status_node *n)
{
    char kind[32] = "";

    n->rank = (int)get_int(r, o, "rank", 0, STATUS_MAX_NODES, n->rank);
    n->agent_pid = get_int(r, o, "agent_pid", 0, INT32_MAX, 0);
    n->n_procs = (int)get_int(r, o, "n_procs", 0, STATUS_MAX_WORKERS, 0);
    n->state = (enum status_node_state)get_state(r, o, node_name,
                                                 STATUS_NODE_N_STATES);
    get_str(r, o, "host", n->host, sizeof(n->host));
    get_str(r, o, "why", n->why, sizeof(n->why));
    get_str(r, o, "excluded", kind, sizeof(kind));
    n->excluded = exclusion_by_name(kind);
}

static void read_worker(struct reader *r, const json_t *o,
                        struct status_worker *w)
{
    w->rank = (int)get_int(r, o, "rank", 0, STATUS_MAX_WORKERS, w->rank);
    w->node = (int)get_int(r, o, "node", 0, STATUS_MAX_NODES, 0);
    w->pid = get_int(r, o, "pid", 0, INT32_MAX, 0);
    w->state = (enum status_worker_state)get_state(r, o, worker_name,
                                                   STATUS_WORKER_N_STATES);
    w->exit_code = (int)get_int(r, o, "exit_code", 0, 255, 0);
    w->signal = (int)get_int(r, o, "signal", 0, 255, 0);
    w->slow_percent = (uint32_t)get_int(r, o, "slow_percent", 0, INT32_MAX, 0);
    w->started_ns = get_time(r, o, "started");
    w->ended_ns = get_time(r, o, "ended");
}

static int read_arrays(struct reader *r, const json_t *root,
                       struct run_status *s)
{
    const json_t *nodes, *workers, *metrics;
    size_t n_nodes, n_workers, n_metrics;

    nodes = get_array(r, root, "nodes", STATUS_MAX_NODES, &n_nodes);
    workers = get_array(r, root, "workers", STATUS_MAX_WORKERS, &n_workers);
    metrics = get_array(r, root, "metrics", STATUS_MAX_METRICS, &n_metrics);
    if (run_status_set_nodes(s, n_nodes) < 0 ||
        run_status_set_workers(s, n_workers) < 0) {
        return -ENOMEM;
    }
    r->where = "nodes[]";
    for (size_t i = 0; i < n_nodes; i++) {
        read_node(r, json_array_get(nodes, i), &s->nodes[i]);
    }
    r->where = "workers[]";
    for (size_t i = 0; i < n_workers; i++) {
        read_worker(r, json_array_get(workers, i), &s->workers[i]);
    }
    r->where = "metrics[]";
    for (size_t i = 0; i < n_metrics; i++) {
        const json_t *o = json_array_get(metrics, i);
        struct status_metric *m = &s->metrics[s->n_metrics++];

        get_str(r, o, "name", m->name, sizeof(m->name));
        m->value = get_num(r, o, "value");
        m->step = get_int(r, o, "step", INT64_MIN, INT64_MAX, 0);
        m->rank = (int)get_int(r, o, "rank", 0, STATUS_MAX_WORKERS, 0);
    }
    r->where = "";
    return 0;
}

static int read_failure(struct reader *r, const json_t *o, struct run_status *s)
{
    const char *lines = json_string_value(json_object_get(o, "lines"));
    struct status_failure *f = &s->failure;

    if (!o) {
        return 0;
    }
    r->where = "failure";
    f->is_set = true;
    f->generation = (int)get_int(r, o, "generation", 0, INT32_MAX, 0);
    f->rank = (int)get_int(r, o, "rank", -1, STATUS_MAX_WORKERS, -1);
    f->node = (int)get_int(r, o, "node", -1, STATUS_MAX_NODES, -1);
    f->pid = get_int(r, o, "pid", 0, INT32_MAX, 0);
    f->exit_code = (int)get_int(r, o, "exit_code", 0, 255, 0);
    f->signal = (int)get_int(r, o, "signal", 0, 255, 0);
    f->at_ns = get_time(r, o, "t");
    get_str(r, o, "host", f->host, sizeof(f->host));
    get_str(r, o, "reason", f->reason, sizeof(f->reason));
    get_str(r, o, "advice", f->advice, sizeof(f->advice));
    get_str(r, o, "error_file", f->error_file, sizeof(f->error_file));
    r->where = "";
    return lines ? run_status_set_lines(s, lines, strlen(lines)) : 0;
}

static void read_verdict(struct reader *r, const json_t *o,
                         struct status_verdict *v)
{
    if (!o) {
        return;
    }
    r->where = "verdict";
    v->is_set = true;
    v->exit_status = (int)get_int(r, o, "exit_status", 0, 255, 0);
    v->is_resumable = json_is_true(json_object_get(o, "resumable"));
    get_str(r, o, "reason", v->reason, sizeof(v->reason));
    r->where = "";
}

static void read_saving(struct reader *r, const json_t *o,
                        struct run_status *s)
{
    if (!o) {
        return;
    }
    r->where = "saving";
    s->saving_step = get_int(r, o, "step", 0, INT64_MAX, 0);
    s->saving_written = (uint32_t)get_int(r, o, "written", 0, UINT32_MAX, 0);
    s->saving_ranks = (uint32_t)get_int(r, o, "ranks", 0, UINT32_MAX, 0);
    r->where = "";
}

static void read_asked(struct reader *r, const json_t *root, struct run_status *s)
{
    const json_t *list = get_array(r, root, "asked", STATUS_MAX_ASKED, &s->n_asked);

    r->where = "asked[]";
    for (size_t i = 0; i < s->n_asked; i++) {
        const json_t *o = json_array_get(list, i);
        struct status_asked *x = &s->asked[i];

        get_str(r, o, "id", x->id, sizeof(x->id));
        x->state = (enum status_asked_state)get_state(r, o, asked_name,
                                                      STATUS_ASKED_N_STATES);
        x->generation = (int)get_int(r, o, "generation", 0, INT32_MAX, 0);
        x->at_ns = get_time(r, o, "t");
        x->step = get_int(r, o, "step", 0, INT64_MAX, -1);
        get_str(r, o, "save", x->save, sizeof(x->save));
        get_str(r, o, "path", x->path, sizeof(x->path));
        get_str(r, o, "why", x->why, sizeof(x->why));
    }
    r->where = "";
}

static int read_held(struct reader *r, const json_t *o, struct run_status *s)
{
    const json_t *held;
    size_t n;

    r->where = "in_memory";
    s->held_step = get_int(r, o, "step", 0, INT64_MAX, 0);
    s->held_ranks = (uint32_t)get_int(r, o, "ranks", 0, STATUS_MAX_WORKERS, 0);
    held = get_array(r, o, "held", STATUS_MAX_HELD, &n);
    if (run_status_set_held(s, n) < 0) {
        return -ENOMEM;
    }
    r->where = "in_memory.held[]";
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(held, i);
        struct status_held *h = &s->held[i];

        h->first = (uint32_t)get_int(r, x, "first", 0, STATUS_MAX_WORKERS, 0);
        h->n = (uint32_t)get_int(r, x, "ranks", 0, STATUS_MAX_WORKERS, 0);
        h->node = (int)get_int(r, x, "node", 0, STATUS_MAX_NODES, 0);
        h->copied_to = (int)get_int(r, x, "copied_to", 0, STATUS_MAX_NODES, -1);
        h->has_parity = json_is_true(json_object_get(x, "parity"));
    }
    r->where = "";
    return 0;
}

void status_read_plan(const json_t *o, struct status_plan *ret)
{
    struct status_plan p = {.is_set = true};
    json_t *failures = json_object_get(o, "failures");

    if (!jsonw_read_num(json_object_get(o, "every"), &p.every_s) ||
        !jsonw_read_num(json_object_get(o, "cost"), &p.cost_s) ||
        !jsonw_read_num(json_object_get(o, "mtbf"), &p.mtbf_s) ||
        !jsonw_read_num(json_object_get(o, "ran"), &p.ran_s) ||
        json_integer_value(failures) < 0) {
        return;
    }
    p.is_assumed = json_is_true(json_object_get(o, "assumed"));
    p.n_failures = (uint64_t)json_integer_value(failures);
    *ret = p;
}

static void read_avoid(struct reader *r, const json_t *o, struct avoid *ret)
{
    const json_t *list = json_object_get(o, "avoided");
    size_t n = json_array_size(list);

    ret->n_deaths = (uint32_t)get_int(r, o, "resume_deaths", 0, UINT32_MAX, 0);
    ret->is_spent = json_is_true(json_object_get(o, "resume_spent"));
    if (n > AVOID_MAX || (n && ret->is_spent)) {
        refuse(r, "avoided", "fewer of them");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        struct avoid_one *one = &ret->list[i];

        get_str(r, item, "path", one->path, sizeof(one->path));
        one->step = get_int(r, item, "step", -1, INT64_MAX, -1);
        one->n_deaths = (uint32_t)get_int(r, item, "deaths", 0, UINT32_MAX, 0);
        if (!one->path[0] || strchr(one->path, '\n')) {
            refuse(r, "avoided", "paths of one line");
            return;
        }
        ret->n = (uint32_t)i + 1;
    }
}

static void read_head(struct reader *r, const json_t *o, struct run_status *s)
{
    get_str(r, o, "id", s->id, sizeof(s->id));
    get_str(r, o, "name", s->name, sizeof(s->name));
    get_str(r, o, "muster", s->version, sizeof(s->version));
    get_str(r, o, "run_dir", s->run_dir, sizeof(s->run_dir));
    get_str(r, o, "trouble", s->trouble, sizeof(s->trouble));
    get_str(r, o, "resume_path", s->resume_path, sizeof(s->resume_path));
    s->resume_step = get_int(r, o, "resume_step", -1, INT64_MAX, -1);
    read_avoid(r, o, &s->avoid);
    get_str(r, o, "stored_path", s->stored_path, sizeof(s->stored_path));
    s->stored_step = get_int(r, o, "stored_step", -1, INT64_MAX, -1);
    get_str(r, o, "storing", s->storing_path, sizeof(s->storing_path));
    s->saved_ns = get_time(r, o, "saved");
    read_saving(r, json_object_get(o, "saving"), s);
    status_read_plan(json_object_get(o, "save_plan"), &s->save_plan);
    status_read_levels(json_object_get(o, "save_levels"), s);
    s->checkpoint_is_late = json_is_true(json_object_get(o, "checkpoint_late"));
    s->state = (enum status_run_state)get_state(r, o, run_name,
                                                STATUS_N_STATES);
    s->generation = (int)get_int(r, o, "generation", 0, INT32_MAX, 0);
    s->lead = (int)get_int(r, o, "lead", 0, STATUS_MAX_NODES, 0);
    s->restarts = (int)get_int(r, o, "restarts", 0, INT32_MAX, 0);
    s->max_restarts = (int)get_int(r, o, "max_restarts", 0, INT32_MAX, 0);
    s->node_failures = (int)get_int(r, o, "node_failures", 0, INT32_MAX, 0);
    s->min_nodes = (int)get_int(r, o, "min_nodes", 0, STATUS_MAX_NODES, 0);
    s->max_nodes = (int)get_int(r, o, "max_nodes", 0, STATUS_MAX_NODES, 0);
    s->want_nodes = (int)get_int(r, o, "want_nodes", 0, STATUS_MAX_NODES, 0);
    s->starts = (int)get_int(r, o, "starts", 0, INT32_MAX, 0);
    s->ran_ms = get_span(r, o, "ran");
    s->elapsed_ms = get_span(r, o, "elapsed");
    s->deadline_ns = get_time(r, o, "deadline");
    s->time_limit_ns = get_time(r, o, "time_limit");
    s->mpi_epoch = (uint32_t)get_int(r, o, "mpi_epoch", 0, UINT32_MAX, 0);
    s->mpi_lost = (uint32_t)get_int(r, o, "mpi_lost", 0, UINT32_MAX, 0);
    s->mpi_late = (uint32_t)get_int(r, o, "mpi_late", 0, UINT32_MAX, 0);
    s->step = get_int(r, o, "step", -1, INT64_MAX, -1);
    s->created_ns = get_time(r, o, "created");
    s->started_ns = get_time(r, o, "started");
    s->updated_ns = get_time(r, o, "updated");
    s->ended_ns = get_time(r, o, "ended");
}

static int read_root(const json_t *root, struct run_status *s, struct error *e)
{
    struct reader r = {.where = ""};
    const json_t *version = json_object_get(root, "v");
    int rc;

    if (!json_is_integer(version) || json_integer_value(version) < 1) {
        return error_text(e, ERR_FORMAT, "status: expected an object with a "
                          "format version 'v'");
    }
    if (json_integer_value(version) > STATUS_VERSION) {
        return error_text(e, ERR_VERSION, "status: written by a newer muster "
                          "(format %" JSON_INTEGER_FORMAT ", this one knows "
                          "%d)", json_integer_value(version), STATUS_VERSION);
    }
    read_head(&r, root, s);
    read_asked(&r, root, s);
    rc = read_arrays(&r, root, s);
    rc = rc < 0 ? rc : read_held(&r, json_object_get(root, "in_memory"), s);
    rc = rc < 0 ? rc : read_failure(&r, json_object_get(root, "failure"), s);
    if (rc < 0) {
        return error_set(e, -rc, "read a status");
    }
    read_verdict(&r, json_object_get(root, "verdict"), &s->verdict);
    return r.bad[0] ? error_text(e, ERR_FORMAT, "status: %s", r.bad) : 0;
}

int run_status_from_json(const char *json, size_t len, struct run_status **ret,
                         struct error *e)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();
    json_error_t je;
    json_t *root;
    int rc;

    if (!s) {
        return error_set(e, ENOMEM, "read a status");
    }
    if (len > STATUS_MAX_JSON_BYTES) {
        return error_text(e, ERR_FORMAT, "status: larger than %d bytes",
                          STATUS_MAX_JSON_BYTES);
    }
    root = json_loadb(json, len, 0, &je);
    if (!root) {
        return error_text(e, ERR_FORMAT, "status: line %d: %.160s", je.line,
                          je.text);
    }
    rc = read_root(root, s, e);
    json_decref(root);
    if (rc == 0) {
        *ret = take_ptr(&s);
    }
    return rc;
}
