/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated run: the lead and the members that ship, their messages through
 * the codec that ships, and everything else made up from a seed: links that
 * delay, repeat, reorder and break, workers that finish, fail, hang or leave
 * descendants, agents that are killed or stopped, clocks that jump, and people
 * who cancel. The same seed gives the same run, event by event.
 *
 * sim_check.c looks at the whole world after every step, which no real part can
 * do, and says which promise of lead.h or member.h was broken.
 */
#ifndef MUSTER_RENDEZVOUS_SIM_H
#define MUSTER_RENDEZVOUS_SIM_H

#include "base/buf.h"
#include "rendezvous/lead.h"
#include "rendezvous/member.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_NODES 16
#define SIM_MAX_PROCS 4
#define SIM_MAX_GENERATIONS 32
#define SIM_NEVER UINT64_MAX

enum sim_event_type {
    EV_JOIN,        /* an agent starts */
    EV_DOWN,        /* an order arrives; tag: link epoch */
    EV_UP,          /* a report arrives; tag: link epoch */
    EV_BEAT,        /* the lead sends heartbeats */
    EV_WORD,        /* one arrives; tag: link epoch */
    EV_LEAD_TICK,
    EV_MEMBER_TICK,
    EV_SPAWN,       /* workers come to life; tag: generation */
    EV_STARTED,     /* tag: generation */
    EV_DEATH,       /* a worker dies; tag: generation << 8 | local rank */
    EV_ORPHAN_DEATH, /* a descendant dies; tag: generation */
    EV_REAP,        /* the agent looks for dead children */
    EV_GONE,        /* tag: generation */
    EV_STORE,       /* tag: generation */
    EV_SAVED,
    EV_LINK_DOWN,
    EV_LINK_UP,
    EV_SUSPECT,     /* the lead's patience ends; tag: link epoch */
    EV_HERE,        /* the lead hears that it is connected; tag: link epoch */
    EV_KILL,        /* the agent is killed */
    EV_SWEEP,       /* muster-watch kills what it left */
    EV_PAUSE,
    EV_RESUME,
    EV_CLOCK,       /* a wall clock jumps */
    EV_STOP,        /* tag: enum lead_stop, + 16 for force */
    EV_LEAD_GONE,   /* the lead's agent exits after the run */
    EV_SCALE,       /* a command; tag: nodes that are wanted */
    EV_EXCLUDE,     /* a node is found to be of no use; tag 1: and waited for, 2: it
                       is of use again, 3: the job does not fit it */
};

/* A worker. */
struct sim_proc {
    bool alive;
    bool reaped;
    bool signalled; /* by a stop, before it died */
    bool ignores_term;
    bool stuck; /* in the kernel: no signal helps */
    bool slow;  /* the same, for long */
    uint64_t die_ms; /* planned; UINT64_MAX for not by itself */
    uint64_t died_ms;
    bool ok; /* will exit with code 0 */
    struct failure failure;
};

/* What happened first on a node in a generation, by the world's clock. */
struct sim_truth {
    bool failed;
    int32_t pid;
    uint64_t at_ms;
    bool recorded; /* the member had ordered no stop when it was told */
    bool done;     /* all workers were started and exited 0 */
};

struct sim_node {
    struct member *member;
    bool alive; /* the agent; it has no member any more if not */
    uint16_t want_procs;
    uint64_t paused_until_ms;
    bool linked;
    uint32_t link_epoch;
    uint64_t sent_ms;  /* when the newest word was sent to it, or it joined */
    uint64_t here_ms;  /* its parent in the tree is cut off itself until then */
    uint32_t aside_with; /* ... when its workers were of this generation */
    bool lost;         /* as the lead was told */
    bool absent;       /* it never comes */
    bool ended;        /* its agent, seen by a kernel that lives */
    bool took_part;    /* in the newest RUN */
    bool excluded;
    int64_t drift_ppm; /* of its monotonic clock */
    uint64_t wake_ms;
    int64_t wall_skew_ms;
    uint64_t arrives_ms[2]; /* of the newest message: down, up */

    uint32_t generation; /* of the workers below, 0 for none yet */
    bool starting;       /* told to start, no answer given yet */
    bool stop_asked;     /* of this generation, any way */
    bool killed;         /* all that there was, descendants too */
    bool live;           /* between the start and GONE */
    uint32_t n_procs;
    struct sim_proc procs[SIM_MAX_PROCS];
    bool descendant; /* alive, after its parents are gone */
    uint32_t died[SIM_MAX_PROCS];
    uint32_t n_died, n_reaped;

    uint32_t stopped; /* newest STOPPED report that was sent */
    bool has_word; /* the lead was heard at least once ... */
    uint64_t word_ms; /* ... with a word of then, or older ones */
    uint64_t slow_until_ms; /* words arrive then, not earlier */
    bool must_be_fenced; /* was stopped for longer than its lease */
    bool told;
    uint8_t told_status;
    struct sim_truth truth[SIM_MAX_GENERATIONS];
};

struct sim_event {
    uint64_t at_ms;
    uint64_t seq;
    uint8_t type;
    uint32_t node;
    uint32_t tag; /* link epoch, generation or worker, by type */
    uint64_t sent_ms; /* of a word */
    struct buf bytes;
};

