/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_patience.h"

bool store_patience_look(struct store_patience *p, const struct store_debt *d)
{
    bool had_sent = p->sent_bytes >= p->put_bytes;
    bool has_moved = d->sent_bytes != p->sent_bytes;

    p->sent_bytes = d->sent_bytes;
    if (p->n_looks == 0 || (int32_t)(p->n_told - d->n_dropped) <= 0) {
        p->n_told = d->n_told;
        p->put_bytes = d->put_bytes;
        p->n_looks = d->n_told != d->n_dropped ? 1 : 0;
        return true;
    }
    if (!had_sent && has_moved) {
        return true;
    }
    return ++p->n_looks <= STORE_PATIENCE_LOOKS;
}
