/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/lead_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>

static const char *const names[BED_MAX_NODES] = {"n0", "n1", NULL, ""};

struct lead_config bed_config(uint32_t n_nodes)
{
    return (struct lead_config){
        .n_nodes = n_nodes,
        .names = names,
        .restart = {.kind = RESTART_ON_FAILURE, .max = 2,
                    .backoff_min_ms = 1000, .backoff_max_ms = 4000},
        .gang_timeout_ms = 30000,
        .grace_ms = 5000,
        .restart_grace_ms = 500,
        .margin_ms = 1000,
    };
}

void bed_open(struct bench *t, const struct lead_config *config)
{
    struct error e;

    *t = (struct bench){.now_ms = 100};
    if (lead_create(config, t->now_ms, &t->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
}

int bed_step(struct bench *t, struct lead_event event)
{
    event.now_ms = t->now_ms;
    return lead_step(t->lead, &event, &t->a);
}

int bed_tick(struct bench *t, uint64_t ms)
{
    t->now_ms += ms;
    return bed_step(t, (struct lead_event){.type = LEAD_TICK});
}

int bed_tell(struct bench *t, struct report r)
{
    r.serial = ++t->serial;
    if (!r.n_procs) {
        r.n_procs = 2;
    }
    if (r.state == REPORT_STOPPED && r.rank == 0) {
        r.store_port = 29500;
        snprintf(r.store_addr, sizeof(r.store_addr), "10.0.0.1");
    }
    return bed_step(t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
}

void bed_tell_all(struct bench *t, uint32_t n, enum report_state state,
                  uint32_t generation)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)bed_tell(t, (struct report){.rank = i, .state = state,
                                          .generation = generation});
    }
}

void bed_run_to(struct bench *t, uint32_t n, uint32_t generation)
{
    bed_tell_all(t, n, REPORT_JOINED, 0);
    bed_tell_all(t, n, REPORT_STOPPED, generation);
}

int bed_fail(struct bench *t, uint32_t rank, uint32_t generation,
             uint8_t code, uint64_t wall_ms, uint32_t age_ms)
{
    return bed_tell(t, (struct report){
        .rank = rank, .state = REPORT_RUNNING, .generation = generation,
        .failed = true,
        .failure = {.kind = FAILURE_EXIT, .exit_code = code,
                    .generation = generation, .node = rank,
                    .rank = (int32_t)rank * 2, .host = "h",
                    .wall_ns = wall_ms * 1000000, .age_ms = age_ms}});
}

const struct lead_note *bed_note(const struct bench *t,
                                 enum lead_note_type type)
{
    for (size_t i = 0; i < t->a.n_notes; i++) {
        if (t->a.notes[i].type == type) {
            return &t->a.notes[i];
        }
    }
    return NULL;
}

bool bed_ordered(const struct bench *t, enum order_step step,
                 uint32_t generation)
{
    return t->a.order && t->a.order->step == step &&
           t->a.order->generation == generation;
}
