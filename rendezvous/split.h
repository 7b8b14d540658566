/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated run whose lead can be lost: heirs, leads and members as they ship,
 * on agents that find each other as the control tree does, with one process each.
 * Networks are cut in two, or one way only, and heal; agents are killed and stopped,
 * and others come in their place; clocks drift and step; the arbiter answers late, or
 * never, or has done what it did not tell, or lies. The same seed gives the same run.
 * (sim.h looks closely at one lead; this at several.)
 *
 * After each event the whole world is looked at (split_check.c).
 */
#ifndef MUSTER_RENDEZVOUS_SPLIT_H
#define MUSTER_RENDEZVOUS_SPLIT_H

#include "base/buf.h"
#include "rendezvous/heir.h"
#include "rendezvous/lead.h"
#include "rendezvous/member.h"

#include <stdbool.h>
#include <stdint.h>

#define SPLIT_MAX 10 /* agents that there ever are ... */
#define SPLIT_FIRST 7 /* ... of them at the start */
#define SPLIT_NEVER UINT64_MAX
#define SPLIT_NONE UINT32_MAX
#define SPLIT_VIEWS 64
#define SPLIT_STORES 1024 /* that a run may have */
#define SPLIT_FIRST_PORT 20000
#define SPLIT_CLAIM_MS 3000 /* a lead waits so long for the arbiter ... */
#define SPLIT_ASK_MS 700    /* ... and asks again after that */
#define SPLIT_LATE_MS 100000 /* by then a run is over */

enum split_case {
    SPLIT_ANY,        /* whatever the seed makes of it */
    SPLIT_CREATE,     /* who has created a view is killed before it knows */
    SPLIT_EVEN,       /* an even cut, for good, and both halves could go on */
    SPLIT_EEXIST,     /* every link() says EEXIST, also of one's own */
    SPLIT_SILENT,     /* the lead is cut off from all others */
    SPLIT_KILLED,     /* the lead's agent is killed, and then the next one's */
    SPLIT_PAUSED,     /* the lead is stopped for longer than its lease */
    SPLIT_TURNS,      /* and then the next one, and the first goes on */
    SPLIT_LATE,       /* the lead is stopped until all others have ended */
    SPLIT_MOVES,      /* a majority decides; who follows one goes to another */
    SPLIT_PROPOSED,   /* and one that knows of a proposed end takes the lead */
    SPLIT_RETURNS,    /* who was killed comes again, as another; then the lead is killed */
    SPLIT_LOST,       /* who has lost a view loses those that follow it, too */
    SPLIT_UNTOLD,     /* who has created a view is stopped until the others have ended */
    SPLIT_MISSED,     /* who takes the lead has missed the generation that ran last */
    SPLIT_GROWN,      /* a run that began with as many nodes as it needs has more now */
    SPLIT_CASES,
};

enum split_type {
    SP_JOIN, SP_DIAL, SP_BEAT, SP_FRAME, SP_WAKE, SP_LOST, SP_LOOK,
    SP_SPAWNED, SP_DIE, SP_GONE, SP_SAVE, SP_COMMIT, SP_UPLOAD, SP_GROW,
    SP_ASK, SP_ANSWER, SP_STORE,
    SP_KILL, SP_PAUSE, SP_CUT, SP_HEAL, SP_ONE_WAY, SP_STOP, SP_HANG, SP_ARRIVE,
    SP_JUMP,
};

enum split_frame {
    FR_HELLO, FR_WELCOME, FR_CLOSE, FR_ORDER, FR_REPORT, FR_FOLLOW, FR_HERE,
    FR_LOST, FR_BEAT, FR_ANSWER,
};

struct split_beat {
    uint64_t echo_ms; /* the sender's clock; in the answer as it came */
    uint64_t age_ms;
    uint64_t stamp_ms;
    uint32_t view;
    struct heir_seen seen;
    bool has_word;
};

struct split_event {
    uint64_t at_ms, seq;
    uint8_t type, frame;
    uint32_t to, from, rank, tag;
    bool up;          /* from the child to the parent */
    bool dead;
    uint64_t quiet_ms;
    struct split_beat beat;
    struct buf bytes;
};

