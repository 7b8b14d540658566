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

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_PAGES_THREADS = 8 };

struct load_pages;

struct load_job {
    const struct load *load;
    const struct load_source *source;
    struct plan_want *wants;
    char **to; /* of each: where its box begins in memory, in row-major order */
    struct plan plan;
};

void load_job_release(struct load_job *job);

/* For `n` of them. 0, -ENOMEM. */
int load_job_make_room(struct load_job *job, size_t n);
int load_job_run(const struct load_job *job, struct load_pages *pages, unsigned n_threads,
                 struct error *e);

/* Memory of the program that it has hardly touched yet, as of a model that was made just
 * now: its pages, one by one, cost more than what is loaded into them, and are taken many at
 * a time (base/pages.h). What lies together in memory need not do so in files: a page is got
 * for all that lies in it. Huge ones come for parts that are filled as a whole, where they
 * come fast (base/hugepages.h). */
struct load_pages {
    const struct load_want *wants;
    char *const *to;
    size_t n_wants;
    size_t n, n_units;
    struct load_range *ranges; /* of memory that is filled as a whole */
    uint32_t *range_of;        /* of each of those wanted: in which range it lies */
    _Atomic bool *is_made;     /* of each unit, a part of a range: it was there, or somebody
                                  gets it, or did */
    struct hugepages huge;
    _Atomic size_t next;       /* of the units, in their order */
    atomic_bool is_planned, is_over;
    bool has_first;
    pthread_t first; /* lists it, and starts the others */
    size_t n_others, max_others;
    pthread_t others[LOAD_PAGES_THREADS - 1];
};

/* For the `n` that are wanted, of which each begins `to` in memory, or NULL: all of them the
 * caller's, and as they are until this ends. Gets what it can by threads, fewer than
 * `n_threads`, until it is told to end, or released: while the caller finds out what goes
 * where. For little memory there is no thread. Where there is no memory to list it in,
 * pages come as they are touched. */
void load_pages_begin(struct load_pages *p, const struct load_want *wants, char *const *to,
                      size_t n, unsigned n_threads);
/* Nobody plans any more, nor maps anything until it ends: it need not give way. */
void load_pages_planned(struct load_pages *p);
void load_pages_end(struct load_pages *p);
/* Those that bytes [at, at + len) of a want lie in, and this span reaches into, once it has
 * ended. Any thread. */
void load_pages_get(struct load_pages *p, size_t want, size_t at, size_t len);
void load_pages_make(struct load_pages *p, const struct load_job *job,
                     const struct plan_span *s);
void load_pages_release(struct load_pages *p);
#define _load_pages_ __attribute__((cleanup(load_pages_release)))

#endif
