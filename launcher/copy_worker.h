/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that loads what its agent has, or gets: for copy_bench. It is a process, as workers
 * are: threads of one would wait where others of it map memory. */
#ifndef MUSTER_LAUNCHER_COPY_WORKER_H
#define MUSTER_LAUNCHER_COPY_WORKER_H

#include "ckpt/snap.h"

#include <stdint.h>

struct copy_worker {
    int fd;
};

/* Where there are no threads yet. It ends with the caller. Ends the program where it cannot. */
void copy_worker_start(struct copy_worker *w);

/* It wants an image of `bytes`: gets memory for it, until it hears where that is. */
void copy_worker_ask(const struct copy_worker *w, uint64_t bytes);
/* It is there, all of it or as it comes. */
void copy_worker_give(const struct copy_worker *w, const struct snap *s);
/* Waits for it. Returns when it was loaded, by clock_mono_ns(). */
uint64_t copy_worker_end(const struct copy_worker *w);

#endif
