/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a trunk takes too long to say that it has dropped what others want to
 * change (store_share.h). Pure: it is looked at from time to time, and looks are
 * counted, as this process may have been stopped itself, and what has come meanwhile
 * is read between two of them. What a trunk is told may stand behind answers that its
 * network takes long to carry: while these go out, it has time.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_PATIENCE_H
#define MUSTER_RENDEZVOUS_STORE_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { STORE_PATIENCE_LOOKS = 4 }; /* without an answer, after the first */

/* Of a trunk, all of it since it is there. */
struct store_debt {
    uint32_t n_told;    /* to drop something */
    uint32_t n_dropped; /* of them, as it has said */
    uint64_t put_bytes; /* for it, from here */
    uint64_t sent_bytes;
};

/* Zero-initialised before the first look. */
struct store_patience {
    uint32_t n_told; /* it had been, and does not owe any more when all is dropped */
    uint64_t put_bytes;
    uint64_t sent_bytes; /* in the last look */
    int n_looks;         /* 0: it owes nothing */
};

/* False: it has had its time. */
bool store_patience_look(struct store_patience *p, const struct store_debt *d);

#endif
