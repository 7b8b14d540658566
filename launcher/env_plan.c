/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each environment is made twice, with two ports: a value that differs then hangs
 * on the port, also where the user's own words refer to it.
 */
#include <config.h>

#include "launcher/env_plan.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "launcher/node_facts.h"
#include "launcher/outfit.h"
#include "launcher/stacks.h"
#include "launcher/workers.h"
#include "spec/rank_set.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As in what job_write_yaml() shows: shorter ones cannot be told from text. */
enum { LEAST_SECRET = 6, ONE_PORT = 20000, OTHER_PORT = 30000 };

/* --- secrets --- */

static void split(const char *item, char **ret_name, const char **ret_value)
{
    size_t len = strcspn(item, "=");

    *ret_name = strndup(item, len);
    *ret_value = item[len] ? item + len + 1 : item + len;
}

static void list_secrets(const struct job *job, const struct strlist *env,
                         struct strlist *to)
{
    for (size_t i = 0; i < env->n; i++) {
        _free_ char *name = NULL;
        const char *value;

        split(env->items[i], &name, &value);
        if (name && strlen(value) >= LEAST_SECRET &&
            job_env_is_secret(job, name)) {
            strlist_add(to, value);
        }
    }
}

/* The longest secret that `s` begins with, or 0. */
static size_t secret_at(const struct strlist *secrets, const char *s)
{
    size_t longest = 0;

    for (size_t i = 0; i < secrets->n; i++) {
        size_t len = strlen(secrets->items[i]);

        if (len > longest && str_starts(s, secrets->items[i])) {
            longest = len;
        }
    }
    return longest;
}

/* NULL without memory. */
static char *without_secrets(const struct strlist *secrets, const char *s)
{
    _buf_ struct buf b = {0};

    while (*s) {
        size_t len = secret_at(secrets, s);

        if (len) {
            buf_puts(&b, JOB_HIDDEN);
        } else {
            buf_putc(&b, *s);
        }
        s += len ? len : 1;
    }
    return b.failed ? NULL : strdup(buf_str(&b));
}

/* --- one worker --- */

static const struct strlist no_secrets;

static int compare_vars(const void *a, const void *b)
{
    const struct env_var *x = a, *y = b;

    return x->origin != y->origin ? (int)y->origin - (int)x->origin
                                  : strcmp(x->name, y->name);
}

static void take_var(struct env_worker *w, const struct env_plan_spec *spec,
                     const char *item, const struct strlist *secrets,
                     const struct outfit *one, const struct outfit *other)
{
    struct env_var *v = &w->vars[w->n_vars++];
    const char *value, *again;

    split(item, &v->name, &value);
    if (!v->name) {
        return;
    }
    v->origin = contract_trace_origin(one->trace, v->name);
    again = strlist_getenv(&other->env, v->name);
    if (!again || strcmp(value, again)) {
        v->value = strdup(ENV_AT_START);
    } else if (!spec->shows_secrets && job_env_is_secret(spec->job, v->name)) {
        v->value = strdup(JOB_HIDDEN);
    } else {
        v->value = without_secrets(secrets, value);
    }
}

/* The mark of a set is added when it starts, see workers.h. */
static void take_mark(struct env_worker *w)
{
    w->vars[w->n_vars++] = (struct env_var){.name = strdup(WORKERS_MARK),
                                            .value = strdup(ENV_AT_START),
                                            .origin = CONTRACT_OWN};
}

static int fill_worker(struct env_worker *w, const struct env_plan_spec *spec,
                       const struct outfit *one, const struct outfit *other)
{
    _strlist_ struct strlist secrets = {0};
    const struct strlist *hide = spec->shows_secrets ? &no_secrets : &secrets;
    bool failed = false;

    list_secrets(spec->job, &one->env, &secrets);
    w->vars = calloc(one->env.n + 1, sizeof(*w->vars));
    if (!w->vars || secrets.failed) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < one->env.n; i++) {
        take_var(w, spec, one->env.items[i], hide, one, other);
    }
    take_mark(w);
    for (size_t i = 0; i < w->n_vars; i++) {
        failed |= !w->vars[i].name || !w->vars[i].value;
    }
    for (size_t i = 0; i < one->argv.n; i++) {
        strlist_take(&w->argv, without_secrets(hide, one->argv.items[i]));
    }
    if (failed || w->argv.failed) {
        return -ENOMEM;
    }
    qsort(w->vars, w->n_vars, sizeof(*w->vars), compare_vars);
    return 0;
}

/* --- all of them --- */

struct planning {
    const struct env_plan_spec *spec;
    struct outfit_node node;
    struct order order;
    struct env_plan *plan;
};

/* An order as the lead would give it, if every planned agent comes. */
static int make_order(struct planning *p, const struct procs_node *facts,
                      struct error *e)
{
    const struct env_plan_spec *spec = p->spec;
    struct order *o = &p->order;

    o->generation = 1;
    o->max_restarts = spec->job->restart.max;
    str_copy(o->master_addr, sizeof(o->master_addr),
             hosts_all_local(spec->hosts) ? "127.0.0.1" : "ADDRESS");
    o->n_procs = calloc(spec->n_agents + 1, sizeof(*o->n_procs));
    if (!o->n_procs) {
        return error_set(e, ENOMEM, "plan the workers");
    }
    o->n_nodes = spec->n_agents;
    for (uint32_t i = 0; i < spec->n_agents; i++) {
        uint32_t at = i % spec->agents_per_host, first = i - at;
        uint32_t left = spec->n_agents - first;
        uint32_t n = spec->agent_is_node ? 1
                     : left < spec->agents_per_host ? left
                                                    : spec->agents_per_host;
        struct procs_node node = *facts;
        int rc;

        node.slots = spec->hosts->items[i / spec->agents_per_host].slots;
        rc = outfit_procs(spec->job, &node, n, at, &o->n_procs[i], e);
        if (rc < 0) {
            return rc;
        }
        p->plan->world += o->n_procs[i];
    }
    return 0;
}