/* A child, and what is below. */
struct split_child {
    bool linked;
    uint32_t epoch;
    uint64_t heard_ms; /* by our clock, as all here */
    uint64_t word_ms;
    struct split_beat beat;
    uint32_t n_new;    /* told of since then */
};

struct split_below {
    uint32_t via, other; /* as in rendezvous/tree_priv.h */
    uint64_t other_ms, word_ms;
    bool has_follow;
    bool lost; /* and told */
    uint64_t due_ms;
    bool dead;
    uint64_t quiet_at_ms;
    struct buf report, follow;
};

struct split_agent {
    struct heir *heir;
    struct member *member;
    struct lead *lead, *old_lead; /* the latter is to be destroyed */
    bool alive, started;
    uint32_t n_known;    /* agents that it knows of */
    uint64_t died_ms;
    uint32_t n_quiet;    /* as its lead was told */
    uint8_t status;
    bool told;
    uint64_t paused_until_ms;
    int64_t drift_ppm, offset_ms;
    uint64_t wake_ms[3];  /* posted: heir, member, lead */

    uint32_t up, epoch, next_dial, seek;
    bool up_ready, dialing, is_top;
    uint64_t up_heard_ms;
    bool has_word;
    uint64_t word_at_ms, stamp_ms;
    uint32_t word_view;
    struct split_child child[SPLIT_MAX];
    struct split_below below[SPLIT_MAX];
    struct buf order;    /* the newest */
    uint64_t order_serial;
    uint64_t arrives_ms[SPLIT_MAX];

    bool asks;           /* the arbiter, and its answer is awaited ... */
    bool for_lead;
    uint32_t ask_tag, n_unanswered;
    struct view ask;

    uint32_t generation; /* of its worker ... */
    uint32_t view;       /* ... under that view */
    bool worker;         /* it is alive */
    bool starting, ended_well, signalled;
    uint32_t ordered_run;   /* the newest generation that its lead has ordered */
    uint64_t untold_ms;     /* since then its lead knows of a newer save than its
                               orders tell; 0: it does not ... */
    int64_t untold_step;    /* ... which was this one, at first */
    uint64_t die_ms;
    uint32_t n_stops;    /* how often it was stopped */
    bool disturbed;      /* cut, stopped or killed, ever */
    bool member_of_view; /* of the newest one that has run */
};

struct split {
    uint64_t rng, now_ms, seq;
    struct split_event *heap;
    size_t n_events, cap_events;
    enum split_case which;

    uint32_t n;          /* agents that have come, or are about to at the start */
    uint32_t node_of[SPLIT_MAX];
    bool shared;
    uint32_t min_nodes, max_nodes;
    uint64_t lease_ms, timeout_ms, slack_ms;
    uint64_t duration_ms, faults_end_ms, give_up_ms;
    uint32_t p_fail;
    struct restart_policy restart;
    struct split_agent agents[SPLIT_MAX];
    bool reach[SPLIT_MAX][SPLIT_MAX];

    struct view files[SPLIT_VIEWS]; /* the arbiter's */
    uint64_t hung_until_ms;
    bool arbiter_hung; /* ever ... */
    uint64_t hung_ms;  /* ... in all, so long */
    bool arbiter_bad;  /* answers get lost ... */
    bool is_patient;   /* ... but never more than two of an agent in a row */
    bool arbiter_lies; /* link() is forgotten, what is read is another's */
    uint64_t wait_ms;  /* of heirs */
    bool stop_sent, met_creator, stopped_loser, has_missed;
    uint32_t n_cuts, n_faults;

    uint32_t n_stores, store_of[SPLIT_STORES]; /* by port: of which generation */
    uint32_t ran;         /* the newest generation that was started ... */
    uint32_t run_lead;    /* ... by order of whom */
    uint32_t run_view[SPLIT_VIEWS]; /* shared: lead + 1 that has run in it */
    bool has_end;         /* a verdict other than resumable was published */
    uint8_t end_status;
    uint32_t end_generation;
    bool succeeded;
    bool has_record;      /* a lead has said what to write down as the end */
    uint8_t record_status;
    uint32_t record_view;
    uint32_t n_runs;
    uint32_t n_commits, n_uploads, n_void; /* that took effect; that did not */

