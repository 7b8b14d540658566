/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the lead's side share. Private to agent_lead*.c.
 *
 *   agent_lead.c        events for the core, its orders and notes
 *   agent_lead_ask.c    what the run is asked to do, and what agents tell
 *   agent_lead_front.c  the front end
 *   agent_lead_life.c   its begin and end
 */
#ifndef MUSTER_LAUNCHER_AGENT_LEAD_PRIV_H
#define MUSTER_LAUNCHER_AGENT_LEAD_PRIV_H

#include "base/str.h"
#include "launcher/agent.h"
#include "launcher/agent_bucket.h"
#include "launcher/agent_copy.h"
#include "launcher/agent_look.h"
#include "launcher/agent_order.h"
#include "launcher/agent_snap.h"
#include "launcher/agent_watch.h"
#include "launcher/log_prune.h"
#include "rendezvous/lead.h"

#include <jansson.h>

struct agent_lead {
    struct agent *agent;
    struct lead *core;
    struct record *record;
    struct agent_order order;
    struct control_watch *watch;
    struct lead_watch *ckpts; /* or NULL */
    struct lead_late *late;   /* likewise */
    struct lead_snap *snaps;
    struct lead_look *look;
    struct lead_bucket *bucket; /* or NULL */
    struct lead_copy *copies;   /* likewise */
    int last;               /* what the end of the run waits for next ... */
    uint64_t last_until_ms; /* ... and until when in all */
    char fetched[ORDER_PATH_BYTES]; /* from the store, for the next generation ... */
    int64_t fetched_step;           /* ... or -1 */
    bool has_saved;                 /* the newest generation, something */
    char avoided[AVOID_LINES_BYTES]; /* from which nobody starts: ckpt/avoided.h */
    uint64_t held;         /* the order that waits for a checkpoint */
    struct agent_limit *limit; /* or NULL */
    struct strlist names;  /* of nodes, for the core */
    uv_timer_t *timer;     /* the core's next tick */
    uv_timer_t *front;     /* looks whether the front end has been gone long */
    uv_timer_t *term;      /* mpirun was told to end: by whom? */
    uv_timer_t *newcomers; /* are told soon where the front end is */
    uint64_t lost_ms;      /* when a node was lost last; 0: never */
    uint32_t n_nodes;      /* agents that the core knows */
    char front_name[256];  /* who asked to take over last; "" for nobody */
    bool front_was_there;
    bool is_stopping, is_forced;
    bool is_heir; /* another one led before */
    struct lead_hang *hang;
    struct log_pruner *old_logs;
    uint32_t started;  /* the newest generation; it may be ordered again */
    uint32_t n_quiet;  /* agents that are silent now */
    bool has_warned;
    bool *said_shared; /* agents that see the run directory of all ... */
    uint32_t n_first;  /* ... of these, which were known at its begin */
};

/* --- agent_lead.c --- */

extern const struct lead_watch_ops agent_lead_watch_ops;
extern const struct lead_copy_ops agent_lead_copy_ops;
extern const struct lead_snap_ops agent_lead_snap_ops;
extern const struct lead_look_ops agent_lead_look_ops;
extern const struct lead_bucket_ops agent_lead_bucket_ops;

void agent_lead_step(struct agent_lead *l, struct lead_event *event);

/* Nothing is waited for any longer before the order that is held goes out; and, of the
 * end of the run, the thing that was waited for last. */
void agent_lead_go_on(struct agent_lead *l);
void agent_lead_finished(void *arg);

/* --- agent_lead_last.c --- */

/* The run is over. */
void agent_lead_last_begin(struct agent_lead *l);
/* The next thing that its end waits for. False: nothing. */
bool agent_lead_last_next(struct agent_lead *l);
bool agent_lead_last_is_awaited(const struct agent_lead *l);
/* True: it was; what was under way is given up. */
bool agent_lead_last_forget(struct agent_lead *l);

/* --- agent_lead_avoid.c --- */

/* What is left alone may have changed. */
void agent_lead_avoid(struct agent_lead *l);
/* A fact "report" of a worker. */
void agent_lead_progress(struct agent_lead *l, const json_t *fact);

/* --- agent_lead_outcast.c --- */

/* At the start, and of newcomers: whom an earlier one had excluded. Of those ranks for
 * which is_new[], as others may have been readmitted since; NULL: of all. */
void agent_lead_outcast(struct agent_lead *l, const bool *is_new);
/* The run is to stop, for that reason. */
void agent_lead_halt(struct agent_lead *l, enum lead_stop kind, bool force,
                     const char *text);

/* --- agent_lead_fit.c --- */

/* A fact of an agent whose node the job does not fit. */
void agent_lead_misfit(struct agent_lead *l, uint32_t rank, const json_t *fact);
/* Of the first report of a node, before it counts: it is to run as many processes as the
 * others do. */
void agent_lead_check_fit(struct agent_lead *l, const struct report *r);

/* --- agent_lead_hung.c --- */

/* Facts of the front end: mpirun hangs on a host, or does not any more. */
void agent_lead_hung(struct agent_lead *l, const json_t *fact);
void agent_lead_well(struct agent_lead *l, const json_t *fact);

/* --- agent_lead_ask.c --- */

/* Before a step that may end the gathering: whether the run directory is that of all, but
 * for `gone` (or ROSTER_NO_RANK), who are there. */
void agent_lead_shares(struct agent_lead *l, uint32_t gone);
/* For control_watch_create(), with the agent. */
int agent_lead_file_request(void *arg, const char *op, const json_t *body,
                            struct jsonw *reply, struct error *e);

/* --- agent_lead_front.c --- */

/* That of the lead before, which has not heard of this one yet. */
void agent_lead_expect_front(struct agent_lead *l);
/* Somebody has come, or come back, who may not know where it is. */
void agent_lead_tell_front(struct agent_lead *l);

#endif
