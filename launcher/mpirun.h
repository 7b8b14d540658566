/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of mpirun that puts one muster-mpi on each host (or several,
 * where several agents share one), for Open MPI 4.1 and 5.0.
 *
 * Hosts go into a file, one line a rank, mapped in that order: on the command
 * line some 5,000 of them would be longer than any argument may be, and mpirun's
 * other mappings begin with the host that it runs on, wherever that stands.
 */
#ifndef MUSTER_LAUNCHER_MPIRUN_H
#define MUSTER_LAUNCHER_MPIRUN_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "launcher/hosts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mpirun {
    char path[4096];
    int major; /* 4 or 5 */
    int minor;
};

/* Finds mpirun (`name`, or "mpirun" in PATH) and its version. -ENOENT, or
 * -ERR_VERSION for an MPI that muster does not know. */
int mpirun_find(const char *name, struct mpirun *ret, struct error *e);

struct mpirun_plan {
    const struct host_list *hosts;
    unsigned agents_per_host;
    unsigned n_agents;       /* in all: the last host may have fewer */
    const char *hostfile;    /* with what mpirun_hostfile() writes */
    bool as_root;            /* allowed by the user */
    const char *ssh;         /* how to reach hosts, a command; NULL: default */
    const char *helper;      /* path of muster-mpi */
    const char *run_id;
    const char *run_dir;
    const char *key_file;    /* or NULL */
    uint64_t epoch;
    const char *front;       /* "addr,addr:port" */
    unsigned gather_seconds;
    const char *interface;   /* of the spec; NULL: any */
    bool agent_is_node;
    bool is_kept;            /* agents have keepers, see comm/agent_find.h */
};

/* Whether hosts have to be named: mpirun finds this machine by itself, whatever
 * its name resolves to, but in a Slurm job it would take all nodes. */
bool mpirun_needs_hostfile(const struct mpirun_plan *plan);

/* The text of the file; an allocation failure is remembered in `to`. */
void mpirun_hostfile(const struct mpirun_plan *plan, struct buf *to);

/* The words that name a remote shell; none for NULL. */
void mpirun_add_ssh(const struct mpirun *m, const char *ssh,
                    struct strlist *to);

/* For a look whether it gets a command to start on a host: the host's name comes behind
 * it, and then the command. */
void mpirun_try_argv(const struct mpirun *m, const struct mpirun_plan *plan,
                     struct strlist *to);

void mpirun_argv(const struct mpirun *m, const struct mpirun_plan *plan,
                 struct strlist *to);

#endif
