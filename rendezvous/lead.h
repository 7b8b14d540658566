/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead: decides for the whole run. A pure state machine; the agent of rank
 * 0 feeds it what the tree brings, and does what it says. It has no clock, no
 * descriptors and no threads.
 *
 *   GATHER   until every node has reported                  -> PREPARE
 *   PREPARE  of generation g: workers of older ones stop, the node of worker 0
 *            opens the store; until every node that is there is STOPPED(g), the
 *            workers of lost ones are gone, and the backoff is over -> RUN
 *   RUN      until all are DONE (-> END 0), or a worker fails or a node that
 *            takes part is lost (-> PREPARE g+1)
 *   CLAIM    where another might lead: the verdict has to be won (lead_view.c)
 *   END      the verdict stands; until all are ENDED or lost, or the time for
 *            it is over                                     -> OVER
 *   OVER     LEAVE is published, nothing happens any more; only who is lost counts as
 *            silent still
 *
 * A worker failure stops everybody first (PREPARE g+1) and is judged when all
 * have stopped: by then every node has told its own first failure, and the
 * first of these is the cause. Policy and budget then decide between RUN(g+1) and
 * END. A node that does not stop in time ends the run resumable.
 *
 * A node that is lost is left out, and a spare takes its place where there is
 * one (lead_loss.c). With fewer nodes than the job needs, or after more losses
 * than it allows, the run ends resumable. A loss explains the failures of its
 * generation, and is none in the budget of restarts.
 *
 * A run that is well goes on with other nodes when newcomers wait, or a command
 * wants more or fewer, or a node was excluded (lead_grow.c). That counts in no
 * budget.
 *
 * Invariants (rendezvous/sim.c checks them over random schedules):
 *  - serials of orders rise by one; generations never fall.
 *  - RUN(g) is published only when every node that is not lost has reported
 *    STOPPED(g), and of lost ones no worker can be alive; every RUN has a
 *    generation of its own, with no fewer nodes than the job needs, no more than
 *    are wanted, and none that is excluded.
 *  - a generation that is well is stopped only by a command, or after a
 *    checkpoint of its own, and then not sooner than grow_interval_ms after the
 *    last time.
 *  - restarts, and losses that the run outlives, never exceed their budgets.
 *  - the verdict is fixed by the first END order and never changes; 0 only if
 *    every node that took part in the newest generation reported DONE for it.
 *  - the cause is a failure that no stop of ours made.
 *  - END is left in bounded time, whoever is silent.
 */
#ifndef MUSTER_RENDEZVOUS_LEAD_H
#define MUSTER_RENDEZVOUS_LEAD_H

#include "base/cleanup.h"
#include "rendezvous/heir.h"
#include "rendezvous/order.h"
#include "rendezvous/restart.h"

#include <stdbool.h>
#include <stdint.h>

#define LEAD_NEVER UINT64_MAX
#define LEAD_NO_NODE UINT32_MAX
#define LEAD_MAX_NOTES 8

struct lead;

