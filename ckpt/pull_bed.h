/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of a pull share: a store that is a directory, a directory to pull into, what is
 * to be pulled there, one of muster's and another program's; and what the disk and the store
 * do at which call.
 */
#ifndef MUSTER_CKPT_PULL_BED_H
#define MUSTER_CKPT_PULL_BED_H

#include "ckpt/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { PULL_MAX_NAMES = 64, PULL_STEP = 10 };

/* A file of muster's own, the name of the other program's, in which "a.bin" is of two pieces,
 * and where that is fetched. */
#define PULL_FIRST "r00000.safetensors"
#define PULL_OTHER "checkpoint-5"
#define PULL_PART ".checkpoint-5.muster-part"

struct pull_world {
    struct {
        const char *name;
        unsigned n;
    } fault; /* the next syncs of the file called so fail */
    char synced[PULL_MAX_NAMES][64];
    size_t n_synced;
    atomic_uint n_gets;
    const char *no_get; /* the end of a key that is not to be had */
    int sealed_dir;     /* looked at with each write; -1: none, as of those below */
    bool was_sealed;
    int comes_into; /* something is put there with each get */
    int goes_from;  /* and what was fetched leaves with each get */
    int moves_from; /* it leaves before somebody has it for himself */
    bool has_no_room;
    const char *unread; /* a file of that name cannot be read */
    const char *stuck;  /* nor one of that name be removed; and whether any went of what ... */
    bool went_sealed;   /* ... had its seal */
    /* Of two threads on a file of two pieces one does not write before the other, with its
     * own piece, has gone on to another file. */
    atomic_bool is_held;
    atomic_bool is_early; /* the file was synced meanwhile */
    pthread_mutex_t lock; /* of what is synced, and what fails there */
};

/* Of the test, which defines it: the calls that are wrapped know no other one. */
extern struct pull_world pull_world;

struct pull_bed {
    char path[64];
    int from, to;
    struct store st;
    struct parcel own, others;
    struct store_facts facts;
};

void pull_bed_open(struct pull_bed *b);
void pull_bed_close(struct pull_bed *b);
/* Opens a directory that it makes. */
int pull_bed_mkdir(const char *top, const char *name);
/* Puts that one of the directory `from` into the store. */
void pull_bed_pack(struct pull_bed *b, enum found_kind kind, const char *name,
                   struct parcel *ret);

/* What the world counts begins anew. */
int pull_run(struct pull_bed *b, const struct parcel *p, struct error *e);
bool pull_was_synced(const char *name);
/* Opens muster's own, where it was pulled to; whether it is right there. */
int pull_bed_own(const struct pull_bed *b);
bool pull_bed_is_whole(const struct pull_bed *b);
bool pull_bed_has(int dir, const char *name);

#endif
