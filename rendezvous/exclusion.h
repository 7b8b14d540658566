/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a node is not used any more. Who excludes it says so in words; what kind of
 * reason that is follows from how they begin. The words are in the status of the lead
 * that wrote them; the kind is in what every agent has (struct past_mark), so that the
 * next lead can tell why, and knows what it may use again. Pure.
 */
#ifndef MUSTER_RENDEZVOUS_EXCLUSION_H
#define MUSTER_RENDEZVOUS_EXCLUSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How such words begin. */
#define EXCLUSION_CAUSE_WORDS "it was the cause "
#define EXCLUSION_SLOW_WORDS "the steps of rank"
#define EXCLUSION_HANGS_WORDS "mpirun hangs there"
#define EXCLUSION_FAILS_WORDS "mpirun fails there"

enum exclusion {
    EXCLUSION_NONE = 0,  /* it is used */
    EXCLUSION_OTHER = 1, /* for what is none of these */
    EXCLUSION_CAUSE = 2, /* restart.maxPerNode */
    EXCLUSION_SLOW = 3,  /* elastic.excludeSlow */
    EXCLUSION_HANGS = 4, /* no MPI world with it comes in time ... */
    EXCLUSION_FAILS = 5, /* ... or each one fails: until mpirun gets through to it */
    EXCLUSION_LAST = EXCLUSION_FAILS,
};

/* Of the words; NULL or unknown ones are EXCLUSION_OTHER. */
enum exclusion exclusion_of(const char *why);

/* Whether it is over once there is an MPI world with the node. */
bool exclusion_is_of_mpi(enum exclusion why);

/* What a lead says that did not exclude it itself; of the kind that these words begin
 * with. `n_causes` as the node has them. */
void exclusion_word(enum exclusion why, uint32_t n_causes, char *to, size_t size);

#endif
