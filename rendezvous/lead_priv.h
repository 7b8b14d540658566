/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the lead share. Private to lead*.c.
 *
 *   lead.c        life; what events, answers and time make of it
 *   lead_order.c  phases, and the orders that they begin with
 *   lead_loss.c   lost nodes, spares and newcomers: who takes part
 *   lead_grow.c   other nodes for a run that is well
 *   lead_avoid.c  which checkpoints no generation starts from
 *   lead_cause.c  which failure is the cause, and what follows from it
 *   lead_view.c   the view, and claims of the next one
 *   lead_heir.c   taking over from another
 *   lead_note.c   what is told to the journal
 */
#ifndef MUSTER_RENDEZVOUS_LEAD_PRIV_H
#define MUSTER_RENDEZVOUS_LEAD_PRIV_H

#include "rendezvous/lead.h"

#define NO_RANK UINT32_MAX

enum phase {
    PHASE_GATHER,
    PHASE_PREPARE,
    PHASE_RUN,
    PHASE_CLAIM, /* the end is claimed: the verdict is known here only */
    PHASE_END,
    PHASE_OVER,
};

struct lead {
    struct lead_config config;
    uint64_t now_ms;
    enum phase phase;
    uint32_t generation; /* the newest prepared, 0 before the first */
    uint32_t ran;        /* the newest that was ordered to run, or 0 */
    uint64_t ran_at_ms;
    uint64_t limit_ms;   /* when the phase is over even without answers */
    uint64_t hold_ms;    /* PREPARE: not before this */
    uint32_t n_restarts;
    uint32_t n_quick;    /* generations in a row that failed soon */
    uint32_t n_nodes, min_nodes, max_nodes, want_nodes;
    struct lead_node *nodes;
    uint32_t n_ready;    /* nodes that have done what the phase waits for */
    uint32_t n_started;  /* RUN: nodes whose workers were started */
    uint16_t *n_procs;   /* scratch for RUN orders */
    uint32_t *gone;      /* the same for PREPARE */
    bool *whole;         /* scratch, by node; likewise ... */
    bool *dead;
    uint32_t *node_of;

    uint32_t n_part;     /* nodes that take part */
    bool is_asked;       /* a command wants other nodes ... */
    uint64_t asked_ms;   /* ... since then */
    uint64_t came_ms;    /* when a node came last */
    bool has_changed;    /* a run that was well was stopped ... */
    uint64_t changed_ms; /* ... the last time */
    bool is_due;         /* a change waits for a checkpoint ... */
    bool was_saved;      /* ... which has come since */
    bool is_gentle;      /* nothing ails the workers that PREPARE stops */
    char change[ORDER_TEXT_BYTES / 4]; /* what that is for */

    uint32_t n_losses;   /* of nodes that were needed */
    bool has_lost;       /* one of them, since the newest RUN */
    char loss[ORDER_TEXT_BYTES]; /* the newest */
    bool has_cause; /* of the end of generation `ran`, so far */
    bool judged;    /* it led to a restart, and is only history now */
    struct failure cause;
    uint64_t cause_ms; /* when it happened, by our clock */
    bool has_obstacle; /* to running `generation`: a node could not prepare */
    struct failure obstacle;

    char store_addr[ORDER_ADDR_BYTES]; /* of `generation` */
    uint16_t store_port;
    uint32_t store_rank; /* who opens it */
    uint32_t saved_generation; /* who wrote resume_path; 0: an earlier run */
    int64_t resume_step;
    char resume_path[ORDER_PATH_BYTES];
    struct avoid avoid;
    bool has_moved;      /* generation `ran` got somewhere ... */
    bool has_step;       /* ... for which it takes another step than ... */
    int64_t first_step;  /* ... that, which it has reported first */
    bool is_untold;      /* no order has said that ... */
    uint64_t told_ms;    /* ... the newest of which was then */

    struct view view;    /* number 0: nobody else can ever lead */
    struct view claim;   /* the newest that was asked for ... */
    bool claiming;       /* ... and not answered */
    bool claim_adds;     /* all have stopped: it only takes more in */
    uint32_t n_quiet;    /* that are here, and silent */
    uint32_t foreign;    /* the newest generation of other leads */
    bool retired;        /* another leads */
    bool is_new;         /* it has taken over, and has not said so yet */
    bool has_heritage_end; /* and the verdict stands ... */
    bool is_end_proposed;  /* ... where enough know it */
    bool standing_down;
    bool is_stopped;     /* by a command or a deadline: it ends, whoever comes back */
    bool proposing;      /* CLAIM: the verdict is in the past of the order */
    bool adrift;         /* another may lead by now */
    bool loose;          /* who was bound to it may be free by now */
    bool waits_on;       /* CLAIM or END: for that, longer than for the arbiter */
    bool claims_again;   /* END: claimed once more, when LEAVE was due ... */
    bool is_last;        /* ... and won */
    bool harsh;          /* nothing can be saved together: kill */
    enum order_stop end_stop; /* CLAIM: of the END to come ... */
    uint32_t end_grace_ms;
    uint64_t end_claim_ms; /* ... which is not claimed before this */
    bool has_heard;
    uint64_t heard_ms;   /* somebody heard of a lead of an older view */

