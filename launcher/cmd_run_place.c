/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>

enum { MAX_AGENTS_PER_HOST = 1024 };

static int check_agents(const struct run_options *o, unsigned per_host,
                        struct error *e)
{
    if (o->agents_per_node < 0 || per_host > MAX_AGENTS_PER_HOST) {
        return error_text(e, ERR_USAGE, "--agents-per-node: expected 1 to %d "
                          "agents on a host, found %lld", MAX_AGENTS_PER_HOST,
                          o->agents_per_node ? (long long)o->agents_per_node
                                             : (long long)per_host);
    }
    return 0;
}

static int place(const struct run_options *o, const struct job *job,
                 struct host_list *hosts, unsigned *ret_per_host,
                 unsigned *ret_agents, struct error *e)
{
    size_t per_host = (size_t)o->agents_per_node;
    size_t max_nodes = (size_t)job->nodes.max + job->elastic.spares;
    size_t n_hosts;

    if (o->agent_is_node) {
        size_t agents = max_nodes;

        if (per_host && per_host * hosts->n < agents) {
            agents = per_host * hosts->n;
        }
        n_hosts = hosts->n < agents ? hosts->n : agents;
        per_host = (agents + n_hosts - 1) / n_hosts;
        if (agents < job->nodes.min) {
            return error_text(e, ERR_USAGE, "the job needs %u nodes, and "
                              "there %s %zu agent%s", job->nodes.min,
                              agents == 1 ? "is" : "are", agents,
                              agents == 1 ? "" : "s");
        }
        hosts->n = n_hosts;
        *ret_per_host = (unsigned)per_host;
        *ret_agents = (unsigned)agents;
        return 0;
    }
    if (hosts->n < job->nodes.min && hosts->n == 1 && o->as_launcher) {
        return error_text(e, ERR_USAGE, "--nnodes is %u, and there is 1 host: "
                          "muster torchrun is started once, and not on each "
                          "node as torchrun with --node-rank is. On one of "
                          "them `muster torchrun --hosts A,B ...` reaches the "
                          "others over ssh; or start it on all at once, by "
                          "`mpirun --host A,B --map-by ppr:1:node muster "
                          "torchrun ...`", job->nodes.min);
    }
    if (hosts->n < job->nodes.min) {
        return error_text(e, ERR_USAGE, "the job needs %u node%s, and %s %zu "
                          "host%s (--hosts A,B names more; --agent-is-node lets "
                          "one machine stand for many)", job->nodes.min,
                          job->nodes.min == 1 ? "" : "s",
                          hosts->n == 1 ? "there is" : "there are", hosts->n,
                          hosts->n == 1 ? "" : "s");
    }
    hosts->n = hosts->n < max_nodes ? hosts->n : max_nodes;
    *ret_per_host = per_host ? (unsigned)per_host : 1;
    *ret_agents = *ret_per_host * (unsigned)hosts->n;
    return 0;
}

/* Slots that differ stay what they are for others: a node counts for itself. */
void run_take_slots(const struct run_options *o, struct job *job,
                    const struct host_list *hosts)
{
    uint32_t slots = hosts_same_slots(hosts);

    if ((job->procs.mode != JOB_PROCS_AUTO &&
         job->procs.mode != JOB_PROCS_CPU) ||
        o->agent_is_node || o->agents_per_node > 1) {
        return;
    }
    if (slots) {
        job->procs = (struct job_procs){.mode = JOB_PROCS_FIXED, .n = slots};
        fprintf(stderr, "muster: note: procsPerNode is %u: the slots that the "
                "list of hosts gives\n", slots);
        return;
    }
    for (size_t i = 0; i < hosts->n; i++) {
        if (hosts->items[i].slots) {
            fputs("muster: note: hosts do not have the same slots: "
                  "procsPerNode counts each node's CPUs or GPUs\n", stderr);
            return;
        }
    }
}

int run_place(const struct run_options *o, const struct job *job,
              struct host_list *hosts, unsigned *ret_per_host,
              unsigned *ret_agents, struct error *e)
{
    int rc = check_agents(o, 0, e);

    rc = rc < 0 ? rc : place(o, job, hosts, ret_per_host, ret_agents, e);
    return rc < 0 ? rc : check_agents(o, *ret_per_host, e);
}

int run_write_hostfile(const struct rundir *dir, struct mpirun_plan *plan,
                       char *path, size_t size, struct error *e)
{
    _buf_ struct buf text = {0};
    int rc = rundir_path(dir, path, size, e, "hostfile");

    if (rc < 0 || !mpirun_needs_hostfile(plan)) {
        return rc;
    }
    plan->hostfile = path;
    mpirun_hostfile(plan, &text);
    return text.failed ? error_set(e, ENOMEM, "write %s", path)
                       : fs_write_replace(path, text.data, text.len, e);
}