struct lead_config {
    uint32_t n_nodes; /* agents that are expected, 1 .. ORDER_MAX_NODES */
    uint32_t rank;    /* of the agent that leads */
    struct view_rule rule; /* who may go on without us; node_of is ignored */
    uint64_t claim_ms; /* for the arbiter to answer in */
    /* From the lead before (heir.h), or NULL for the first. Only for the call. */
    const struct heritage *heritage;
    /* Names for messages, by rank; borrowed until lead_add_nodes() brings others,
     * or the end; NULL, or NULL entries, read as "node N". */
    const char *const *names;
    /* The rank of the first agent of the same node, for each; LEAD_NO_NODE for
     * one in whose place another has come. NULL: each is a node of its own. */
    const uint32_t *node_of;
    uint32_t min_nodes; /* 0: all of them */
    uint32_t max_nodes; /* that take part; others are spares. 0: all */
    uint32_t want_nodes; /* of those, as long as no command changes it. 0: max */
    uint32_t max_losses;
    uint64_t grow_interval_ms; /* between two stops of a run that is well */
    uint64_t lease_ms;       /* of members, see member.h */
    uint64_t lease_slack_ms; /* for what clocks differ in that time, and for the
                                kill at its end */
    struct restart_policy restart;
    uint32_t n_restarts;       /* already spent, by a run that is resumed */
    uint32_t first_generation; /* 0 is read as 1 */
    const char *resume_path;   /* copied; NULL or "" for none */
    int64_t resume_step;
    uint32_t avoid_after;      /* deaths until one is left alone; 0: never is */
    struct avoid avoid;        /* what was known of that before */
    uint64_t gang_timeout_ms;
    uint32_t grace_ms;         /* for workers at the end of the run */
    uint32_t restart_grace_ms; /* for the survivors of a failed generation */
    uint32_t margin_ms;        /* beyond a grace, for the kill to take effect */
    uint64_t deadline_ms;      /* same clock as events; 0 for none */
};

enum lead_event_type {
    LEAD_TICK = 0,   /* time has passed; any other event ticks too */
    LEAD_REPORT = 1, /* report */
    LEAD_LOST = 2,   /* rank, text, dead, quiet_ms: the tree has given a node
                        up; its reports count no more, until ... */
    LEAD_STOP = 3,   /* stop, force, text */
    LEAD_SAVED = 4,  /* text, step, generation: a checkpoint found by other means than a
                        report; is resumed from if newer. force: it was written
                        now, though one of its name may be left alone. is_later: of
                        two of one step it is the one that counts */
    LEAD_MISFIT = 5, /* rank, text: nodes cannot work together (versions, process
                        counts): while gathering end with RUN_FAILED, later leave
                        that one out, however few there are without it */
    LEAD_HERE = 6,   /* rank: ... it is connected again. Of one that it has come
                        through this must be told before its reports */
    LEAD_SCALE = 7,  /* n_nodes: a command wants so many; -ERANGE where the job may
                        not have them */
    LEAD_EXCLUDE = 8, /* rank, why, text: its node is of no use, and is left out as soon
                         as that costs little, or, with force, now; -ENOENT where
                         the others are too few for it */
    LEAD_CHOSEN = 9,  /* text, step: what the next workers start from, whatever was
                         known before; "" for nothing. While none is alive. Where the one
                         that was known is left alone (lead_avoid()) "" says that there
                         is none that is older: it has its turn again then */
    LEAD_CLAIMED = 10, /* outcome: the answer to `claim`; WON or UNKNOWN (which
                         ends the attempt: there may be another). Who has LOST
                         tells the heir (HEIR_DEPOSED), and this lead is done */
    LEAD_SHARED = 11,  /* every agent sees the same run directory: it is the arbiter
                         from the next order on. Before the first RUN */
    LEAD_QUIET = 12,  /* n_quiet: so many are silent for long (struct heir_seen), and
                         may be lost soon. When that changes */
    LEAD_PROGRESS = 13, /* step: a worker of the generation that runs has reported it */
    LEAD_READMIT = 14, /* rank: its node was excluded, and may be used again, as one
                          that waits */
};

enum lead_stop {
    LEAD_STOP_CANCEL = 0,   /* RUN_CANCELLED */
    LEAD_STOP_PREEMPT = 1,  /* RUN_RESUMABLE */
    LEAD_STOP_DEADLINE = 2, /* RUN_DEADLINE */
    LEAD_STOP_SUSPEND = 3,  /* RUN_RESUMABLE, and lead_is_suspended() */
};

