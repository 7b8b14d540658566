/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OME TrainingRuntime and ClusterTrainingRuntime, ome.io/v1beta1: policies, and
 * a JobSet of which one container is what workers run. muster starts processes
 * itself, so the other jobs of the set and what concerns pods are noted and
 * left.
 */
#include <config.h>

#include "base/buf.h"
#include "base/str.h"
#include "spec/form.h"
#include "spec/value.h"

#include <string.h>

#define ANY(key) {key, .type = FIELD_ANY}
#define NO_EFFECT(key, why) {key, .type = FIELD_ANY, .unused = why}

static const char pods[] = "workers are processes, not pods";
static const char cluster[] = "there is no cluster that would use it";
static const char scheduler[] = "hosts are chosen by mpirun or Slurm";

/* --- mlPolicy --- */

/* A rule for more and fewer nodes by how busy they are. A job with a range of nodes takes
 * all that there are, and more when they come: who wanted that only under load has to
 * know. */
static void refuse_metrics(struct reader *r, const struct node *n,
                           const struct node *min, const struct node *max)
{
    const struct node *metrics = node_given(n, "metrics");

    if (!metrics || (metrics->kind != NODE_SCALAR && metrics->n == 0)) {
        return;
    }
    if (!min || strcmp(min->text, max->text) == 0) {
        report_warn(r->report, &metrics->place, "%s.metrics is not honoured, and would "
                    "change nothing: the number of nodes is fixed", r->path);
    } else {
        report_warn(r->report, &metrics->place, "%s.metrics is not honoured: muster does "
                    "not scale by load. The job has as many of its %s to %s nodes as "
                    "there are; muster scale RUN N sets how many", r->path, min->text,
                    max->text);
    }
}

/* Either end alone is both. */
static void take_elastic(struct reader *r, const struct field *f,
                         struct node *n)
{
    const struct node *min = node_given(n, "minNodes");
    const struct node *max = node_given(n, "maxNodes");

    (void)f;
    min = min ? min : max;
    max = max ? max : min;
    if (min) {
        node_set(r->arena, r->out, "elasticNodes",
                 node_scalar(r->arena, &min->place,
                             arena_printf(r->arena, "%s..%s", min->text,
                                          max->text),
                             true));
    }
    refuse_metrics(r, n, min, max);
}

static const struct field elastic_fields[] = {
    {"minNodes", .type = FIELD_COUNT, .min = 1, .max = 65536},
    {"maxNodes", .type = FIELD_COUNT, .min = 1, .max = 65536},
    {"maxRestarts", .type = FIELD_COUNT, .max = 1000000, .to = "restart.max",
     .take = form_take_least},
    {"metrics", .type = FIELD_ANY},
    {0},
};

static const struct field torch_fields[] = {
    {"numProcPerNode", .type = FIELD_PROCS, .max = JOB_PROCS_MAX,
     .to = "procsPerNode"},
    {"elasticPolicy", .type = FIELD_MAP, .fields = elastic_fields,
     .take = take_elastic},
    {0},
};

static const char *const mpi_words[] = {"OpenMPI", "Intel", "MPICH", NULL};

static void take_implementation(struct reader *r, const struct field *f,
                                struct node *n)
{
    (void)f;
    if (strcmp(n->text, "OpenMPI") != 0) {
        report_note(r->report, &n->place,
                    "%s is %s; muster takes the mpirun that it finds, of Open "
                    "MPI",
                    r->path, n->text);
    }
}

static const struct field mpi_fields[] = {
    {"numProcPerNode", .type = FIELD_COUNT, .min = 1, .max = 65536,
     .to = "procsPerNode"},
    {"mpiImplementation", .type = FIELD_ENUM, .words = mpi_words,
     .take = take_implementation},
    NO_EFFECT("sshAuthMountPath", "mpirun uses the user's own ssh or Slurm"),
    {"runLauncherAsNode", .type = FIELD_BOOL,
     .unused = "mpirun is no node of the job, and needs none"},
    {0},
};

static void take_mpi(struct reader *r, const struct field *f, struct node *n)
{
    (void)f;
    node_set(r->arena, r->out, "program",
             node_scalar(r->arena, &n->place, "mpi", true));
}

