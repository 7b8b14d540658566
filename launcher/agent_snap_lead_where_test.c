/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a save in memory is said to all, to whoever asks first, and shown in the status. */
#include <config.h>

#include "launcher/lead_files_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

struct lead_files lead_files;

static void say_more(struct lead_files *b, uint32_t rank, uint32_t agent, json_int_t from)
{
    lead_files_say_of(b, UUID_C, 20, rank, agent, from);
}

static void want_path(struct lead_files *b, const char *step, const char *uuid, int generation)
{
    json_t *fact = json_pack("{s:o, s:i}", "path",
                             json_sprintf("%s/step-%s-%.8s", b->agent.run.dir, step, uuid),
                             "generation", generation);

    uv_update_time(&b->agent.loop);
    lead_snap_want(b->lead, fact);
    json_decref(fact);
}

static void test_want(struct lead_files *b)
{
    lead_files_want(b, UUID_C, 1);
    ok(b->n_said == 1 && lead_files_is_said(b, "\"ranks\":[]"),
       "of a save that nobody knows: %s", b->where);
    say_more(b, 0, 0, NOBODY);
    say_more(b, 1, 0, NOBODY);
    say_more(b, 3, 1, NOBODY);
    say_more(b, 2, 1, -2);
    say_more(b, 2, 1, INT64_C(4294967297));
    lead_files_want(b, UUID_C, 1);
    is_int(b->n_said, 1, "what was said just now is not said again");
    lead_files_want(b, UUID_C, 2);
    ok(b->n_said == 2 && lead_files_is_said(b, "[[0,2,0],[3,1,1]]"),
       "who has saved it, and not: %s", b->where);
    say_more(b, 0, 1, 0);
    say_more(b, 1, 1, 0);
    say_more(b, 2, 2, 1);
    lead_files_want(b, UUID_C, 3);
    ok(lead_files_is_said(b, "[[0,2,0,1],[2,1,1,2],[3,1,1]]"), "and who has a copy: %s", b->where);
    b->lost = 1;
    lead_files_want(b, UUID_C, 4);
    ok(lead_files_is_said(b, "[[0,2,0],[2,1,2]]"), "those that are there: %s", b->where);
    b->lost = UINT32_MAX;
    lead_files_want(b, UUID_D, 4);
    ok(lead_files_is_said(b, "\"ranks\":[]"), "another save is another question: %s", b->where);
    lead_files_want(b, UUID_C, 4);
    ok(lead_files_is_said(b, "[[0,2,0,1],[2,1,1,2],[3,1,1]]"), "and may be asked for again: %s",
       b->where);
    lead_files_want(b, UUID_C, 4);
    is_int(b->n_said, 6, "the same is not said again at once");
    b->passed_ms += SNAP_TELL_AGAIN_MS;
    lead_files_want(b, UUID_C, 4);
    is_int(b->n_said, 7, "but in time");
    want_path(b, "000000000020", UUID_C, 5);
    ok(b->n_said == 8 && strstr(b->where, UUID_C) && strstr(b->where, "/step-000000000020-0000") &&
           lead_files_is_said(b, "[[0,2,0,1],[2,1,1,2],[3,1,1]]"),
       "and by its path: %s", b->where);
    lead_files_want(b, "short", 1);
    lead_files_want(b, "", 1);
    want_path(b, "000000000021", UUID_C, 6);
    want_path(b, "000000000020", "dddddddd", 6);
    lead_snap_want(NULL, NULL);
    is_int(b->n_said, 8, "what is no save is not looked for");
}

static bool is_held(const struct status_held *h, uint32_t first, uint32_t n, int node,
                    int copied_to)
{
    return h->first == first && h->n == n && h->node == node &&
           h->copied_to == copied_to;
}

/* What the status has of it. */
static void test_held(struct lead_files *b)
{
    lead_files_look(b);
    ok(b->held_step == 20 && b->held_ranks == 4 && b->n_held == 3, "the newest save");
    ok(is_held(&b->held[0], 0, 2, 0, 1) && is_held(&b->held[1], 2, 1, 1, 2) &&
           is_held(&b->held[2], 3, 1, 1, -1), "who has what, and what is copied");
    b->lost = 1;
    lead_files_look(b);
    ok(b->n_held == 2 && is_held(&b->held[0], 0, 2, 0, -1) &&
           is_held(&b->held[1], 2, 1, 2, -1), "a copy counts where its node is lost");
    b->lost = UINT32_MAX;
    is_int(b->n_took[INTERVAL_PARTNER], 0, "one is not copied yet");
    say_more(b, 3, 2, 1);
    say_more(b, 3, 2, 1);
    is_int(b->n_took[INTERVAL_PARTNER], 1, "all are, which is told once");
    for (uint32_t rank = 0; rank < 4; rank++) {
        lead_files_say_of(b, UUID_D, 40, rank, 0, NOBODY);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        lead_files_say_of(b, UUID_E, 30, rank, 0, NOBODY);
    }
    lead_files_say_of(b, UUID_F, 50, 0, 0, NOBODY);
    lead_files_look(b);
    is_int((int)b->held_step, 40, "the newest that is whole, in whatever order");
}

/* Old ones are forgotten, but not what is on its way. */
static void test_many(struct lead_files *b)
{
    char uuid[sizeof(UUID_A)];

    for (int i = 0; i < 20; i++) {
        snprintf(uuid, sizeof(uuid), "%032d", i);
        lead_files_say_of(b, uuid, 100 + i, 0, 0, NOBODY);
    }
    snprintf(uuid, sizeof(uuid), "%032d", 0);
    lead_files_want(b, uuid, 9);
    ok(lead_files_is_said(b, "[[0,1,0]]"), "the first of twenty is known: %s", b->where);
}

int main(void)
{
    struct lead_files *b = &lead_files;

    lead_files_open(b);
    test_want(b);
    test_held(b);
    test_many(b);
    lead_files_close(b);
    return tap_done();
}