/* All pointers are borrowed for the call. */
struct lead_event {
    enum lead_event_type type;
    uint64_t now_ms; /* monotonic; older than the last counts as the last */
    const struct report *report;
    uint32_t rank;
    enum lead_stop stop;
    bool force; /* kill instead of asking; may follow a stop that asked */
    const char *text;
    enum exclusion why; /* NONE is taken for OTHER */
    int64_t step;
    uint32_t n_nodes;
    uint32_t generation; /* whose workers have saved it; 0: those that ran last */
    bool is_later;
    bool dead;         /* its agent has ended, and so have its workers */
    bool adrift;       /* with each: another may lead by now, for all that we know
                          (not heir_is_in_office()) */
    bool loose;        /* with each: who was bound to us may be free by now (not
                          heir_has_hold()) */
    enum heir_outcome outcome;
    uint32_t n_quiet;
    uint64_t quiet_ms; /* since then no word of ours can have come to it */
};

enum lead_note_type {
    LEAD_NOTE_GATHERED = 0,
    LEAD_NOTE_PREPARING = 1,
    LEAD_NOTE_STARTED = 2,    /* a generation was ordered to run */
    LEAD_NOTE_RUNNING = 3,    /* all its workers were started */
    LEAD_NOTE_FAILED = 4,     /* a worker failed: the first that was heard of;
                                 `failure` is set */
    LEAD_NOTE_RESTARTING = 5, /* judged; `failure` is the cause */
    LEAD_NOTE_LOST = 6,
    LEAD_NOTE_STOPPING = 7,   /* END, with workers to be stopped */
    LEAD_NOTE_STRAGGLER = 8,  /* a node did not do its part in time */
    LEAD_NOTE_ENDED = 9,      /* all have ended, or were given up */
    LEAD_NOTE_SAVED = 10,     /* a checkpoint to resume from: its path */
    LEAD_NOTE_AGAIN = 11,     /* all succeeded, and the policy is Always; or a
                                 node was lost, and the others go on */
    LEAD_NOTE_BACK = 12,      /* a lost node was heard of again */
    LEAD_NOTE_WANTED = 13,    /* a command wants another number of nodes */
    LEAD_NOTE_CHANGE = 14,    /* others take part after the next checkpoint */
    LEAD_NOTE_CHANGING = 15,  /* now; all are asked to stop for that */
    LEAD_NOTE_EXCLUDED = 16,
    LEAD_NOTE_LEADS = 17,     /* this one has taken the lead over */
    LEAD_NOTE_AVOIDED = 18,   /* a checkpoint is left alone, and what is used instead;
                                 or it has its turn again */
    LEAD_NOTE_READMITTED = 19,
};

/* A line for the journal. */
struct lead_note {
    enum lead_note_type type;
    uint32_t generation;           /* SAVED: that has saved it; FAILED: that failed */
    uint32_t rank;                 /* of the node it is about, or UINT32_MAX */
    const struct failure *failure; /* or NULL; valid until the next step */
    char text[ORDER_TEXT_BYTES];
};

/* The newest report of a node, as far as it matters later. */
struct lead_node {
    uint64_t serial; /* 0: it has not joined */
    uint32_t generation;
    enum report_state state;
    uint16_t n_procs;
    uint16_t n_alive;
    bool lost;         /* given up */
    bool takes_part;   /* in the generation that runs, or ran last */
    bool dead;         /* known to have ended ... */
    bool strayed;      /* ... but not as one of ours, or when we were adrift: it may have
                          gone on without us */
    bool expected;     /* it followed when the lead was taken over */
    bool untold;       /* it is back, and has not said yet what it has promised */
    bool estranged;    /* it obeys no order of this view any more ... */
    uint32_t floor;    /* ... but only of those from this number on */
    bool chosen;       /* for the next one, as it looks now */
    enum exclusion excluded; /* it is not used any more, for that */
    bool awaited;      /* there is no next one before it has stopped */
    bool may_run;      /* workers of it that nobody has seen end may be alive ... */
    uint64_t clear_ms; /* ... until then, if it is lost */
    uint32_t node;     /* the rank of its first agent, or LEAD_NO_NODE */
    uint32_t n_causes; /* generations that ended by a failure of it */
    uint64_t saved_mark; /* of the checkpoint that it has told of; 0: of none */
};

