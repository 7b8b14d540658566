/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/crew.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/node_facts.h"
#include "launcher/rank_env.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- socket, and the worker itself --- */

static struct outfit_node node_of(const struct crew *c)
{
    const struct agent *a = c->agent;

    return (struct outfit_node){
        .job = a->config.job,
        .env = &a->config.env,
        .run_id = a->run.id,
        .run_dir = a->run.dir,
        .ran_ms = a->config.ran_ms + uv_now(&a->loop) - a->began_ms,
        .agent_dir = a->dir,
        .agent_index = a->index,
        .host = a->host,
        .n_gpus = c->n_gpus,
        .store_port = agent_store_port(a),
        .interface = c->interface[0] ? c->interface : NULL,
        .horovod_interface = c->gloo_interface[0] ? c->gloo_interface : NULL,
        .python_dir = c->agent->python_dir[0] ? c->agent->python_dir : NULL,
    };
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
    struct outfit_node node = node_of(c);
    char path[PATH_MAX];
    int rc = outfit_socket_path(&node, order->generation, i, path,
                                sizeof(path), e);

    if (rc < 0) {
        return rc;
    }
    str_copy(welcome.run_dir, sizeof(welcome.run_dir), a->run.dir);
    str_copy(welcome.resume_path, sizeof(welcome.resume_path),
             order->resume_path);
    rc = worker_socket_create(&a->loop, path, &welcome, &crew_socket_ops, c,
                              &c->list[i].socket, e);
    if (rc == 0) {
        worker_socket_set_segment(c->list[i].socket, c->world->segment);
        if (a->config.job->checkpoint.store) {
            worker_socket_set_store(c->list[i].socket);
        }
    }
    return rc;
}

int crew_error_path(const struct crew *c, uint32_t local_rank, char *to,
                      size_t size, struct error *e)
{
    struct outfit_node node = node_of(c);

    return outfit_error_path(&node, c->generation, local_rank, to, size, e);
}

int crew_stacks_path(const struct crew *c, uint32_t local_rank, char *to,
                     size_t size, struct error *e)
{
    struct outfit_node node = node_of(c);

    return outfit_stacks_path(&node, c->generation, local_rank, to, size, e);
}

bool crew_has_timers(const struct crew *c)
{
    struct outfit_node node = node_of(c);

    return outfit_has_timers(&node);
}

int crew_timers_path(const struct crew *c, char *to, size_t size,
                     struct error *e)
{
    struct outfit_node node = node_of(c);

    return outfit_timers_path(&node, c->generation, to, size, e);
}

/* mpirun starts the program itself: here is who stands in for it. */
static int seat_worker(struct outfit *o, uint64_t wait_ms, struct error *e)
{
    _strlist_ struct strlist argv = {0};
    char helper[PATH_MAX];
    int rc = fs_helper("muster-seat", helper, sizeof(helper), e);

    if (rc < 0) {
        return rc;
    }
    strlist_add(&argv, helper);
    strlist_addf(&argv, "%llu", (unsigned long long)wait_ms);
    strlist_add_all(&argv, o->argv.items);
    if (argv.failed) {
        return error_set(e, ENOMEM, "start workers");
    }
    strlist_release(&o->argv);
    o->argv = argv;
    argv = (struct strlist){0};
    return 0;
}

/* Open MPI wants an interface of this node, and no choice among several. */
static void choose_interface(const struct crew *c, struct outfit *o)
{
    if (c->interface[0]) {
        strlist_setenv(&o->env, RANK_ENV_INTERFACE, c->interface);
    }
}

static int make_outfit(struct crew *c, uint32_t i, const struct order *order,
                       struct strlist *warnings, struct error *e)
{
    struct outfit_node node = node_of(c);
    struct outfit *outfit = &c->list[i].outfit;
    int rc;

    outfit->warnings = i == 0 ? warnings : NULL;
    rc = outfit_make(&node, order, &c->layout, i, outfit, e);
    if (rc < 0 || node.job->program != JOB_MPI) {
        return rc;
    }
    choose_interface(c, outfit);
    return seat_worker(outfit, node.job->gang_timeout_ms, e);
}

/* Where all are on this host they meet on loopback; hosts may come until the next
 * generation. */
static void find_interface(struct crew *c)
{
    const struct agent *a = c->agent;

    if (!job_interface(a->config.job) || agent_on_one_host(a) ||
        addr_interface(a->roster.entries[a->rank].addrs[0], c->interface,
                       sizeof(c->interface)) < 0) {
        c->interface[0] = '\0';
    }
}

/* Horovod's gloo listens on one interface of each node: that of the address at
 * which the others reach it. Where none has it, gloo picks one by itself. */
static void find_gloo_interface(struct crew *c)
{
    const struct agent *a = c->agent;
    const char *addr = agent_on_one_host(a)
                           ? "127.0.0.1"
                           : a->roster.entries[a->rank].addrs[0];

    if (a->config.job->horovod != JOB_HOROVOD_GLOO ||
        addr_interface(addr, c->gloo_interface, sizeof(c->gloo_interface)) < 0) {
        c->gloo_interface[0] = '\0';
    }
}

int crew_equip(struct crew *c, const struct order *order, struct error *e)
{
    _strlist_ struct strlist warnings = {0};
    struct procs_node node;
    int rc = crew_world_create(order, &c->layout, &c->world, e);

    node_facts(&c->agent->config.env, &node);
    c->n_gpus = procs_gpus(&node);
    find_interface(c);
    find_gloo_interface(c);
    for (uint32_t i = 0; rc == 0 && i < c->layout.n_local; i++) {
        rc = make_socket(c, i, order, e);
        rc = rc < 0 ? rc : make_outfit(c, i, order, &warnings, e);
    }
    for (size_t i = 0; c->layout.first_rank == 0 && order->past.n_restarts == 0 &&
                       i < warnings.n; i++) {
        agent_note(c->agent, "%s", warnings.items[i]);
    }
    return rc;
}

/* On the node's own disk, as the socket. */
void crew_put_stop_file(struct crew *c, bool there)
{
    struct outfit_node node = node_of(c);
    char path[PATH_MAX];
    int fd;

    if (outfit_stop_path(&node, c->generation, path, sizeof(path), NULL) < 0) {
        return;
    }
    if (!there) {
        unlink(path);
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        close(fd);
    }
}

void crew_strip(struct crew *c)
{
    crew_put_stop_file(c, false);
    for (uint32_t i = 0; c->list && i < c->layout.n_local; i++) {
        char path[PATH_MAX];

        if (crew_error_path(c, i, path, sizeof(path), NULL) == 0) {
            unlink(path);
        }
        worker_socket_destroy(c->list[i].socket);
        outfit_release(&c->list[i].outfit);
    }
}
