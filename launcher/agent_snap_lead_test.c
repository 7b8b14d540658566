/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who starts workers, or ends a run, waits for the saves that all ranks have handed over,
 * until they are settled: here they come to nothing, for there are no files.
 */
#include <config.h>

#include "launcher/lead_files_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OFFER_MS = 1000 };

struct lead_files lead_files;

/* Facts of which one value makes no sense. */
static void test_nonsense(struct lead_files *b)
{
    static const struct {
        const char *key;
        json_int_t value;
    } all[] = {
        {"step", -1},  {"step", INT64_MIN}, {"ranks", 0}, {"ranks", -1},
        {"ranks", (1 << 20) + 1}, {"rank", 2}, {"rank", -1}, {"stage", 0},
        {"stage", 4}, {"stage", -1}, {"from", -1}, {"root", 0}, {"uuid", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "uuid",
                                 UUID_A, "root", b->agent.run.dir, "step", 10,
                                 "generation", 1, "token", 1, "rank", 0, "ranks", 2,
                                 "stage", SNAP_STAGE_HELD);

        json_object_set_new(fact, all[i].key, json_integer(all[i].value));
        lead_snap_fact(b->lead, 0, fact);
        is_int((int)b->saving, 0, "%s %lld: no save", all[i].key,
               (long long)all[i].value);
        json_decref(fact);
    }
}

static void test_nothing(struct lead_files *b)
{
    ok(!lead_snap_ask(NULL) && !lead_snap_forget(NULL), "nobody leads: no waiting");
    ok(!lead_snap_ask(b->lead), "nothing was saved");
    lead_files_say(b, UUID_A, 0, SNAP_STAGE_HELD);
    ok(!lead_snap_ask(b->lead), "nor by all ranks");
}

static void test_waits(struct lead_files *b)
{
    lead_files_say(b, UUID_A, 1, SNAP_STAGE_HELD);
    b->lost = 1;
    ok(!lead_snap_ask(b->lead), "who writes it was lost");
    b->lost = UINT32_MAX;
    ok(lead_snap_ask(b->lead), "now both write");
    lead_files_say(b, UUID_A, 0, SNAP_STAGE_WRITTEN);
    lead_files_turn(b, 100);
    is_int((int)b->n_quiet, 0, "one writes still");
    lead_files_say(b, UUID_A, 1, SNAP_STAGE_WRITTEN);
    is_int((int)b->n_quiet, 0, "it is not settled from inside a fact");
    ok(b->gives_way, "while it is on its way nothing is read again");
    lead_files_settle(b);
    ok(!b->gives_way, "and is then");
    is_int((int)b->n_saved, 0, "without files it is no checkpoint");
    is_int((int)b->n_quiet, 0, "of those whose workers have ended one may offer it again");
    b->passed_ms += OFFER_MS;
    lead_files_look(b);
    is_int((int)b->n_quiet, 1, "nobody does: who waits is told");
    ok(!lead_snap_forget(b->lead), "and nobody waits");
}

static void test_forgets(struct lead_files *b)
{
    lead_files_say(b, UUID_B, 0, SNAP_STAGE_HELD);
    lead_files_say(b, UUID_B, 1, SNAP_STAGE_HELD);
    ok(lead_snap_ask(b->lead) && lead_snap_forget(b->lead), "who does not wait");
    lead_files_say(b, UUID_B, 1, SNAP_STAGE_FAILED);
    lead_files_settle(b);
    is_int((int)b->n_quiet, 1, "is told nothing");
}

/* Who may lead no more begins nothing; what it would have done is done if it leads on. */
static void test_office(struct lead_files *b)
{
    char path[PATH_MAX];

    ok(fs_path(path, sizeof(path), NULL, "%s/step-000000000010-%.8s",
               b->agent.run.dir, UUID_G) == 0 && mkdir(path, 0700) == 0, "a save");
    lead_snap_good(b->lead, 1);
    lead_files_say(b, UUID_G, 0, SNAP_STAGE_FAILED);
    lead_files_say(b, UUID_G, 1, SNAP_STAGE_FAILED);
    lead_files_turn(b, 100);
    ok(b->saving == 2 && access(path, F_OK) == 0,
       "that has failed, as one hears who may lead no more: it stays");
    lead_snap_good(b->lead, UINT64_MAX);
    lead_files_look(b);
    lead_files_settle(b);
    ok(access(path, F_OK) < 0, "and goes, if he leads on");
}

/* Nobody will hand over the rest. */
static void test_ending(struct lead_files *b)
{
    unsigned n = b->n_quiet;
    char path[PATH_MAX];

    ok(fs_path(path, sizeof(path), NULL, "%s/step-000000000010-%.8s",
               b->agent.run.dir, UUID_D) == 0 && mkdir(path, 0700) == 0, "a save");
    lead_files_say(b, UUID_D, 0, SNAP_STAGE_WRITTEN);
    lead_files_turn(b, 100);
    ok(!lead_snap_ask_removed(b->lead) && access(path, F_OK) == 0,
       "that one rank has not handed over is not waited for");
    lead_snap_end(NULL);
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "but where the run ends");
    lead_files_settle(b);
    lead_files_look(b);
    is_int((int)(b->n_quiet - n), 1, "until nothing is left to do");
    ok(access(path, F_OK) < 0, "for it goes");
}

int main(void)
{
    struct lead_files *b = &lead_files;

    lead_files_open(b);
    test_nonsense(b);
    test_nothing(b);
    test_waits(b);
    test_forgets(b);
    test_office(b);
    lead_files_next(b);
    lead_snap_good(b->lead, UINT64_MAX);
    test_ending(b);
    lead_files_close(b);
    return tap_done();
}
