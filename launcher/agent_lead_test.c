/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead makes of what agents tell before the run begins. */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { GATHER_MS = 300 };

struct bed {
    struct agent agent;
    uint64_t serial;
};

/* It leads three nodes, one of which is enough. */
static void start(struct bed *b)
{
    struct agent *a = &b->agent;
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    lead_bed_make(a);
    a->run.agent_is_node = true;
    a->config.first_generation = 1;
    a->config.job->nodes.min = 1;
    a->config.job->nodes.max = BED_NODES;
    a->config.job->gang_timeout_ms = GATHER_MS;
    for (uint32_t i = 0; i < BED_NODES; i++) {
        a->roster.entries[i].host_index = i;
    }
    if (agent_lead_start(a, NULL, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void stop(struct bed *b)
{
    struct agent *a = &b->agent;

    agent_lead_quit(a);
    agent_member_stop(a);
    fs_remove_tree(a->run.dir, NULL);
    lead_bed_release(a);
}

static void tell_shares(struct bed *b, uint32_t rank, bool same)
{
    const char *fact = same ? "{\"fact\":\"shares\",\"same\":true}"
                            : "{\"fact\":\"shares\",\"same\":false}";

    agent_lead_fact(&b->agent, rank, fact, strlen(fact));
}

static void report(struct bed *b, uint32_t rank, enum report_state state)
{
    struct report r = {.rank = rank, .serial = ++b->serial, .state = state,
                       .n_procs = BED_PROCS};
    _buf_ struct buf bytes = {0};

    report_encode(&r, &bytes);
    agent_lead_report(&b->agent, bytes.data, bytes.len);
}

static void join(struct bed *b, uint32_t rank, bool same)
{
    tell_shares(b, rank, same);
    report(b, rank, REPORT_JOINED);
}

static void lose(struct bed *b, uint32_t rank)
{
    const struct tree_loss loss = {.dead = true, .why = "gone"};

    agent_lead_lost(&b->agent, rank, &loss);
}

static const struct order *wait_order(struct bed *b)
{
    const struct order *order = lead_order(b->agent.lead->core);

    while (!order) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
        order = lead_order(b->agent.lead->core);
    }
    return order;
}

static bool is_ordered(struct bed *b, bool shared)
{
    return wait_order(b) && lead_view(b->agent.lead->core)->shared == shared;
}

static void test_shares(void)
{
    struct bed b;

    start(&b);
    join(&b, 0, true);
    join(&b, 1, true);
    ok(!lead_order(b.agent.lead->core), "while one is to come nothing is ordered");
    join(&b, 2, true);
    ok(is_ordered(&b, true), "all see the run directory: it decides");
    stop(&b);
    start(&b);
    join(&b, 0, true);
    join(&b, 1, false);
    join(&b, 2, true);
    ok(is_ordered(&b, false), "one does not: a majority does");
    stop(&b);
}

static void test_shares_but_for_lost(void)
{
    struct bed b;

    start(&b);
    join(&b, 0, true);
    join(&b, 1, true);
    lose(&b, 2);
    ok(is_ordered(&b, true), "one is lost before it has said so: it does not count");
    stop(&b);
    start(&b);
    join(&b, 0, true);
    lose(&b, 2);
    join(&b, 1, true);
    ok(is_ordered(&b, true), "nor where it was before others have");
    stop(&b);
    start(&b);
    join(&b, 0, true);
    join(&b, 1, false);
    lose(&b, 2);
    ok(is_ordered(&b, false), "those that are there do");
    stop(&b);
}

static void test_shares_but_for_late(void)
{
    struct bed b;

    start(&b);
    join(&b, 0, true);
    join(&b, 1, true);
    ok(is_ordered(&b, true), "one does not come in time: it does not count");
    stop(&b);
    start(&b);
    join(&b, 0, true);
    join(&b, 1, false);
    ok(is_ordered(&b, false), "those that have come do");
    join(&b, 2, true);
    tell_shares(&b, 1, true);
    ok(!lead_view(b.agent.lead->core)->shared, "after an order it is too late");
    stop(&b);
}

int main(void)
{
    test_shares();
    test_shares_but_for_lost();
    test_shares_but_for_late();
    return tap_done();
}
