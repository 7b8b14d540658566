/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to load*.c.
 *
 *   load.c       what is wanted, and whether the checkpoint has it
 *   load_read.c  reading and verifying, by several threads
 *   load_pages.c getting the memory that is filled
 */
#ifndef MUSTER_CKPT_LOAD_PRIV_H
#define MUSTER_CKPT_LOAD_PRIV_H

#include "base/hugepages.h"
#include "ckpt/load.h"
#include "ckpt/plan.h"

#include <stdint.h>

struct load_job {
    const struct load *load;
    const struct load_source *source;
    size_t n;
    struct plan_want *wants;
    char **to; /* of each: where its box begins in memory, in row-major order */
    struct plan plan;
};

void load_job_release(struct load_job *job);
#define _load_job_ __attribute__((cleanup(load_job_release)))

/* For `n` of them. 0, -ENOMEM. */
int load_job_make_room(struct load_job *job, size_t n);
void load_job_add(struct load_job *job, const struct plan_want *want, char *to);
int load_job_run(const struct load_job *job, unsigned n_threads,
                 struct error *e);

/* Memory of the program that it has hardly touched yet, as of a model that was made just
 * now, gets huge pages where all of them is going to be filled (base/hugepages.h): its pages,
 * one by one, cost more than what is loaded into them. Else they are taken many at a time
 * (base/pages.h). */
struct load_pages {
    struct hugepages huge;
    uintptr_t *begins, *ends; /* for each of those wanted: what is filled around it */
};

void load_pages_list(const struct load_job *job, struct load_pages *ret);
/* Those that this span reaches into. Any thread. */
void load_pages_make(struct load_pages *p, const struct load_job *job,
                     const struct plan_span *s);
void load_pages_release(struct load_pages *p);

#endif
