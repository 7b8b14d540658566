/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_parity_priv.h"

#include "base/cleanup.h"
#include "base/loop_timer.h"
#include "base/wire.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 1000 };

unsigned parity_member(const struct parity_group *g, uint32_t agent)
{
    for (unsigned i = 0; i < g->shape.n; i++) {
        if (g->agents[i] == agent) {
            return i;
        }
    }
    return PARITY_MAX_MEMBERS;
}

unsigned parity_member_of_rank(const struct parity_group *g, uint32_t rank)
{
    for (unsigned i = 0; i < g->shape.n; i++) {
        if (g->ranks[i] == rank && rank != PARITY_NO_RANK) {
            return i;
        }
    }
    return PARITY_MAX_MEMBERS;
}

uint64_t parity_image_bytes(const struct snap_head *h)
{
    return snap_room(h->image_bytes, h->part_bytes);
}

uint64_t parity_sum(uint64_t before, const void *chunk, size_t len)
{
    _buf_ struct buf both = {0};

    wire_put_u64(&both, before);
    wire_put_u64(&both, digest_short_of(chunk, len));
    return digest_short_of(both.data, both.len);
}

/* --- turns of the loop --- */

static void on_pace(uv_timer_t *t)
{
    struct snap_parity *c = t->data;

    parity_outs_start(c);
    parity_ways_pump(c);
    parity_builds_go_on(c);
    parity_watch(c);
}

void parity_go_on(struct snap_parity *c)
{
    if (!uv_is_active((uv_handle_t *)c->pace)) {
        uv_timer_start(c->pace, on_pace, 0, 0);
    }
}

/* --- who comes no further --- */

bool parity_is_stuck(const struct snap_parity *c, uint64_t moved_ms, unsigned times)
{
    return uv_now(c->config.loop) - moved_ms >= (uint64_t)c->config.stuck_ms * times;
}

static void on_watch(uv_timer_t *t)
{
    struct snap_parity *c = t->data;
    struct error late = {0};

    error_text(&late, ETIMEDOUT, "no progress for %u s", c->config.stuck_ms / 1000);
    parity_ins_watch(c, &late);
    parity_ways_watch(c, &late);
    parity_builds_watch(c, &late);
    parity_watch(c);
}

void parity_watch(struct snap_parity *c)
{
    if (!c->ways && !c->ins && !c->builds) {
        uv_timer_stop(c->watch);
    } else if (!uv_is_active((uv_handle_t *)c->watch)) {
        uv_timer_start(c->watch, on_watch, LOOK_MS, LOOK_MS);
    }
}

/* --- links of others --- */

void snap_parity_take(struct snap_parity *c, struct link *l,
                      const struct channel_frame *first)
{
    if (first->type == SNAP_PARITY_OFFER) {
        parity_offered(c, l, first);
    } else {
        parity_asked(c, l, first);
    }
    parity_watch(c);
}

/* --- life --- */

int snap_parity_create(const struct snap_parity_config *config,
                       struct snap_parity **ret, struct error *e)
{
    struct snap_parity *c = calloc(1, sizeof(*c));

    if (c) {
        c->pace = loop_timer_create(config->loop, c);
        c->watch = loop_timer_create(config->loop, c);
    }
    if (!c || !c->pace || !c->watch) {
        loop_timer_close(c ? c->pace : NULL);
        loop_timer_close(c ? c->watch : NULL);
        free(c);
        return error_set(e, ENOMEM, "keep parity of snapshots");
    }
    c->config = *config;
    memcpy(c->key, config->key, sizeof(c->key));
    *ret = c;
    return 0;
}

void snap_parity_destroy(struct snap_parity *c)
{
    if (!c) {
        return;
    }
    parity_builds_forget(c);
    parity_outs_forget(c);
    snap_parity_drop(c);
    loop_timer_close(c->pace);
    loop_timer_close(c->watch);
    sodium_memzero(c->key, sizeof(c->key));
    free(c);
}
