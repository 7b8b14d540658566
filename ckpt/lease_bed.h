/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: runs of one machine and of others that want one directory, and two clocks,
 * theirs and the disk's, which goes with it from another time on. */
#ifndef MUSTER_CKPT_LEASE_BED_H
#define MUSTER_CKPT_LEASE_BED_H

#include "ckpt/disk_model.h"
#include "ckpt/lease.h"

enum { LEASE_BED_MINUTE = 60 * 1000, LEASE_BED_START = 100 * LEASE_BED_MINUTE };

struct lease_bed {
    struct disk *disk;
    struct io *io; /* by which it is looked at: the disk's, or what is above that */
    uint64_t now_ms;
    int64_t ahead_ms;      /* the disk's clock */
    int dead;              /* that pid; 0: all are alive */
    struct lease *renewed; /* meanwhile by one who is alive, or NULL */
    const char *renews;    /* the same of a file that says nothing */
    bool is_ending;
    unsigned n_waits;
    char names[512];
};

void lease_bed_begin(struct lease_bed *b);
/* A case: no descriptor is left open. */
void lease_bed_end(struct lease_bed *b);
void lease_bed_set_time(struct lease_bed *b, uint64_t now_ms);

/* A run of that machine, which has nothing yet. Borrows the bed. */
struct lease lease_bed_run(struct lease_bed *b, const char *id, const char *machine, int pid);
int lease_bed_hold(struct lease_bed *b, struct lease *l, struct error *e);
int lease_bed_adopt(struct lease_bed *b, struct lease *l);
void lease_bed_drop(struct lease_bed *b, struct lease *l);

/* What is there, each with a blank behind it; until it is asked again. */
const char *lease_bed_names(struct lease_bed *b);
/* A file of those bytes, over one that is there. */
void lease_bed_put(struct lease_bed *b, const char *name, const char *text, size_t len);
/* One under the name of `as`, as that run writes it. */
void lease_bed_put_note(struct lease_bed *b, const struct lease *l, const char *as,
                        enum lease_state state);
void lease_bed_remove(struct lease_bed *b, const char *name);

#endif