static void take_policy(struct reader *r, const struct field *f,
                        struct node *n)
{
    (void)f;
    if (node_given(n, "torch") && node_given(n, "mpi")) {
        report_error(r->report, &node_get(n, "mpi")->place,
                     "%s has both torch and mpi; expected one of them",
                     r->path);
    }
}

static const struct field policy_fields[] = {
    {"numNodes", .type = FIELD_COUNT, .min = 1, .max = 65536, .to = "nodes"},
    {"torch", .type = FIELD_MAP, .fields = torch_fields},
    {"mpi", .type = FIELD_MAP, .fields = mpi_fields, .take = take_mpi},
    {0},
};

/* --- podGroupPolicy --- */

/* 0 is what Kubernetes takes for not given. */
static void take_schedule_timeout(struct reader *r, const struct field *f,
                                  struct node *n)
{
    if (strcmp(n->text, "0") != 0) {
        form_take_seconds(r, f, n);
    }
}

static const struct field coscheduling_fields[] = {
    {"scheduleTimeoutSeconds", .type = FIELD_COUNT, .max = 31536000,
     .to = "gang.timeout", .take = take_schedule_timeout},
    {0},
};

static const struct field volcano_fields[] = {
    {"minMember", .type = FIELD_COUNT, .min = 1, .max = 65536,
     .unused = "the least number of nodes is that of the job"},
    {"queue", .type = FIELD_STRING, .to = "slurm.partition"},
    {"priorityClassName", .type = FIELD_STRING, .to = "slurm.qos"},
    {0},
};

static const struct field pod_group_fields[] = {
    {"coscheduling", .type = FIELD_MAP, .fields = coscheduling_fields},
    {"volcano", .type = FIELD_MAP, .fields = volcano_fields},
    {0},
};

/* --- the pod and its container --- */

static const struct field container_fields[] = {
    {"name", .type = FIELD_STRING},
    {"image", .type = FIELD_STRING, .to = "container"},
    {"command", .type = FIELD_LIST, .to = "command"},
    {"args", .type = FIELD_LIST, .to = "args"},
    {"env", .type = FIELD_ANY, .take = form_take_env},
    {"envFrom", .type = FIELD_ANY, .take = form_take_env_from},
    {"workingDir", .type = FIELD_STRING, .to = "workdir"},
    {"resources", .type = FIELD_ANY, .take = form_take_resources},
    NO_EFFECT("imagePullPolicy", pods),
    NO_EFFECT("ports", pods),
    NO_EFFECT("volumeMounts", pods),
    NO_EFFECT("volumeDevices", pods),
    NO_EFFECT("securityContext", pods),
    NO_EFFECT("livenessProbe", pods),
    NO_EFFECT("readinessProbe", pods),
    NO_EFFECT("startupProbe", pods),
    NO_EFFECT("lifecycle", pods),
    NO_EFFECT("resizePolicy", pods),
    NO_EFFECT("restartPolicy", pods),
    NO_EFFECT("stdin", "workers read nothing"),
    NO_EFFECT("stdinOnce", "workers read nothing"),
    NO_EFFECT("tty", "workers have no terminal"),
    NO_EFFECT("terminationMessagePath", pods),
    NO_EFFECT("terminationMessagePolicy", pods),
    {0},
};

/* Names of the one that trains, the likeliest first. */
static const char *const job_names[] = {"trainer-node", "trainer", "launcher",
                                        "node", "worker", NULL};
static const char *const container_names[] = {"trainer", "pytorch", "node",
                                              "launcher", "mpi-launcher",
                                              "mpi-worker", NULL};

static const char *name_of(const struct node *item)
{
    const struct node *name = node_get(item, "name");

    return name && name->kind == NODE_SCALAR ? name->text : "";
}

/* The item of a list that trains: by name, else the only one. NULL after an
 * error that lists the names. */
