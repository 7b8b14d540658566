/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent of one node: what its parts share. Private to agent*.c and crew*.c.
 *
 *   agent_start.c    up: the process, its descriptors, signals and listeners
 *   agent.c          joined: the run, its place in the tree, MPI worlds
 *   agent_job.c      working: the job has come down the tree
 *   agent_leave.c    leaving, with the verdict
 *   agent_member.c   carries out what the member (rendezvous/member.h) decides
 *   agent_store.c    the store of a generation
 *   agent_steps.c    a log of what the core was told and said, where it is asked for
 *   agent_heir.c     who leads, and whether that is this node; with agent_heir_tree.c
 *   agent_lead.c     carries out what the lead decides, on the node that leads; with
 *                    agent_lead_ask.c, agent_lead_front.c, agent_lead_life.c
 *   agent_hang.c     its watch over hangs, and what it asks of the others
 *   agent_limit.c    the time limit of the batch system
 *   agent_scale.c    how many nodes the run has, and is to have
 *   agent_watch.c    its watch over checkpoints that the program writes by itself
 *   agent_late.c     its alarm where none comes
 *   agent_order.c    its orders: workers start once their generation is on disk
 *   agent_record.c   what the lead writes down: journal, status, front end;
 *                    with agent_record_fact.c and agent_record_note.c
 *   agent_snap.c     checkpoints that workers save through it; with agent_snap_said.c;
 *                    where it leads, their commit: agent_snap_lead*.c, and who has
 *                    them in memory: agent_snap_lead_held.c
 *   agent_partner.c  copies of them in memory of a partner, and its copies here
 *   agent_fetch.c    what a rank loads, from memory of another node
 *   agent_fact.c     what it tells the lead, and its own log
 *   agent_front.c    where the front end is, for who leads next
 *   agent_errors.c   error files and stacks on their way into the run directory
 *   crew*.c          the workers of one generation, with all that they need
 *
 * One loop, one thread; nothing here touches the run directory except through
 * the writers of the journal and of the output.
 */
#ifndef MUSTER_LAUNCHER_AGENT_H
#define MUSTER_LAUNCHER_AGENT_H

#include "base/child.h"
#include "base/link.h"
#include "comm/segment.h"
#include "launcher/companion_link.h"
#include "launcher/control.h"
#include "launcher/output.h"
#include "launcher/run_config.h"
#include "launcher/slurm_ask.h"
#include "launcher/workers.h"
#include "rendezvous/heir.h"
#include "rendezvous/member.h"
#include "rendezvous/roster.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/store_server.h"
#include "rendezvous/tree.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct agent_heir;
struct agent_lead;
struct agent_limit;
struct agent_snap;
struct agent_steps;
struct blanks;
struct crew;
struct jsonw;
struct kept_file;
struct soon;
struct warm;

struct agent {
    uv_loop_t loop;
    char dir[PATH_MAX]; /* <runtime dir>/<tag>: sockets, lock, log */
    pid_t watch;        /* muster-watch, its parent */
    unsigned index;     /* of this agent on its host */
    char host[ROSTER_HOST_BYTES];
    struct strlist addrs;
    struct child_table *children;
    struct link_listener *listener;
    struct companion_link *companion;
    uv_signal_t signals[3];
    uv_timer_t start_timer;  /* until the run is known */
    uv_timer_t member_timer; /* the member's next tick */
    uv_timer_t leave_timer;  /* the last resort */
    uv_timer_t drain_timer;  /* for output that is on its way up */
    uv_timer_t strand_timer; /* by hand: there is no MPI world any more */
    uv_timer_t procs_timer;  /* on a node that does not fit: does it now? */
    uv_timer_t soon_timer;
    struct soon *soon;       /* member events that wait for their turn */

    /* Known once the companion brought its world. */
    bool has_run;
    struct companion_run run; /* without its key */
    uint8_t *key;
    struct roster roster;
    uint32_t rank;
    uint32_t lead_rank; /* of the agent that leads */
    uint64_t epoch; /* of the MPI world that its companion brought */
    struct tree *tree;
    struct control_server *control;

