/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of agent_snap_lead*.c and agent_snap_check.c share. */
#ifndef MUSTER_LAUNCHER_AGENT_SNAP_LEAD_PRIV_H
#define MUSTER_LAUNCHER_AGENT_SNAP_LEAD_PRIV_H

#include "ckpt/snap.h"
#include "ckpt/step.h"
#include "launcher/agent_snap.h"
#include "launcher/snap_commit.h"
#include "launcher/snap_levels.h"
#include "launcher/snap_reread.h"
#include "launcher/snap_sets.h"
#include "rendezvous/avoid.h"

#include <uv.h>

enum { SNAP_TELL_AGAIN_MS = 1000 }; /* to all, however many have not heard */

struct lead_save {
    struct lead_save *next;
    struct lead_snap *lead;
    char uuid[COMMIT_UUID_BYTES];
    char root[SNAP_ROOT_BYTES];
    uint64_t step, token;
    char pinned[STEP_NAME_BYTES], verified[STEP_NAME_BYTES], checking[STEP_NAME_BYTES];
    char copied[STEP_NAME_BYTES], source[STEP_NAME_BYTES], avoided[AVOID_LINES_BYTES];
    bool is_due; /* one that is kept is to be read again */
    bool lacks_best; /* see struct snap_commit */
    struct snap_tally tally;
    struct snap_sets sets;
    bool is_hopeless; /* that was told, of a group of which too many are lost */
    uint64_t told_ms, began_ms;
    uint32_t n_copied; /* ranks of which there is a copy, up to the first without */
    bool is_working, is_settled; /* both: older ones are being removed */
    bool stays;       /* settled: what ranks have in memory is there for another try ... */
    uint64_t settled_ms;
    uint32_t again;   /* ... of which this is one: as workers of that generation ended */

    /* Of agent_snap_lead_levels.c. Bits are 1 << enum interval_level_id. */
    unsigned waits;   /* levels that some agents wait for a word of */
    unsigned goes;    /* to these it goes: as agents say that do not wait, or ... */
    bool is_decided;  /* ... by the plan, and somebody's word */
    bool is_wanted;   /* everywhere */
    uint64_t went_ms; /* that was said */
    struct error why; /* it has failed of that already; code 0: it has not */
    struct error past; /* of that the try before this one failed */

    /* The thread's, while there is one. */
    uv_work_t work;
    struct snap_commit commit;
    struct error error;
    bool is_tidied; /* older ones are gone, or are going */
    bool is_right;  /* it was read again before that */
    bool was_there; /* it was a checkpoint already */
    bool is_last;   /* of its step and directory it is the one that counts */
    bool is_swept;  /* at the end of the run, see lead_save_sweep() */
};

/* What is read again (launcher/agent_snap_check.c). */
struct lead_checked {
    uint64_t step;
    char uuid[COMMIT_UUID_BYTES];
    char root[SNAP_ROOT_BYTES], name[STEP_NAME_BYTES];
};

struct lead_check {
    struct lead_snap *lead;
    struct lead_checked right; /* the last that was */
    bool is_running;
    bool is_missed; /* what may go now: others were at work */
    uint64_t last_until_ms; /* the end of the run waits until then */
    struct reread_gate gate;

    /* Set before, and the thread's while there is one. */
    uv_work_t work;
    struct lead_checked reading;
    int rc;
    struct error error;

    /* The same of the other thread, which may be at work meanwhile. */
    uv_work_t tidying; /* data NULL: it is over */
    struct lead_checked tidied;
    struct snap_commit tidy;
    bool lacks_best;
    char pinned[STEP_NAME_BYTES], copied[STEP_NAME_BYTES], source[STEP_NAME_BYTES];
    char avoided[AVOID_LINES_BYTES];
};

