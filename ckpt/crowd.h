/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads on a row of pieces of work, until all are done or one fails. */
#ifndef MUSTER_CKPT_CROWD_H
#define MUSTER_CKPT_CROWD_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Calls work(arg, i, e) for each i below `n`, from at most `n_threads` threads, this
 * one among them. After the first that returns less than 0 `stop` (which may be
 * NULL) is called once, nothing more is begun, and its error is returned when all
 * have come back. */
struct crowd {
    size_t n_threads;
    int (*work)(void *arg, size_t i, struct error *e);
    void *arg;
    void (*stop)(void *arg);
    void *stop_arg;
};
int crowd_run(const struct crowd *c, size_t n, struct error *e);

/* As many as copies of memory gain from, where nobody says how many: one for each
 * processor that this process may run on, but few. */
unsigned crowd_n_threads(void);

#endif
