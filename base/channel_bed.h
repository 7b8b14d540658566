/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: two ends of a channel, and what is between them. */
#ifndef MUSTER_BASE_CHANNEL_BED_H
#define MUSTER_BASE_CHANNEL_BED_H

#include "base/channel.h"

struct channel_pair {
    struct channel *near, *far; /* near is the initiator */
};

struct channel_pair channel_pair_make(const uint8_t *near_key, const uint8_t *far_key);
void channel_pair_free(struct channel_pair *p);

/* Moves what one has to send to the other. */
void channel_carry(struct channel *from, struct channel *to);
/* Both know each other, and far has a first frame to take. */
void channel_pair_meet(struct channel_pair *p);

#endif