    bool suspended;      /* by a command */
    struct order order; /* the newest; its arrays are borrowed from above */
    struct lead_verdict verdict;
};

/* a + b, without wrapping. */
static inline uint64_t lead_later(uint64_t a, uint64_t b)
{
    return a > LEAD_NEVER - b ? LEAD_NEVER : a + b;
}

/* --- lead_order.c --- */

/* Whether a node has done what the phase waits for; likewise all of them; and
 * whether its workers were started. */
bool lead_is_ready(const struct lead *lead, const struct lead_node *n);
bool lead_all_ready(const struct lead *lead);
bool lead_is_started(const struct lead *lead, const struct lead_node *n);
/* Around each change of a node. */
void lead_uncount(struct lead *lead, const struct lead_node *n);
void lead_count(struct lead *lead, const struct lead_node *n);

/* Until when those that are to stop now are waited for; who is silent, until it
 * is lost. */
uint64_t lead_stop_limit(const struct lead *lead);
/* The next generation; its workers; the end. */
void lead_prepare(struct lead *lead, struct lead_actions *ret);
/* The same one, with others gone. */
void lead_prepare_again(struct lead *lead, struct lead_actions *ret);
void lead_run(struct lead *lead, struct lead_actions *ret);
/* The newest order with what has become known since: of its view, and of saves. */
void lead_order_again(struct lead *lead, struct lead_actions *ret);
/* A save that no order has told of yet: tells it, if it is time; when that is, or
 * LEAD_NEVER. */
void lead_tell_saved(struct lead *lead, struct lead_actions *ret);
uint64_t lead_tell_ms(const struct lead *lead);
/* With the verdict. Nothing happens if there is one already. */
void lead_end(struct lead *lead, struct lead_actions *ret, uint8_t status,
              const char *reason, enum order_stop stop, uint32_t grace_ms);
/* END with the verdict that stands. */
void lead_publish_end(struct lead *lead, struct lead_actions *ret,
                      enum order_stop stop, uint32_t grace_ms);
void lead_leave(struct lead *lead, struct lead_actions *ret);

/* --- lead_loss.c --- */

bool lead_is_here(const struct lead_node *n);
/* LEAD_LOST and LEAD_HERE. */
void lead_lose(struct lead *lead, uint32_t rank, const struct lead_event *event,
               struct lead_actions *ret);
void lead_hear_again(struct lead *lead, uint32_t rank,
                     struct lead_actions *ret);
/* The lease of a node was over: its workers are gone or will be, it is there. */
void lead_lose_workers(struct lead *lead, uint32_t rank,
                       struct lead_actions *ret);
void lead_end_by_loss(struct lead *lead, const char *why,
                      struct lead_actions *ret);
bool lead_is_at_end(struct lead *lead, char *to, size_t size);
/* Whether a report counts: of a lost node only one that shows that its lease has
 * not ended, and that it has no workers. */
bool lead_hear_report(struct lead *lead, const struct report *r,
                      struct lead_actions *ret);
/* How many nodes there are, or may come. */
uint32_t lead_count_left(struct lead *lead);
/* Of those that are here (and have stopped): sets `chosen` for as many as the job
 * wants; how many nodes that are. Then the node of worker 0 among them. */
uint32_t lead_choose(struct lead *lead, bool have_stopped);
uint32_t lead_store_rank(const struct lead *lead);
/* When the last worker of a lost node is gone. */
uint64_t lead_clear_ms(const struct lead *lead);
/* When RUN may come, once all have stopped. (lead.c) */
uint64_t lead_run_ms(const struct lead *lead);
/* There are too few nodes for the next generation, after all. */
void lead_end_short(struct lead *lead, struct lead_actions *ret);
void lead_list_gone(struct lead *lead, struct order *order);
/* lead_add_nodes() without the names. */
int lead_set_nodes(struct lead *lead, uint32_t n, const uint32_t *node_of);

/* --- lead_grow.c --- */

/* LEAD_SCALE. */
int lead_scale(struct lead *lead, uint32_t n, struct lead_actions *ret);
/* Leaves the node of that agent out from the next generation on, if there are
 * others enough: whether it does. */
void lead_set_excluded(struct lead *lead, uint32_t node, enum exclusion why);
/* It does not wait for a checkpoint, nor for grow_interval_ms. */
void lead_ask_change(struct lead *lead, uint32_t rank);
void lead_readmit(struct lead *lead, uint32_t rank, struct lead_actions *ret);
bool lead_exclude(struct lead *lead, uint32_t rank, enum exclusion why,
                  const char *text, struct lead_actions *ret);
