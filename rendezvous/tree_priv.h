/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the control tree share. Private to tree*.c.
 *
 *   tree.c         life, and the view that it serves
 *   tree_pass.c    what goes down and up
 *   tree_event.c   what is told once, and waits for the lead to hear it
 *   tree_lost.c    who counts as lost
 *   tree_silence.c who has said nothing for too long
 *   tree_beat.c    heartbeats
 *   tree_up.c      the link to the parent, or to the front end
 *   tree_seek.c    who else may be one
 *   tree_child.c   links to children
 *   tree_look.c    whether a child that is gone is dead
 *   tree_output.c  workers' output on its way up, under credit
 */
#ifndef MUSTER_RENDEZVOUS_TREE_PRIV_H
#define MUSTER_RENDEZVOUS_TREE_PRIV_H

#include "rendezvous/tree.h"

enum {
    NO_RANK = UINT32_MAX,
    MAX_ANCESTORS = 32,
    TREE_RETURN_MS = 300, /* for a child whose link broke to come back */
};

/* A link to a child: any member whose parent this one is now. */
struct child {
    struct tree *tree;
    struct link *link;
    uint32_t rank;
    uint64_t word_ms; /* the last time that it can have had a word of the lead */
    bool is_ahead;    /* it has told of a rank that is not known here yet */
    struct tree_seen seen; /* as it said last ... */
    uint64_t stamp;        /* ... by its clock, when it did */
    uint32_t n_new;        /* that it has told of since then, and did not count */
    size_t queued; /* of its output, in `waiting` */
    uint64_t id;           /* of the link; one that comes back has another one */
    uint64_t n_events;     /* that came by it ... */
    size_t n_events_kept;  /* ... of which so many wait here for the lead to hear them */
    struct child *next;
};

/* What is known of a rank that has reported through this member. A rank can
 * find a new parent before its old one sees it go: only the child through which
 * it was heard last can say that it is lost. */
struct below {
    struct buf report;      /* the newest, encoded */
    struct buf follow;      /* likewise */
    uint32_t via;           /* that child; NO_RANK before the first report */
    uint32_t other;         /* one that spoke for it although it has a link of its
                               own; or NO_RANK */
    uint64_t other_ms;      /* when it last did */
    uint64_t word_ms;       /* by then it may have had a word through a child that it
                               was heard through before */
    bool lost;              /* and told so */
    uint64_t due_ms;        /* its time to come back ends then; 0: it is there */
    uint64_t quiet_at_ms;   /* it has had no word since */
    bool dead;
    uint64_t event;         /* the lead: the number of the newest that it was told ... */
    uint64_t events;        /* ... and, by bits, which of those before it */
    char why[TREE_TEXT_BYTES];
};

struct look;
struct seek;
struct tree_gaze;

struct tree {
    struct tree_config config;
    struct tree_ops ops;
    uint32_t view; /* the newest that is known of, and ... */
    uint32_t lead; /* ... who leads it */
    uint8_t *key;
    char run_id[TREE_ID_BYTES];
    char version[TREE_ID_BYTES];
    struct strlist front_addrs;
    uv_timer_t *beat;
    uv_timer_t *retry;
    uv_timer_t *lost;       /* somebody's time to come back is over */
    uv_timer_t *silent;     /* before the next beat a child was silent for long */
    struct tree_gaze *gaze; /* at who is silent */
    struct link *up;        /* also while it is being connected */
    bool up_ready;          /* WELCOME has come */
    uint32_t up_rank;
    uint32_t ways[MAX_ANCESTORS + 2]; /* whom to ask, in this order */
    size_t n_ways;
    size_t next_way;
    uint32_t sought;        /* who is asked before all of them, or NO_RANK */
    struct seek *seek;      /* while there is no parent */
    bool was_up;            /* there was a parent once */
    uint64_t fresh_at_ms;   /* the parent knew of our view then */
    bool awaits_front;      /* output is kept for a front end that was there */
    bool is_top;
    struct child *children;
    struct below *below;    /* by rank */
    uint32_t n_below;       /* the roster's length; it may have grown since */
    struct look *looks;
    struct buf config_data; /* without its age: that grows */
    uint64_t config_ms;     /* when that began, which may be before this host was up:
                               only differences count */
    struct buf order;
    uint64_t n_links;       /* of children, so far */
    uint64_t n_events;      /* of this member */
    struct buf events;      /* that wait for a parent, or for the lead to hear them ... */
    size_t events_sent;     /* ... of which the first ones were sent ... */
    uint64_t n_events_sent; /* ... by the link up there is now, as so many, with those that
                               had no room here */
    struct tree_word word;  /* the newest; view and stamp are the lead's */
    bool has_word;          /* the lead was heard of; it was alive ... */
    uint64_t word_at_ms;    /* ... then or later, by this clock */
    uint64_t front_gone_at_ms;
    size_t in_flight;       /* output bytes the parent has not passed on */
    struct buf waiting;     /* output frames, for the window */
    size_t waiting_at;      /* what of it has gone */
    size_t own_queued;      /* what of it is this member's */
    bool blocked;           /* on_writable() is owed */
    enum tree_finish finishing; /* not 0: on_drained() is owed */
    size_t to_finish;       /* of what waits, bytes that have to go before it is */
};

static inline bool tree_is_lead(const struct tree *t)
{
    return t->config.rank == t->lead;
}

static inline uint64_t tree_now_ms(const struct tree *t)
{
    return uv_now(t->config.loop);
}