static struct node *choose(struct reader *r, const struct node *list,
                           const char *const *names)
{
    struct buf found = {0};

    for (size_t i = 0; names[i]; i++) {
        for (size_t k = 0; k < list->n; k++) {
            if (strcmp(name_of(list->items[k]), names[i]) == 0) {
                return list->items[k];
            }
        }
    }
    if (list->n == 1) {
        return list->items[0];
    }
    for (size_t i = 0; i < list->n; i++) {
        buf_printf(&found, "%s%.60s", i ? ", " : "", name_of(list->items[i]));
    }
    report_error(r->report, &list->place,
                 "%s has %s%s; expected one item, or one named %s, %s or %s",
                 r->path, list->n ? "the names " : "no items",
                 buf_str(&found), names[0], names[1], names[2]);
    buf_release(&found);
    return NULL;
}

/* Reads the chosen item with `fields`; says that the others are left. */
static void read_chosen(struct reader *r, struct node *n,
                        const char *const *names, const struct field *fields)
{
    struct node *chosen;
    size_t before;

    if (n->kind != NODE_LIST) {
        report_error(r->report, &n->place, "%s is %s; expected a list of maps",
                     r->path, node_noun(n));
        return;
    }
    chosen = choose(r, n, names);
    for (size_t i = 0; chosen && i < n->n; i++) {
        if (n->items[i] != chosen) {
            report_note(r->report, &n->items[i]->place,
                        "%s %.60s is not started: muster starts %.60s only",
                        r->path, name_of(n->items[i]), name_of(chosen));
        }
    }
    if (!chosen) {
        return;
    }
    if (chosen->kind != NODE_MAP) {
        report_error(r->report, &chosen->place,
                     "%s has %s; expected maps with a name", r->path,
                     node_noun(chosen));
        return;
    }
    before = schema_enter(r, name_of(chosen));
    schema_read(r, fields, chosen, NULL);
    schema_leave(r, before);
}

static void take_containers(struct reader *r, const struct field *f,
                            struct node *n)
{
    (void)f;
    read_chosen(r, n, container_names, container_fields);
}

static const char *const restart_words[] = {"Never", "OnFailure", "Always",
                                            NULL};

static const struct field pod_fields[] = {
    {"containers", .type = FIELD_ANY, .take = take_containers},
    {"restartPolicy", .type = FIELD_ENUM, .words = restart_words,
     .to = "restart.policy"},
    {"terminationGracePeriodSeconds", .type = FIELD_COUNT, .max = 86400,
     .to = "limits.grace", .take = form_take_seconds},
    {"activeDeadlineSeconds", .type = FIELD_COUNT, .min = 1, .max = 1000000000,
     .to = "limits.deadline", .take = form_take_seconds},
    NO_EFFECT("initContainers", "muster stages data itself"),
    NO_EFFECT("volumes", pods),
    NO_EFFECT("nodeSelector", scheduler),
    NO_EFFECT("nodeName", scheduler),
    NO_EFFECT("affinity", scheduler),
    NO_EFFECT("tolerations", scheduler),
    NO_EFFECT("topologySpreadConstraints", scheduler),
    NO_EFFECT("schedulerName", scheduler),
    NO_EFFECT("schedulingGates", scheduler),
    NO_EFFECT("priorityClassName", scheduler),
    NO_EFFECT("priority", scheduler),
    NO_EFFECT("runtimeClassName", pods),
    NO_EFFECT("securityContext", "workers run as the user who starts the job"),
    NO_EFFECT("serviceAccountName", cluster),
    NO_EFFECT("serviceAccount", cluster),
    NO_EFFECT("automountServiceAccountToken", cluster),
    NO_EFFECT("imagePullSecrets", cluster),
    NO_EFFECT("hostNetwork", "workers use the host's network"),
    NO_EFFECT("hostIPC", "workers use the host's memory"),
    NO_EFFECT("hostPID", "workers are processes of the host"),
    NO_EFFECT("hostname", pods),
    NO_EFFECT("subdomain", pods),
    NO_EFFECT("dnsPolicy", pods),
    NO_EFFECT("dnsConfig", pods),
    NO_EFFECT("enableServiceLinks", pods),
    NO_EFFECT("shareProcessNamespace", pods),
    NO_EFFECT("hostAliases", pods),
    NO_EFFECT("setHostnameAsFQDN", pods),
    NO_EFFECT("overhead", pods),
    NO_EFFECT("os", pods),
    {0},
};

