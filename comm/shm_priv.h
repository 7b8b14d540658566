/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the collectives over a segment share. Private to shm*.c.
 *
 *   shm.c        life; calls, and the order of what they do
 *   shm_stage.c  the three stages of a chunk
 *   shm_wait.c   waiting for the others, and its end when one is gone
 */
#ifndef MUSTER_COMM_SHM_PRIV_H
#define MUSTER_COMM_SHM_PRIV_H

#include "comm/segment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHM_SPINS = 200 }; /* where spinning helps */

struct shm {
    struct segment *seg;
    struct segment_worker *workers; /* shared */
    uint32_t n;
    uint32_t me;
    int agent_fd;
    int spins;
    uint64_t chunk; /* the next one */
    uint64_t calls; /* made so far */
    const void **from; /* room for n pointers */
};

/* One call on its way. Counters are absolute chunk numbers. */
struct pass {
    struct segment_call call;
    const uint8_t *send;
    uint8_t *recv;
    size_t n_bytes;
    size_t elem;  /* bytes of an element */
    size_t piece; /* bytes of a chunk of this call */
    bool is_small;
    bool is_verified; /* all called the same */
    uint64_t first;
    uint64_t end;
    uint64_t at[3]; /* the next chunk, by stage */
};

/* --- shm_stage.c: one stage of its next chunk --- */

void shm_do_in(struct shm *s, struct pass *p);
void shm_do_red(struct shm *s, struct pass *p);
void shm_do_out(struct shm *s, struct pass *p);

/* --- shm_wait.c --- */

/* 0 while the group is whole. */
int shm_check_abort(const struct shm *s, struct error *e);
/* Waits until *counter, one of worker w's, or of the bulk mover where w is
 * NULL, is at least `target`; or until all workers are through with that many
 * chunks. A negative code when the group is aborted meanwhile. */
int shm_wait_counter(const struct shm *s, struct segment_worker *w,
                     const _Atomic uint64_t *counter, uint64_t target,
                     struct error *e);
int shm_wait_workers(const struct shm *s, enum segment_stage stage,
                     uint64_t target, struct error *e);
/* The first worker that is not through with `target` chunks, or n. */
uint32_t shm_who_lags(const struct shm *s, enum segment_stage stage,
                      uint64_t target);

#endif
