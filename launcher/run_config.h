/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front end tells the lead, and the lead all agents: the job, and the
 * circumstances under which its user started it. It may hold secrets of the
 * user's environment: it goes over the encrypted tree and into no file.
 */
#ifndef MUSTER_LAUNCHER_RUN_CONFIG_H
#define MUSTER_LAUNCHER_RUN_CONFIG_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "launcher/rundir.h"
#include "rendezvous/avoid.h"
#include "spec/job.h"

#include <stdbool.h>
#include <stdint.h>

struct run_config {
    struct job *job;      /* owned */
    struct strlist env;   /* the user's, where the run was started */
    char cwd[4096];       /* likewise */
    uint32_t umask;
    bool by_hand;         /* mpirun was not started by the front end */
    uint64_t detach_ms;   /* how long the run goes on without a front end;
                             UINT64_MAX: to its end */
    char resume_path[1024];
    int64_t resume_step;
    struct avoid avoid;
    uint32_t first_generation; /* of a run that is taken up again */
    uint32_t n_restarts;       /* already spent */
    uint32_t n_starts;         /* of the run before this one */
    uint32_t n_node_failures;  /* nodes lost in them */
    uint32_t want_nodes;       /* by the newest muster scale; 0: none was */
    struct strlist excluded;   /* nodes that were excluded in them: which agent of
                                  its host, that host, for what, and why in words:
                                  "0 node3 cause it was ..." */
    uint32_t n_nodes;          /* the most that can ever be there: those that the front
                                  end starts, or looks for. 0: who came with mpirun */
    uint64_t ran_ms;           /* how long they ran, together */
    uint8_t nonce[RUNDIR_NONCE_BYTES]; /* of the run directory, where all see
                                          the same */
    struct strlist mpirun; /* for an MPI program: its mpirun, with options */
    struct strlist hosts;  /* its hosts, by rank of the agent; none: this machine
                              alone */
    struct strlist slots;  /* of slots_list(): how many workers hosts have; none:
                              each counts for itself */
};

/* The environment, directory and umask of this process. */
int run_config_capture(struct run_config *c, char *const *env,
                       struct error *e);

void run_config_encode(const struct run_config *c, struct buf *b);

/* 0, -ERR_FORMAT, -ENOMEM; `ret` is to be released only on success. */
int run_config_decode(const void *data, size_t len, struct run_config *ret,
                      struct error *e);

void run_config_release(struct run_config *c);
#define _run_config_ __attribute__((cleanup(run_config_release)))

#endif
