/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that workers save through their agents. Each agent holds what its
 * workers save (launcher/snap_hold.h), writes it to the disk, and tells the lead of
 * each rank: held, written, or failed. Once all ranks of a save are written the
 * lead's agent makes a checkpoint of it, and says so to all: it is settled. Whatever
 * is not settled is told again and again, so that another lead can go on with it.
 * A save outlives the generation that made it. Private to agent*.c and crew*.c.
 */
#ifndef MUSTER_LAUNCHER_AGENT_SNAP_H
#define MUSTER_LAUNCHER_AGENT_SNAP_H

#include "launcher/crew.h"
#include "launcher/snap_tally.h"
#include "launcher/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct agent_snap;
struct lead_snap;

/* --- agent_snap.c --- */

/* What a worker says, see struct worker_socket_ops. */
void agent_snap_begin(struct crew *c, uint32_t local_rank, uint64_t connection,
                      const struct worker_snap_begin *begin);
void agent_snap_find(struct crew *c, uint32_t local_rank, uint64_t connection,
                     const struct worker_snap_find *find);
void agent_snap_fill(struct crew *c, uint32_t local_rank,
                     const struct worker_snap_fill *fill);
void agent_snap_done(struct crew *c, uint32_t local_rank,
                     const struct worker_snap_done *done);
void agent_snap_want(struct crew *c, uint32_t local_rank,
                     const struct worker_snap_want *want);

/* What the lead says of a save: it is a checkpoint, or (`error`) it is none; then what is
 * in memory of it may stay for another try. */
struct snap_verdict {
    const char *uuid;
    int error;
    const char *why;
    bool stays;
    uint32_t again; /* what is none is that try, and those before it (struct saved) ... */
    uint32_t on;    /* ... for that one is on already; 0: none is */
};
void agent_snap_settled(struct agent *a, const struct snap_verdict *v);

/* And later: it is in the store, or (`error`) it will not be. */
void agent_snap_stored(struct agent *a, const char *uuid, int error, const char *why);

/* What the lead says of one that waits for its word: it goes to these levels (1 <<
 * enum interval_level_id), and stays where it is else. */
void agent_snap_go(struct agent *a, const char *uuid, unsigned levels);

/* That rank's node is lost, and the copy of it is here: to the disk. */
void agent_snap_write(struct agent *a, const char *uuid, uint32_t rank);
/* That rank's node is lost: its snapshot is made again here, from parity and what
 * others have but for those agents, and goes to the disk. */
void agent_snap_rebuild(struct agent *a, const char *uuid, uint32_t rank,
                        const uint32_t *lost, size_t n_lost);
/* The workers of that crew are starting from the checkpoint at that path. What this node
 * has nothing of, and others have in memory, is fetched while they do. */
void agent_fetch_ahead(struct crew *c, const char *path);
/* Who has a save, see lead_snap_want(). */
void agent_fetch_told(struct agent *a, const json_t *ask);
/* An agent has something to copy, or wants something: takes the link over. */
void agent_partner_stranger(struct agent *a, struct link *l,
                            const struct channel_frame *first);

/* --- agent_snap_recall.c --- */

/* The agent is about to join: looks for what one before it has left in memory. */
void agent_snap_recall(struct agent *a);
/* The workers are gone: what is in memory, and did not get to the disk, is tried again.
 * Once for each generation. */
void agent_snap_offer(struct crew *c);
/* Tells the lead of all that is not settled, before it hears that this agent is there. */
void agent_snap_tell(struct agent *a);

/* The workers have ended well. True: crew_finish() comes again, once what they have
 * saved is settled, or has had its time. */
bool agent_snap_waits(struct crew *c);

/* The order has changed: it may not be worth it any more. */
void agent_snap_hurry(struct crew *c);

/* It is going. */
void agent_snap_forget(struct crew *c);

/* The end of the agent; what it holds stays for one that may come. */
void agent_snap_stop(struct agent *a, bool is_resumable);

/* --- agent_snap_lead.c --- */

