/* SPDX-License-Identifier: Apache-2.0 */
/* What agent_snap.c and agent_partner.c share. */
#ifndef MUSTER_LAUNCHER_AGENT_SNAP_PRIV_H
#define MUSTER_LAUNCHER_AGENT_SNAP_PRIV_H

#include "launcher/agent_snap.h"
#include "launcher/partners.h"
#include "launcher/snap_budget.h"
#include "launcher/snap_copy.h"
#include "launcher/snap_hold.h"
#include "launcher/snap_parity.h"

enum { FETCH_MAX_TRIED = 4 }; /* that have not sent it: more than have it, as a rule */

/* What one rank has saved: here, or on a node that has its partner here. */
struct saved {
    struct saved *next;
    struct snap_head head;
    bool is_copy;
    uint32_t from; /* a copy: the agent that has it */
    enum snap_stage stage;
    int error;
    char why[WORKER_WHY_SIZE];
    bool has_ended; /* the worker, which had not handed it over */
    uint32_t again; /* it is tried again, as workers of that generation have ended; or 0 */
    uint64_t n_written; /* bytes of it that were on their way to the disk, when it was told */

    /* Of agent_snap_levels.c; of one that was saved here: */
    enum worker_snap_level level; /* that it has got to, below the disk */
    unsigned waits; /* 1 << level: the lead is to say whether it goes there */
    bool is_wanted; /* everywhere */
    bool is_pinned; /* it is copied, and not on the disk: its memory stays */
};

/* What a worker says of the save that it hands over next, and how many more of its
 * saves go everywhere, for somebody has asked for one. */
struct may_stay {
    struct may_stay *next;
    uint32_t rank;
    char uuid[COMMIT_UUID_BYTES]; /* "": nothing */
    bool is_chosen;
    char root[SNAP_ROOT_BYTES]; /* where its first save went; "": there was none ... */
    bool has_several;           /* ... and others went elsewhere */
    uint32_t n_asked; /* questions that were seen */
    unsigned n_left;
};

/* Ranks whose copies are here. */
struct ranks_kept {
    uint32_t first, n;
};

/* A worker that has asked for a snapshot. */
struct snap_question {
    struct snap_question *next;
    uint64_t id;
    uint32_t generation, local_rank;
    uint64_t connection;
};

/* A rank's save that is to come from another node (launcher/agent_fetch.c). */
struct fetch {
    struct fetch *next;
    struct snap_question question;
    bool is_ahead; /* nobody has asked for it yet: there is no question */
    uint32_t rank;
    char uuid[COMMIT_UUID_BYTES];
    uint64_t since_ms;
    uint32_t tried[FETCH_MAX_TRIED]; /* agents: what the lead says of them may change */
    unsigned n_tried;
    bool is_started;
    uint64_t coming_bytes; /* of its image, which is on its way; 0: it is not, or not yet */
    bool is_answered;      /* with what is on its way */
};

/* What the ranks here are going to ask for, see agent_fetch_ahead(). */
struct fetch_ahead {
    char path[ORDER_PATH_BYTES]; /* of the checkpoint; "": nothing, or it was begun */
    uint32_t generation, first_rank, n_local;
};

/* What has been fetched of a save, and not told yet. */
struct fetched {
    char uuid[COMMIT_UUID_BYTES];
    uint32_t n, rank, from; /* how many, the last one, and where it came from */
    bool is_of_several;     /* nodes */
};

struct agent_snap {
    struct agent *agent;
    struct snap_hold *hold;
    struct snap_question *questions;
    uint64_t n_questions;
    struct saved *saved; /* and not settled */
    uv_timer_t *timer;
    unsigned n_tells;
    uint32_t served;     /* the generation whose ranks save ... */
    uint32_t offered;    /* ... and as which ended what is in memory was told of last */
    struct crew *waits; /* for all to be settled, or NULL */
    uint32_t waited_for; /* generation ... */
    uint64_t waits_since_ms;
    uint64_t moved_ms; /* something that is written here got on */
    bool has_told_without;     /* that workers write by themselves, and why */
    struct may_stay *may_stay; /* by rank, of the ranks that are served */

    /* Of agent_partner.c; NULL where the job wants no copies. */
    struct snap_hold *copies;
    struct snap_copy *copy;
    uint32_t paired;  /* the generation for which ... */
    uint32_t partner; /* ... that agent keeps our copies, PARTNERS_NONE: nobody */
    struct ranks_kept *kept; /* ... and these are here */
    uint32_t n_kept;
    bool has_told; /* that there is no copy */

    /* Of agent_parity.c: instead of copies; NULL where the job wants none. */
    struct snap_parity *parity;
    uint32_t grouped;          /* the generation for which ... */
    struct parity_group group; /* ... that is our group; but for ranks. n 0: none */

    /* Of agent_fetch.c. */
    struct fetch *fetches; /* that workers wait for */
    uv_timer_t *fetch_timer;
    json_t *where; /* what the lead has said last, or NULL */
    uint32_t fetched_from;
    struct fetched fetched;
    struct fetch_ahead ahead;
    uint64_t idle_ms; /* since when nothing is on its way here */
    unsigned where_ms, fetch_ms; /* that workers wait for the lead, and in all */
    unsigned say_ms; /* until what was fetched is told: more may come */
};

