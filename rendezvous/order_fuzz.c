/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message of the control tree. The first byte says which. What
 * decodes must encode to the same bytes; and whatever reports say, the lead
 * keeps what it promises about its orders.
 */
#include <config.h>

#include "rendezvous/heir.h"
#include "rendezvous/lead.h"
#include "rendezvous/roster.h"

#include <stdlib.h>
#include <string.h>

enum { N_NODES = 3, MAX_STEPS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void expect_same(const struct buf *b, const uint8_t *data, size_t size)
{
    expect(!b->failed && b->len == size && !memcmp(b->data, data, size));
}

static void try_order(const uint8_t *data, size_t size)
{
    _order_ struct order order = {0};
    _order_ struct order copy = {0};
    _buf_ struct buf b = {0};

    if (order_decode(data, size, &order, NULL) == 0) {
        expect(order_copy(&copy, &order) == 0);
        order_encode(&copy, &b);
        expect_same(&b, data, size);
    }
}

static void try_report(const uint8_t *data, size_t size)
{
    struct report report;
    _buf_ struct buf b = {0};
    char text[64];

    if (report_decode(data, size, &report, NULL) == 0) {
        report_encode(&report, &b);
        expect_same(&b, data, size);
        failure_describe(&report.failure, text, sizeof(text));
    }
}

static void try_follow(const uint8_t *data, size_t size)
{
    struct follow follow;
    _buf_ struct buf b = {0};

    if (follow_decode(data, size, &follow, NULL) == 0) {
        follow_encode(&follow, &b);
        expect_same(&b, data, size);
    }
}

static void try_roster(const uint8_t *data, size_t size)
{
    _roster_ struct roster roster = {0};
    _buf_ struct buf b = {0};

    if (roster_decode(data, size, &roster, NULL) == 0) {
        roster_encode(&roster, &b);
        expect_same(&b, data, size);
        (void)roster_check(&roster, NULL);
        expect(roster_sort(&roster) == 0);
    }
}

static void try_entry(const uint8_t *data, size_t size)
{
    struct roster_entry entry;
    _buf_ struct buf b = {0};

    if (roster_entry_decode(data, size, &entry, NULL) == 0) {
        roster_entry_encode(&entry, &b);
        expect_same(&b, data, size);
    }
}

/* What must hold of any order after any other. */
static void check_order(const struct order *order, struct order *last)
{
    expect(order->serial > last->serial);
    expect(order->generation >= last->generation);
    expect(order->step != ORDER_RUN || order->generation > 0);
    expect(last->step < ORDER_END || order->step >= ORDER_END);
    expect(last->step < ORDER_END || order->status == last->status);
    expect(last->step != ORDER_LEAVE);
    last->serial = order->serial;
    last->generation = order->generation;
    last->step = order->step;
    last->status = order->status;
}

/* Six bytes a report: rank, state, generation, processes, failure, time. */
static void step_lead(struct lead *lead, const uint8_t *data, uint64_t serial,
                      uint64_t *now_ms, struct lead_actions *a)
{
    struct report r = {
        .rank = data[0] & 3,
        .serial = serial,
        .state = data[1] % 5,
        .generation = data[2] & 7,
        .n_procs = data[3] & 3,
        .failed = data[4] & 1,
        .failure = {.kind = (data[4] >> 1) % 5 + 1, .node = data[0] & 3,
                    .generation = data[2] >> 4, .exit_code = data[4],
                    .wall_ns = data[5] * 100000000ull},
        .store_port = data[3] >> 4,
    };
    struct lead_event event = {
        .type = LEAD_REPORT, .now_ms = *now_ms, .report = &r};

    if (data[0] >= 240) {
        event.type = LEAD_STOP;
        event.stop = data[1] % 3;
        event.force = data[2] & 1;
    } else if (data[0] >= 220) {
        event.type = LEAD_LOST;
        event.rank = data[1];
    }
    *now_ms += data[5];
    (void)lead_step(lead, &event, a);
}

static void try_lead(const uint8_t *data, size_t size)
{
    struct lead_config config = {
        .n_nodes = N_NODES,
        .restart = {.kind = RESTART_ON_FAILURE, .max = 2,
                    .backoff_min_ms = 100, .backoff_max_ms = 1000},
        .gang_timeout_ms = 5000, .grace_ms = 500, .margin_ms = 1000};
    _cleanup_(lead) struct lead *lead = NULL;
    struct lead_actions *a = malloc(sizeof(*a));
    struct order last = {0};
    uint64_t now_ms = 0;

    expect(a && lead_create(&config, 0, &lead, NULL) == 0);
    for (uint64_t i = 1; i <= MAX_STEPS && size >= 6; i++, size -= 6) {
        step_lead(lead, data, i, &now_ms, a);
        data += 6;
        expect(a->n_notes <= LEAD_MAX_NOTES);
        if (a->order) {
            check_order(a->order, &last);
        }
        expect(a->finished == (last.step == ORDER_LEAVE));
    }
    expect(lead_n_restarts(lead) <= config.restart.max);
    free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {
        try_order, try_report, try_roster, try_entry, try_lead,
        try_follow};

    if (size > 0) {
        tries[data[0] % ARRAY_SIZE(tries)](data + 1, size - 1);
    }
    return 0;
}
