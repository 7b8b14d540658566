/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/outfit.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/resume_arg.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* The kernel hands out every other port to clients: not ours. */
enum { PORT_STEP = 2 };

void outfit_release(struct outfit *o)
{
    strlist_release(&o->env);
    strlist_release(&o->argv);
}

int outfit_error_path(const struct outfit_node *node, uint32_t generation,
                      uint32_t local_rank, char *to, size_t size,
                      struct error *e)
{
    return fs_path(to, size, e, "%s/a%u-g%u-w%u.json", node->agent_dir,
                   node->agent_index, generation, local_rank);
}

int outfit_socket_path(const struct outfit_node *node, uint32_t generation,
                       uint32_t local_rank, char *to, size_t size,
                       struct error *e)
{
    return fs_path(to, size, e, "%s/a%u-g%u-w%u", node->agent_dir,
                   node->agent_index, generation, local_rank);
}

int outfit_stacks_path(const struct outfit_node *node, uint32_t generation,
                       uint32_t local_rank, char *to, size_t size,
                       struct error *e)
{
    return fs_path(to, size, e, "%s/a%u-g%u-w%u.stacks", node->agent_dir,
                   node->agent_index, generation, local_rank);
}

int outfit_stop_path(const struct outfit_node *node, uint32_t generation,
                     char *to, size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/a%u-g%u.stop", node->agent_dir,
                   node->agent_index, generation);
}

int outfit_timers_path(const struct outfit_node *node, uint32_t generation,
                       char *to, size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/a%u-g%u.timers", node->agent_dir,
                   node->agent_index, generation);
}

bool outfit_has_timers(const struct outfit_node *node)
{
    static const char name[] = "TORCHELASTIC_ENABLE_FILE_TIMER";
    const char *value = strlist_getenv(&node->job->env, name);

    value = value ? value : strlist_getenv(node->env, name);
    return value && strcmp(value, "1") == 0;
}

/* Python tells where it is when it is asked: see launcher/python/. */
static int add_python_dir(const struct outfit_node *node, struct strlist *env,
                          struct error *e)
{
    const char *path = strlist_getenv(env, "PYTHONPATH");
    _buf_ struct buf whole = {0};

    if (!node->python_dir) {
        return 0;
    }
    buf_printf(&whole, "%s%s%s", node->python_dir, path && path[0] ? ":" : "",
               path ? path : "");
    strlist_setenv(env, "PYTHONPATH", buf_str(&whole));
    return whole.failed || env->failed
               ? error_set(e, ENOMEM, "start workers") : 0;
}

static struct contract_facts facts_of(const struct outfit_node *node,
                                      const struct order *order,
                                      const struct layout *layout,
                                      uint32_t local_rank)
{
    uint32_t cross_rank, cross_size;

    layout_cross(order->n_procs, order->n_nodes, layout->node, local_rank,
                 &cross_rank, &cross_size);
    return (struct contract_facts){
        .run_id = node->run_id,
        .run_dir = node->run_dir,
        .job_name = node->job->name,
        .torch_run_id = node->job->torch.run_id,
        .role = node->job->torch.role,
        .generation = order->generation,
        .restart_count = order->past.n_restarts,
        .max_restarts = order->max_restarts,
        .n_failures = order->past.n_restarts + order->past.n_losses,
        .ran_ms = node->ran_ms,
        .save_every_ms = node->job->checkpoint.every_ms,
        .save_every_steps = node->job->checkpoint.every_steps,
        .rank = layout->first_rank + local_rank,
        .world = layout->world,
        .local_rank = local_rank,
        .local_world = layout->n_local,
        .node = layout->group,
        .n_nodes = layout->n_groups,
        .cross_rank = cross_rank,
        .cross_size = cross_size,
        .node_name = node->host,
        .agent_index = node->agent_index,
        .master_addr = node->store_port ? "127.0.0.1" : order->master_addr,
        .routable_addr = order->master_addr,
        .routable_port = order->master_port,
        .master_port = node->store_port ? node->store_port
                                        : order->master_port,
        .agent_store = true,
        .resume_path = order->resume_path[0] ? order->resume_path : NULL,
        .jax_port = outfit_second_port(order->master_port),
        .n_gpus = node->n_gpus,
        .interface = node->interface,
        .horovod_gloo = node->job->horovod == JOB_HOROVOD_GLOO,
        .horovod_port = outfit_third_port(order->master_port),
        .horovod_interface = node->horovod_interface,
    };
}

