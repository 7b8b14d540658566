/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the member share. Private to member*.c.
 *
 *   member.c          life, and what each event leads to
 *   member_lease.c    the lead's word, and what is done without it
 *   member_workers.c  what becomes of workers, and of the store
 *   member_follow.c   what the newest order asks for
 */
#ifndef MUSTER_RENDEZVOUS_MEMBER_PRIV_H
#define MUSTER_RENDEZVOUS_MEMBER_PRIV_H

#include "rendezvous/member.h"

/* The workers of this node: at most one generation of them at a time. */
struct workers {
    uint32_t generation; /* the newest started, 0 if none ever was */
    bool alive;          /* from `start` to GONE */
    bool started;        /* STARTED came */
    bool clean;          /* no exit but with code 0, and nothing else wrong */
    uint16_t n;
    uint16_t n_exited;
    bool by_themselves;    /* all had exited before anything stopped them */
    enum member_stop stop; /* ordered so far */
    uint64_t kill_ms;      /* when to kill (again); MEMBER_NEVER: no need */
};

struct member {
    struct member_config config;
    char host[FAILURE_HOST_BYTES];
    uint64_t now_ms;
    uint64_t word_ms; /* of the newest word from the lead */
    bool had_word;

    struct order order; /* the newest; serial 0: none yet */
    uint32_t stopped;   /* the newest generation reported as STOPPED */
    struct workers workers;

    uint32_t store_asked; /* the newest generation a store was asked for */
    uint32_t store_stale; /* close those up to this one once workers are gone */
    bool store_open;      /* that of store_asked; or it never will be */

    struct report report; /* what is true now */
    uint64_t failed_ms;   /* when report.failure was seen */
    bool changed;         /* since it was sent last */

    bool lapsed; /* the lease is over, and the member waits */
    bool is_strange; /* no word has come of the view that it obeys */
    bool has_heard; /* a lead of a view before report.floor, at ... */
    uint64_t heard_ms;
    bool fenced;
    bool left;
    uint64_t leave_ms; /* leave then, whatever is still alive */
    bool has_verdict;
    uint8_t status;
    char reason[ORDER_TEXT_BYTES];
};

/* a + b, without wrapping. */
static inline uint64_t member_later(uint64_t a, uint64_t b)
{
    return a > MEMBER_NEVER - b ? MEMBER_NEVER : a + b;
}

/* --- member_lease.c --- */

/* When the lease runs out; MEMBER_NEVER without one. */
uint64_t member_lease_end(const struct member *m);
void member_check_lease(struct member *m, struct member_actions *ret);
void member_hear(struct member *m, uint64_t age_ms);
/* What the others must not take for a lead's that counts. */
void member_promise(struct member *m, uint32_t floor, uint64_t heard_ms);
void member_settle(struct member *m, uint8_t status, const char *reason,
                   struct member_actions *ret);
/* From here on this member is on its own, and only has to go. */
void member_fence(struct member *m, const char *why,
                  struct member_actions *ret);

/* --- member_workers.c --- */

int member_on_workers(struct member *m, const struct member_event *event);
int member_on_store(struct member *m, const struct member_event *event);
int member_on_saved(struct member *m, const struct member_event *event);

/* --- member_follow.c --- */

/* As far as it can be done now. */
void member_follow(struct member *m, struct member_actions *ret);

#endif