/* A directory that this run saves into (launcher/agent_snap_lead_lease.c). */
struct lead_lease {
    struct lead_lease *next;
    struct snap_lease *lease;
    uint64_t asks_ms; /* it has been asked for since then; 0: it is not */
    bool has_told;    /* that this takes long */
};

struct lead_snap {
    struct agent *agent;
    const struct lead_snap_ops *ops;
    void *arg;
    struct lead_save *saves; /* newest first */
    uv_timer_t *timer;
    uint64_t asked_ms; /* since when somebody waits ... */
    uint64_t tell_ms;  /* ... which is told then ... */
    uint64_t moved_ms; /* ... and when something of that got on last */
    /* Who has which save was said last: */
    char where_uuid[COMMIT_UUID_BYTES];
    json_int_t where_generation;
    uint64_t where_ms;
    struct office office; /* the threads ask it */
    unsigned n_works;  /* one at a time: a disk that hangs takes one thread */
    struct snap_strays strays; /* that one's, while there is one; and ... */
    struct index_cache index;  /* ... this */
    bool is_asked, asks_saves; /* else for what is removed only */
    bool is_ending; /* the run: nothing more is saved */
    bool is_dying;
    struct snap_levels levels;
    struct lead_check check;
    struct lead_lease *leases;
    uv_timer_t *lease_timer; /* while they are let go of ... */
    uint64_t lease_until_ms; /* ... until then */
    bool is_leaving;         /* all agents: nobody leads the run on */
    bool has_dropped, is_ending_leases;
    bool has_told_best; /* that none has the metric */
};

/* --- agent_snap_lead.c --- */

struct snap_now lead_save_now(const struct lead_save *s);
/* In the same directory: what one save means for another one is so only there, as each has
 * steps of its own. */
bool lead_save_is_beside(const struct lead_save *a, const struct lead_save *b);
struct snap_age lead_save_age(const struct lead_save *s);
bool lead_save_is_later(const struct lead_save *a, const struct lead_save *b);
/* One that is in no list any more. */
void lead_save_free(struct lead_save *s);

/* What is due is finished, and who waits for nothing more is told. */
void lead_snap_look(struct lead_snap *l);
/* Says how far the oldest on its way is. */
void lead_snap_show(struct lead_snap *l);
/* One of n_works has ended; `l` may be gone. */
void lead_snap_worked(struct lead_snap *l);
/* It is dying, and nobody works for it: it goes. */
void lead_snap_may_go(struct lead_snap *l);

/* --- agent_snap_lead_commit.c --- */

/* The run is over, and nothing is on its way: what was begun and never finished before the
 * checkpoints that stay may be nobody's who has not told yet. Begins with one directory, if
 * there is one that this was not done of. */
void lead_save_sweep(struct lead_snap *l);

/* By a thread, which nobody else has: it is committed, or what is there is removed. */
void lead_save_finish(struct lead_save *s);
/* Once, if so. */
void lead_snap_tell_best(struct lead_snap *l, bool lacks_best, const char *root);
/* It is on that level now. */
void lead_save_took(const struct lead_save *s, enum interval_level_id level);
/* Somebody has not heard what became of it; there may be many, who all say it again. */
void lead_save_tell_again(struct lead_save *s);
/* Nor what became of that try, after which another one has begun. */
void lead_save_tell_past(struct lead_save *s, uint32_t again);

/* Which checkpoints stay. */
struct retain_rule lead_snap_rule(const struct lead_snap *l);
/* From which nobody starts for now, or "". */
void lead_snap_avoided(const struct lead_snap *l, char ret[AVOID_LINES_BYTES]);
/* What somebody reads in that directory, or "". */
void lead_snap_pinned(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES]);
void lead_snap_copied(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES]);

/* What the newest workers have started from in that directory, or "": also once they have
 * saved something, and so have read it. */
void lead_snap_source(const struct lead_snap *l, const char *root,
                      char ret[STEP_NAME_BYTES]);
