/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the simulated tree share.
 *
 *   split_tree.c   frames, and parents
 *   split_below.c  children, and who is below them
 *   split_beat.c   beats
 */
#ifndef MUSTER_RENDEZVOUS_SPLIT_PRIV_H
#define MUSTER_RENDEZVOUS_SPLIT_PRIV_H

#include "rendezvous/split.h"

enum { SPLIT_RETURN_MS = 30 }; /* for a child whose link broke to come back */

/* --- split_tree.c --- */

void split_keep(struct buf *b, const struct buf *from);
struct buf split_copy_of(const struct buf *bytes);
void split_send_lost_up(struct split *s, struct split_agent *a, uint32_t rank);
void split_send_down(struct split *s, struct split_agent *a, uint32_t child,
                     struct split_event e);
/* Takes the bytes over. */
void split_transmit(struct split *s, struct split_agent *from, uint32_t to,
                    struct split_event e);
void split_lose_up(struct split *s, struct split_agent *a);
bool split_is_gone(const struct split *s, uint32_t from, uint32_t rank);

/* --- split_below.c --- */

void split_tell_lost(struct split *s, struct split_agent *a, uint32_t rank);
void split_expect_back(struct split *s, struct split_agent *a, uint32_t rank,
                       uint64_t ms, uint64_t word_ms);
void split_heard_of(struct split *s, struct split_agent *a, uint32_t rank,
                    uint32_t via);
void split_child_lost(struct split *s, struct split_agent *a, uint32_t child,
                      uint64_t return_ms);
void split_take_here(struct split *s, struct split_agent *a, uint32_t rank);
void split_take_report(struct split *s, struct split_agent *a, uint32_t rank,
                       const struct buf *bytes);
void split_take_follow(struct split *s, struct split_agent *a, uint32_t rank,
                       const struct buf *bytes);
/* To a new parent, all that is known. */
void split_repeat_all(struct split *s, struct split_agent *a);

/* --- split_beat.c --- */

void split_answer_beat(struct split *s, struct split_agent *a,
                       struct split_event *e);
void split_take_word(struct split *s, struct split_agent *a,
                     const struct split_beat *b);

#endif
