/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control tree of one agent: its links up and down, and who may speak on
 * them. Orders and the config go down and are kept for children that come later;
 * reports go up and the newest of each rank below is kept for a parent that comes
 * later. Nothing is decided here.
 *
 * A member whose connection breaks has a lease to find another, but where its
 * port answers no more it is known to be dead (tree_look.c).
 *
 * The parent is the nearest living ancestor in the k-ary tree over the roster:
 * when the link up fails the next ancestors are tried in turn, up to the lead, until
 * tree_close(). Where none of them answers any member of a lower rank will do
 * (tree_seek.c); so links never make a circle. Who finds none stands at the top of
 * all that are connected with it. The lead's parent is the front end, where there is
 * one.
 *
 * Everything runs on the loop's thread. Callbacks may call any function here
 * except tree_close().
 */
#ifndef MUSTER_RENDEZVOUS_TREE_H
#define MUSTER_RENDEZVOUS_TREE_H

#include "base/link.h"
#include "rendezvous/roster.h"
#include "rendezvous/tree_msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct tree;

/* A word of the lead of a view: its clock showed `stamp_ms`, at most `age_ms`
 * ago. */
struct tree_word {
    uint32_t view;
    uint64_t stamp_ms;
    uint64_t age_ms;
};

struct tree_ops {
    /* From above (on the lead: from the front end). Valid for the call. `age_ms`: for
     * so long the run has been under way, whenever this member has come. */
    void (*on_config)(void *ctx, uint64_t age_ms, const void *data, size_t len);
    /* Whether it is a newer one: then those below get it, too. */
    bool (*on_order)(void *ctx, const void *data, size_t len);
    /* A lead was alive so long ago; not on the lead. */
    void (*on_word)(void *ctx, const struct tree_word *word);
    /* A parent was found, or the link to it is gone. On the lead this is about
     * the front end. */
    void (*on_uplink)(void *ctx, bool up, const char *why);
    /* The parent answers, but does not want this member. */
    void (*on_refused)(void *ctx, const char *why);
    /* Output may be given again after tree_output() said no. */
    void (*on_writable)(void *ctx);
    /* What this member has heard of the lead that it obeys: view and all_ms, and
     * n_suspect, 1 where it obeys none. NULL: all words are. */
    void (*own_seen)(void *ctx, struct tree_seen *ret);
    /* This member has no parent, and there is none of a lower rank to be found
     * now; or there is. NULL: that is nobody's business. */
    void (*on_top)(void *ctx, bool top);
    /* No agent listens at the port of that rank, though its host answers: it is
     * dead. May be NULL. */
    void (*on_dead)(void *ctx, uint32_t rank);
    /* Of a rank below, or this one; it is below no more. On the lead, and where
     * there is no parent. May be NULL. */
    void (*on_follow)(void *ctx, const void *data, size_t len);
    void (*on_unfollow)(void *ctx, uint32_t rank);
    /* The lead only. */
    /* At each beat: what this member and those below have heard of it. */
    void (*on_seen)(void *ctx, const struct tree_seen *below);
    /* How old its word is, UINT64_MAX for none; NULL: it is always fresh. */
    uint64_t (*word_age)(void *ctx);
    void (*on_report)(void *ctx, const void *data, size_t len);
    /* A rank is gone; it is connected (again), which is told before a report that
     * follows from it. */
    void (*on_lost)(void *ctx, uint32_t rank, const struct tree_loss *loss);
    void (*on_here)(void *ctx, uint32_t rank);
    void (*on_event)(void *ctx, uint32_t rank, const void *data, size_t len);
    void (*on_request)(void *ctx, const void *data, size_t len);
    /* What tree_finish() asked for; NULL where nobody does. */
    void (*on_drained)(void *ctx);
    /* What tree_ask() asks for; not on the lead. */
    void (*on_ask)(void *ctx, const void *json, size_t len);
    /* Somebody who knows the key has connected for something else than to be a
     * member: takes the link over, or closes it. NULL: closed. */
    void (*on_stranger)(void *ctx, struct link *l,
                        const struct channel_frame *first);
};

