/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/heir_bed.h"

#include "tests/lib/tap.h"

void heir_bed_step(struct heir_bed *t, struct heir_event event)
{
    event.now_ms = t->now_ms;
    is_int(heir_step(t->h, &event, &t->a), 0, "an event of type %d at %llu ms",
           event.type, (unsigned long long)t->now_ms);
}

void heir_bed_tick(struct heir_bed *t, uint64_t ms)
{
    t->now_ms += ms;
    heir_bed_step(t, (struct heir_event){.type = HEIR_TICK});
}

struct order heir_bed_order(struct heir_bed *t, uint32_t number, uint32_t lead,
                            bool shared, uint32_t generation, enum order_step what)
{
    for (uint32_t i = 0; i < HEIR_BED_N; i++) {
        t->n_procs[i] = 1;
    }
    return (struct order){
        .serial = ((uint64_t)number << ORDER_SERIAL_BITS) + ++t->n_orders,
        .generation = generation, .step = what, .n_nodes = HEIR_BED_N,
        .n_procs = what == ORDER_RUN ? t->n_procs : NULL,
        .view = {.number = number, .lead = lead, .n_nodes = HEIR_BED_N,
                 .shared = shared},
        .past = {.ran = what == ORDER_RUN ? generation : generation - 1,
                 .n_restarts = 1, .resume_path = "ckpt/1"}};
}

void heir_bed_give(struct heir_bed *t, struct order o)
{
    heir_bed_step(t, (struct heir_event){.type = HEIR_ORDER, .order = &o});
}

void heir_bed_hear(struct heir_bed *t, uint32_t view, uint64_t stamp_ms,
                   uint64_t age_ms)
{
    heir_bed_step(t, (struct heir_event){.type = HEIR_WORD, .view = view,
                                         .stamp_ms = stamp_ms, .age_ms = age_ms});
}

void heir_bed_follow_from(struct heir_bed *t, uint32_t view, uint32_t rank,
                          uint64_t ago_ms, uint32_t generation)
{
    struct follow f = {.rank = rank, .serial = ++t->n_follows, .view = view,
                       .heard_ago_ms = ago_ms, .generation = generation};

    heir_bed_step(t, (struct heir_event){.type = HEIR_FOLLOW, .follow = &f});
}

void heir_bed_follow(struct heir_bed *t, uint32_t rank, uint64_t ago_ms,
                     uint32_t generation)
{
    heir_bed_follow_from(t, 1, rank, ago_ms, generation);
}

void heir_bed_open(struct heir_bed *t, uint32_t rank, uint32_t min_nodes)
{
    struct heir_config config = {
        .rank = rank, .n_nodes = HEIR_BED_N,
        .rule = {.on = min_nodes != 0, .min_nodes = min_nodes},
        .lease_ms = HEIR_BED_LEASE_MS, .join_ms = 5000,
        .slack_ms = HEIR_BED_SLACK_MS, .settle_ms = HEIR_BED_SETTLE_MS,
        .wait_ms = 9000};

    heir_destroy(t->h);
    t->now_ms = 10000;
    if (heir_create(&config, t->now_ms, &t->h, NULL) < 0) {
        bail_out("no heir");
    }
}

void heir_bed_open_bound(struct heir_bed *t, uint32_t rank, uint32_t min_nodes,
                         bool shared)
{
    heir_bed_open(t, rank, min_nodes);
    heir_bed_give(t, heir_bed_order(t, 1, 0, shared, 1, ORDER_RUN));
    heir_bed_hear(t, 1, 500, 0);
}

void heir_bed_close(struct heir_bed *t)
{
    heir_destroy(t->h);
    t->h = NULL;
}
