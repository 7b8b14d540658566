/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a node is not used any more. Who excludes it says what kind of reason that is, and
 * words for people. Both are in the status of the lead that wrote them; the kind is in
 * what every agent has (struct past_mark), so that the next lead can tell why, and knows
 * what it may use again. Pure.
 */
#ifndef MUSTER_RENDEZVOUS_EXCLUSION_H
#define MUSTER_RENDEZVOUS_EXCLUSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exclusion {
    EXCLUSION_NONE = 0,  /* it is used */
    EXCLUSION_OTHER = 1, /* for what is none of these */
    EXCLUSION_CAUSE = 2, /* restart.maxPerNode */
    EXCLUSION_SLOW = 3,  /* elastic.excludeSlow */
    EXCLUSION_HANGS = 4, /* no MPI world with it comes in time ... */
    EXCLUSION_FAILS = 5, /* ... or each one fails: until mpirun gets through to it */
    EXCLUSION_MISFIT = 6, /* it came while the run went on, and does not fit the job: until
                             it does, when another agent comes in its place */
    EXCLUSION_LAST = EXCLUSION_MISFIT,
};

/* "other", "cause" and so on, as files have it; "" of none. And back: none of "" or NULL,
 * EXCLUSION_OTHER of a name that is not known. */
const char *exclusion_name(enum exclusion why);
enum exclusion exclusion_by_name(const char *name);

/* Whether it is over once there is an MPI world with the node. */
bool exclusion_is_of_mpi(enum exclusion why);

/* What a lead says that has no words for it: another one has excluded it, say. `n_causes`
 * as the node has them. */
void exclusion_word(enum exclusion why, uint32_t n_causes, char *to, size_t size);

#endif
