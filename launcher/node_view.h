/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts as `muster nodes` shows them: each is asked what it has and how busy it
 * is, all at once; and the runs that this user's index knows are put to them.
 */
#ifndef MUSTER_LAUNCHER_NODE_VIEW_H
#define MUSTER_LAUNCHER_NODE_VIEW_H

#include "base/error.h"
#include "launcher/fanout.h"
#include "launcher/gpus.h"
#include "launcher/hosts.h"
#include "launcher/rundir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NODE_MAX_USES = 16 };

/* A run that is alive and has an agent there. */
struct node_use {
    char id[RUNDIR_ID_SIZE], name[RUNDIR_NAME_SIZE];
    int n_workers;
};

struct node_view {
    char name[HOSTS_NAME_BYTES]; /* as it was asked for */
    char host[HOSTS_NAME_BYTES]; /* as it calls itself; "" before it answers */
    char slurm_node[HOSTS_NAME_BYTES];
    char problem[512];           /* why nothing is known; "" where all is well */
    uint32_t slots;              /* of the list or Slurm's; 0: nothing says */
    uint32_t cpus;
    double load;                 /* of the last minute */
    uint64_t memory_bytes, memory_free_bytes;
    struct gpus gpus;
    int gpu_use[GPUS_MAX];       /* index of the run that computes there, or -1 */
    struct node_use uses[NODE_MAX_USES];
    size_t n_uses;
};

/* `ssh` is the argv of the remote shell. The caller frees *ret, which has one
 * view a host. Hosts that do not answer are no failure. */
int node_views_ask(const struct host_list *hosts, char *const *ssh,
                   unsigned timeout_ms, struct node_view **ret,
                   struct error *e);

/* What one host said, of a view that has only its name. */
void node_view_take(struct node_view *v, const struct fanout_task *task);

/* Adds the runs that are alive. Those that cannot be read are left out. */
int node_views_add_runs(struct node_view *views, size_t n, struct error *e);

/* Somebody computes on it, or has memory there. Only known where is_detailed. */
bool node_view_gpu_is_taken(const struct gpu *g);

#endif
