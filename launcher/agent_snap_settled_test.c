/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent makes of the lead's word on a save: what the worker is told, what is
 * remembered for who leads next, what is let go of, and who goes on.
 */
#include <config.h>

#include "launcher/saves_bed.h"

#include "base/str.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct saves_bed saves_bed;

static int n_remembered, n_unpinned;
static char remembered[PATH_MAX];
static int64_t remembered_step;

void __wrap_agent_member_soon(struct agent *a, const struct member_event *event);
void __wrap_snap_hold_unpin(struct snap_hold *h, uint32_t rank, const char *uuid);

void __wrap_agent_member_soon(struct agent *a, const struct member_event *event)
{
    (void)a;
    n_remembered += event->type == MEMBER_SAVED;
    remembered_step = event->step;
    str_copy(remembered, sizeof(remembered), event->text);
}

void __wrap_snap_hold_unpin(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    n_unpinned += h == saves_bed.agent.snap->hold && rank == SAVES_FIRST &&
                  strcmp(uuid, UUID(1)) == 0;
}

static struct saved *begin(struct saves_bed *b)
{
    struct saved *s;

    saves_bed_open(b);
    s = saves_bed_add(b, SAVES_FIRST, UUID(1));
    str_copy(s->head.root, sizeof(s->head.root), "/saves");
    s->head.step = 12;
    s->level = WORKER_SNAP_PARTNER;
    n_remembered = n_unpinned = 0;
    b->agent.snap->waits = &b->crew;
    return s;
}

static void settle(struct saves_bed *b, int error)
{
    const struct snap_verdict v = {.uuid = UUID(1), .error = error, .why = error ? "why" : ""};

    agent_snap_settled(&b->agent, &v);
}

/* --- words that are the last --- */

static void test_words(struct saves_bed *b)
{
    static const struct {
        int error;
        enum worker_snap_level level;
        bool is_remembered;
        const char *what;
    } cases[] = {
        {0, WORKER_SNAP_DURABLE, true, "it is a checkpoint"},
        {EIO, WORKER_SNAP_NONE, false, "it has failed"},
        {ESTALE, WORKER_SNAP_PARTNER, false, "a later one has its place: it is where it was"},
    };
    char name[STEP_NAME_BYTES], path[PATH_MAX];

    step_name(12, UUID(1), name);
    snprintf(path, sizeof(path), "/saves/%s", name);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin(b);
        settle(b, cases[i].error);
        ok(b->worker.n == 1 && b->worker.status.level == cases[i].level &&
               b->worker.status.error == (uint32_t)cases[i].error, "%s", cases[i].what);
        is_int(n_remembered, cases[i].is_remembered, "who leads next %s",
               cases[i].is_remembered ? "hears of it" : "does not");
        ok(!cases[i].is_remembered ||
               (strcmp(remembered, path) == 0 && remembered_step == 12), "by its path");
        ok(b->n_finished == 1 && !b->agent.snap->waits && !b->agent.snap->saved,
           "who waited goes on, and nothing is left");
        saves_bed_close(b);
    }
}

static void test_others(struct saves_bed *b)
{
    struct saved *other;

    begin(b);
    other = saves_bed_add(b, SAVES_FIRST + 1, UUID(2));
    settle(b, 0);
    ok(b->agent.snap->saved == other && b->n_finished == 0 && b->agent.snap->waits == &b->crew,
       "another save is still waited for");
    other->is_copy = true;
    saves_bed_add(b, SAVES_FIRST, UUID(1));
    settle(b, 0);
    ok(b->n_finished == 1, "a copy of another node's is not");
    saves_bed_close(b);
}

/* No part of a path is another checkpoint's. */
static void test_long_path(struct saves_bed *b)
{
    struct saved *s = begin(b);

    memset(s->head.root + 1, 'x', sizeof(s->head.root) - 2);
    settle(b, 0);
    ok(b->worker.status.level == WORKER_SNAP_DURABLE && n_remembered == 0,
       "where it is has no room in an order");
    saves_bed_close(b);
}