    /* Known once the config has come down the tree. */
    bool has_config;
    struct run_config config;
    uint16_t n_procs; /* of this agent */
    bool is_misfit;   /* it has told the lead that the job does not fit its node */
    char python_dir[PATH_MAX]; /* see launcher/outfit.h, or "" */
    struct member *member;
    struct agent_steps *steps; /* a log, or NULL; see agent_steps.h */
    struct agent_heir *heir; /* or NULL, where nobody can take the lead over */
    struct agent_lead *lead; /* on the node that leads, else NULL */
    uint32_t view;           /* the newest that is known of, or 0 */
    bool is_cancelled;       /* before the job had come: see agent_control.c */
    bool cancels_by_force;
    bool is_noticed;         /* by hand: mpirun was told that the end is near */
    char *front_ways;        /* of one that has taken the run over, or NULL ... */
    int64_t front_serial;    /* ... told so, or 0 */
    struct buf passed;       /* what a command on this host asked of the lead last ... */
    uint64_t passed_ms;      /* ... then ... */
    bool passed_ends;        /* ... by which the run ends */
    uint64_t order_serial;   /* of the newest order that came here */
    uint64_t began_ns;       /* when this start of the run began: by the wall clock here,
                                ... */
    uint64_t began_ms;       /* ... and by the loop's, which may not have been up: only
                                differences count */
    struct slurm_ask slurm;  /* of agent_limit.c */
    struct workers_host workers_host;
    struct output *output;
    struct store_server *store;
    struct store_server *relay; /* of this node's workers, in a tree */
    struct kv_server *kv; /* Horovod's rendezvous, beside it, or NULL */
    uint32_t store_generation;
    bool store_is_tree; /* in the generation that runs */
    bool store_has_refused; /* and it was told */
    uint32_t generation; /* the newest that was started here */
    uint32_t first_rank; /* of its workers on this node */
    struct crew *crew; /* the workers that are alive, or being cleaned up */
    uint64_t stranded_ms; /* since when its workers wait in vain; 0: they do not */
    struct crew_world *parted; /* of one that is gone, see crew_world_part() */
    struct crew_mpi *mpi;      /* likewise, see crew_mpi.c */
    struct agent_snap *snap;   /* what workers save, see agent_snap.h, or NULL */
    struct warm *warm;         /* the interpreter of restart.preload, or NULL */
    unsigned n_warm_renewals;
    bool warm_is_over;         /* there will be none, and it was told */
    struct blanks *blanks;     /* processes that wait to become workers, or NULL */

    struct kept_file *kept_files; /* of agent_errors.c: what is written now, then what waits */

    bool leaving;
    bool leaves_alone; /* the run goes on without this agent */
    bool leaves_files; /* and with memory of its snapshots here */
    bool is_kept;      /* a keeper waits for all that it has started */
    uint8_t status;
};

/* --- agent.c --- */

bool agent_on_one_host(const struct agent *a);
/* Whether this agent leads. */
bool agent_leads(const struct agent *a);
extern const struct companion_link_ops agent_companion_ops;

/* --- agent_job.c --- */

/* The config of the run, as its front end (or muster-mpi) made it. */
void agent_config(struct agent *a, uint64_t age_ms, const void *data, size_t len);

/* agent_control.c: a control_f; what mpirun was told, by a signal that Open MPI itself
 * does not send; and, once the job has come, what was asked before */
int agent_on_control(void *arg, const char *op, const json_t *body,
                     struct jsonw *reply, struct error *e);
void agent_notice(struct agent *a);
void agent_ask_late(struct agent *a);
/* Another one leads: asks it, too, for what was passed on not long ago, and for the end
 * of the run at any time. */
void agent_control_again(struct agent *a);
/* The tree takes output again. */
void agent_writable(struct agent *a);

/* For the lead: which process this agent is. */
void agent_tell_pid(struct agent *a);

/* --- agent_fit.c --- */

/* For each agent of the roster the first of its node, as struct lead_config wants
 * them. -ERANGE from the check: there are fewer nodes than the job needs. */
void agent_fit_nodes(const struct agent *a, uint32_t *node_of);
int agent_fit_check(const struct agent *a, struct error *e);

/* --- agent_procs.c --- */

/* Counts the processes of this agent; where the job does not fit its node, or for the
 * one that leads, there are too few, it tells the lead. */
void agent_procs_begin(struct agent *a);

/* --- agent_leave.c --- */

/* Tears everything down and ends the loop. */
void agent_leave(struct agent *a, uint8_t status, const char *reason);

/* The tree has brought all output up (struct tree_ops). */
void agent_drained(struct agent *a);

/* --- agent_fact.c --- */

/* A fact for the lead, a JSON object in `b`: agent_record_fact.c and agent_lead_ask.c
 * know the kinds. Send it once it is complete; one that fails is not sent. */
struct jsonw agent_fact_begin(struct buf *b, const char *kind);
void agent_fact_send(struct agent *a, struct jsonw *w);
/* Says something to the run's journal and front end. */
/* Says so where the directory for temporary files that workers will be told of is
 * not there on this host. */