static const struct field template_metadata_fields[] = {
    {"name", .type = FIELD_STRING},
    {"namespace", .type = FIELD_STRING},
    {"labels", .type = FIELD_PAIRS, .to = "labels", .take = form_take_pairs},
    {"annotations", .type = FIELD_PAIRS, .to = "annotations",
     .take = form_take_pairs},
    ANY("creationTimestamp"),
    {0},
};

static const struct field pod_template_fields[] = {
    {"metadata", .type = FIELD_MAP, .fields = template_metadata_fields},
    {"spec", .type = FIELD_MAP, .fields = pod_fields},
    {0},
};

/* --- the batch job and the JobSet around it --- */

/* Both are set to the number of nodes by hand in many files. */
static void take_parallelism(struct reader *r, const struct field *f,
                             struct node *n)
{
    (void)f;
    if (!strstr(r->path, "launcher") && !node_get(r->out, "parallelism")) {
        node_set(r->arena, r->out, "parallelism", n);
    }
}

static const struct field batch_fields[] = {
    {"parallelism", .type = FIELD_COUNT, .max = 65536,
     .take = take_parallelism},
    {"completions", .type = FIELD_COUNT, .max = 65536,
     .take = take_parallelism},
    {"backoffLimit", .type = FIELD_COUNT, .max = 2147483647,
     .to = "restart.max", .take = form_take_least},
    {"activeDeadlineSeconds", .type = FIELD_COUNT, .min = 1, .max = 1000000000,
     .to = "limits.deadline", .take = form_take_seconds},
    {"template", .type = FIELD_MAP, .fields = pod_template_fields},
    ANY("completionMode"),
    NO_EFFECT("podFailurePolicy", "the restart policy of the job counts"),
    NO_EFFECT("podReplacementPolicy", pods),
    NO_EFFECT("backoffLimitPerIndex", "the budget is one for the job"),
    NO_EFFECT("maxFailedIndexes", "the budget is one for the job"),
    NO_EFFECT("successPolicy", "all workers have to succeed"),
    NO_EFFECT("ttlSecondsAfterFinished", "runs are kept until muster gc"),
    NO_EFFECT("suspend", "the job's own suspend counts"),
    NO_EFFECT("manualSelector", pods),
    NO_EFFECT("selector", pods),
    {0},
};

static const struct field batch_template_fields[] = {
    {"metadata", .type = FIELD_MAP, .fields = template_metadata_fields},
    {"spec", .type = FIELD_MAP, .fields = batch_fields},
    {0},
};

/* Upstream refuses all but one. */
static void take_replicas(struct reader *r, const struct field *f,
                          struct node *n)
{
    (void)f;
    if (strcmp(n->text, "1") != 0) {
        report_warn(r->report, &n->place,
                    "%s is %s; muster starts one group, of as many nodes as "
                    "numNodes says",
                    r->path, n->text);
    }
}

static const struct field replicated_job_fields[] = {
    {"name", .type = FIELD_STRING},
    {"template", .type = FIELD_MAP, .fields = batch_template_fields},
    {"replicas", .type = FIELD_COUNT, .max = 65536, .take = take_replicas},
    ANY("groupName"),
    NO_EFFECT("dependsOn", "muster stages data itself"),
    {0},
};

static void take_jobs(struct reader *r, const struct field *f, struct node *n)
{
    (void)f;
    read_chosen(r, n, job_names, replicated_job_fields);
}

static const struct field failure_fields[] = {
    {"maxRestarts", .type = FIELD_COUNT, .max = 2147483647,
     .to = "restart.max", .take = form_take_least},
    NO_EFFECT("restartStrategy", "muster restarts the group in place"),
    NO_EFFECT("rules", "the restart policy of the job counts"),
    {0},
};

static const struct field jobset_fields[] = {
    {"replicatedJobs", .type = FIELD_ANY, .take = take_jobs},
    {"failurePolicy", .type = FIELD_MAP, .fields = failure_fields},
    NO_EFFECT("successPolicy", "all workers have to succeed"),
    NO_EFFECT("network", "there is no cluster that would use it"),
    NO_EFFECT("startupPolicy", "all workers start together"),
    NO_EFFECT("suspend", "the job's own suspend counts"),
    NO_EFFECT("coordinator", "the lowest rank leads"),
    NO_EFFECT("managedBy", cluster),
    NO_EFFECT("ttlSecondsAfterFinished", "runs are kept until muster gc"),
    NO_EFFECT("volumeClaimPolicies", pods),
    {0},
};

