/* SPDX-License-Identifier: Apache-2.0 */
/* Which saves go on from memory: as a lead says who has heard of none. */
#include <config.h>

#include "launcher/lead_files_bed.h"

#include "tests/lib/tap.h"

#include <string.h>

struct lead_files lead_files;

static int token = 1; /* of what is saved */

enum { WAITS = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER | 1 << INTERVAL_DISK };

/* Of two ranks, each of an agent of its own, that wait for the lead's word. */
static void say_waits(struct lead_files *b, const char *uuid, int step, uint32_t rank,
                      int waits, bool is_wanted)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", step,
                             "generation", 1, "token", token, "rank", (int)rank,
                             "ranks", 2, "stage", SNAP_STAGE_HELD, "waits", waits,
                             "wanted", (int)is_wanted);

    uv_update_time(&b->agent.loop);
    lead_snap_fact(b->lead, rank, fact);
    json_decref(fact);
}

static void say_both(struct lead_files *b, const char *uuid, int step)
{
    say_waits(b, uuid, step, 0, WAITS, false);
    say_waits(b, uuid, step, 1, WAITS, false);
}

static void test_levels(struct lead_files *b)
{
    b->n_gone = b->n_failed = 0;
    b->failed[0] = '\0';
    b->every_ms = 3600000;
    say_waits(b, UUID_A, 10, 0, WAITS, false);
    is_int(b->n_gone, 0, "one that a rank has not handed over goes nowhere");
    say_waits(b, UUID_A, 10, 1, WAITS, false);
    ok(b->n_gone == 1 && lead_files_is_gone(b, UUID_A, 6), "the first one goes everywhere: %s",
       b->gone);
    say_waits(b, UUID_A, 10, 1, WAITS, false);
    is_int(b->n_gone, 1, "which is not said again at once");
    ok(b->is_busy[INTERVAL_DISK] && b->is_busy[INTERVAL_PARTNER],
       "something is on its way to both");
    say_both(b, UUID_B, 20);
    ok(b->n_gone == 2 && lead_files_is_gone(b, UUID_B, 0), "the next one stays in memory: %s",
       b->gone);
    ok(b->saving == 2 && lead_snap_ask(b->lead) && lead_snap_forget(b->lead),
       "the first one is on its way");
    ok(b->n_gone == 3 && lead_files_is_gone(b, UUID_B, 6),
       "and so is the other one, where workers start again: %s", b->gone);
    say_both(b, UUID_C, 40);
    token = 2; /* the step is saved again */
    say_both(b, UUID_D, 40);
    ok(b->n_gone == 6 && strstr(b->gone, UUID_C) && strstr(b->gone, "116"), "one that stays gives "
       "its place to the next: %s", b->gone);
    is_str(b->failed, "", "which is no failure to who waits for it");
    say_waits(b, UUID_D, 40, 0, WAITS, true);
    ok(b->n_gone == 7 && lead_files_is_gone(b, UUID_D, 6), "that somebody waits for: %s", b->gone);
    say_waits(b, UUID_E, 50, 0, WAITS, false);
    say_waits(b, UUID_E, 50, 1, 0, false);
    ok(b->n_gone == 8 && lead_files_is_gone(b, UUID_E, 6),
       "what one agent does not wait with goes: %s", b->gone);
    b->every_ms = 0;
    say_both(b, UUID_F, 60);
    ok(b->n_gone == 9 && lead_files_is_gone(b, UUID_F, 6), "each one, where that is the plan: %s",
       b->gone);
    lead_files_say(b, UUID_F, 0, SNAP_STAGE_FAILED);
    while (b->n_failed == 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    like(b->failed, "step-000000000060-", "and whoever waits for one that has failed is told");
    b->every_ms = 3600000;
    say_both(b, UUID_G, 70);
    ok(lead_files_is_gone(b, UUID_G, 6), "where one has failed the next one goes: %s", b->gone);
    b->passed_ms += SNAP_TELL_AGAIN_MS; /* it was said only a moment ago */
    b->n_failed = 0;
    lead_files_say_parity(b, UUID_F, 0, LEAD_FILES_FOUR, 1);
    is_int(b->n_failed, 1, "who comes late, with parity of one that has failed, hears of that");
}

int main(void)
{
    struct lead_files *b = &lead_files;

    lead_files_open(b);
    test_levels(b);
    lead_files_close(b);
    return tap_done();
}