/* --- agent_snap.c --- */

/* Where nobody has saved yet; 0 or a negative code. */
int agent_snap_need(struct agent *a, struct error *e);
/* `s` may be settled by that, and gone, where this agent leads. */
void agent_snap_tell_lead(struct agent *a, struct saved *s);
void agent_snap_keep_telling(struct agent_snap *p);
/* Somebody here waits for it to be settled, who has saved it. */
bool agent_snap_has_own(const struct agent_snap *p);
struct saved *agent_snap_saved(struct agent_snap *p, uint32_t rank,
                               const char *uuid);
void agent_snap_tell_worker(struct agent *a, uint32_t rank, const char *uuid,
                            enum worker_snap_level level, int error,
                            const char *why);
void agent_snap_on_written(void *arg, const struct snap_head *head,
                           const struct error *e);

/* A try (see struct saved) of what workers of that generation have saved has come to
 * nothing: where they are gone already it is tried again now, as they would have had it. */
void agent_snap_offer_late(struct agent_snap *p, uint32_t generation, uint32_t again);

/* Tells its worker how far it is. */
void agent_snap_tell_own(struct agent *a, const struct saved *s);

/* --- agent_snap_levels.c --- */

/* Of a save that is being filled: it goes to the disk, whatever the lead may say. */
bool agent_snap_is_for_disk(const struct crew *c, const struct worker_snap_fill *fill);
/* Of a save that is handed over: which levels wait for the lead's word; 0: none does. */
unsigned agent_snap_waiting(struct crew *c, uint32_t rank, const char *uuid);
/* It was saved before this agent was: memory is enough until the lead says more. */
void agent_snap_stay(struct saved *s);
/* The rank has begun another one: tells of those whose memory it has taken. */
void agent_snap_taken(struct agent_snap *p, uint32_t rank);
/* The newest of the ranks here is to go to the disk, whatever the plan says. */
void agent_snap_flush(struct agent_snap *p);
void agent_snap_unpin(struct agent_snap *p, struct saved *s);
void agent_snap_forget_ranks(struct agent_snap *p);

/* Answers: that snapshot, or (NULL) there is none. */
void agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                         uint32_t rank, const struct snap *s);

/* --- agent_fetch.c --- */

int agent_fetch_create(struct agent_snap *p, struct error *e);
void agent_fetch_destroy(struct agent_snap *p);
/* This node has nothing of that rank. True: the answer comes, once another node has
 * sent it, or has not. */
bool agent_fetch_begin(struct agent_snap *p, const struct snap_question *question,
                       uint32_t rank, const char *uuid);
/* See struct snap_copy_config. */
void agent_fetch_coming(void *arg, const struct snap_head *head);
void agent_fetch_fetched(void *arg, uint32_t rank, const char *uuid,
                         const struct error *e);
/* The workers are going. */
void agent_fetch_forget(struct agent_snap *p);
/* Behind the others: it is started in its turn. NULL: no memory. */
struct fetch *agent_fetch_add(struct agent_snap *p, uint32_t rank, const char *uuid);
void agent_fetch_drop(struct agent_snap *p, struct fetch *f);

/* --- agent_fetch_ahead.c --- */

/* The lead has said who has a save (p->where): what it is that the ranks here start
 * from, and is not here, is fetched before they ask. */
void agent_fetch_ahead_told(struct agent_snap *p);
/* A rank asks for that. What is to come of it already is the rank's from now on; NULL:
 * nothing is. What was fetched ahead of another save gives way. */
struct fetch *agent_fetch_ahead_taken(struct agent_snap *p, uint32_t rank,
                                      const char *uuid);

/* --- agent_partner.c --- */

/* The part of a new agent_snap; `config` is that of its hold. */
int agent_partner_create(struct agent_snap *p,
                         const struct snap_hold_config *config, struct error *e);
void agent_partner_destroy(struct agent_snap *p);
/* A rank of that crew has handed over a save: off to the partner. */
void agent_partner_send(struct crew *c, struct saved *s);
void agent_partner_settled(struct agent_snap *p, const char *uuid, uint64_t step,
                           bool is_kept);
/* Nodes that have workers in this order, with their failure domains. How many, or
 * -ENOMEM. */
int agent_partner_nodes(const struct agent *a, const struct order *run,
                        struct partners_node **ret);
/* That there is no copy, or parity, of what is saved here: once a run. */
void agent_partner_tell_none(struct agent_snap *p, const struct error *e);
/* What is not to go to the disk keeps its memory once it goes to others: without this
 * part what they have is worth nothing. */
void agent_partner_pin(struct agent_snap *p, struct saved *s);
/* A copy is here of what that agent had. NULL: no memory to note it. */
struct saved *agent_partner_add(struct agent_snap *p, const struct snap_head *head,
                                uint32_t from);

/* --- agent_parity.c --- */

/* The part of a new agent_snap that has copies. */
int agent_parity_create(struct agent_snap *p, struct error *e);
/* As agent_partner_send(). */
void agent_parity_send(struct crew *c, struct saved *s);
/* See struct snap_hold_config, of copies. */
void agent_parity_short(void *arg);
/* See struct snap_copy_config. */
bool agent_parity_make(void *arg, uint32_t rank, const char *uuid);

#endif
