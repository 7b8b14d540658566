/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead writes down of nodes that another lead has lost, or that it has never
 * seen: an agent that came later knows no more of them than that they had a place. */
#include <config.h>

#include "launcher/agent_record.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { CLOSE_MS = 60000 };

/* Of the three node 0 is gone. */
static struct lead *make_heir(bool has_excluded)
{
    static const bool follows[BED_NODES] = {false, true, true}, dead[BED_NODES];
    static uint32_t out[] = {0};
    struct heritage heritage = {
        .view = {.number = 2, .lead = 1, .n_nodes = BED_NODES, .n_out = 1, .out = out},
        .past = {.n_marks = has_excluded,
                 .marks = {{.rank = 2, .excluded = EXCLUSION_HANGS}}},
        .follows = follows, .dead = dead, .n_nodes = BED_NODES};
    struct lead_config config = {.n_nodes = BED_NODES, .rank = 1, .min_nodes = 1,
                                 .rule.on = true, .heritage = &heritage};
    struct lead *lead = NULL;

    if (lead_create(&config, 1, &lead, NULL) < 0) {
        bail_out("no lead");
    }
    return lead;
}

static void add_node(struct agent *a, const char *host)
{
    struct roster_entry entry = {.slots = 1, .port = host[0] != '\0', .n_addrs = 1};

    snprintf(entry.host, sizeof(entry.host), "%s", host);
    if (roster_add(&a->roster, &entry) < 0) {
        bail_out("no roster");
    }
}

static void set_node(struct agent *a, uint32_t rank, const char *host)
{
    struct roster_entry *entry = &a->roster.entries[rank];

    entry->port = 1;
    snprintf(entry->host, sizeof(entry->host), "%s", host);
}

static void test_taken_over(struct record *r)
{
    struct lead_note leads = {.type = LEAD_NOTE_LEADS, .rank = 1};
    struct run_status *s = record_status(r);
    _cleanup_(lead) struct lead *lead = make_heir(false);
    uint16_t n_procs[BED_NODES] = {0, BED_PROCS, 0};
    struct order run = {.serial = 7, .generation = 7, .step = ORDER_RUN,
                        .n_nodes = BED_NODES, .n_procs = n_procs};

    record_note(r, lead, &leads);
    record_started(r, &run);
    is_int(s->nodes[0].state, STATUS_NODE_LOST, "who does not follow a new lead is lost");
    is_int(s->nodes[1].state, STATUS_NODE_READY, "who has workers takes part");
    is_int(s->nodes[2].state, STATUS_NODE_SPARE, "who follows without any is a spare");
}

static void tell(struct record *r, const struct lead *lead, enum lead_note_type type)
{
    struct lead_note n = {.type = type, .rank = 2, .text = "lost node 2 (x): no word from it"};

    record_note(r, lead, &n);
}

/* What it was lost by is over when it is back; what it is excluded for is not. */
static void test_excluded(struct record *r)
{
    const struct status_node *n = &record_status(r)->nodes[2];
    _cleanup_(lead) struct lead *lead = make_heir(true), *later = make_heir(false);

    tell(r, lead, LEAD_NOTE_LEADS);
    ok(n->state == STATUS_NODE_EXCLUDED && n->excluded == EXCLUSION_HANGS,
       "who is excluded is that under a new lead");
    tell(r, lead, LEAD_NOTE_LOST);
    is_int(n->state, STATUS_NODE_LOST, "it may be lost");
    is_str(n->why, "no word from it", "by which it is known then");
    tell(r, lead, LEAD_NOTE_BACK);
    is_int(n->state, STATUS_NODE_EXCLUDED, "back it is no spare");
    is_str(n->why, "mpirun hangs there, as was told before", "for what it was");
    tell(r, later, LEAD_NOTE_READMITTED);
    ok(n->state == STATUS_NODE_SPARE && !n->excluded && !n->why[0], "until it is readmitted");
}

static void test_grown(struct record *r, struct agent *a)
{
    struct run_status *s = record_status(r);
    _cleanup_(lead) struct lead *lead = make_heir(false);

    if (lead_add_nodes(lead, BED_NODES + 2, NULL, NULL) < 0) {
        bail_out("memory");
    }
    add_node(a, "");
    add_node(a, "later");
    record_newcomers(r, lead);
    is_int((int)s->n_nodes, BED_NODES + 2, "two have come, and one of them has gone again");
    is_int(s->nodes[BED_NODES].state, STATUS_NODE_LOST, "which is lost");
    is_int(s->nodes[BED_NODES + 1].state, STATUS_NODE_SPARE, "the other one is a spare");
    set_node(a, 0, "first");
    set_node(a, BED_NODES, "late");
    record_newcomers(r, lead);
    ok(s->nodes[BED_NODES].state == STATUS_NODE_SPARE &&
           strcmp(s->nodes[BED_NODES].host, "late") == 0,
       "the one that had gone is there, as a later world says");
    ok(s->nodes[0].state == STATUS_NODE_LOST && strcmp(s->nodes[0].host, "first") == 0,
       "whom the lead knows to be lost is not, but has a name");
}

/* An agent that came later knows how long the run has been under way. */
static void test_times(struct record *r, struct agent *a)
{
    struct run_status *s = record_status(r);
    uint64_t now_ms, age_s;

    uv_update_time(&a->loop);
    now_ms = uv_now(&a->loop);
    a->began_ms = now_ms - 90000;
    a->config.ran_ms = 1000;
    a->config.job->limits.deadline_ms = 100000;
    record_flush(r);
    age_s = s->elapsed_ms / 1000;
    ok(age_s >= 90 && age_s < 120, "it tells of all that time");
    is_int((int)(s->ran_ms - s->elapsed_ms), 1000, "besides that of starts before");
    is_int((int)(agent_lead_deadline_ms(a) - now_ms), 9000, "both count for the deadline");
    a->config.job->limits.deadline_ms = 50000;
    is_int((int)(agent_lead_deadline_ms(a) - uv_now(&a->loop)), 0, "which may have passed");
    s->ended_ns = s->updated_ns;
    record_flush(r);
    now_ms = s->elapsed_ms;
    a->began_ms -= 5000;
    record_flush(r);
    ok(s->elapsed_ms == now_ms, "what a run took that is over does not grow");
}

static void test_events(const char *dir)
{
    _free_ char *text = NULL;
    char path[PATH_MAX + 16];
    size_t len;

    snprintf(path, sizeof(path), "%s/events.jsonl", dir);
    ok(fs_read(path, 1 << 20, &text, &len, NULL) == 0 && strstr(text, "later waits as a spare"),
       "the journal tells of spares");
    ok(text && !strstr(text, "\" waits as a spare"), "and not of one without a name");
}

int main(void)
{
    struct agent agent = {0};
    struct record *r = NULL;
    char dir[PATH_MAX];

    lead_bed_make(&agent);
    agent.roster.entries[0] = (struct roster_entry){0};
    if (record_create(&agent, &r, NULL) < 0) {
        bail_out("no record");
    }
    test_taken_over(r);
    test_excluded(r);
    test_grown(r, &agent);
    test_times(r, &agent);
    record_destroy(r, CLOSE_MS);
    snprintf(dir, sizeof(dir), "%s", agent.run.dir);
    test_events(dir);
    lead_bed_release(&agent);
    fs_remove_tree(dir, NULL);
    return tap_done();
}
