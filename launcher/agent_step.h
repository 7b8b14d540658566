/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step of Slurm's that agents live in. mpirun makes a step too, and Slurm
 * kills all processes of a step with it: agents that muster-mpi had started
 * would go with the MPI world that they have to outlive.
 *
 * One srun for all hosts starts a keeper on each (launcher/cmd_keep.c), which
 * says so; then mpirun is run, and its muster-mpi ask the keepers for agents. A
 * keeper ends with its agents, and the step with its keepers.
 *
 * Where no such step can be had (an srun that knows no --overlap, a site that
 * allows none), the run goes on without: on_up() tells why.
 */
#ifndef MUSTER_LAUNCHER_AGENT_STEP_H
#define MUSTER_LAUNCHER_AGENT_STEP_H

#include "base/child.h"
#include "base/error.h"
#include "launcher/hosts.h"

#include <stdbool.h>
#include <uv.h>

struct agent_step;

struct agent_step_config {
    uv_loop_t *loop;
    struct child_table *children;
    const struct host_list *hosts;
    const char *run_id;
    const char *nodelist_path; /* written for srun */
    const char *log_path;  /* what srun and keepers have to say */
    unsigned wait_seconds; /* for an agent to be asked for */
    /* Once: all keepers are there (`why_not` is NULL), or they will not be. */
    void (*on_up)(void *arg, const char *why_not);
    /* Once, later than on_up(): srun has ended. */
    void (*on_end)(void *arg);
    void *arg;
};

/* `config` and what it points to are borrowed for life. A failure means that
 * srun could not be run. */
int agent_step_create(const struct agent_step_config *config,
                      struct agent_step **ret, struct error *e);

/* Until srun has ended. NULL is allowed. */
bool agent_step_lives(const struct agent_step *s);

/* The step itself is known to have ended, and no agent lives: an srun that was
 * killed tells nothing of it. NULL is allowed. */
bool agent_step_is_over(const struct agent_step *s);

/* SIGTERM makes srun kill the step; SIGKILL ends srun alone. */
void agent_step_kill(struct agent_step *s, int sig);

/* Leaves what lives alone. The memory goes when the loop has turned once more.
 * NULL is allowed. */
void agent_step_destroy(struct agent_step *s);

#endif
