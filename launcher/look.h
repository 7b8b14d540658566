/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the nodes of a generation see of the checkpoint that it is to start from
 * (ckpt/beside.h), and what follows from that. One node that sees it is enough: not
 * all have to read it. It is gone only when all of them say so who see the directory
 * that it was in, for a directory may not be mounted. Pure.
 */
#ifndef MUSTER_LAUNCHER_LOOK_H
#define MUSTER_LAUNCHER_LOOK_H

#include "ckpt/beside.h"
#include "rendezvous/order.h"

enum look_verdict {
    LOOK_WAIT = 0,
    LOOK_ITSELF = 1,  /* it is there */
    LOOK_OTHER = 2,   /* it is gone, and `best` lies beside it */
    LOOK_NONE = 3,    /* it is gone, and so is every other one */
    LOOK_UNKNOWN = 4, /* nobody can tell */
};

struct look_answer {
    bool is_known; /* false: the node could not look */
    enum beside_state state;
    bool is_whole;
    int64_t step, changed_ns;
    char path[ORDER_PATH_BYTES]; /* OTHER */
};

/* Zero but for `n_asked`: the nodes that are asked, each for one answer. */
struct look {
    uint32_t n_asked, n_answers;
    uint32_t n_state[BESIDE_NO_DIR + 1];
    struct look_answer best;
};

void look_take(struct look *k, const struct look_answer *answer);

/* Once `is_late`, those that are silent are not waited for. */
enum look_verdict look_judge(const struct look *k, bool is_late);

#endif
