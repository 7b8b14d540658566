/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew: the workers of one generation on this node with what belongs to
 * them. Private to crew*.c.
 *
 *   crew.c        life: starts, stops, is gone
 *   crew_world.c  what it shares with the crews of other nodes: collectives
 *   crew_strand.c where no MPI world is left for that
 *   crew_outfit.c what each worker is given: memory, socket, environment
 *   crew_facts.c  what is told to the lead of how they fare
 *   crew_blame.c  which of them failed first, and what it said
 *   crew_hang.c   whether they make progress, and where they are
 *   crew_timers.c timers that programs guard themselves by
 *   crew_mpi.c    the mpirun of an MPI program
 *   crew_warm.c   the interpreter that workers may be forked from
 *   crew_blanks.c processes that wait to become workers
 *   crew_gpus.c   memory of GPUs that killed workers had
 *   crew_shell.c  what others need to be where a worker is
 */
#ifndef MUSTER_LAUNCHER_CREW_H
#define MUSTER_LAUNCHER_CREW_H

#include "ckpt/commit.h"
#include "launcher/agent.h"
#include "launcher/outfit.h"
#include "launcher/status.h"
#include "launcher/worker_socket.h"
#include "rendezvous/layout.h"

enum { CREW_N_ASKED = 16 };

struct crew_worker {
    struct crew *crew;
    struct worker_socket *socket;
    struct outfit outfit;
    bool is_accused; /* told as failed, although it is alive */
    uint64_t reported_ns; /* its last report, and the step of it */
    int64_t step;
    uint32_t n_heard;     /* requests for a checkpoint, that it has heard of */
    uint32_t n_saves;     /* that it has begun to hand over; all ranks as many */
    char save[COMMIT_UUID_BYTES]; /* the newest of them */
};

/* A failure that waits, see crew_blame.c. */
struct echo {
    struct echo *next;
    struct failure failure;
};

/* Where it takes part in collectives. */
struct crew_world {
    uint32_t generation;
    uint32_t n_nodes;  /* that take part */
    uint32_t *members; /* those nodes, by their ranks */
    struct segment *segment;
    bool broken;       /* collectives were ended */
};

struct crew {
    struct agent *agent;
    uint32_t generation;
    struct layout layout;
    uint32_t n_gpus;     /* of this node, for its workers */
    char interface[32];      /* of the network that the job chose, or "" */
    char gloo_interface[32]; /* for Horovod's gloo; "" where nobody asks */
    struct workers *workers;
    struct crew_worker *list; /* layout.n_local */
    struct crew_world *world;
    uint32_t n_checkpoints; /* asked for so far; of the last ones who waits, or "": */
    char asked[CREW_N_ASKED][STATUS_ASKED_ID_BYTES];
    const char *told_heard; /* of these, that the lead was told of */
    char told_save[WORKER_UUID_SIZE]; /* likewise, and before which save */
    uint64_t since_ns;   /* since 1970 */
    int64_t oom_kills;   /* in our cgroup, as of the last look */
    bool oom_of_host;    /* nobody counts there: that and the next are the host's,
                            a while ago and not so long ago */
    int64_t oom_recent;
    uv_timer_t *oom_timer; /* where that is so */
    bool stopping;
    bool start_failed;
    uint64_t stopped_ms; /* when that began */
    bool any_failed;     /* a worker ended with another status than 0 by itself */
    bool told_stuck;     /* that some do not die */
    struct echo *echoes; /* not told yet, in order */
    uv_timer_t *echo_timer;
    bool is_gone;        /* likewise not told yet */
    struct crew_mpi *mpi; /* NULL: no MPI program, or not here */
    struct crew_hang *hang; /* NULL: nobody asks */
    struct crew_timers *timers; /* likewise */
    struct strlist killed;  /* pids of workers that SIGKILL ended, with GPUs */
    bool has_asked_gpus;    /* about these */
    struct crew_gpus *gpus; /* is being asked, or NULL */
};

/* --- crew.c --- */

/* Nothing is left, and all was told: tells the member so, and destroys it. */
void crew_finish(struct crew *c);

/* --- crew_gpus.c --- */

/* A worker was ended by SIGKILL. */
void crew_gpus_killed(struct crew *c, pid_t pid);
/* No worker is left. False: crew_finish() comes when their memory is free, or has
 * been waited for long enough. */
bool crew_gpus_are_free(struct crew *c);

/* --- crew_world.c --- */

int crew_world_create(const struct order *order, const struct layout *layout,
                      struct crew_world **ret, struct error *e);
