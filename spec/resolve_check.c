/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/resolve.h"

#include "base/str.h"
#include "spec/command_wrap.h"

#include <math.h>
#include <string.h>

static bool is_fixed(const struct job_parameter *p)
{
    return p->values.n == 1;
}

static bool is_free(const struct job_parameter *p)
{
    return !is_fixed(p);
}

static void check_range(const struct context *c, const struct place *at,
                        const struct job_parameter *p)
{
    if (p->min == 0 && p->max == 0) {
        report_error(c->report, at,
                     "parameter %.60s has no values; expected values, or min "
                     "and max",
                     p->name);
    } else if (p->min > p->max) {
        report_error(c->report, at,
                     "parameter %.60s goes from %g to %g; expected min at most "
                     "max",
                     p->name, p->min, p->max);
    } else if (p->scale == JOB_SCALE_LOG && p->min <= 0) {
        report_error(c->report, at,
                     "parameter %.60s is logarithmic from %g; expected min "
                     "above 0",
                     p->name, p->min);
    } else if (p->type == JOB_PARAMETER_INT &&
               (p->min != floor(p->min) || p->max != floor(p->max))) {
        report_error(c->report, at,
                     "parameter %.60s goes from %g to %g; expected whole "
                     "numbers, or type: double",
                     p->name, p->min, p->max);
    } else if (p->type == JOB_PARAMETER_CATEGORICAL) {
        report_error(c->report, at,
                     "parameter %.60s is categorical; expected values",
                     p->name);
    } else if (p->step < 0) {
        report_error(c->report, at,
                     "parameter %.60s has step %g; expected one above 0",
                     p->name, p->step);
    }
}

static void check_values(const struct context *c, const struct place *at,
                         const struct job_parameter *p)
{
    for (size_t i = 0; i < p->values.n; i++) {
        double v;

        if (p->type != JOB_PARAMETER_CATEGORICAL &&
            str_to_f64(p->values.items[i], &v) < 0) {
            report_error(c->report, at,
                         "parameter %.60s has the value \"%.60s\"; expected a "
                         "number, or type: categorical",
                         p->name, p->values.items[i]);
        }
    }
}

static const struct place *place_of(const struct node *tree, const char *path)
{
    const struct node *n = node_get_path(tree, path);

    return n ? &n->place : &tree->place;
}

/* How many trials there are, where the job does not say. */
static void settle_trials(const struct context *c, const struct node *tree,
                          struct job_search *search, size_t n_free)
{
    const struct place *at = place_of(tree, "search");

    if (n_free == 0) {
        if (search->max_trials != 1) {
            report_warn(c->report, at,
                        "search has no parameter that could vary, so there is "
                        "one trial");
        }
        search->max_trials = 1;
        return;
    }
    if (search->max_trials == 0 && search->method != JOB_SEARCH_GRID) {
        report_error(c->report, at,
                     "search.maxTrials is missing; expected a number, as a "
                     "search by %s does not end by itself",
                     search->method == JOB_SEARCH_BAYES ? "bayes" : "random");
    }
    if (!search->metric) {
        report_error(c->report, at,
                     "search.metric.name is missing; expected the name of the "
                     "metric that tells which trial is best");
    }
}

static void check_search(const struct context *c, const struct node *tree,
                         struct job_search *search)
{
    const struct node *map = node_get_path(tree, "search.parameters");
    size_t n_free = 0;

    if (search->method == JOB_SEARCH_NONE) {
        return;
    }
    for (size_t i = 0; i < search->n_parameters; i++) {
        const struct job_parameter *p = &search->parameters[i];
        const struct node *n = node_get(map, p->name);
        const struct place *at = n ? &n->place : &tree->place;

        n_free += is_free(p);
        if (p->values.n) {
            check_values(c, at, p);
        } else {
            check_range(c, at, p);
        }
    }
    settle_trials(c, tree, search, n_free);
}

