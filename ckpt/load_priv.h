/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to load*.c.
 *
 *   load.c       what is wanted, and whether the checkpoint has it
 *   load_read.c  reading and verifying, by several threads
 */
#ifndef MUSTER_CKPT_LOAD_PRIV_H
#define MUSTER_CKPT_LOAD_PRIV_H

#include "ckpt/load.h"
#include "ckpt/plan.h"

struct load_job {
    const struct load *load;
    const struct load_source *source;
    size_t n, room;
    struct plan_want *wants;
    char **to; /* of each: where its box begins in memory, in row-major order */
    struct plan plan;
};

void load_job_release(struct load_job *job);
#define _load_job_ __attribute__((cleanup(load_job_release)))

int load_job_add(struct load_job *job, size_t tensor, const struct box *box,
                 char *to);
int load_job_run(const struct load_job *job, unsigned n_threads,
                 struct error *e);

#endif