struct sim {
    uint64_t rng;
    uint64_t now_ms;
    uint64_t seq;
    struct sim_event *heap;
    size_t n_events, cap_events;

    uint32_t n_nodes;
    uint32_t n_known;  /* to the lead; the others come later */
    uint32_t node_of[SIM_MAX_NODES];
    struct lead_config lead_config;
    uint64_t lease_ms;
    uint64_t faults_end_ms;
    uint64_t give_up_ms; /* later than any run may last */
    bool skewed;         /* clocks of nodes differ, or jump */
    bool disturbed;      /* something went wrong that ends a run resumable */
    bool absent;         /* a node never came */
    bool stuck;          /* a worker did not die when it was killed, or the lead
                            was stopped */
    uint32_t n_losses;   /* that the lead was told, of nodes that took part ... */
    uint32_t n_restarts; /* that the lead has told */
    uint32_t n_needed;   /* ... and had not done all their work */
    bool stop_sent[3];   /* by enum lead_stop */
    uint32_t want;       /* nodes, by the newest command */
    bool is_asked;       /* since `asked_ms`, by a command ... */
    uint64_t asked_ms;   /* ... that has changed nothing yet */
    bool is_retold;      /* the lead has something to say in the order that stands */
    uint32_t n_changes;  /* stops of generations that were well ... */
    uint64_t changed_ms; /* ... the newest of them */
    bool was_saved;      /* by the newest generation */
    uint32_t p_fail;     /* per worker, in 1000, in the running generation */
    uint64_t duration_ms;

    struct lead *lead;
    bool lead_alive;
    bool finished;
    uint64_t lead_wake_ms;
    struct lead_actions lead_actions;
    struct sim_node nodes[SIM_MAX_NODES];

    /* What was published. */
    uint64_t serial;
    uint32_t generation;
    uint32_t ran;
    uint32_t n_runs;
    uint32_t store_node; /* who opened the newest store */
    bool has_verdict;
    uint8_t verdict;

    bool trace;
    struct buf log;
    char violation[512]; /* "" as long as all is well */
};

/* Runs one schedule. True if all promises were kept; else `ret_violation` says
 * which was not. `log` gets a line an event if not NULL. */
bool sim_run(uint64_t seed, char *ret_violation, size_t size, struct buf *log);

/* sim_queue.c: random numbers, both limits included; a line of the log; events
 * in order of time. An event owns its bytes. */
uint64_t sim_rnd(struct sim *s);
uint64_t sim_pick(struct sim *s, uint64_t low, uint64_t high);
bool sim_chance(struct sim *s, uint32_t per_mille);
void sim_trace(struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_push(struct sim *s, struct sim_event event);
struct sim_event sim_pop(struct sim *s);
void sim_post(struct sim *s, uint64_t at_ms, enum sim_event_type type,
              uint32_t node, uint32_t tag);

/* sim_act.c: steps lead and members, and does in the world what they ask. */
void sim_lead_do(struct sim *s, struct lead_event event);
void sim_member_do(struct sim *s, struct sim_node *n,
                   struct member_event event);
void sim_send_order(struct sim *s, uint32_t node);
void sim_cut_link(struct sim *s, uint32_t node);
/* Whether its own parent in the tree, if it has one between it and the lead, is
 * cut off: it hears and tells nothing then. */
bool sim_is_aside(const struct sim *s, const struct sim_node *n);
/* What its clock shows, and when it will show that. */
uint64_t sim_clock_ms(const struct sim *s, const struct sim_node *n);
uint64_t sim_when_ms(const struct sim_node *n, uint64_t clock_ms);
void sim_make_worker(struct sim *s, struct sim_node *n, uint32_t k);
void sim_stop_workers(struct sim *s, struct sim_node *n, bool kill);
/* Tells the member which workers have died. */
void sim_reap(struct sim *s, struct sim_node *n);
/* The agent is gone, however; muster-watch will sweep up. */
void sim_agent_ends(struct sim *s, struct sim_node *n);

/* sim_event.c: what the world does; an agent that is stopped gets it later. */
void sim_dispatch(struct sim *s, struct sim_event *event);

/* sim_grow.c: other nodes for a run that is well. */
void sim_plan_grow(struct sim *s);
void sim_on_scale(struct sim *s, struct sim_event *event);
void sim_on_exclude(struct sim *s, struct sim_event *event);
void sim_see_grow(struct sim *s, const struct lead_note *note);
void sim_check_grown(struct sim *s, const struct order *order);

/* sim_check.c: each notes the first violation in `s`. */
void sim_fail(struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_check_order(struct sim *s, const struct order *order);
/* Whether that is the last RUN once more, before it is checked. */
bool sim_is_again(const struct sim *s, const struct order *order);
void sim_check_workers(struct sim *s);
void sim_check_leases(struct sim *s);
void sim_check_verdict(struct sim *s);
void sim_check_cause(struct sim *s, const struct failure *cause, bool final);
void sim_check_member(struct sim *s, struct sim_node *n,
                      const struct member_actions *actions);
void sim_check_end(struct sim *s);

#endif
