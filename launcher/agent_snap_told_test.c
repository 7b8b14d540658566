/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent tells of what its workers save: each of them of its own, and the lead of all
 * until it is settled, again and again.
 */
#include <config.h>

#include "launcher/saves_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

struct saves_bed saves_bed;

static void test_told_worker(struct saves_bed *b)
{
    static const struct {
        uint32_t rank;
        int local; /* -1: nobody's */
    } cases[] = {{SAVES_FIRST - 1, -1}, {SAVES_FIRST, 0}, {SAVES_FIRST + 1, 1},
                 {SAVES_FIRST + SAVES_N, -1}, {0, -1}};
    struct saved *s;

    saves_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        saves_bed_forget(b);
        agent_snap_tell_worker(&b->agent, cases[i].rank, UUID(1), WORKER_SNAP_DURABLE, EIO,
                               "why");
        ok(cases[i].local < 0 ? b->worker.n == 0
                              : b->worker.n == 1 && b->worker.socket ==
                                                     saves_bed_socket((unsigned)cases[i].local),
           "rank %u", cases[i].rank);
    }
    s = saves_bed_add(b, SAVES_FIRST, UUID(1));
    s->waits = 1u << INTERVAL_DISK;
    s->level = WORKER_SNAP_HELD;
    agent_snap_tell_own(&b->agent, s);
    is_str(b->worker.status.why, "it stays in memory", "one that stays hears it");
    s->waits |= 1u << INTERVAL_MEMORY;
    agent_snap_tell_own(&b->agent, s);
    is_str(b->worker.status.why, "", "not before the lead has said so");
    s->waits = 1u << INTERVAL_DISK;
    s->is_wanted = true;
    agent_snap_tell_own(&b->agent, s);
    is_str(b->worker.status.why, "", "nor where it is waited for");
    saves_bed_close(b);
}

static void test_told_lead(struct saves_bed *b)
{
    struct saved *s;

    saves_bed_open(b);
    s = saves_bed_add(b, SAVES_FIRST, UUID(1));
    s->error = EIO;
    str_copy(s->why, sizeof(s->why), "broken");
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(b->told, "\"error\":5,") && strstr(b->told, "broken") &&
           strstr(b->told, "\"token\":77") && strstr(b->told, "\"generation\":3"),
       "what is wrong: %s", b->told);
    ok(!strstr(b->told, "ended") && !strstr(b->told, "moves") && !strstr(b->told, "again") &&
           !strstr(b->told, "from") && !strstr(b->told, "waits"),
       "and nothing else");
    b->n_written = 100;
    b->now_ms = 5000;
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(b->told, "\"moves\":true") && b->asked_of == b->agent.snap->hold &&
           b->agent.snap->moved_ms == 5000,
       "that it gets on");
    b->now_ms = 6000;
    agent_snap_tell_lead(&b->agent, s);
    ok(!strstr(b->told, "moves") && b->agent.snap->moved_ms == 5000, "as long as it does");
    s->has_ended = s->is_copy = true;
    s->again = 6;
    s->from = 2;
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(b->told, "\"ended\":true") && strstr(b->told, "\"again\":6") &&
           strstr(b->told, "\"from\":2") && b->asked_of == b->agent.snap->copies,
       "of a copy, tried again: %s", b->told);
    saves_bed_close(b);
}

/* What is not settled is told again; what stays more seldom. */
static void test_again(struct saves_bed *b)
{
    static const int want[] = {2, 1, 1, 2, 1, 1, 2};
    struct agent_snap *p;
    struct saved *s;

    saves_bed_open(b);
    p = b->agent.snap;
    saves_bed_add(b, SAVES_FIRST, UUID(1));
    s = saves_bed_add(b, SAVES_FIRST + 1, UUID(1));
    s->waits = 1u << INTERVAL_DISK;
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        p->waits = &b->crew;
        b->n_told = 0;
        agent_snap_hurry(&b->crew);
        saves_bed_run_until(b, &b->n_finished, (int)i + 1);
        is_int(b->n_told, want[i], "told for the %zuth time", i);
        ok(!p->waits, "who waited goes on");
    }
    b->n_told = 0;
    agent_snap_tell(&b->agent);
    is_int(b->n_told, 2, "another lead hears all");
    b->n_told = 0;
    agent_snap_tell(&b->agent);
    is_int(b->n_told, 2, "each time");
    agent_snap_keep_telling(p);
    ok(uv_is_active((uv_handle_t *)p->timer), "it goes on");
    uv_sleep(5);
    uv_update_time(&b->agent.loop);
    agent_snap_keep_telling(p);
    ok(uv_timer_get_due_in(p->timer) < 2000, "and does not begin anew with each save");
    saves_bed_settle(p);
    agent_snap_keep_telling(p);
    ok(!uv_is_active((uv_handle_t *)p->timer), "until all are settled");
    saves_bed_close(b);
}

static void test_found(struct saves_bed *b)
{
    const struct error none = {0};
    struct saved *one, *other;
    struct snap_head h;

    saves_bed_open(b);
    one = saves_bed_add(b, SAVES_FIRST, UUID(1));
    other = saves_bed_add(b, SAVES_FIRST + 1, UUID(1));
    saves_bed_add(b, SAVES_FIRST, UUID(2));
    ok(agent_snap_saved(b->agent.snap, SAVES_FIRST, UUID(1)) == one &&
           agent_snap_saved(b->agent.snap, SAVES_FIRST + 1, UUID(1)) == other,
       "each save of each rank");
    ok(!agent_snap_saved(b->agent.snap, SAVES_FIRST + 1, UUID(2)), "and no other one");
    h = one->head;
    agent_snap_on_written(b->agent.snap, &h, &none);
    ok(one->stage == SNAP_STAGE_WRITTEN && other->stage == SNAP_STAGE_HELD && b->n_told == 1,
       "of which one is written");
    str_copy(h.uuid, sizeof(h.uuid), UUID(7));
    agent_snap_on_written(b->agent.snap, &h, &none);
    is_int(b->n_told, 1, "of one that was settled nobody is told");
    saves_bed_close(b);
}

int main(void)
{
    test_told_worker(&saves_bed);
    test_told_lead(&saves_bed);
    test_again(&saves_bed);
    test_found(&saves_bed);
    return tap_done();
}