    bool trace;
    struct buf log;
    char violation[512];
};

bool split_run(uint64_t seed, enum split_case which, char *ret_violation,
               size_t size, struct buf *log);

/* split.c */
uint64_t split_rnd(struct split *s);
uint64_t split_pick(struct split *s, uint64_t low, uint64_t high);
bool split_chance(struct split *s, uint32_t per_mille);
void split_trace(struct split *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void split_push(struct split *s, struct split_event event);
void split_post(struct split *s, uint64_t at_ms, enum split_type type,
                uint32_t to, uint32_t tag);
uint64_t split_clock(const struct split *s, const struct split_agent *a);
uint64_t split_when(const struct split *s, const struct split_agent *a,
                    uint64_t clock_ms);
static inline uint32_t split_rank(const struct split *s,
                                  const struct split_agent *a)
{
    return (uint32_t)(a - s->agents);
}

/* split_plan.c: draws what `rng` gives, and so the order of the calls matters: the job,
 * then its agents, then what goes wrong. */
void split_plan_job(struct split *s);
void split_plan_case(struct split *s);
/* An agent takes an order: of its lead, or of itself as one. */
void split_miss(struct split *s, struct split_agent *a, const struct order *o);

/* split_tree.c: frames between agents, parents, silence. */
void split_on_frame(struct split *s, struct split_event *e);
void split_on_dial(struct split *s, struct split_event *e);
void split_on_beat(struct split *s, struct split_event *e);
void split_on_lost(struct split *s, struct split_event *e);
void split_on_look(struct split *s, struct split_event *e);
void split_send_up(struct split *s, struct split_agent *a,
                   enum split_frame frame, uint32_t rank,
                   const struct buf *bytes);
void split_send_below(struct split *s, struct split_agent *a,
                      const struct buf *bytes);
/* Becomes the root; tells its new lead who is below. */
void split_become_root(struct split *s, struct split_agent *a);
void split_agent_gone(struct split *s, struct split_agent *a);
void split_drop_up(struct split *s, struct split_agent *a);
void split_dial_soon(struct split *s, struct split_agent *a, uint64_t ms);

/* split_act.c: steps the machines, and does what they ask. */
void split_heir(struct split *s, struct split_agent *a,
                struct heir_event event);
void split_member(struct split *s, struct split_agent *a,
                  struct member_event event);
void split_lead(struct split *s, struct split_agent *a,
                struct lead_event event);
void split_take_order(struct split *s, struct split_agent *a,
                      const struct buf *bytes);
void split_kill(struct split *s, struct split_agent *a);
void split_stop_worker(struct split *s, struct split_agent *a, bool kill);
void split_on_work(struct split *s, struct split_event *e);
/* The arbiter. */
void split_on_ask(struct split *s, struct split_event *e);
void split_on_answer(struct split *s, struct split_event *e);

/* split_effect.c: what outlives a generation. */
void split_on_saved(struct split *s, struct split_agent *a);
void split_on_effect(struct split *s, struct split_event *e);

/* split_arrive.c: agents that come later. */
void split_create_agents(struct split *s);
void split_on_join(struct split *s, struct split_agent *a);
struct lead_config split_lead_config(const struct split *s,
                                     const struct split_agent *a,
                                     const struct heritage *h);
void split_on_arrive(struct split *s, struct split_event *e);
void split_on_grow(struct split *s, struct split_agent *a);

/* split_check.c */
void split_fail(struct split *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Nobody who follows the new lead `a` is bound to the view `left` that it was free of,
 * nor to an older one. */
void split_check_camp(struct split *s, const struct split_agent *a,
                      const struct heritage *h, uint32_t left);
/* Orders tell soon of a save that the lead knows of. */
void split_check_told(struct split *s, struct split_agent *a);
/* The order that the lead of `a` has just said. */
void split_check_order(struct split *s, const struct split_agent *a,
                       const struct order *o);
void split_check_start(struct split *s, const struct split_agent *a,
                       const struct order *o);
void split_check_effect(struct split *s, const struct split_agent *a,
                        uint32_t generation, const char *what);
void split_check_world(struct split *s);
void split_check_end(struct split *s);

#endif