struct tree_config {
    uv_loop_t *loop;
    const struct roster *roster; /* borrowed until tree_close() */
    uint32_t rank;
    uint32_t lead; /* who leads, at first */
    uint32_t arity;
    uint64_t lease_ms; /* a peer that is silent for so long is lost */
    const char *run_id;
    const char *version;
    const uint8_t *key;              /* copied */
    struct link_listener *listener;  /* borrowed; opened here */
    char *const *front_addrs;        /* the lead's: NULL for no front end */
    uint16_t front_port;
    const struct tree_ops *ops;
    void *ctx;
};

int tree_create(const struct tree_config *config, struct tree **ret,
                struct error *e);

/* Closes all links once what is queued was sent. NULL is allowed. */
void tree_close(struct tree *t);

/* The roster has grown: newcomers may connect, and what was told of them before is told
 * again, but for their events, which wait for tree_tell_events(). 0 or -ENOMEM. */
int tree_grow(struct tree *t);

/* The lead: to everybody below, now and later. That began `age_ms` ago, which who gets
 * it later is told so much later. */
void tree_publish_config(struct tree *t, uint64_t age_ms, const void *data, size_t len);
void tree_publish_order(struct tree *t, const struct buf *order);

/* The lead: asks all that are below now for something, a JSON object. Nothing is
 * kept: who has lost its parent just now does not hear of it. */
void tree_ask(struct tree *t, const void *json, size_t len);

/* This member's report, to the lead; on the lead it comes back by on_report()
 * before this returns. */
void tree_report(struct tree *t, const struct buf *report);

/* Who leads now. A member that takes the lead hears by on_here(), on_report() and
 * on_lost() of all that are below it, before this returns; a lead that gives it up
 * becomes a member without a parent. */
void tree_set_view(struct tree *t, uint32_t view, uint32_t lead);

/* Of this member, without a lead, to the top of those that it is connected with;
 * as reports, the newest of each is kept. */
void tree_follow(struct tree *t, const struct buf *follow);

/* Something that the lead waits for to hear of: now, not at the next beat. */
void tree_beat_now(struct tree *t);

/* Where this member finds no parent, that one is asked first, though it may have a
 * higher rank: it leads. TREE_NO_RANK for nobody. */
#define TREE_NO_RANK UINT32_MAX
void tree_seek_rank(struct tree *t, uint32_t rank);

/* A fact for the journal, to the lead, in order and once; where there is no parent now,
 * or the lead has not heard them yet, 1 MiB of them wait for the next one. Another lead may
 * be told once more what the one before has heard at its end. */
void tree_event(struct tree *t, const void *json, size_t len);

/* Of those that wait here, what can be told now is: by on_event() once this member has
 * taken the lead, of ranks that it knows. */
void tree_tell_events(struct tree *t);

/* Output of a worker, to the front end. It is always taken; false when that was
 * the last that there is room for: the caller waits for on_writable() before it
 * gives more. Where there is no front end it is dropped. */
bool tree_output(struct tree *t, const struct tree_output *o);

enum tree_finish {
    TREE_FINISH_ALL = 1, /* the run ends: nobody below is left who could bring more */
    TREE_FINISH_OWN,     /* it goes on elsewhere: what waits now, and no more */
};

/* No more output comes from this member. on_drained() is called once that which is to
 * go up from here has gone, or nobody above takes it. That may be before this returns,
 * or never: see to a deadline. */
void tree_finish(struct tree *t, enum tree_finish what);

/* The lead: a STATUS or EVENT to the front end, if one is connected. */
void tree_tell_front(struct tree *t, enum tree_type type, const struct buf *b);

/* From now on the front end is there, and nowhere else; one that the lead is
 * connected with is left. Of a member, for when it leads. 0 or -ENOMEM. */
int tree_set_front(struct tree *t, char *const *addrs, uint16_t port);

/* Changes the lease, and with it the pace of heartbeats. */
void tree_set_lease(struct tree *t, uint64_t lease_ms);

bool tree_has_uplink(const struct tree *t);

/* The lead: for how long there has been no front end; 0 while there is one, or
 * never was. */
uint64_t tree_front_gone_ms(const struct tree *t);

#endif
