/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in memory and on no disk, as an agent finds it: of one before it, or of workers
 * that have ended. It is told once for each generation, the newest first; what had no end is
 * told to have failed; and where a job wants nothing in memory what was there goes.
 */
#include <config.h>

#include "launcher/agent_snap_bed.h"

#include "base/mapguard.h"
#include "base/str.h"
#include "ckpt/io.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GENERATION = 2 /* of hold_bed.c */ };

/* --- what the lead hears --- */

enum { MAX_TOLD = 16 };
static char told[MAX_TOLD][1024];
static int n_told;

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    if (n_told < MAX_TOLD) {
        snprintf(told[n_told], sizeof(told[0]), "%.*s", (int)w->to->len, w->to->data);
    }
    n_told++;
}

static void open_bed(struct agent_snap_bed *b)
{
    agent_snap_bed_open(b);
    snprintf(b->agent.run.id, sizeof(b->agent.run.id), "snap_recall_test-%d", (int)getpid());
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_DISK;
    b->crew.generation = GENERATION;
    n_told = 0;
}

static size_t n_saved(const struct agent_snap_bed *b)
{
    size_t n = 0;

    for (const struct saved *s = b->snap.saved; s; s = s->next) {
        n++;
    }
    return n;
}

static bool is_telling(const struct agent_snap_bed *b)
{
    return uv_is_active((uv_handle_t *)b->snap.timer);
}

/* --- workers that have ended --- */

static void test_offered(struct agent_snap_bed *b)
{
    const struct saved *s;

    open_bed(b);
    agent_snap_offer(&b->crew);
    ok(n_told == 0 && !is_telling(b), "there is nothing in memory");
    b->snap.offered = 0;
    hold_bed_stay(&b->hold, 0, 1, UUID(1));
    hold_bed_stay(&b->hold, 1, 3, UUID(3));
    hold_bed_stay(&b->hold, 2, 2, UUID(2));
    agent_snap_offer(&b->crew);
    s = b->snap.saved;
    ok(n_saved(b) == 3 && s->head.step == 3 && s->next->head.step == 2 &&
           s->next->next->head.step == 1,
       "three, the newest first");
    ok(s->stage == SNAP_STAGE_HELD && s->level == WORKER_SNAP_HELD && s->waits &&
           s->again == GENERATION,
       "which wait for the lead's word, as tried again");
    ok(n_told == 3 && is_telling(b), "who hears of them, and will again");
    ok(strstr(told[0], UUID(3)) && strstr(told[2], UUID(1)) &&
           strstr(told[0], "\"again\":2") && strstr(told[0], "\"stage\":1"),
       "in that order: %s", told[0]);
    n_told = 0;
    agent_snap_offer(&b->crew);
    is_int(n_told, 0, "once for a generation");
    b->crew.generation++;
    agent_snap_offer(&b->crew);
    ok(n_saved(b) == 3 && b->snap.offered == GENERATION + 1, "none is there twice");
    b->agent.snap = NULL;
    agent_snap_offer(&b->crew);
    b->agent.snap = &b->snap;
    agent_snap_bed_close(b);
}

/* Its worker was killed as it handed it over. */
static void test_unfilled(struct agent_snap_bed *b)
{
    open_bed(b);
    hold_bed_begin(&b->hold, 1, 4, UUID(4), HOLD_ROOM);
    agent_snap_offer(&b->crew);
    ok(n_told == 1 && strstr(told[0], UUID(4)) && strstr(told[0], "\"stage\":3") &&
           strstr(told[0], "\"ended\":true") && strstr(told[0], "\"again\":2") &&
           strstr(told[0], "its worker ended"),
       "one that had no end has failed: %s", told[0]);
    ok(strstr(told[0], "\"error\":103"), "for that");
    ok(n_saved(b) == 0 && !is_telling(b), "which is told once");
    agent_snap_bed_close(b);
}

