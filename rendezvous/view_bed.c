/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/view_bed.h"

#include "tests/lib/tap.h"

struct lead_config view_bed_config(uint32_t min_nodes)
{
    struct lead_config config = bed_config(VIEW_BED_N);

    config.min_nodes = min_nodes;
    config.max_nodes = VIEW_BED_N;
    config.max_losses = 9;
    config.lease_ms = VIEW_BED_LEASE_MS;
    config.lease_slack_ms = VIEW_BED_SLACK_MS;
    config.claim_ms = 5000;
    config.rule = (struct view_rule){.on = true, .min_nodes = min_nodes};
    return config;
}

void view_bed_say(struct bench *t, uint32_t rank, enum report_state state,
                uint32_t generation, uint32_t floor)
{
    (void)bed_tell(t, (struct report){.rank = rank, .state = state,
                                      .generation = generation, .floor = floor,
                                      .heard_ago_ms = UINT64_MAX});
}

/* The first n of them. */
void view_bed_say_each(struct bench *t, uint32_t n, enum report_state state,
                     uint32_t generation, uint32_t floor)
{
    for (uint32_t i = 0; i < n; i++) {
        view_bed_say(t, i, state, generation, floor);
    }
}

void view_bed_say_all(struct bench *t, enum report_state state,
                    uint32_t generation, uint32_t floor)
{
    view_bed_say_each(t, VIEW_BED_N, state, generation, floor);
}

void view_bed_answer(struct bench *t, enum heir_outcome outcome)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_CLAIMED,
                                          .outcome = outcome});
}

/* Generation 1 runs on four nodes. */
void view_bed_open(struct bench *t, uint32_t min_nodes, bool shared)
{
    struct lead_config config = view_bed_config(min_nodes);

    bed_open(t, &config);
    (void)bed_step(t, (struct lead_event){.type = shared ? LEAD_SHARED
                                                         : LEAD_TICK});
    view_bed_say_all(t, REPORT_JOINED, 0, 0);
    view_bed_say_all(t, REPORT_STOPPED, 1, 1);
    ok(bed_ordered(t, ORDER_RUN, 1) && t->a.order->view.number == 1 &&
           t->a.order->view.n_nodes == VIEW_BED_N &&
           t->a.order->view.shared == shared &&
           t->a.order->serial >> ORDER_SERIAL_BITS == 1,
       "orders carry the first view");
}
