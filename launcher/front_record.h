/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.json: what a front end has to leave behind for the next one (muster
 * attach), and for those who want to go where the run is (muster shell): how
 * mpirun was run, over which hosts, and which MPI world it made. It is written
 * before each mpirun, so that no world gets an epoch that was used before.
 */
#ifndef MUSTER_LAUNCHER_FRONT_RECORD_H
#define MUSTER_LAUNCHER_FRONT_RECORD_H

#include "base/buf.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/proc.h"
#include "launcher/hosts.h"
#include "launcher/rundir.h"

#include <stdbool.h>
#include <stdint.h>

enum { FRONT_RECORD_VERSION = 1 };

/* Paths and commands are "" where there is none. */
struct front_record {
    char host[HOSTS_NAME_BYTES]; /* where mpirun was started */
    bool by_hand;                /* by the user: nothing below is known */
    uint64_t epoch;              /* of the world that it made last; 0: none */
    int64_t mpirun_pid;          /* 0: not known */
    uint64_t mpirun_start;       /* of that process, see struct proc */
    char machine[MACHINE_ID_BYTES]; /* where it has that pid */
    char mpirun[4096];
    char ssh[1024];
    char key_file[4096];
    char slurm_job[64];          /* inside of which it was started */
    char cwd[4096];              /* where */
    struct host_list hosts;      /* owned */
    unsigned agents_per_host, n_agents;
    unsigned gather_seconds;
    bool agent_is_node, own_step, is_kept;
    uint64_t detach_ms;          /* as in struct run_config */
};

void front_record_release(struct front_record *r);
#define _front_record_ __attribute__((cleanup(front_record_release)))

/* An allocation failure is remembered in `to`. */
void front_record_print(const struct front_record *r, struct buf *to);

/* Hosts come back as seen from here: those that are this machine are local, and
 * one machine alone is HOSTS_LOCAL only there. 0, -ERR_FORMAT, -ERR_VERSION. */
int front_record_parse(const char *text, size_t len, struct front_record *ret,
                       struct error *e);

/* Finds the mpirun that it names, if that runs on this host and in these namespaces: false
 * where it has ended, or cannot be seen. */
bool front_record_find(const struct front_record *r, struct proc *ret);

int front_record_write(const struct rundir *dir, const struct front_record *r,
                       struct error *e);

/* -ENOENT where none was written; -EPERM for a file that is not this user's
 * alone to write: commands that it names are run. */
int front_record_read(const struct rundir *dir, struct front_record *ret,
                      struct error *e);

#endif