/* The newest checkpoint that the run knows of, in that directory, or ""; its step. */
int64_t lead_snap_resume(const struct lead_snap *l, const char *root,
                         char ret[STEP_NAME_BYTES]);

/* It is none, and never was begun on the disk: says so. What else is settled may go. */
void lead_snap_drop(struct lead_save *s, int code, const char *why);

/* --- agent_snap_lead_heard.c --- */

/* NULL: nobody has spoken of it, or it is long past. */
struct lead_save *lead_save_find(struct lead_snap *l, const char *uuid);
/* The save that a fact is of, which is remembered from now on; NULL: it makes no
 * sense. */
struct lead_save *lead_save_of(struct lead_snap *l, const json_t *fact);
/* There is a copy, or parity, of more ranks. */
void lead_save_copied(struct lead_save *s);

/* --- agent_snap_lead_lost.c --- */

/* Who has a copy of what lost nodes held is to write it; said again until it is there. */
void lead_save_rescue(struct lead_save *s);
/* Of all, by copies and by parity. */
void lead_snap_rescue(struct lead_snap *l);

/* --- agent_snap_lead_wait.c --- */

/* Who waits for nothing more, or has waited for long enough, hears so. */
void lead_wait_look(struct lead_snap *l);
/* Who waits for long is told for what. */
void lead_wait_tell(struct lead_snap *l);

/* --- agent_snap_lead_levels.c --- */

/* It is in memory only, as far as is known. */
bool lead_save_is_parked(const struct lead_save *s);
/* What an agent says besides, of a save that it has itself. `s` may be gone then. */
void lead_levels_take(struct lead_save *s, const json_t *fact);
/* Something has changed: those that a later one takes the place of go. */
void lead_levels_replace(struct lead_snap *l);
/* No worker is alive: the newest that can be is to go to the disk. */
void lead_levels_promote(struct lead_snap *l);
/* Says which levels something is on its way to. */
void lead_levels_show_busy(const struct lead_snap *l);
/* It was to go there, and has come to nothing. */
void lead_levels_failed(struct lead_save *s);

/* --- agent_snap_lead_lease.c --- */

/* NULL where it cannot be had: `e` says why. */
struct snap_lease *lead_lease_of(struct lead_snap *l, const char *root, struct error *e);
/* From time to time: what the run had before this lead, and whether others could lead. */
void lead_lease_look(struct lead_snap *l);
/* All are let go of. True: that is not done yet; lead_wait_look() comes when it is, or has
 * had its time. */
bool lead_lease_drop(struct lead_snap *l);
/* The same for good, once nobody works any more; lead_snap_may_go() comes then. */
bool lead_lease_end(struct lead_snap *l);
/* No thread waits for other runs to be gone any more. */
void lead_lease_hurry(struct lead_snap *l);

/* --- agent_snap_check.c --- */

/* What the save's tidying has to know. */
void lead_check_know(const struct lead_snap *l, struct lead_save *s);
/* Nobody works just now: what could not be done before is. */
void lead_check_worked(struct lead_snap *l);
/* That one is a checkpoint, and none that is kept was read again. */
void lead_check_want(struct lead_snap *l, const struct lead_save *s);
/* It was read again, by another thread than that of here. */
void lead_check_right(struct lead_snap *l, const struct lead_save *s);
/* The run has come to its end: it waits for what is being read, so that older ones go, but not
 * for long. */
void lead_check_end(struct lead_snap *l);
bool lead_check_is_awaited(const struct lead_snap *l);
/* While a save is on its way to the disk nothing is read. */
void lead_check_give_way(struct lead_snap *l);

/* --- agent_snap_lead_parity.c --- */

/* Who can make what lost nodes had is to; said again until it is there. */
void lead_save_rebuild(struct lead_save *s);

/* --- agent_snap_lead_held.c --- */

/* Who has the newest save in memory, for the status. */
void lead_snap_show_held(struct lead_snap *l);

#endif
