/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one worker is started with, from the job, the order and the facts of its
 * node: environment, arguments, directory. The agents do so, and `muster run
 * --show-env` shows the same ahead of time. Pure.
 */
#ifndef MUSTER_LAUNCHER_OUTFIT_H
#define MUSTER_LAUNCHER_OUTFIT_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/contract.h"
#include "rendezvous/layout.h"
#include "rendezvous/order.h"
#include "spec/job.h"
#include "spec/procs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OUTFIT_OOM_SCORE_ADJ = 500 }; /* workers go before their agent */

/* The node and its run; all borrowed. */
struct outfit_node {
    const struct job *job;
    const struct strlist *env; /* the user's, where the run was started */
    const char *run_id, *run_dir;
    uint64_t ran_ms;           /* so far, earlier starts included */
    const char *agent_dir;     /* of the agent's sockets; its name is the tag */
    unsigned agent_index;
    const char *host;
    uint32_t n_gpus;
    uint16_t store_port;       /* of a store for this node's workers on loopback;
                                  0: they go to rank 0's */
    const char *interface;     /* where the job chose a network: the one that
                                  others reach this node at; else NULL */
    const char *python_dir;    /* where the job watches for hangs: the first
                                  entry of PYTHONPATH; else NULL */
    const char *horovod_interface; /* for its gloo; NULL: not known */
};

/* Zero-initialise; release with outfit_release(). */
struct outfit {
    struct strlist env, argv;
    struct contract_trace *trace; /* borrowed, filled; or NULL */
    struct strlist *warnings;     /* likewise */
};
void outfit_release(struct outfit *o);

int outfit_make(const struct outfit_node *node, const struct order *order,
                const struct layout *layout, uint32_t local_rank,
                struct outfit *ret, struct error *e);

/* On the node's own disk: where a worker may say why it failed (reading that
 * cannot hang the loop), and its socket. */
int outfit_error_path(const struct outfit_node *node, uint32_t generation,
                      uint32_t local_rank, char *to, size_t size,
                      struct error *e);
/* What MUSTER_STACKS is; likewise. */
int outfit_stacks_path(const struct outfit_node *node, uint32_t generation,
                       uint32_t local_rank, char *to, size_t size,
                       struct error *e);
/* What MUSTER_STOP_FILE is, of all workers of an agent; likewise. */
int outfit_stop_path(const struct outfit_node *node, uint32_t generation,
                     char *to, size_t size, struct error *e);
/* Whether workers may set timers: TORCHELASTIC_ENABLE_FILE_TIMER of the user's, or of
 * the job. What TORCHELASTIC_TIMER_FILE is then, of all workers of an agent. */
bool outfit_has_timers(const struct outfit_node *node);
int outfit_timers_path(const struct outfit_node *node, uint32_t generation,
                       char *to, size_t size, struct error *e);
int outfit_socket_path(const struct outfit_node *node, uint32_t generation,
                       uint32_t local_rank, char *to, size_t size,
                       struct error *e);

/* `cwd` is where the run was started. */
const char *outfit_cwd(const struct job *job, const char *cwd);

/* A path of the job's, which may be relative to that. */
int outfit_path(const struct job *job, const char *cwd, const char *path,
                char *to, size_t size, struct error *e);

/* Processes of the i-th of n agents that share a node. */
int outfit_procs(const struct job *job, const struct procs_node *facts,
                 uint32_t n, uint32_t i, uint16_t *ret, struct error *e);

/* The port of a second server beside the store, which a worker opens (the
 * coordinator of JAX); 0 for none. */
uint16_t outfit_second_port(uint16_t store_port);

/* That of Horovod's rendezvous, which the agent serves as well; 0 for none. */
uint16_t outfit_third_port(uint16_t store_port);

#endif