/* LEAD_MISFIT. */
void lead_on_misfit(struct lead *lead, const struct lead_event *event,
                    struct lead_actions *ret);
/* RUN: stops a run that is well, if others are to take part, and now. */
void lead_change(struct lead *lead, struct lead_actions *ret);
/* RUN: when time alone makes that happen, or LEAD_NEVER. */
uint64_t lead_change_ms(struct lead *lead);

/* --- lead_cause.c --- */

/* A failure of the generation that runs or is just being stopped. */
void lead_add_cause(struct lead *lead, const struct failure *f);
/* The first word of one: stop everybody. */
void lead_fail(struct lead *lead, struct lead_actions *ret);
/* All have stopped and told what they saw: the cause is known now. True if
 * another generation may run. */
bool lead_judge(struct lead *lead, struct lead_actions *ret);
void lead_succeed(struct lead *lead, struct lead_actions *ret);
/* There would be another generation, but a node cannot do its part in it. */
void lead_give_up(struct lead *lead, struct lead_actions *ret);

/* --- lead_view.c --- */

/* END, and LEAVE is due: whether it has to wait for a claim. */
bool lead_claims_end_again(struct lead *lead, struct lead_actions *ret);
/* False: others may go on by themselves, and we may not. */
bool lead_may_go_on(struct lead *lead);
/* PREPARE and RUN: claims the next view if there is need; true as long as there can
 * be no RUN of this one for that. */
bool lead_claim_if_needed(struct lead *lead, struct lead_actions *ret);
/* The verdict stands here. True: END comes when it is claimed. */
bool lead_claim_end(struct lead *lead, struct lead_actions *ret,
                    enum order_stop stop, uint32_t grace_ms);
void lead_advance_claim(struct lead *lead, struct lead_actions *ret);
void lead_on_claimed(struct lead *lead, enum heir_outcome outcome,
                     struct lead_actions *ret);
/* Whether a report says what a node has made of orders of this view. */
bool lead_is_of_view(const struct lead *lead, const struct report *r);
/* Whether a node that ends now may have been bound to another before. */
bool lead_may_stray(const struct lead *lead, uint32_t rank);
/* Whether a node has promised to obey this view no more. */
void lead_look_at_floor(struct lead *lead, const struct report *r,
                        struct lead_actions *ret);

/* --- lead.c --- */

void lead_on_stop(struct lead *lead, enum lead_stop stop, bool force,
                  const char *text, struct lead_actions *ret);

/* --- lead_report.c --- */

int lead_on_report(struct lead *lead, const struct report *r,
                   struct lead_actions *ret);
/* LEAD_SAVED. */
void lead_on_saved(struct lead *lead, const struct lead_event *event,
                   struct lead_actions *ret);
/* Workers of that generation have made a checkpoint, from which the next ones start. */
void lead_set_resume(struct lead *lead, const char *path, int64_t step,
                     uint32_t generation, struct lead_actions *ret);
void lead_choose_resume(struct lead *lead, const struct lead_event *event,
                        struct lead_actions *ret);

/* --- lead_avoid.c --- */

/* LEAD_PROGRESS. */
void lead_on_progress(struct lead *lead, int64_t step);
/* Something was saved, by workers of that generation. False: it is one that is left alone,
 * which was only found. */
bool lead_avoid_saved(struct lead *lead, const char *path, int64_t step,
                      uint32_t generation, bool is_found);
/* A worker's failure was the end of generation `ran`. */
void lead_avoid_died(struct lead *lead, struct lead_actions *ret);
/* The next one starts from another one; of what was chosen, what it does start from. */
struct avoid_one lead_avoid_chosen(struct lead *lead, const char *path, int64_t step,
                                   struct lead_actions *ret);

/* --- lead_advance.c --- */

/* One move of the machine, if there is one to make. */
void lead_advance(struct lead *lead, struct lead_actions *ret);
uint64_t lead_next_wake(struct lead *lead);

/* --- lead_heir.c --- */

/* The first view; or what another has left. 0 or -ENOMEM. */
int lead_begin(struct lead *lead, const struct lead_config *config);
/* Those that have gathered are the first view. */
void lead_found(struct lead *lead);
/* The first orders of one that has taken over. */
void lead_take_over(struct lead *lead, struct lead_actions *ret);

/* --- lead_note.c --- */

/* NULL: there are too many in this step. */
struct lead_note *lead_note(struct lead *lead, struct lead_actions *ret,
                            enum lead_note_type type, uint32_t rank, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* About the cause. */
void lead_note_failure(struct lead *lead, struct lead_actions *ret,
                       enum lead_note_type type, const char *text);
/* "n3", or "node 3"; valid until the next call with the same `to`. */
const char *lead_name_of(const struct lead *lead, uint32_t rank, char *to,
                         size_t size);
/* "n1, n2 and 5 more": the nodes that are not ready. */
void lead_name_late(const struct lead *lead, char *to, size_t size);

#endif