/* --- tree_pass.c --- */

/* To all children. */
void tree_send_config(struct tree *t, struct link *l);
void tree_send_below(struct tree *t, enum tree_type type, const void *data,
                     size_t len);
/* Replaces what a buffer holds. */
void tree_keep(struct buf *b, const void *data, size_t len);
/* To the parent, if there is one now. */
void tree_send_up(struct tree *t, enum tree_type type, const struct buf *b);
struct child *tree_child_of(struct tree *t, uint32_t rank);
/* `rank` was heard of through child `via`. */
void tree_heard(struct tree *t, uint32_t rank, uint32_t via);
/* From below or from here, to the lead. */
void tree_pass_report(struct tree *t, uint32_t rank, const void *data,
                      size_t len);
void tree_pass_follow(struct tree *t, uint32_t rank, const void *data,
                      size_t len);
void tree_pass_here(struct tree *t, uint32_t rank);
/* This member stands at the top now: what those below have said is news. */
void tree_tell_top(struct tree *t);

/* --- tree_event.c --- */

/* Of a member below, which has given it that number; it may be the end of `from`. */
void tree_pass_event(struct child *from, uint32_t rank, uint64_t number,
                     const void *json, size_t len);
/* The link that they were sent by is gone. */
void tree_events_unsent(struct tree *t);
/* The lead has heard so many of those that were sent by this link up. */
void tree_take_heard(struct tree *t, const struct channel_frame *f);

/* --- tree_lost.c --- */

/* What is to be told of a rank that is lost. */
struct tree_loss tree_loss_of(const struct tree *t, uint32_t rank);
/* Tells the parent of it. */
void tree_send_lost(struct tree *t, uint32_t rank);
/* A child says that somebody is gone; or a child is, which has `return_ms` to come
 * back. */
void tree_pass_lost(struct tree *t, uint32_t rank, uint32_t via,
                    const struct tree_loss *loss);
void tree_child_lost(struct tree *t, const struct child *c, uint64_t return_ms,
                     const char *why);
/* It does not come back. */
void tree_give_up(struct tree *t, uint32_t rank);
/* Its agent has ended. */
void tree_is_dead(struct tree *t, uint32_t rank);

/* --- tree_silence.c --- */

/* From now on, at the pace of the lease. */
void tree_start_beats(struct tree *t);
/* What it needs on the loop: 0 or -ENOMEM. */
int tree_gaze_open(struct tree *t);
void tree_gaze_close(struct tree *t);

/* --- tree_up.c --- */

/* How long an attempt to connect may take. */
uint64_t tree_connect_ms(const struct tree *t);
/* Tries the next possible parent, unless there is a link. */
void tree_dial_next(struct tree *t);
/* The same with one that seems to be there. */
void tree_dial(struct tree *t, uint32_t rank);
/* The ways up have changed. */
void tree_find_ways(struct tree *t);
/* The link up failed. */
void tree_uplink_gone(struct tree *t, const char *why);
/* The same, of a parent that has said nothing for tree_suspect_ms(). */
void tree_parent_silent(struct tree *t);

/* --- tree_beat.c --- */

uint64_t tree_beat_ms(const struct tree *t);
/* After that a peer that says nothing is suspect. */
uint64_t tree_suspect_ms(const struct tree *t);
/* Alive, and what this clock shows. */
void tree_beat_up(struct tree *t);
/* False where it makes no sense. */
bool tree_take_beat(struct child *c, const struct channel_frame *f);
void tree_take_word(struct tree *t, const struct channel_frame *f);
/* The word is new: nobody below needs to ask for it. */
void tree_push_word(struct tree *t);
/* The lead's: tells what was seen. */
void tree_tell_seen(struct tree *t);
/* Whether this member obeys a lead: only one that knows of that may be a parent. */
bool tree_is_bound(const struct tree *t);

/* --- tree_seek.c --- */

/* There is no parent: looks for one among all of lower ranks. */
void tree_seek(struct tree *t);
/* There is one, or none is wanted. */
void tree_seek_end(struct tree *t);
/* Some addresses are those of every host: of bridges, of machines behind NAT. That
 * such a one refuses may be this host's answer. */
bool tree_may_be_ours(const struct tree *t, uint32_t rank);
/* That one was dialled, and did not welcome this member. */
void tree_seek_failed(struct tree *t, uint32_t rank);

/* --- tree_child.c --- */

/* Somebody who knows the key has connected: for link_listener_open(). */
void tree_on_peer(struct link *l, const struct channel_frame *first,
                  void *ctx);
void tree_remove_child(struct child *gone);
/* Those of lower ranks, which come to a lead alone. */
void tree_drop_elders(struct tree *t);
/* Who has told of ranks that are known now tells of all below it once more. */
void tree_ask_again(struct tree *t);

/* --- tree_look.c --- */

/* Asks at that address, again and again, whether the agent still listens, as long
 * as it may come back. */
void tree_look(struct tree *t, uint32_t rank, const char *address);
/* The same of the lead, as long as nothing more is heard of it: another parent was
 * found. */
void tree_look_at_lead(struct tree *t);
void tree_look_end(struct tree *t);

/* --- tree_output.c --- */

/* Takes a frame of a child; false if it is more than a child may send. */
bool tree_take_output(struct child *from, const struct channel_frame *f);
/* Sends what waits, as far as the window allows. */
void tree_look_if_drained(struct tree *t);
void tree_pump_output(struct tree *t);

#endif
