/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of parity share: agents on one loop, of which the first ones are a group.
 * Rank 10 + i is of nodes[i], which is agent 10 * i.
 */
#ifndef MUSTER_LAUNCHER_PARITY_BED_H
#define MUSTER_LAUNCHER_PARITY_BED_H

#include "launcher/snap_bed.h"
#include "launcher/snap_parity_priv.h"

enum { PARITY_BED_NODES = 5 }; /* or as many as the group has, where those are more */

extern const uint8_t parity_bed_key[CHANNEL_KEY_BYTES];

/* What somebody says to whom it is asked by, or offered something. */
enum parity_lie {
    PARITY_HONEST = 0,
    PARITY_MUTE,    /* it takes links, and says nothing */
    PARITY_MORE,    /* it gives a byte more than it was asked for, */
    PARITY_BEHIND,  /* or one behind all of that, */
    PARITY_NOTHING, /* or says at once that that was all, */
    PARITY_EMPTY,   /* or gives a piece of no bytes */
    PARITY_SOME,    /* it gives the first of what it was asked for, and no more */
    PARITY_DONE,    /* it has all, before anything was sent */
};

struct parity_node {
    struct parity_bed *bed;
    char dir[2][96];
    struct snap_said said;
    struct snap_hold *own, *copies;
    struct snap_parity *parity;
    struct link_listener *listener;
    int n_sent, n_whole, n_built, n_ordered;
    struct error sent, built;
    uint32_t built_from;
    bool is_gone;
    bool is_unknown; /* where it listens */
    enum parity_lie lie;
    struct link *lied_to;
};

struct parity_bed {
    uv_loop_t loop;
    char top[64];
    unsigned n_nodes;
    struct parity_node nodes[PARITY_MAX_MEMBERS];
    struct parity_group group;
    int n_sent, n_whole, n_built; /* of all */
};

/* The first n of them are a group, with m parities; `budget` is that of each one's
 * copies. Nobody is given up. */
void parity_bed_open(struct parity_bed *b, unsigned n, unsigned m, uint64_t budget);
void parity_bed_close(struct parity_bed *b);
/* From now on who makes no progress for a second is given up. */
void parity_bed_be_impatient(struct parity_bed *b);
void parity_bed_be_patient(struct parity_bed *b);

/* What rank 10 + i saves, in an image with a page behind it. */
uint64_t parity_bed_bytes(unsigned i);
void parity_bed_save(struct parity_bed *b, unsigned i, const char *uuid, uint64_t step);
void parity_bed_send(struct parity_bed *b, unsigned i, const char *uuid);
/* All of the group save, and send. */
bool parity_bed_save_all(struct parity_bed *b, const char *uuid, uint64_t step);

/* What nodes[at] makes of the rank of nodes[i]: 0, or a code. -1: nothing came. */
int parity_bed_build(struct parity_bed *b, unsigned at, unsigned i, const char *uuid,
                     const uint32_t *lost, size_t n_lost);
/* That is what the rank has saved, byte by byte, and of the same save. */
bool parity_bed_is_same(struct parity_bed *b, unsigned at, unsigned i, const char *uuid);

/* What `from` says of 100 bytes that its rank has saved. */
void parity_bed_offer(struct buf *b, const struct parity_group *g, uint32_t rank,
                      uint32_t from);

#endif