/* Whoever waits in a collective, or comes to one, gets an error at once. */
void crew_world_end(struct crew_world *w, const char *why);
/* Likewise, for the word of the lead that somebody is gone. */
void crew_world_break(struct crew_world *w);
/* Its workers are gone. Where all is well, a->parted has it from now on, until the
 * generation is over: other nodes may still need what these workers gave to a
 * collective, in the next MPI world too. Takes `w`, which may be NULL. */
void crew_world_part(struct agent *a, struct crew_world *w);
/* Leaves the group of its generation, and frees it. NULL is allowed. */
void crew_world_close(struct agent *a, struct crew_world *w);

/* --- crew_strand.c --- */

/* Whether it waits for an MPI world that nobody makes. */
bool crew_is_stranded(const struct agent *a);

/* --- crew_outfit.c --- */

int crew_equip(struct crew *c, const struct order *order, struct error *e);
/* Whatever of it there is. */
void crew_strip(struct crew *c);
/* MUSTER_STOP_FILE: its workers are to stop. */
void crew_put_stop_file(struct crew *c, bool there);
/* Where a worker may say why it failed: on the node's own disk, where reading it
 * cannot hang the loop. */
int crew_error_path(const struct crew *c, uint32_t local_rank, char *to,
                    size_t size, struct error *e);
/* Its MUSTER_STACKS: likewise. */
int crew_stacks_path(const struct crew *c, uint32_t local_rank, char *to,
                     size_t size, struct error *e);

/* Whether it may set timers, by what file: TORCHELASTIC_TIMER_FILE. */
bool crew_has_timers(const struct crew *c);
int crew_timers_path(const struct crew *c, char *to, size_t size,
                     struct error *e);

/* --- crew_timers.c --- */

/* Serves them where somebody asks for that. After a failure, too, there is
 * something to end. */
int crew_timers_start(struct crew *c, struct error *e);
void crew_timers_end(struct crew *c);

/* --- crew_see.c --- */

/* Says so, later, where this node does not see the checkpoint of that path. */
void crew_see(struct agent *a, const char *path);

/* --- crew_hang.c --- */

int crew_hang_start(struct crew *c, struct error *e);
void crew_hang_end(struct crew *c);
void crew_hang_report(struct crew *c, uint32_t local_rank, int64_t step);

/* --- crew_mpi.c --- */

/* Where this node has rank 0 of an MPI program; else nothing. */
int crew_mpi_start(struct crew *c, const struct order *order,
                   struct error *e);
/* The workers here are gone. True if mpirun is, too, or need not be waited for:
 * where all is well the agent has it from now on, for the ranks of other nodes.
 * Else crew_finish() is called when it is gone. */
bool crew_mpi_is_gone(struct crew *c);
/* All workers are to end. */
void crew_mpi_stop(struct crew *c);
void crew_mpi_destroy(struct crew *c);

/* --- crew_warm.c --- */

/* What workers are made of, if there is something that does for all of them; else
 * NULL. */
struct warm *crew_warm(struct crew *c);
/* All workers are there: gets it ready for the next ones. */
void crew_warm_up(struct crew *c);

/* --- crew_blanks.c --- */

/* All workers are there: gets as many processes ready for the next ones. */
void crew_blanks_fill(struct crew *c);
/* Workers are to end: that comes first. */
void crew_blanks_rest(struct agent *a);

/* --- crew_facts.c --- */

/* A fact about its workers; agent_fact_send() ends it. */
struct jsonw crew_fact_begin(struct buf *b, const char *kind,
                             const struct crew *c);
void crew_tell_started(struct crew *c);
void crew_tell_exited(struct crew *c, const struct worker_end *end);
extern const struct worker_socket_ops crew_socket_ops;

/* --- crew_blame.c --- */

int crew_blame_start(struct crew *c, struct error *e);
void crew_blame_end(struct crew *c);
/* Who it is. */
void crew_identify(const struct crew *c, uint32_t local_rank,
                   struct failure *f);
/* What is known of a worker that ended with another status than 0. */
void crew_describe(struct crew *c, const struct worker_end *end,
                   struct failure *f);
/* Such an end, which no stop explains: true if it is to wait. */
bool crew_hold_back(struct crew *c, const struct failure *f);
/* Tells what waits, from the loop. */
void crew_tell_echoes(struct crew *c);
/* Tells of workers that are alive, but have failed already. */
void crew_accuse(struct crew *c);

#endif
