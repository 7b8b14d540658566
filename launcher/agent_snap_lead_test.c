/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who starts workers, or ends a run, waits for the saves that all ranks have handed
 * over, until they are settled: here they come to nothing, for there are no files.
 */
#include <config.h>

#include "launcher/agent_snap.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"

struct bed {
    struct agent agent;
    struct lead_snap *lead;
    unsigned n_quiet, n_saved;
    uint32_t saving; /* ranks of the oldest save that is on its way */
    uint32_t lost;   /* an agent */
};

static void on_saved(void *arg, const char *path, int64_t step)
{
    struct bed *b = arg;

    (void)path;
    (void)step;
    b->n_saved++;
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    struct bed *b = arg;

    (void)step;
    (void)written;
    b->saving = ranks;
}

static uint32_t started(void *arg)
{
    (void)arg;
    return 1;
}

static bool is_lost(void *arg, uint32_t agent)
{
    const struct bed *b = arg;

    return agent == b->lost;
}

static void on_quiet(void *arg)
{
    struct bed *b = arg;

    b->n_quiet++;
}

static const struct lead_snap_ops ops = {
    .on_saved = on_saved, .on_saving = on_saving, .started = started,
    .is_lost = is_lost, .on_quiet = on_quiet,
};

/* Of two ranks, each of an agent of its own. */
static void say(struct bed *b, const char *uuid, uint32_t rank,
                enum snap_stage stage)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", 10,
                             "generation", 1, "token", 1, "rank", (int)rank,
                             "ranks", 2, "stage", (int)stage, "error",
                             stage == SNAP_STAGE_FAILED ? 5 : 0, "why", "");

    lead_snap_fact(b->lead, rank, fact);
    json_decref(fact);
}

static void turn(struct bed *b, int n)
{
    for (int i = 0; i < n; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    }
}

static void wait_settled(struct bed *b)
{
    while (b->saving > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

static void test_nothing(struct bed *b)
{
    ok(!lead_snap_ask(NULL) && !lead_snap_forget(NULL), "nobody leads: no waiting");
    ok(!lead_snap_ask(b->lead), "nothing was saved");
    say(b, UUID_A, 0, SNAP_STAGE_HELD);
    ok(!lead_snap_ask(b->lead), "nor by all ranks");
}

static void test_waits(struct bed *b)
{
    say(b, UUID_A, 1, SNAP_STAGE_HELD);
    b->lost = 1;
    ok(!lead_snap_ask(b->lead), "who writes it was lost");
    b->lost = UINT32_MAX;
    ok(lead_snap_ask(b->lead), "now both write");
    say(b, UUID_A, 0, SNAP_STAGE_WRITTEN);
    turn(b, 100);
    is_int((int)b->n_quiet, 0, "one writes still");
    say(b, UUID_A, 1, SNAP_STAGE_WRITTEN);
    is_int((int)b->n_quiet, 0, "it is not settled from inside a fact");
    wait_settled(b);
    is_int((int)b->n_quiet, 1, "settled: who waits is told");
    is_int((int)b->n_saved, 0, "without files it is no checkpoint");
    ok(!lead_snap_forget(b->lead), "and nobody waits");
}

static void test_forgets(struct bed *b)
{
    say(b, UUID_B, 0, SNAP_STAGE_HELD);
    say(b, UUID_B, 1, SNAP_STAGE_HELD);
    ok(lead_snap_ask(b->lead) && lead_snap_forget(b->lead), "who does not wait");
    say(b, UUID_B, 1, SNAP_STAGE_FAILED);
    wait_settled(b);
    is_int((int)b->n_quiet, 1, "is told nothing");
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));
    struct error e = {0};

    if (!b) {
        bail_out("memory");
    }
    b->lost = UINT32_MAX;
    lead_bed_make(&b->agent);
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_nothing(b);
    test_waits(b);
    test_forgets(b);
    lead_snap_destroy(b->lead);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
