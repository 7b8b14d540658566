/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mpirun of an MPI program under `muster run`: its command line, hosts and
 * environment, on the node of rank 0. Ranks are placed by a list of hosts with one
 * line a rank, so that each comes to the worker whose seat it takes.
 */
#ifndef MUSTER_LAUNCHER_MPI_WORLD_H
#define MUSTER_LAUNCHER_MPI_WORLD_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/run_config.h"
#include "rendezvous/roster.h"

#include <stdbool.h>
#include <stdint.h>

struct mpi_world { /* all borrowed */
    const struct run_config *config;
    const struct roster *roster;
    const uint16_t *n_procs; /* of each node */
    uint32_t n_nodes;
    const char *run_id;
    uint32_t generation;
};

/* A memory file with the hosts; -1 where all are this machine, which mpirun finds
 * by itself. The caller closes it. -EAGAIN: the roster lacks a node that has ranks. */
int mpi_world_hosts(const struct mpi_world *w, int *ret_fd, struct error *e);

/* `hosts_fd` is to be open under that number in mpirun. */
int mpi_world_argv(const struct mpi_world *w, int hosts_fd, struct strlist *to,
                   struct error *e);

/* That of the run's start, without what belongs to a launch; within Slurm as its
 * srun wants it. */
int mpi_world_env(const struct mpi_world *w, struct strlist *to,
                  struct error *e);

/* The same in words, for those who are to read it, too. */
struct mpi_world_line {
    const struct strlist *words; /* mpi_world_words() */
    const char *n_ranks;
    const char *hosts;           /* the file; NULL: this machine */
    const char *program;         /* muster */
    const char *run_id, *generation;
};
void mpi_world_line(const struct mpi_world_line *l, struct strlist *to);

/* What a run is told of mpirun: the words in front of those above. `ssh` and
 * `args` (the job's own) may be empty. */
struct mpirun;
void mpi_world_words(const struct mpirun *m, bool as_root, const char *ssh,
                     const struct strlist *args, struct strlist *to);

#endif