void agent_look_tmpdir(struct agent *a);

void agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same into this agent's own log, for what the run cannot be told. */
void agent_log(const struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* --- agent_errors.c --- */

/* Where in the run directory a worker's error file is kept. */
void agent_error_name(uint32_t generation, uint32_t rank, char *to,
                      size_t size);
/* Likewise its stack. */
void agent_stack_name(uint32_t generation, uint32_t rank, char *to,
                      size_t size);
/* Puts `text` in a file of that name there, some time; takes `text`, which may be
 * NULL where there was no memory for it. `what` is for people, and static. Where that
 * filesystem hangs a few wait for it, and what comes after those is not kept. */
void agent_keep(struct agent *a, const char *name, const char *what,
                char *text);

/* --- agent_member.c --- */

int agent_member_start(struct agent *a, struct error *e);
/* Soon: where it stands. */
void agent_member_report(struct agent *a);
/* Steps the member and does what it says. */
void agent_member_step(struct agent *a, struct member_event *event);
/* The same from the loop, after everything that is under way. Strings, failure
 * and order are copied; the order given as bytes. */
void agent_member_soon(struct agent *a, const struct member_event *event);
void agent_member_order(struct agent *a, const struct order *order);
void agent_member_stop(struct agent *a);

/* --- agent_store.c --- */

/* The store of a generation that is prepared; the member hears of it. */
void agent_store_open(struct agent *a, uint32_t generation);
/* The generation runs: in a tree, opens the store of this node's workers. */
int agent_store_run(struct agent *a, const struct order *run, struct error *e);
/* The roster has grown: an open one takes connections of hosts that are new in it. */
void agent_store_grow(struct agent *a);
/* Where this node's workers find it on loopback; 0: they go to worker 0's node. */
uint16_t agent_store_port(const struct agent *a);
void agent_store_close(struct agent *a);
/* One who wants no place in the tree (struct tree_ops). */
void agent_store_stranger(struct agent *a, struct link *l,
                          const struct channel_frame *first);

/* --- agent_hang.c --- */

/* What the lead asks of this agent: a JSON object. */
void agent_asked(struct agent *a, const void *json, size_t len);

/* --- agent_scale.c --- */

/* The lead's: workers of that generation, everywhere, are told to save now and go
 * on; by whom that is waited for (launcher/asked.h), or "". */
void agent_ask_checkpoint(struct agent *a, uint32_t generation, const char *id);

/* --- agent_front.c --- */

/* Where the front end is, for when this agent leads: whether that is news. */
bool agent_front_learn(struct agent *a, const char *ways, int64_t serial);
/* The lead: the serial of a place that is newer than all. */
int64_t agent_front_next(const struct agent *a);
/* What is known of it, if it is not that of the start: the lead to all others, and any
 * other to its lead. */
void agent_front_tell_all(struct agent *a);
void agent_front_tell_lead(struct agent *a);

/* --- agent_heir.c --- */

/* Before the lead; where somebody else may take the lead, a->heir is there then. */
int agent_heir_start(struct agent *a, struct error *e);
/* After it, and the member: says that this node is there, once it is known whether
 * the run directory is that of all. */
void agent_heir_begin(struct agent *a);
bool agent_heir_may_report(const struct agent *a);
void agent_heir_stop(struct agent *a);
/* The roster has grown. */
void agent_heir_grow(struct agent *a);
/* Of members, and what a new lead waits beyond that. */
uint64_t agent_lease_ms(const struct agent *a);
uint64_t agent_lease_slack_ms(const struct agent *a);
uint64_t agent_claim_ms(void);
struct view_rule agent_view_rule(const struct agent *a);
/* The lead: claims a view, with agent_lead_claimed() for an answer. */
void agent_heir_claim(struct agent *a, const struct view *v);
/* The lead: until when nobody else can lead, on the loop's clock. */
uint64_t agent_heir_good_ms(const struct agent *a);
/* Whether nobody else can lead yet (heir_is_in_office()). */
bool agent_heir_in_office(const struct agent *a);
/* See heir_has_hold(). */
bool agent_heir_has_hold(const struct agent *a);
/* The lead's own orders, before anybody else sees them; they go nowhere where this
 * says no. */
bool agent_heir_own_order(struct agent *a, const struct order *order);
/* Of struct tree_ops. */
bool agent_heir_order(void *ctx, const void *data, size_t len);
void agent_heir_word(void *ctx, const struct tree_word *word);
void agent_heir_own_seen(void *ctx, struct tree_seen *ret);
void agent_heir_top(void *ctx, bool top);
void agent_heir_dead(void *ctx, uint32_t rank);
void agent_heir_follow(void *ctx, const void *data, size_t len);
void agent_heir_unfollow(void *ctx, uint32_t rank);
void agent_heir_seen(void *ctx, const struct tree_seen *seen);
uint64_t agent_heir_word_age(void *ctx);

/* --- agent_lead.c --- */

/* The first lead, or one that takes the lead over from another: `heritage`; begin
 * once it is the tree's, too. */
int agent_lead_start(struct agent *a, const struct heritage *heritage,
                     struct error *e);
void agent_lead_begin(struct agent *a);
/* Another one leads: forgets the run without a word about its end. */
void agent_lead_quit(struct agent *a);
void agent_lead_claimed(struct agent *a, enum heir_outcome outcome);
void agent_lead_quiet(struct agent *a, uint32_t n);
/* agent_heir_good_ms() has changed. */
void agent_lead_good(struct agent *a);
struct heir_rivals agent_lead_rivals(struct agent *a);
/* When the job will have run for as long as it may, on the loop's clock, if this
 * is its start; 0: it may run for ever. */
uint64_t agent_lead_deadline_ms(const struct agent *a);
void agent_lead_report(struct agent *a, const void *data, size_t len);
void agent_lead_lost(struct agent *a, uint32_t rank,
                     const struct tree_loss *loss);
void agent_lead_here(struct agent *a, uint32_t rank);
/* The roster has grown. */
void agent_lead_grow(struct agent *a);
/* A node that is there and of no use; not in a step of the lead. */
void agent_lead_exclude(struct agent *a, uint32_t rank, enum exclusion why,
                        const char *text);
/* A fact from a node, or from the front end, as JSON. */
void agent_lead_fact(struct agent *a, uint32_t rank, const void *json,
                     size_t len);
/* A request of `who`; `body` has what belongs to it: `force`, `front`. */
int agent_lead_request(struct agent *a, const char *op, const json_t *body,
                       const char *who, struct error *e);
void agent_lead_front(struct agent *a, bool up);
/* Writes what is still to be written. */
void agent_lead_stop(struct agent *a);

/* --- agent_limit.c --- */

struct agent_limit_ops {
    /* When the job ends, on the loop's clock, as far as it is known; 0: never. */
    void (*on_end)(void *arg, uint64_t end_ms);
    /* It is time to stop; `text` says why. */
    void (*on_stop)(void *arg, const char *text);
};

/* *ret is NULL where there is no limit to look at. `ops` and `arg` are
 * borrowed. */
int agent_limit_create(struct agent *a, const struct agent_limit_ops *ops,
                       void *arg, struct agent_limit **ret, struct error *e);
void agent_limit_destroy(struct agent_limit *l);

/* --- crew.c --- */

/* Starts this node's workers of `order`. Outcome by member events, never from
 * inside this call; -errno words why nothing was started. */
int crew_start(struct agent *a, const struct order *order, struct error *e);
void crew_stop(struct agent *a, bool kill);
/* Workers that ask are told to save now, and to go on. */
void crew_ask_checkpoint(struct agent *a, const char *id);
/* What muster shell needs to be where that worker is, into an open object. */
int crew_shell(const struct agent *a, int64_t rank, struct jsonw *reply,
               struct error *e);
/* A new MPI world: joins it, so that collectives go on. */
void crew_join_world(struct agent *a);
void crew_attached(struct agent *a, const struct companion_outcome *o);
/* The MPI world is lost, and nobody makes another one: the lead is told once
 * workers have waited for it for a lease. Until there is one all the same. */
void crew_strand(struct agent *a);
void crew_unstrand(struct agent *a);
/* Takes the stacks of all workers of that generation; says that one of them has
 * failed, because it hangs. */
void crew_hang_dump(struct agent *a, uint32_t generation);
void crew_hang_blame(struct agent *a, uint32_t generation, uint32_t rank,
                     const char *why);
unsigned crew_alive(const struct agent *a);
/* The agent leaves: takes no more output of an mpirun that outlived its crew. */
void crew_mpi_leave(struct agent *a);
/* Whether there is one that is still worth waiting for. */
bool crew_mpi_outlives(struct agent *a);
/* Waits no more; muster-watch kills what is left. With the table of children. */
void crew_mpi_forget(struct agent *a);
/* The agent leaves: ends the warm interpreter. */
void crew_warm_end(struct agent *a);
/* And what waits to become workers. */
void crew_blanks_end(struct agent *a);
/* Forgets the crew; its workers are gone. */
void crew_destroy(struct agent *a);

#endif
