/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a failed generation is followed by another, after how long, and what
 * a failure is as an exit status. Pure functions of their arguments.
 */
#ifndef MUSTER_RENDEZVOUS_RESTART_H
#define MUSTER_RENDEZVOUS_RESTART_H

#include "rendezvous/failure.h"

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses of a run. A failed one has the code of its first failed worker
 * unless that would read as one of these. */
enum run_exit {
    RUN_SUCCEEDED = 0,
    RUN_FAILED = 1,
    RUN_USAGE = 2,
    RUN_NO_GANG = 69,   /* nodes did not gather in time */
    RUN_RESUMABLE = 75, /* stopped, can go on later */
    RUN_DEADLINE = 124,
    RUN_NOT_EXECUTABLE = 126,
    RUN_NOT_FOUND = 127,
    RUN_CANCELLED = 130,
};

enum restart_kind {
    RESTART_NEVER = 0,
    RESTART_ON_FAILURE = 1,
    RESTART_EXIT_CODE = 2, /* only codes in `retryable` */
    RESTART_ALWAYS = 3,    /* also when all workers have succeeded */
};

struct restart_policy {
    enum restart_kind kind;
    uint32_t max; /* restarts of the whole job */
    uint32_t max_per_node; /* and for failures of one node; 0: the same */
    uint64_t backoff_min_ms;
    uint64_t backoff_max_ms;
    /* RESTART_EXIT_CODE: bit (code & 7) of byte (code >> 3); a signal counts as
     * 128 + its number. */
    uint8_t retryable[32];
};

/* Marks codes first .. last as retryable. */
void restart_allow(struct restart_policy *p, unsigned first, unsigned last);

/* The sets known by name: "kubeflow" (128 and above), "t9k" (130, 137, 138,
 * 143). False if unknown. */
bool restart_preset(struct restart_policy *p, const char *name);

/* Whether this failure may be followed by a restart, the budget aside. Not a
 * command that cannot start, nor lack of memory: they would only come again. But
 * codes other than a set known by name may have 137, which is to mean it. */
bool restart_allowed(const struct restart_policy *p, const struct failure *f);

/* How long to wait before restart number `n_quick` (from 1) of a row of
 * generations that each failed sooner than backoff_max_ms after they started;
 * 0 for n_quick 0: a generation that ran for longer is followed at once. */
uint64_t restart_backoff_ms(const struct restart_policy *p, uint32_t n_quick);

/* 1 .. 255: the worker's code, 128 + signal, 126 or 127 for a command that
 * cannot start; RUN_FAILED where that would read as something else. */
uint8_t restart_exit_status(const struct failure *f);

#endif