int outfit_make(const struct outfit_node *node, const struct order *order,
                const struct layout *layout, uint32_t local_rank,
                struct outfit *ret, struct error *e)
{
    struct contract_facts facts = facts_of(node, order, layout, local_rank);
    char error_file[PATH_MAX], socket[PATH_MAX], stacks[PATH_MAX];
    char stop_file[PATH_MAX], timers[PATH_MAX], avoided[AVOID_LINES_BYTES];
    const char *tag = strrchr(node->agent_dir, '/');
    _strlist_ struct strlist extra = {0};
    int rc;

    /* Whose it is, for whoever has to sweep up after this agent. */
    strlist_addf(&extra, "MUSTER_AGENT=%s.%u", tag ? tag + 1 : node->agent_dir,
                 node->agent_index);
    avoid_lines(&order->past.avoid, avoided);
    facts.avoid_paths = avoided;
    facts.extra = &extra;
    facts.error_file = error_file;
    facts.socket = socket;
    facts.stop_file = stop_file;
    facts.stacks = node->python_dir ? stacks : NULL;
    facts.timers = outfit_has_timers(node) ? timers : NULL;
    rc = outfit_error_path(node, order->generation, local_rank, error_file,
                           sizeof(error_file), e);
    rc = rc < 0 ? rc : outfit_socket_path(node, order->generation, local_rank,
                                          socket, sizeof(socket), e);
    rc = rc < 0 ? rc : outfit_stacks_path(node, order->generation, local_rank,
                                          stacks, sizeof(stacks), e);
    rc = rc < 0 ? rc : outfit_stop_path(node, order->generation, stop_file,
                                        sizeof(stop_file), e);
    rc = rc < 0 ? rc : outfit_timers_path(node, order->generation, timers,
                                          sizeof(timers), e);
    rc = rc < 0 ? rc : contract_env_traced(node->env, &node->job->env, &facts,
                                           &ret->env, ret->trace,
                                           ret->warnings, e);
    rc = rc < 0 ? rc : add_python_dir(node, &ret->env, e);
    rc = rc < 0 ? rc : contract_argv(node->job->command.items, &ret->env,
                                     &ret->argv, e);
    return rc == 0 && facts.resume_path && node->job->checkpoint.resume_arg
               ? resume_arg_apply(node->job->checkpoint.resume_arg,
                                  facts.resume_path, &ret->argv, e) : rc;
}

const char *outfit_cwd(const struct job *job, const char *cwd)
{
    return job->workdir ? job->workdir : cwd;
}

int outfit_path(const struct job *job, const char *cwd, const char *path,
                char *to, size_t size, struct error *e)
{
    const char *dir = outfit_cwd(job, cwd);
    int rc = path[0] == '/'  ? fs_path(to, size, e, "%s", path)
             : dir[0] == '/' ? fs_path(to, size, e, "%s/%s", dir, path)
                             : fs_path(to, size, e, "%s/%s/%s", cwd, dir, path);

    if (rc == 0) {
        fs_tidy(to); /* what is in it is known by that, and a name */
    }
    return rc;
}

/* The node's number is divided evenly among the agents on it. */
int outfit_procs(const struct job *job, const struct procs_node *facts,
                 uint32_t n, uint32_t i, uint16_t *ret, struct error *e)
{
    uint32_t total;
    int rc = procs_count(&job->procs, facts, &total, e);

    if (rc < 0) {
        return rc;
    }
    total = n > 1 ? total / n + (i < total % n) : total;
    if (total > UINT16_MAX) {
        return error_text(e, ERANGE, "%u processes on one node", total);
    }
    *ret = (uint16_t)total;
    return 0;
}

uint16_t outfit_third_port(uint16_t store_port)
{
    return outfit_second_port(outfit_second_port(store_port));
}

uint16_t outfit_second_port(uint16_t store_port)
{
    return store_port && store_port <= UINT16_MAX - PORT_STEP
               ? (uint16_t)(store_port + PORT_STEP) : 0;
}
