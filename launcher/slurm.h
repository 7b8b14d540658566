/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What muster has to know of Slurm: how a step of its own is asked for, which of
 * Slurm's variables must not reach srun from the batch script, and which ones
 * are a node's own. Text work only; launcher/agent_step.h starts the step.
 *
 * Whether the job outlives the loss of a node (sbatch --no-kill) is not to be
 * found out from inside: neither a variable nor scontrol tells (Slurm 22.05), so
 * nothing here warns of it.
 */
#ifndef MUSTER_LAUNCHER_SLURM_H
#define MUSTER_LAUNCHER_SLURM_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "launcher/hosts.h"

#include <stdbool.h>

/* A step that gives each host a keeper of agents (`muster keep`). */
struct slurm_step {
    const struct host_list *hosts;
    const char *nodelist;  /* path of a file with what slurm_nodelist() writes */
    const char *muster;
    const char *run_id;
    unsigned wait_seconds;
};

/* The names of all hosts: as one argument some 5,000 would be too long. */
void slurm_nodelist(const struct host_list *hosts, struct buf *to);

/* The command that makes the step, beside all others of the job; it outlives
 * nodes and tasks of its own. */
void slurm_step_argv(const char *srun, const struct slurm_step *step,
                     struct strlist *to);

/* A look at hosts goes by several commands: their names are one argument each, and
 * their answers are bounded. How many hosts from `first` on one command takes; 0 at
 * the end. */
size_t slurm_probe_batch(const struct host_list *hosts, size_t first);

/* The command that has `muster probe` look at `n` hosts; its stdin goes to all. */
void slurm_probe_argv(const char *srun, const struct host_list *hosts,
                      size_t first, size_t n, const char *muster,
                      struct strlist *to);

/* The command that runs what is appended to it on one host of a job, beside all
 * its steps; `name` is that of the step. */
void slurm_host_argv(const char *srun, const char *job, const char *host,
                     const char *name, bool on_terminal, struct strlist *to);

/* The environment of these sruns: that of `env` without what a batch script was
 * given as options for its own tasks, which srun would read as options. */
void slurm_step_env(char *const *env, struct strlist *to);

/* The environment of an mpirun that makes a step: it must not wait for other
 * steps of the job, its tasks see the environment that it has itself, and it
 * finds all nodes of the job with room for `per_host` tasks each, whatever tasks
 * the job or the step that it is in has been asked for. */
void slurm_mpirun_env(char *const *env, unsigned per_host, struct strlist *to);

/* What a command of Slurm says: of all that it has printed, which may be anything,
 * the last line with something in it, fit to be shown; "" if there is none. `size`
 * is 64 at least. */
void slurm_last_line(const char *text, size_t len, char *to, size_t size);

/* What slurmd sets on each node is taken from this process, which lives on the
 * node, where `env`, of the process that started the run, has the values of
 * another one. Nothing is done outside of a Slurm job. */
void slurm_take_own(struct strlist *env);

/* Tasks of one srun each started a front end: -ERR_USAGE, saying what to do. 0
 * where this is no such task, or is one of an MPI launch. */
int slurm_check_tasks(struct error *e);

/* An MPI launch by srun itself (--mpi=pmix), of more than one task. */
bool slurm_is_mpi_launch(void);

#endif
