/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often to save, so that saving and what is done again after failures cost least
 * together. Pure: what was measured in, seconds out.
 *
 * With `cost` seconds that a save holds workers up and a failure every `mtbf` seconds,
 * Young's sqrt(2 cost mtbf) with Daly's terms of higher order, which are good for
 * cost < 2 mtbf. Held within what users expect: saving takes at most a twentieth of the
 * time, nobody loses more than an hour, and no two saves come within a second.
 */
#ifndef MUSTER_CKPT_INTERVAL_H
#define MUSTER_CKPT_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

/* Of the run, its earlier starts included. */
struct interval_facts {
    double cost_s;       /* that a save holds workers up; 0: there was none yet */
    double ran_s;        /* for so long it has run, */
    uint64_t n_failures; /* and been interrupted so often */
    uint32_t n_workers;
};

struct interval {
    double seconds; /* from one save to the next */
    double cost_s;  /* what was counted with */
    double mtbf_s;
};

/* Numbers that make no sense count as 0. */
void interval_choose(const struct interval_facts *f, struct interval *ret);

/* Between two failures of one worker, with its GPU and its share of a node: about
 * what is published of large clusters. */
#define INTERVAL_WORKER_MTBF_S (50e3 * 3600)

/* What it goes by. Seconds between failures: `prior_s` is what was expected before any,
 * and counts as one failure. */
double interval_mtbf(double ran_s, uint64_t n_failures, double prior_s);
/* Young's with Daly's terms. */
double interval_daly(double cost, double mtbf);

enum { INTERVAL_TEXT_BYTES = 400 };

/* "67 s: a save holds up 0.20 s, a failure is expected every 3.1 h (2 in 6.2 h)" */
void interval_explain(const struct interval_facts *f, const struct interval *i,
                      char to[INTERVAL_TEXT_BYTES]);

#endif