struct lead_verdict {
    uint8_t status;
    uint32_t generation; /* the newest that ran, 0 if none did */
    uint32_t n_restarts;
    char reason[ORDER_TEXT_BYTES];
    bool has_cause;
    bool is_unsure; /* the claim was not answered, and there may be another verdict:
                       this one is not for the records */
    struct failure cause;
};

struct lead_actions {
    const struct order *order; /* publish, if not NULL; valid until next step */
    size_t n_notes;
    struct lead_note notes[LEAD_MAX_NOTES]; /* in order; before `order` */
    bool ask_checkpoint; /* all workers, to save now and go on */
    /* Claim it, and answer CLAIMED; NULL for nothing (new). Valid until the next
     * step. Meanwhile everything else goes on. */
    const struct view *claim;
    uint64_t wake_ms;                       /* tick then, or LEAD_NEVER */
    bool finished; /* in the step that ends it and ever after: deliver the
                      LEAVE, then be gone */
};

/* 0, -EINVAL or -ENOMEM. */
int lead_create(const struct lead_config *config, uint64_t now_ms,
                struct lead **ret, struct error *e);
void lead_destroy(struct lead *lead);
DEFINE_CLEANUP(lead);

/* One event. `ret` is overwritten. 0; -EPROTO for a report that makes no sense
 * (unknown rank, a generation that never was), or what the event's type says:
 * nothing has changed then, but `ret` still has the wake-up time. */
int lead_step(struct lead *lead, const struct lead_event *event,
              struct lead_actions *ret);

/* There are more agents now, `n` in all, with names and nodes as in the config.
 * They are waited for only while gathering. 0 or -ENOMEM. */
int lead_add_nodes(struct lead *lead, uint32_t n, const char *const *names,
                   const uint32_t *node_of);

/* Gathering, and by then the time for it is over: who has not joined is left out. */
bool lead_gathers_late(const struct lead *lead, uint64_t now_ms);

/* The order that holds now, for whoever connects; NULL while gathering. Valid
 * until the next step. */
const struct order *lead_order(const struct lead *lead);

/* The checkpoint that the next generation starts from, "" for none, and its
 * step. Valid until the next step. */
const char *lead_resume(const struct lead *lead, int64_t *ret_step);

/* What is left alone: where lead_resume() is one of these, an older one is to be
 * chosen before the next generation starts. Valid until the next step. */
const struct avoid *lead_avoid(const struct lead *lead);

/* Whether the newest generation has got somewhere (rendezvous/avoid.h). */
bool lead_has_moved(const struct lead *lead);

/* The view that it leads. Valid until the next step. */
const struct view *lead_view(const struct lead *lead);

/* How many agents of the view are silent and not known to be dead, or have strayed, and
 * so what heir.h has to count as suspect besides those that the tree knows. */
uint32_t lead_n_silent(const struct lead *lead);
struct heir_rivals lead_rivals(struct lead *lead);

/* A command has suspended the run: it is that if it ends resumable, whatever it
 * ends for. */
bool lead_is_suspended(const struct lead *lead);

/* NULL until the first END. */
const struct lead_verdict *lead_verdict(const struct lead *lead);

/* What is known of a node; rank < n_nodes. Valid until the next step. */
const struct lead_node *lead_node(const struct lead *lead, uint32_t rank);

/* "gather", "prepare", "run", "claim", "end", "over". */
const char *lead_phase_name(const struct lead *lead);
uint32_t lead_generation(const struct lead *lead);
uint32_t lead_n_restarts(const struct lead *lead);
/* How many nodes the job needs, may have, and is to have. */
struct lead_size {
    uint32_t min, max, want;
};
struct lead_size lead_size(const struct lead *lead);
/* Losses of nodes that took part. */
uint32_t lead_n_losses(const struct lead *lead);

/* "generation_started", ...: the names in events.jsonl. */
const char *lead_note_name(enum lead_note_type type);

#endif
