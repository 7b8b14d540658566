/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a lease_bed of which single calls to the disk are odd, or fail. */
#ifndef MUSTER_CKPT_LEASE_ODD_BED_H
#define MUSTER_CKPT_LEASE_ODD_BED_H

#include "ckpt/lease_bed.h"

struct lease_odd_bed {
    struct io io; /* its first member: bed.io */
    struct lease_bed bed;
    char calls[512]; /* names of those that are listed in lease_odd_bed.c */
    /* Of the file with that name the n-th call from now on fails so. */
    const char *name;
    int error;
    int at_open, at_create, at_unlink;
    int error_close, error_sync, error_touch; /* of any, once */
    unsigned too_long; /* the file with that name is said to be longer by that */
    int opened;        /* a descriptor of it, or -1 */
    unsigned slow_ms;  /* a sync, and a touch, take so long */
    bool is_lost;      /* what is renamed vanishes */
    int n_long;        /* so many names are listed that are longer than any of a run */
};

/* Ended by lease_bed_end(). */
void lease_odd_bed_begin(struct lease_odd_bed *w);

#endif