struct lead_snap_ops {
    /* A checkpoint was made, of what workers of that generation have saved; or, where it is
     * not new, was found to be one already, which this lead had not heard. It may be later
     * than the newest that the run knows of, where that is of the same step. */
    void (*on_saved)(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later);
    /* One was given up, by the name of its directory: for another reason than that a later
     * one has its place. May be NULL. */
    void (*on_failed)(void *arg, const char *name, const char *why);
    /* The oldest save that is on its way; `ranks` 0: there is none. */
    void (*on_saving)(void *arg, uint64_t step, uint32_t written, uint32_t ranks);
    /* So long it took from the first word of a save until all of it was there. */
    void (*on_took)(void *arg, enum interval_level_id level, double seconds);
    /* Something is on its way there from now on, or nothing is any more; may be said
     * again. */
    void (*on_busy)(void *arg, enum interval_level_id level, bool is_busy);
    /* How far apart saves are to go there, in ms; 0: each one goes. */
    uint64_t (*every)(void *arg, enum interval_level_id level);
    /* Who has the newest save in memory, as far as was heard; every 2 s. `ranks` 0:
     * there is none. Valid during the call. */
    void (*on_held)(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n);
    /* The newest generation that was ordered to run: no worker of one before it is
     * alive. */
    uint32_t (*started)(void *arg);
    /* The node of that agent was given up, and has not come back. */
    bool (*is_lost)(void *arg, uint32_t agent);
    /* The path of a checkpoint that is being read, and has to stay meanwhile; or
     * "". */
    const char *(*pinned)(void *arg);
    /* Another one, that is being copied. NULL: there is none. */
    const char *(*copied)(void *arg);
    /* From which the newest workers have started, or "". NULL: from none. */
    const char *(*source)(void *arg);
    /* The newest that the run knows of, or "", and its step. NULL: there is none. */
    const char *(*resume)(void *arg, int64_t *ret_step);
    /* From which nobody starts for now (ckpt/avoided.h), or "". NULL: from all. */
    const char *(*avoided)(void *arg);
    /* The answer to lead_snap_ask(). */
    void (*on_quiet)(void *arg);
};

int lead_snap_create(struct agent *a, const struct lead_snap_ops *ops, void *arg,
                     struct lead_snap **ret, struct error *e);
/* Threads end when they can. NULL is allowed. */
/* The lead's word is good until then (agent_heir_good_ms()): nothing on the disk is
 * changed later. */
void lead_snap_good(struct lead_snap *l, uint64_t until_ms);
void lead_snap_destroy(struct lead_snap *l);
/* No worker is alive. True: what they have saved, all of them, is on its way to the
 * disk, or older ones are being removed; on_quiet() comes when it is there, and they are
 * gone, or have had their time, and not from inside this call. */
bool lead_snap_ask(struct lead_snap *l);
/* The same for what is being removed only. */
bool lead_snap_ask_removed(struct lead_snap *l);
/* The run has come to its end: what not all ranks have handed over goes at once, which
 * those that ask wait for, too. */
void lead_snap_end(struct lead_snap *l);
/* All agents are about to leave: no other run is kept from the directories of this one's
 * checkpoints any more, which those that ask wait for, too. */
void lead_snap_leave(struct lead_snap *l);
/* Nobody waits for an answer any more. True: somebody did. */
bool lead_snap_forget(struct lead_snap *l);
/* A fact "snap" of that agent. */
void lead_snap_fact(struct lead_snap *l, uint32_t agent, const json_t *fact);
/* A fact "snap_parity" of that agent: it keeps whole parity of a set of ranks. */
void lead_snap_parity(struct lead_snap *l, uint32_t agent, const json_t *fact);
/* The checkpoint at that path, whose uuid is "" where it is not known, is in the store,
 * or (`error`) will not be: workers that wait for it are told. */
void lead_snap_stored(struct lead_snap *l, const char *path, const char *uuid, int error,
                      const char *why);
/* A fact "snap_want": somebody needs ranks of a save, by its uuid or its path. Says to
 * all who has them. */
void lead_snap_want(struct lead_snap *l, const json_t *fact);

#endif
