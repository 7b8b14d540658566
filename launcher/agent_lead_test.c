/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead makes of what agents tell before the run begins, and of newcomers.
 * --wrap=uv_now has the time stand still where nothing is waited for. */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { GATHER_MS = 300 };

static uint64_t passed_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return 1000 + passed_ms;
}

struct bed {
    struct agent agent;
    uint64_t serial;
};

/* It leads three nodes, one of which is enough; `excluded` was before, or "". */
static void start(struct bed *b, const char *excluded)
{
    struct agent *a = &b->agent;
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    passed_ms = 0;
    lead_bed_make(a);
    a->run.agent_is_node = true;
    a->config.first_generation = 1;
    a->config.job->nodes.min = 1;
    a->config.job->nodes.max = BED_NODES;
    a->config.job->gang_timeout_ms = GATHER_MS;
    for (uint32_t i = 0; i < BED_NODES; i++) {
        a->roster.entries[i].host_index = i;
    }
    if (excluded[0]) {
        strlist_add(&a->config.excluded, excluded);
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
    strlist_release(&a->config.excluded);
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

enum says { COMES_SAME, COMES_OTHER, IS_LOST, DOES_NOT_COME };

static void happen(struct bed *b, enum says what, uint32_t rank)
{
    if (what == IS_LOST) {
        lose(b, rank);
    } else if (what == DOES_NOT_COME) {
        passed_ms += GATHER_MS;
    } else {
        join(b, rank, what == COMES_SAME);
    }
}

/* Who decides: the run directory, where all that are there see the same one. */
static void test_shares(void)
{
    static const struct {
        struct {
            enum says what;
            uint32_t rank;
        } steps[BED_NODES];
        bool shared;
        const char *name;
    } cases[] = {
        {{{COMES_SAME, 0}, {COMES_SAME, 1}, {COMES_SAME, 2}}, true,
         "all see the run directory: it decides"},
        {{{COMES_SAME, 0}, {COMES_OTHER, 1}, {COMES_SAME, 2}}, false,
         "one does not: a majority does"},
        {{{COMES_SAME, 0}, {COMES_SAME, 1}, {IS_LOST, 2}}, true,
         "one is lost before it has said so: it does not count"},
        {{{COMES_SAME, 0}, {IS_LOST, 2}, {COMES_SAME, 1}}, true,
         "nor where it was before others have"},
        {{{COMES_SAME, 0}, {COMES_OTHER, 1}, {IS_LOST, 2}}, false, "those that are there do"},
        {{{COMES_SAME, 0}, {COMES_SAME, 1}, {DOES_NOT_COME, 2}}, true,
         "one does not come in time: it does not count"},
        {{{COMES_SAME, 0}, {COMES_OTHER, 1}, {DOES_NOT_COME, 2}}, false, "those that have come do"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b;

        start(&b, "");
        for (size_t k = 0; k < BED_NODES; k++) {
            ok(!lead_order(b.agent.lead->core), "while one is to come nothing is ordered");
            happen(&b, cases[i].steps[k].what, cases[i].steps[k].rank);
        }
        ok(is_ordered(&b, cases[i].shared), "%s", cases[i].name);
        stop(&b);
    }
}

static void test_shares_too_late(void)
{
    struct bed b;

    start(&b, "");
    join(&b, 0, true);
    join(&b, 1, false);
    happen(&b, DOES_NOT_COME, 2);
    ok(is_ordered(&b, false), "a majority decides");
    join(&b, 2, true);
    tell_shares(&b, 1, true);
    ok(!lead_view(b.agent.lead->core)->shared, "after an order it is too late");
    stop(&b);
}

/* An agent of `host`, the nth there; its rank. */
static uint32_t grow(struct bed *b, const char *host, uint16_t nth)
{
    struct agent *a = &b->agent;
    struct roster_entry entry = {.slots = BED_PROCS, .port = 1, .n_addrs = 1,
                                 .host_index = nth};

    str_copy(entry.host, sizeof(entry.host), host);
    str_copy(entry.addrs[0], sizeof(entry.addrs[0]), "127.0.0.1");
    roster_add(&a->roster, &entry);
    agent_lead_grow(a);
    return a->roster.n - 1;
}

static enum exclusion exclusion_of(const struct bed *b, uint32_t rank)
{
    return lead_node(b->agent.lead->core, rank)->excluded;
}

static void readmit(struct bed *b, uint32_t rank)
{
    struct lead_event event = {.type = LEAD_READMIT, .rank = rank};

    agent_lead_step(b->agent.lead, &event);
}

static void test_outcast(void)
{
    struct bed b;

    start(&b, "1 elsewhere slow it was slow");
    is_int(grow(&b, "elsewhere", 0), BED_NODES, "a newcomer");
    is_int(exclusion_of(&b, BED_NODES), EXCLUSION_NONE, "that was not excluded before is used");
    is_int(grow(&b, "elsewhere", 0), BED_NODES + 1, "another one in its place");
    is_int(exclusion_of(&b, BED_NODES + 1), EXCLUSION_NONE, "is, too");
    is_int(grow(&b, "elsewhere", 1), BED_NODES + 2, "the second of its host");
    is_int(exclusion_of(&b, BED_NODES + 2), EXCLUSION_SLOW, "that was is not");
    readmit(&b, BED_NODES + 2);
    grow(&b, "another", 0);
    is_int(exclusion_of(&b, BED_NODES + 2), EXCLUSION_NONE,
           "once it is readmitted it stays so when others come");
    stop(&b);
    start(&b, "0 elsewhere fails mpirun failed there");
    grow(&b, "elsewhere", 0);
    is_int(exclusion_of(&b, BED_NODES), EXCLUSION_NONE,
           "who has come through an mpirun that had failed there is used");
    stop(&b);
    start(&b, "1 somewhere slow it was slow");
    is_int(exclusion_of(&b, 1), EXCLUSION_SLOW, "who is there at the start is not used");
    stop(&b);
}

int main(void)
{
    test_shares();
    test_shares_too_late();
    test_outcast();
    return tap_done();
}
