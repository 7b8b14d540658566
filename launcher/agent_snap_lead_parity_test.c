/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of which agents keep parity: what is made again where one is lost, and what stays in
 * memory for it. */
#include <config.h>

#include "launcher/lead_files_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <string.h>

struct lead_files lead_files;

enum { WAITS = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER | 1 << INTERVAL_DISK };

#define UUID_P "00000000000000000000000000000123"

static void test_parity_hostile(struct lead_files *b)
{
    static const char *const bad[] = {
        "[]", "[[0,0]]", "[[0,0],[1,4]]", "[[0,0],[0,1]]", "[[0,0],[1,0]]",
        "[[-1,0],[1,1]]", "[[0,-2],[1,1]]", "[[0,0],[1]]", "[[0,0],1]",
        "[[0,0],[4294967296,1]]", "[[0,0],[4294967297,1]]", "[[0,0],[1,4294967295]]",
        "[[2,0],[1,1]]",
        "{}",
    };
    int n = b->n_took[INTERVAL_PARTNER];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        lead_files_say_parity(b, UUID_P, 0, bad[i], 1);
    }
    for (uint32_t agent = 0; agent < 4; agent++) {
        lead_files_say_parity(b, UUID_P, agent, LEAD_FILES_FOUR, 0);
        lead_files_say_parity(b, UUID_P, agent, LEAD_FILES_FOUR, 4);
        lead_files_say_parity(b, "x", agent, LEAD_FILES_FOUR, 1);
        lead_files_say_parity(b, UUID_P, agent + 4, LEAD_FILES_FOUR, 1);
    }
    is_int(b->n_took[INTERVAL_PARTNER], n, "what makes no sense is no parity");
}

static void test_parity(struct lead_files *b)
{
    int n = b->n_took[INTERVAL_PARTNER];

    lead_snap_parity(NULL, 0, NULL);
    test_parity_hostile(b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        lead_files_say_of(b, UUID_P, 60, rank, rank, NOBODY);
        is_int(b->n_took[INTERVAL_PARTNER], n, "not all keep parity yet");
        lead_files_say_parity(b, UUID_P, rank, LEAD_FILES_FOUR, 1);
    }
    is_int(b->n_took[INTERVAL_PARTNER], n + 1, "all do: the save is with partners");
    b->lost = 1;
    lead_files_want(b, UUID_P, 1);
    ok(lead_files_is_said(b, "[[0,1,0],[1,1,2],[2,1,2],[3,1,3]]"),
       "of who is lost somebody can make it again: %s", b->where);
    ok(lead_snap_ask(b->lead), "so all of it will be on the disk");
    ok(strstr(b->rebuild, "\"ranks\":[[1,2]],\"lost\":[1]") != NULL, "who is to: %s",
       b->rebuild);
    b->rebuild[0] = '\0';
    lead_snap_ask(b->lead);
    ok(strstr(b->rebuild, "[[1,2]]") != NULL, "and again, until it is there");
    lead_files_say_of(b, UUID_P, 60, 1, 2, 1);
    b->rebuild[0] = '\0';
    lead_snap_ask(b->lead);
    is_str(b->rebuild, "", "now it is");
    lead_snap_forget(b->lead);
    b->lost = UINT32_MAX;
}

/* As say_waits(), of a save of four ranks that stays in memory. */
static void say_stays(struct lead_files *b, const char *uuid, int step)
{
    for (int rank = 0; rank < 4; rank++) {
        json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
                                 "uuid", uuid, "root", b->agent.run.dir, "step", step,
                                 "generation", 1, "token", 1, "rank", rank,
                                 "ranks", 4, "stage", SNAP_STAGE_HELD, "waits",
                                 WAITS & ~(1 << INTERVAL_PARTNER), "wanted", 0);

        uv_update_time(&b->agent.loop);
        lead_snap_fact(b->lead, (uint32_t)rank, fact);
        json_decref(fact);
    }
}

/* What has parity in memory stays until a later one has, and goes to the disk, made
 * again, b->where a node is lost. */
static void test_parity_levels(struct lead_files *b)
{
    b->every_ms = 3600000;
    say_stays(b, UUID_A, 10); /* to the disk */
    say_stays(b, UUID_B, 20);
    for (uint32_t agent = 0; agent < 4; agent++) {
        lead_files_say_parity(b, UUID_B, agent, LEAD_FILES_FOUR, 1);
    }
    b->gone[0] = '\0';
    say_stays(b, UUID_C, 30);
    ok(!strstr(b->gone, UUID_B), "one with parity stays, as the next one has none: %s", b->gone);
    for (uint32_t agent = 0; agent < 3; agent++) {
        lead_files_say_parity(b, UUID_C, agent, LEAD_FILES_FOUR, 1);
    }
    ok(!strstr(b->gone, UUID_B), "nor that of all: %s", b->gone);
    b->rebuild[0] = '\0';
    b->lost = 3;
    uv_update_time(&b->agent.loop);
    lead_snap_ask(b->lead);
    lead_snap_forget(b->lead);
    ok(lead_files_is_gone(b, UUID_C, 6),
       "a node is lost: the newest that can be made again goes to the disk: %s", b->gone);
    ok(strstr(b->rebuild, UUID_C) && strstr(b->rebuild, "\"ranks\":[[3,"),
       "and that part of it is made: %s", b->rebuild);
    b->lost = UINT32_MAX;
    lead_files_say_parity(b, UUID_C, 3, LEAD_FILES_FOUR, 1);
    ok(strstr(b->gone, UUID_B) && strstr(b->gone, "116"), "with parity of all of the later one "
       "the one before is of no use: %s", b->gone);
}

int main(void)
{
    struct lead_files *b = &lead_files;

    lead_files_open(b);
    test_parity(b);
    lead_files_next(b);
    test_parity_levels(b);
    lead_files_close(b);
    return tap_done();
}