static void test_late(struct agent_snap_bed *b)
{
    open_bed(b);
    hold_bed_stay(&b->hold, 0, 1, UUID(1));
    b->snap.offered = GENERATION;
    agent_snap_offer_late(&b->snap, 0, 0);
    is_int(n_told, 0, "nothing is told again of no generation");
    agent_snap_offer_late(&b->snap, GENERATION + 1, 0);
    is_int(n_told, 0, "nor of workers that have not ended");
    agent_snap_offer_late(&b->snap, GENERATION, GENERATION);
    is_int(n_told, 0, "nor of what came to nothing in that try");
    agent_snap_offer_late(&b->snap, GENERATION, GENERATION - 1);
    ok(n_told == 1 && b->snap.saved && b->snap.saved->again == GENERATION,
       "but in the one before");
    agent_snap_bed_close(b);
}

/* --- of an agent before this one --- */

/* As an agent of that run has left it, of rank 0 or more. */
static void leave(struct agent_snap_bed *b, uint32_t rank, uint64_t step, enum snap_state state)
{
    const struct snap_want want = {.room = HOLD_ROOM, .n_threads = 1};
    struct snap *s = NULL;
    char path[PATH_MAX], name[32];
    struct error e = {0};
    int dir;

    if (snap_dir(b->agent.run.id, path, sizeof(path), &e) < 0 ||
        (mkdir(path, 0700) < 0 && errno != EEXIST)) {
        bail_out("no directory: %s", e.text);
    }
    dir = io_system()->ops->open_dir(io_system(), -1, path);
    snprintf(name, sizeof(name), "snap-0-%u-0", rank);
    if (dir < 0 || snap_create(dir, name, &want, &s, &e) < 0) {
        bail_out("no snapshot: %s", e.text);
    }
    s->head = (struct snap_head){.state = state, .rank = rank, .n_ranks = 4,
                                 .generation = 1, .token = 1, .step = step,
                                 .image_bytes = 100, .part_bytes = 10};
    if (state >= SNAP_WRITTEN) {
        uint64_t block = digest_short_of(snap_image(s), 100);

        s->head.digest = digest_of_blocks(&block, 100);
    }
    snprintf(s->head.uuid, sizeof(s->head.uuid), "%032x", (unsigned)step);
    str_copy(s->head.root, sizeof(s->head.root), b->hold.root);
    snap_note(s);
    snap_destroy(s);
    close(dir);
}

/* A hold of its own is made for that. */
static void recall(struct agent_snap_bed *b)
{
    b->agent.snap = NULL;
    agent_snap_recall(&b->agent);
}

static bool is_in_memory(const struct agent_snap_bed *b)
{
    return snap_dir_has_agent(b->agent.run.id, b->agent.index);
}

static void drop(struct agent_snap_bed *b)
{
    agent_snap_stop(&b->agent, false);
    snap_dir_remove(b->agent.run.id, NULL);
    b->agent.snap = &b->snap;
}

static void test_recalled(struct agent_snap_bed *b)
{
    const struct saved *s;

    open_bed(b);
    recall(b);
    ok(!b->agent.snap, "where nothing was left nothing is made for it");
    leave(b, 0, 1, SNAP_FULL);
    leave(b, 1, 2, SNAP_WRITTEN);
    recall(b);
    s = b->agent.snap ? b->agent.snap->saved : NULL;
    ok(s && s->next && !s->next->next, "two were left");
    if (s && s->next) {
        ok(s->head.step == 2 && s->stage == SNAP_STAGE_WRITTEN,
           "the newest, which is on the disk");
        ok(s->next->head.step == 1 && s->next->stage == SNAP_STAGE_HELD, "and one that is not");
        ok(s->again == 0 && s->waits && s->level == WORKER_SNAP_HELD,
           "which were not told of before, and wait");
    }
    ok(b->agent.snap && uv_is_active((uv_handle_t *)b->agent.snap->timer),
       "the lead is going to hear");
    ok(is_in_memory(b), "they stay");
    drop(b);
    leave(b, 0, 1, SNAP_FULL);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_DISK;
    recall(b);
    ok(!b->agent.snap && !is_in_memory(b),
       "where the job wants none in memory nobody comes later, and takes it for ours");
    drop(b);
    agent_snap_bed_close(b);
}

int main(void)
{
    struct agent_snap_bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    mapguard_install();
    test_offered(b);
    test_unfilled(b);
    test_late(b);
    test_recalled(b);
    free(b);
    return tap_done();
}