static void check_command(const struct context *c, const struct node *tree,
                          bool is_runtime, const struct job *job)
{
    if (job->command.n == 0 || !job->command.items[0][0]) {
        if (is_runtime && job->command.n == 0) {
            report_note(c->report, &tree->place,
                        "no command: the job has to give it");
            return;
        }
        report_error(c->report, place_of(tree, "command"),
                     "command is missing%s%.60s; expected the program and its "
                     "arguments, such as [python, train.py]",
                     job->runtime ? ", in the job and in runtime " : "",
                     job->runtime ? job->runtime : "");
    }
}

static const char *const owned[] = {
    "RANK",       "LOCAL_RANK",       "WORLD_SIZE",  "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",   "ROLE_WORLD_SIZE",
    "NODE_RANK",  "MASTER_ADDR",      "MASTER_PORT", NULL,
};

bool resolve_is_owned(const char *name)
{
    static const char *const prefixes[] = {"MUSTER_", "PET_", "TORCHELASTIC_",
                                           "OMPI_COMM_WORLD_", NULL};

    for (size_t i = 0; owned[i]; i++) {
        if (strcmp(owned[i], name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; prefixes[i]; i++) {
        if (str_starts(name, prefixes[i])) {
            return true;
        }
    }
    return false;
}

static void warn_of_owned(const struct context *c, const struct node *tree)
{
    const struct node *env = node_get(tree, "env");

    for (size_t i = 0; owned[i]; i++) {
        const struct node *n = node_get(env, owned[i]);

        if (n) {
            report_warn(c->report, &n->place,
                        "env has %s, which muster sets for each worker; it "
                        "has no effect",
                        owned[i]);
        }
    }
}

static void check_mpi(const struct context *c, const struct node *tree,
                      struct job *job)
{
    for (size_t i = 0; i < job->mpi_args.n; i++) {
        if (command_mpi_owns(job->mpi_args.items[i])) {
            report_error(c->report, place_of(tree, "mpiArgs"),
                         "mpiArgs has %.60s, which muster itself tells mpirun; "
                         "expected nodes, procsPerNode, or an option of the "
                         "MPI library",
                         job->mpi_args.items[i]);
        }
    }
    if (job->program != JOB_MPI && job->mpi_args.n) {
        report_error(c->report, place_of(tree, "mpiArgs"),
                     "mpiArgs without an MPI program; expected program: mpi");
    }
    if (job->program == JOB_MPI && job->nodes.min != job->nodes.max) {
        report_warn(c->report, place_of(tree, "nodes"),
                    "an MPI program does not change its size: nodes is taken "
                    "as %u",
                    job->nodes.min);
        job->nodes.max = job->nodes.min;
    }
}

/* elastic.minNodes and maxNodes each stand for one end of `nodes`. */
static void settle_nodes(const struct context *c, const struct node *tree,
                         struct job *job)
{
    const struct job_elastic *e = &job->elastic;
    struct job_nodes *nodes = &job->nodes;

    nodes->min = e->min_nodes ? e->min_nodes : nodes->min;
    nodes->max = e->max_nodes ? e->max_nodes : nodes->max;
    if (nodes->min > nodes->max) {
        report_error(c->report, place_of(tree, "elastic"),
                     "elastic and nodes together are %u..%u nodes; expected "
                     "elastic.minNodes at most elastic.maxNodes, or nodes where "
                     "one of them is not given",
                     nodes->min, nodes->max);
    }
    if (e->exclude_slow != 0 && !(e->exclude_slow >= 1.5)) {
        report_error(c->report, place_of(tree, "elastic"),
                     "elastic.excludeSlow is %g; expected 0, which is never, or "
                     "a factor of 1.5 or more",
                     e->exclude_slow);
    }
}

void resolve_check(const struct context *c, const struct node *tree,
                   bool is_runtime, struct job *job)
{
    check_command(c, tree, is_runtime, job);
    check_search(c, tree, &job->search);
    warn_of_owned(c, tree);
    settle_nodes(c, tree, job);
    check_mpi(c, tree, job);
    resolve_check_checkpoint(c, tree, job);
}