static int make_twice(struct planning *p, const struct layout *layout,
                      uint32_t local_rank, struct outfit *one,
                      struct outfit *other, struct error *e)
{
    bool chosen = job_interface(p->spec->job) &&
                  !hosts_all_local(p->spec->hosts);
    int rc;

    p->node.interface = chosen ? "ONE" : NULL;
    p->order.master_port = ONE_PORT;
    rc = outfit_make(&p->node, &p->order, layout, local_rank, one, e);
    p->node.interface = chosen ? "OTHER" : NULL;
    p->order.master_port = OTHER_PORT;
    return rc < 0 ? rc : outfit_make(&p->node, &p->order, layout, local_rank,
                                     other, e);
}

static int add_worker(struct planning *p, const struct layout *layout,
                      uint32_t local_rank, struct error *e)
{
    struct contract_trace trace = {0};
    struct outfit one = {.trace = &trace}, other = {0};
    struct env_worker *w = &p->plan->workers[p->plan->n_workers++];
    int rc;

    w->rank = layout->first_rank + local_rank;
    w->node = layout->group;
    w->local_rank = local_rank;
    str_copy(w->host, sizeof(w->host), p->node.host);
    rc = make_twice(p, layout, local_rank, &one, &other, e);
    if (rc == 0 && fill_worker(w, p->spec, &one, &other) < 0) {
        rc = error_set(e, ENOMEM, "plan the workers");
    }
    if (rc == 0 && p->plan->n_workers == 1) {
        p->plan->lost = trace.lost;
        trace.lost = (struct strlist){0};
    }
    outfit_release(&one);
    outfit_release(&other);
    contract_trace_release(&trace);
    return rc;
}

static int add_node(struct planning *p, uint32_t agent, struct error *e)
{
    const struct env_plan_spec *spec = p->spec;
    const struct host *host =
        &spec->hosts->items[agent / spec->agents_per_host];
    struct layout layout = layout_of(p->order.n_procs, p->order.n_nodes,
                                     agent);
    char own[HOSTS_NAME_BYTES] = "";
    int rc = 0;

    gethostname(own, sizeof(own) - 1);
    p->node.host = host->is_local ? own : host->name;
    p->node.agent_index = agent % spec->agents_per_host;
    for (uint32_t i = 0; rc == 0 && i < layout.n_local; i++) {
        if (rank_set_has(spec->ranks, layout.first_rank + i)) {
            rc = add_worker(p, &layout, i, e);
        }
    }
    return rc;
}

int env_plan_make(const struct env_plan_spec *spec, struct env_plan *ret,
                  struct error *e)
{
    struct planning p = {.spec = spec, .plan = ret};
    struct procs_node facts;
    char python_dir[PATH_MAX];
    int rc;

    node_facts(spec->env, &facts);
    p.node = (struct outfit_node){
        .job = spec->job,
        .env = spec->env,
        .run_id = "RUN-ID",
        .run_dir = "RUN-DIR",
        .agent_dir = "AGENT-DIR",
        .n_gpus = procs_gpus(&facts),
    };
    if (spec->job->hang_timeout_ms != JOB_OFF &&
        stacks_python_dir(python_dir, sizeof(python_dir), NULL) == 0) {
        p.node.python_dir = python_dir;
    }
    rc = make_order(&p, &facts, e);
    ret->workers = calloc(ret->world + 1, sizeof(*ret->workers));
    if (rc == 0 && !ret->workers) {
        rc = error_set(e, ENOMEM, "plan the workers");
    }
    for (uint32_t i = 0; rc == 0 && i < spec->n_agents; i++) {
        rc = add_node(&p, i, e);
    }
    order_release(&p.order);
    if (rc == 0 && ret->n_workers == 0) {
        rc = error_text(e, ERR_USAGE, "no worker has a rank of '%.100s': there "
                        "are ranks 0 to %u", spec->ranks,
                        ret->world ? ret->world - 1 : 0);
    }
    return rc;
}

void env_plan_release(struct env_plan *p)
{
    for (size_t i = 0; p->workers && i < p->n_workers; i++) {
        struct env_worker *w = &p->workers[i];

        for (size_t k = 0; k < w->n_vars; k++) {
            free(w->vars[k].name);
            free(w->vars[k].value);
        }
        free(w->vars);
        strlist_release(&w->argv);
    }
    free(p->workers);
    strlist_release(&p->lost);
    *p = (struct env_plan){0};
}

static const struct env_var *find_var(const struct env_worker *w,
                                      const struct env_var *like)
{
    return bsearch(like, w->vars, w->n_vars, sizeof(*w->vars), compare_vars);
}

bool env_plan_is_common(const struct env_plan *p, const struct env_var *v)
{
    for (size_t i = 0; i < p->n_workers; i++) {
        const struct env_var *own = find_var(&p->workers[i], v);

        if (!own || strcmp(own->value, v->value)) {
            return false;
        }
    }
    return true;
}
