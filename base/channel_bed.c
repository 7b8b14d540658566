/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/channel_bed.h"

#include "tests/lib/tap.h"

struct channel_pair channel_pair_make(const uint8_t *near_key, const uint8_t *far_key)
{
    struct channel_pair p = {0};

    if (channel_create(near_key, true, &p.near, NULL) < 0 ||
        channel_create(far_key, false, &p.far, NULL) < 0) {
        bail_out("channel_create");
    }
    return p;
}

void channel_pair_free(struct channel_pair *p)
{
    channel_destroy(p->near);
    channel_destroy(p->far);
}

void channel_carry(struct channel *from, struct channel *to)
{
    struct buf *out = channel_output(from);

    channel_feed(to, out->data, out->len, NULL);
    buf_clear(out);
}

void channel_pair_meet(struct channel_pair *p)
{
    struct channel_frame f;

    channel_send(p->near, 7, "x", 1, NULL);
    channel_carry(p->near, p->far);
    channel_carry(p->far, p->near);
    channel_next(p->near, &f, NULL);
    channel_next(p->far, &f, NULL);
    channel_carry(p->near, p->far);
}