static void test_stored(struct saves_bed *b)
{
    begin(b);
    agent_snap_stored(&b->agent, UUID(1), 0, "");
    ok(b->worker.n == SAVES_N && b->worker.status.level == WORKER_SNAP_REMOTE,
       "all workers hear that it is in the store");
    saves_bed_forget(b);
    agent_snap_stored(&b->agent, UUID(1), EIO, "why");
    ok(b->worker.n == SAVES_N && b->worker.status.level == WORKER_SNAP_DURABLE &&
           b->worker.status.error == EIO, "or is not, and on the disk alone");
    saves_bed_close(b);
}

/* For a node that is lost. */
static void test_write_copy(struct saves_bed *b)
{
    struct saved *s = begin(b);

    b->agent.snap->copies = b->agent.snap->hold; /* in which there is none */
    agent_snap_write(&b->agent, UUID(1), SAVES_FIRST);
    ok(s->stage == SNAP_STAGE_HELD, "what it has saved itself is no copy");
    s->is_copy = true;
    s->stage = SNAP_STAGE_WRITTEN;
    agent_snap_write(&b->agent, UUID(1), SAVES_FIRST);
    ok(s->stage == SNAP_STAGE_WRITTEN, "one that is written is not written again");
    s->stage = SNAP_STAGE_HELD;
    agent_snap_write(&b->agent, UUID(1), SAVES_FIRST);
    ok(s->stage == SNAP_STAGE_FAILED && s->error == ENOENT, "one that is gone cannot be: %s",
       s->why);
    b->agent.snap->copies = NULL;
    saves_bed_close(b);
}

/* It is sent no further. */
static void test_pinned(struct saves_bed *b)
{
    struct saved *s = begin(b);

    s->is_pinned = true;
    settle(b, EIO);
    is_int(n_unpinned, 1, "what was held for others is let go of");
    saves_bed_close(b);
    begin(b);
    settle(b, EIO);
    is_int(n_unpinned, 0, "what was not is not");
    saves_bed_close(b);
    s = begin(b);
    s->is_pinned = true;
    s->waits = 1u << INTERVAL_DISK | 1u << INTERVAL_MEMORY;
    agent_snap_go(&b->agent, UUID(1), 1u << INTERVAL_DISK);
    is_int(n_unpinned, 1, "nor is what goes to the disk held any more");
    saves_bed_close(b);
}

/* --- tries --- */

static void test_past(struct saves_bed *b)
{
    struct saved *s = begin(b);

    s->again = 3;
    settle(b, EIO);
    ok(b->agent.snap->saved == s && b->worker.n == 0, "the end of a try before is no news");
    settle(b, 0);
    ok(!b->agent.snap->saved && b->worker.status.level == WORKER_SNAP_DURABLE,
       "a checkpoint is one, whichever try made it");
    saves_bed_close(b);
    s = begin(b);
    s->again = 3;
    agent_snap_settled(&b->agent, &(struct snap_verdict){.uuid = UUID(1), .error = EIO,
                                                         .why = "", .again = 3});
    ok(!b->agent.snap->saved, "the end of this one is");
    saves_bed_close(b);
}

/* Workers that are there tell of it as they end. */
static void test_stays(struct saves_bed *b)
{
    const struct snap_verdict v = {.uuid = UUID(1), .error = EIO, .why = "", .stays = true,
                                   .on = 5};
    struct crew *crew;

    begin(b)->head.generation = SAVES_GENERATION;
    agent_snap_settled(&b->agent, &v);
    is_int(b->agent.snap->offered, 0, "the workers that have saved it are there still");
    saves_bed_close(b);
    begin(b)->head.generation = SAVES_GENERATION;
    b->crew.generation = SAVES_GENERATION + 1;
    agent_snap_settled(&b->agent, &v);
    is_int(b->agent.snap->offered, 5, "later ones are: it joins the try that is on");
    b->crew.generation = SAVES_GENERATION;
    saves_bed_close(b);
    begin(b)->head.generation = SAVES_GENERATION;
    crew = b->agent.crew;
    b->agent.crew = NULL;
    agent_snap_settled(&b->agent, &v);
    is_int(b->agent.snap->offered, 5, "so it does where there are none");
    b->agent.crew = crew;
    saves_bed_close(b);
}

int main(void)
{
    test_words(&saves_bed);
    test_others(&saves_bed);
    test_long_path(&saves_bed);
    test_stored(&saves_bed);
    test_write_copy(&saves_bed);
    test_pinned(&saves_bed);
    test_past(&saves_bed);
    test_stays(&saves_bed);
    return tap_done();
}
