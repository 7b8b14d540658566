/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of muster-mpi's main share. Private to main*.c.
 *
 *   main.c           life; serving the agent until the verdict
 *   main_args.c      what the front end and the launcher of MPI say
 *   main_assemble.c  from a process to a rank of a run, with its agent
 */
#ifndef MUSTER_COMM_MPI_MAIN_PRIV_H
#define MUSTER_COMM_MPI_MAIN_PRIV_H

#include "base/error.h"
#include "comm/companion.h"
#include "comm/mpi/bulk.h"

#include <stdbool.h>
#include <stdint.h>

struct companion {
    struct companion_run run;
    const char *key_file;  /* where the front end or a Secret put the key */
    const char *interface; /* the choice of the spec (base/addr.h), or NULL */
    bool by_hand;          /* no front end started this mpirun */
    bool is_kept;          /* agents have a keeper, see comm/agent_find.h */
    bool insecure;         /* the key may go over MPI */
    bool report_status;    /* exit with the verdict */
    bool is_probe;         /* it is only looked whether this starts */
    uint64_t epoch;
    unsigned gather_seconds;
    int rank, size, local_rank;
    char tag[160]; /* under which its agent is found on this host */
    bool in_mpi;
    int agent_fd;
    struct bulk *bulk;
};

/* Says on stderr what is wrong. */
int companion_parse_args(struct companion *c, int argc, char **argv);
/* What the launcher says before MPI_Init. Where it is a plain PMIx one
 * (prterun, srun --mpi=pmix) only MPI can tell the size: any number above 1
 * asks it. */
void companion_read_place(struct companion *c);

/* Meets the agent, then the other ranks, and tells it of them. SIGALRM comes
 * when that takes longer than c->gather_seconds. */
int companion_assemble(struct companion *c, struct error *e);

#endif
