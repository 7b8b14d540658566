/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_AGENTS_PER_HOST = 1024,
    MAX_START_BYTES = 6 * 1024 * 1024, /* Linux's own limit, whatever the stack */
};

static int check_agents(unsigned per_host, struct error *e)
{
    return per_host <= MAX_AGENTS_PER_HOST
               ? 0 : error_text(e, ERR_USAGE, "--agents-per-node: expected 1 to %d "
                                "agents on a host, found %u", MAX_AGENTS_PER_HOST,
                                per_host);
}

int run_take_agents(void *into, const struct option_def *def, const char *value,
                    struct error *e)
{
    struct run_options *o = into;
    int64_t n;

    (void)def;
    if (str_to_i64(value, &n) < 0 || n < 1 || n > MAX_AGENTS_PER_HOST) {
        return error_text(e, ERR_USAGE, "expected 1 to %d agents on a host, found %.60s",
                          MAX_AGENTS_PER_HOST, value);
    }
    o->agents_per_node = n;
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

void run_take_hosts(struct run_options *o, const struct spec_result *r)
{
    if (!r->hosts) {
        return;
    }
    if (o->hosts || o->hostfile) {
        fprintf(stderr, "muster: note: hosts are those of %s, and not those in the "
                "command, %s\n", o->hosts ? "--hosts" : "--hostfile", r->hosts);
    } else {
        o->hosts = r->hosts;
    }
}

enum { MAX_NAMED = 8 };

/* "2 on n1, 1 on n2", of those that have any. */
static void put_slots(const struct host_list *hosts, struct buf *to)
{
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];

        if (h->slots && n++ < MAX_NAMED) {
            buf_printf(to, "%s%u on %s", n > 1 ? ", " : "", h->slots, h->name);
        }
    }
    if (n > MAX_NAMED) {
        buf_printf(to, " and so on, %zu in all", n);
    }
}

static void tell_slots(const struct host_list *hosts, bool is_slurm)
{
    _buf_ struct buf list = {0};

    put_slots(hosts, &list);
    if (list.len) {
        fprintf(stderr, "muster: note: procsPerNode is %s: the %s\n",
                buf_str(&list), is_slurm ? "tasks that Slurm was asked for"
                                         : "slots that the list of hosts gives");
    }
}

/* More workers than there are CPUs for them. */
static void tell_crowded(const struct job *job, const struct host_list *hosts)
{
    bool is_fixed = job->procs.mode == JOB_PROCS_FIXED;
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    _host_list_ struct host_list all = {0};
    size_t n = 0;

    if (hosts->source != HOSTS_SLURM || !nodes ||
        hosts_parse(nodes, &all, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];
        uint32_t cpus = hosts_slurm_cpus(&all, h->name);
        uint32_t procs = is_fixed ? job->procs.n : h->slots;

        if (cpus && procs > cpus && n++ == 0) {
            fprintf(stderr, "muster: note: %u workers on %s share the %u CPU%s "
                    "that Slurm has granted there\n", procs, h->name, cpus,
                    cpus == 1 ? "" : "s");
        }
    }
    if (n > 1) {
        fprintf(stderr, "muster: note: and so on %zu more nodes\n", n - 1);
    }
}

static bool may_take_slots(const struct run_options *o, const struct job *job)
{
    return (job->procs.mode == JOB_PROCS_AUTO ||
            job->procs.mode == JOB_PROCS_CPU) &&
           !o->agent_is_node && o->agents_per_node <= 1;
}

/* Where all have the same, that is the job's number; else each agent has to be told
 * of its own. */
void run_take_slots(const struct run_options *o, struct job *job,
                    struct host_list *hosts)
{
    bool takes = may_take_slots(o, job), is_slurm = false;
    uint32_t same;

    if (takes && hosts->source == HOSTS_SLURM && hosts_slurm_chose()) {
        is_slurm = !hosts_have_slots(hosts);
        hosts_add_slurm_slots(hosts);
    }
    same = takes ? hosts_same_slots(hosts) : 0;
    if (same) {
        job->procs = (struct job_procs){.mode = JOB_PROCS_FIXED, .n = same};
        fprintf(stderr, "muster: note: procsPerNode is %u: the %s\n", same,
                is_slurm ? "tasks that Slurm was asked for on each node"
                         : "slots that the list of hosts gives");
    } else if (takes) {
        tell_slots(hosts, is_slurm);
    }
    for (size_t i = 0; i < hosts->n && !takes; i++) {
        hosts->items[i].slots = 0;
    }
    tell_crowded(job, hosts);
}

int run_place(const struct run_options *o, const struct job *job,
              struct host_list *hosts, unsigned *ret_per_host,
              unsigned *ret_agents, struct error *e)
{
    int rc = place(o, job, hosts, ret_per_host, ret_agents, e);

    return rc < 0 ? rc : check_agents(*ret_per_host, e);
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

static size_t bytes_of(char *const *words)
{
    size_t n = 0;

    for (; words && *words; words++) {
        n += strlen(*words) + 1 + sizeof(*words);
    }
    return n;
}

int run_check_size(const struct job *job, const struct host_list *hosts,
                   struct error *e)
{
    size_t command = bytes_of(job->command.items);
    size_t all = command + bytes_of(job->env.items) + bytes_of(environ);
    long own = hosts_all_local(hosts) ? sysconf(_SC_ARG_MAX) : -1;
    size_t most = own > 0 && own < MAX_START_BYTES ? (size_t)own
                                                   : MAX_START_BYTES;

    if (all <= most) {
        return 0;
    }
    return error_text(e, ERR_USAGE, "the command has %zu bytes, and with the "
                      "environment %zu, but %sno program can be started with more "
                      "than %zu: expected less, or a file that it reads",
                      command, all, own > 0 ? "here " : "", most);
}
