/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an agent waits for what its workers have saved before they end: for how long, and what
 * may be lost then; and what is left in memory when it ends itself.
 */
#include <config.h>

#include "launcher/saves_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

struct saves_bed saves_bed;

static void test_waits(struct saves_bed *b)
{
    struct agent_snap *p;
    struct saved *s;

    saves_bed_open(b);
    p = b->agent.snap;
    ok(!agent_snap_waits(&b->crew) && !p->waits, "there is nothing to wait for");
    s = saves_bed_add(b, SAVES_FIRST, UUID(1));
    ok(agent_snap_waits(&b->crew) && p->waits == &b->crew && b->n_flushed == 1,
       "what is on its way is waited for");
    agent_snap_forget(&b->crew);
    ok(!p->waits && b->n_forgot == 1, "until nobody does any more");
    b->now_ms += 29999;
    ok(agent_snap_waits(&b->crew), "for half a minute");
    b->now_ms += 1;
    ok(!agent_snap_waits(&b->crew), "and no longer");
    p->moved_ms = b->now_ms;
    ok(agent_snap_waits(&b->crew), "unless it gets on");
    b->now_ms += 30000;
    ok(!agent_snap_waits(&b->crew), "which is asked again");
    b->now_ms = 1000000 + 599999;
    p->moved_ms = b->now_ms;
    ok(agent_snap_waits(&b->crew), "for ten minutes");
    b->now_ms++;
    ok(!agent_snap_waits(&b->crew), "in all");
    b->crew.generation++;
    ok(agent_snap_waits(&b->crew), "the next workers have as long");
    b->crew.any_failed = true;
    ok(!agent_snap_waits(&b->crew), "not where one has failed");
    b->crew.any_failed = false;
    b->order.broken = true;
    ok(!agent_snap_waits(&b->crew), "nor where the generation has");
    b->order.broken = false;
    s->is_copy = true;
    ok(!agent_snap_waits(&b->crew), "nor for what others have saved");
    s->is_copy = false;
    p->waits = NULL;
    b->settles = p;
    ok(!agent_snap_waits(&b->crew) && !p->waits, "nor for what is settled by then");
    saves_bed_close(b);
}

static void test_stopped(struct saves_bed *b)
{
    struct agent_snap *p;

    saves_bed_open(b);
    p = b->agent.snap;
    saves_bed_add(b, SAVES_FIRST, UUID(1));
    b->crew.stopping = true;
    b->crew.stopped_ms = b->now_ms;
    b->order.stop = ORDER_STOP_FORCE;
    ok(!agent_snap_waits(&b->crew), "who is to die at once does not wait");
    b->order.stop = ORDER_STOP_GRACE;
    ok(agent_snap_waits(&b->crew), "who has a grace does");
    b->now_ms += 11999; /* 7 s, and 5 */
    ok(agent_snap_waits(&b->crew), "for as long, and a little");
    b->now_ms++;
    ok(!agent_snap_waits(&b->crew), "and no longer");
    b->order.stop = ORDER_STOP_NONE;
    ok(agent_snap_waits(&b->crew), "what its workers leave behind is killed: as before");
    p->waited_for = 0;
    ok(!agent_snap_waits(&b->crew), "of others nobody waits");
    b->n_flushed = 0;
    p->waits = NULL;
    agent_snap_hurry(&b->crew);
    is_int(b->n_flushed, 1, "who is stopped has it go to the disk");
    b->order.broken = true;
    agent_snap_hurry(&b->crew);
    is_int(b->n_flushed, 1, "not where the generation is broken");
    saves_bed_close(b);
}

/* Time is over, and it is said what may be lost. */
static void test_lost(struct saves_bed *b)
{
    struct agent_snap *p;
    struct saved *s, *copy;

    saves_bed_open(b);
    p = b->agent.snap;
    s = saves_bed_add(b, SAVES_FIRST, UUID(1));
    copy = saves_bed_add(b, 0, UUID(1));
    copy->is_copy = true;
    ok(agent_snap_waits(&b->crew), "it is waited for");
    b->now_ms += 30000;
    agent_snap_hurry(&b->crew);
    saves_bed_run_until(b, &b->n_finished, 1);
    is_int(b->n_notes, 1, "what is on its way still may be lost, which is told");
    s->stage = SNAP_STAGE_WRITTEN;
    p->waits = &b->crew;
    agent_snap_hurry(&b->crew);
    saves_bed_run_until(b, &b->n_finished, 2);
    is_int(b->n_notes, 1, "what is written is not, nor is what others have");
    saves_bed_close(b);
}

/* --- its end --- */

static bool is_in_memory(const struct saves_bed *b)
{
    return snap_dir_has_agent(b->agent.run.id, b->agent.index);
}

static void leave_copy(const struct saves_bed *b)
{
    char dir[PATH_MAX], path[PATH_MAX + 16];
    _close_ int fd = -1;

    snap_dir(b->agent.run.id, dir, sizeof(dir), NULL);
    snprintf(path, sizeof(path), "%s/copy-0-7-0", dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        bail_out("no %s", path);
    }
}

static void test_stop(struct saves_bed *b)
{
    struct error e = {0};

    saves_bed_open(b);
    saves_bed_save(b, 0, 9, UUID(1));
    saves_bed_forget(b);
    agent_snap_stop(&b->agent, true);
    ok(!b->agent.snap && is_in_memory(b), "who may come again leaves what is in memory");
    agent_snap_stop(&b->agent, true);
    ok(is_in_memory(b), "also where nobody has saved since");
    agent_snap_need(&b->agent, &e);
    agent_snap_stop(&b->agent, true);
    b->agent.has_run = false;
    agent_snap_stop(&b->agent, false);
    ok(is_in_memory(b), "who never had a run has nothing to take away");
    b->agent.has_run = true;
    agent_snap_stop(&b->agent, false);
    ok(!is_in_memory(b), "else all of it goes in the end");
    is_int(agent_snap_need(&b->agent, &e), 0, "another one: %s", e.text);
    saves_bed_save(b, 0, 9, UUID(1));
    leave_copy(b);
    ok(is_in_memory(b), "has something in memory, and copies of one before it");
    saves_bed_close(b);
    ok(!is_in_memory(b), "which go with it");
}

int main(void)
{
    test_waits(&saves_bed);
    test_stopped(&saves_bed);
    test_lost(&saves_bed);
    test_stop(&saves_bed);
    return tap_done();
}
