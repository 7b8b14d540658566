/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the heir share. Private to heir*.c.
 *
 *   heir.c         life, and what each event leads to
 *   heir_bond.c    the lead that it is bound to: orders, words, the lease
 *   heir_camp.c    who follows, and the claim of the next view
 *   heir_answer.c  what became of the claim
 *   heir_msg.c     the follow as a message; beats
 */
#ifndef MUSTER_RENDEZVOUS_HEIR_PRIV_H
#define MUSTER_RENDEZVOUS_HEIR_PRIV_H

#include "rendezvous/heir.h"

enum heir_state {
    HEIR_BOUND,
    HEIR_FREE,
    HEIR_LEAD,
    HEIR_OUT,
};

/* One that is, or was, in the camp. */
struct camper {
    bool follows;
    uint64_t serial;
    uint32_t view;
    bool has_heard;
    uint64_t heard_ms; /* by our clock: of a lead, at the latest */
    bool died_late;    /* found dead when the view that we claim may have been made */
};

enum { HEIR_WORDS = 64 }; /* at least those of a lease: one a heartbeat */

struct heir_word {
    uint64_t from_ms, acked_ms;
};

struct heir {
    struct heir_config config;
    uint32_t *node_of;     /* copied */
    enum heir_state state;
    uint64_t now_ms;
    uint32_t n_nodes;      /* that there is room for */
    uint32_t n_known;      /* that this agent knows how to reach */
    struct view view;
    bool is_unheard;       /* no order of its lead has come yet */
    uint32_t floor;        /* obeys views from this number on */

    bool has_stamp;
    uint64_t stamp_ms;     /* the newest of the lead, by its clock */
    uint64_t word_ms;      /* its word, by ours */
    bool has_heard;
    uint64_t heard_ms;     /* when the newest stamp of any lead came */
    uint64_t free_ms;      /* since when it is free */

    bool is_top;
    struct camper *camp;
    bool *dead;
    bool *in;              /* scratch, and what `heritage` points to */
    bool *idle;            /* likewise */

    struct follow known;   /* the newest that anybody of the camp knows; own words
                              are filled in when it is sent */
    uint64_t follow_serial;
    bool tells;            /* a follow is due */
    uint16_t *n_procs;     /* of generation n_procs_of */
    uint32_t n_procs_len, n_procs_of;
    uint64_t run_serial;   /* of the newest RUN that came here */
    bool member_has_end;

    struct view claim;
    bool claiming;
    uint64_t claim_heard_ms; /* the newest that was heard in the camp then */

    bool has_word;         /* the lead's: what enough have acknowledged */
    uint64_t acked_ms;
    struct heir_word words[HEIR_WORDS]; /* a ring of n_words, the newest last */
    uint32_t n_words;
    uint64_t bound_ms;     /* what those had been told who have acknowledged that: their
                              leases began then, or later */
    uint64_t n_astray;     /* suspect or silent, as it was told last */
    uint32_t rival_size;   /* as its lead says */

    struct follow follow;  /* as it was sent last */
    struct heritage heritage;
    struct order told;     /* below, of what the arbiter has told */
    char why[ORDER_TEXT_BYTES];
};

/* a + b, without wrapping. */
static inline uint64_t heir_later(uint64_t a, uint64_t b)
{
    return a > HEIR_NEVER - b ? HEIR_NEVER : a + b;
}

struct view_rule heir_rule(const struct heir *h);
/* How many it takes to go on without the lead, or VIEW_NO_SIDE. */
uint32_t heir_rival_size(const struct heir *h);
/* Nobody but the lead's side can ever go on. */
bool heir_is_rigid(const struct heir *h);
/* For all that a view names. 0 or -ENOMEM. */
int heir_make_room_for(struct heir *h, const struct view *v);

/* --- heir_bond.c --- */

/* It takes the lead: who is bound to it has a lease from now on. */
void heir_begin_words(struct heir *h);
/* Keeps what an order or a follow says of the run if it is newer. */
void heir_learn(struct heir *h, uint64_t serial, uint32_t generation,
                const struct past *past);
void heir_learn_end(struct heir *h, uint8_t status, const char *reason);

/* It obeys views from `floor` on alone. */
void heir_promise(struct heir *h, uint32_t floor, struct heir_actions *ret);
void heir_leave(struct heir *h, struct heir_actions *ret);
/* It obeys nobody of its view any more. */
void heir_become_free(struct heir *h, struct heir_actions *ret);
uint64_t heir_lease_end_ms(const struct heir *h);
/* The lease ends; or the lead has, and somebody can follow it. */
void heir_check_bond(struct heir *h, struct heir_actions *ret);
/* To a view of which its lead has not told. 0 or -ENOMEM. */
int heir_bind_unheard(struct heir *h, const struct view *v,
                      struct heir_actions *ret);
int heir_on_order(struct heir *h, const struct order *o,
                  struct heir_actions *ret);
void heir_on_word(struct heir *h, const struct heir_event *event,
                  struct heir_actions *ret);
void heir_on_seen(struct heir *h, const struct heir_event *event);

/* --- heir_answer.c --- */

int heir_on_claimed(struct heir *h, const struct heir_event *event,
                    struct heir_actions *ret);
int heir_on_deposed(struct heir *h, const struct view *found,
                    struct heir_actions *ret);

/* --- heir_camp.c --- */

int heir_take_follow(struct heir *h, const struct follow *f,
                     struct heir_actions *ret);
/* FREE: the claim, if it is time. Then when that may be, if nothing comes. */
void heir_consider(struct heir *h, struct heir_actions *ret);
uint64_t heir_settled_ms(const struct heir *h);
void heir_win(struct heir *h, struct heir_actions *ret);

#endif