static const struct field template_fields[] = {
    {"metadata", .type = FIELD_MAP, .fields = template_metadata_fields},
    {"spec", .type = FIELD_MAP, .fields = jobset_fields},
    {0},
};

static const struct field spec_fields[] = {
    {"mlPolicy", .type = FIELD_MAP, .fields = policy_fields,
     .take = take_policy},
    {"podGroupPolicy", .type = FIELD_MAP, .fields = pod_group_fields},
    {"template", .type = FIELD_MAP, .fields = template_fields},
    {"labels", .type = FIELD_PAIRS, .to = "labels", .take = form_take_pairs},
    {"annotations", .type = FIELD_PAIRS, .to = "annotations",
     .take = form_take_pairs},
    {"compartmentID", .type = FIELD_STRING, .to = "labels.compartmentID"},
    {0},
};

static const struct field doc_fields[] = {
    ANY("apiVersion"),
    ANY("kind"),
    {"metadata", .type = FIELD_MAP, .flags = FIELD_REQUIRED,
     .fields = form_runtime_metadata},
    {"spec", .type = FIELD_MAP, .flags = FIELD_REQUIRED,
     .fields = spec_fields},
    {"status", .type = FIELD_ANY, .unused = "a cluster wrote it"},
    {0},
};

/* --- what several keys say together --- */

static void settle_nodes(const struct context *c, struct node *out)
{
    struct node *range = node_get(out, "elasticNodes");
    struct node *fixed = node_get(out, "nodes");
    struct node *parallel = node_get(out, "parallelism");
    struct job_nodes span, n;

    if (range && value_range(range->text, 65536, &span) < 0) {
        report_error(c->report, &range->place,
                     "minNodes..maxNodes is %s; expected minNodes at most "
                     "maxNodes",
                     range->text);
        return;
    }
    if (range && fixed && value_range(fixed->text, 65536, &n) == 0 &&
        (n.min < span.min || n.max > span.max)) {
        report_warn(c->report, &fixed->place,
                    "numNodes %s is outside of elasticPolicy's %s; the latter "
                    "counts",
                    fixed->text, range->text);
    }
    if (!range && !fixed && parallel && strcmp(parallel->text, "0") != 0) {
        node_set(c->arena, out, "nodes", parallel);
    } else if (range) {
        node_set(c->arena, out, "nodes", range);
    } else if (fixed && parallel &&
               strcmp(fixed->text, parallel->text) != 0) {
        report_warn(c->report, &parallel->place,
                    "parallelism %s differs from numNodes %s; the latter "
                    "counts",
                    parallel->text, fixed->text);
    }
}

/* A pod that is never restarted is what a JobSet that restarts all of them
 * needs; only alone does it mean that there is no restart. */
static struct node *settle(const struct context *c, struct node *out)
{
    static const char *const scratch[] = {"elasticNodes", "parallelism"};
    const struct node *policy = node_get_path(out, "restart.policy");
    const struct node *max = node_get_path(out, "restart.max");
    struct node *clean = node_map(c->arena, &out->place);

    settle_nodes(c, out);
    if (policy && max && strcmp(policy->text, "Never") == 0 &&
        strcmp(max->text, "0") != 0) {
        node_set_path(c->arena, out, "restart.policy",
                      node_scalar(c->arena, &max->place, "OnFailure", true));
    }
    for (size_t i = 0; i < out->n; i++) {
        const struct pair *p = &out->pairs[i];

        if (strcmp(p->key, scratch[0]) != 0 &&
            strcmp(p->key, scratch[1]) != 0) {
            node_add(c->arena, clean, p->key, &p->place, p->value);
        }
    }
    return clean;
}

struct node *form_ome_runtime_read(const struct context *c, struct node *doc)
{
    struct node *out = node_map(c->arena, &doc->place);
    struct reader r = form_reader(c, out);

    if (!out || !schema_read(&r, doc_fields, doc, NULL)) {
        return NULL;
    }
    out = settle(c, out);
    return c->report->n_errors || c->arena->failed ? NULL : out;
}
