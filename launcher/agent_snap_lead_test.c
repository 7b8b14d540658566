/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who starts workers, or ends a run, waits for the saves that all ranks have handed
 * over, until they are settled: here they come to nothing, for there are no files. Who
 * has them in memory is said to all, to whoever asks first.
 */
#include <config.h>

#include "launcher/agent_snap.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/step.h"
#include "launcher/lead_bed.h"
#include "launcher/snap_reread.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = -1 };

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"
#define UUID_C "00000000000000000000000000000ccc"
#define UUID_D "00000000000000000000000000000ddd"
#define UUID_E "00000000000000000000000000000eee"
#define UUID_F "00000000000000000000000000000fff"
#define UUID_G "00000000000000000000000000000ff0"

struct bed {
    struct agent agent;
    struct lead_snap *lead;
    unsigned n_quiet, n_saved;
    char failed[STEP_NAME_BYTES]; /* the last one that was given up */
    uint32_t saving; /* ranks of the oldest save that is on its way */
    uint32_t lost;   /* an agent */
    int n_shown;
    int64_t held_step;
    uint32_t held_ranks;
    size_t n_held;
    struct status_held held[4];
    int n_took[INTERVAL_N_LEVELS];
    uint64_t every_ms;
    bool is_busy[INTERVAL_N_LEVELS];
};

/* What the lead has said last of who has what, seen by the linker's hand. */
static char where[512];
static int n_said;
/* And where one goes, or that it has no place any more. */
static char gone[512];
static int n_gone, n_failed, token = 1;
/* And of what is to be made again. */
static char rebuild[512];

/* Whether nothing is to be read of what is on the disk. */
static bool gives_way;

void __wrap_agent_asked(struct agent *a, const void *json, size_t len);
void __real_reread_gate_hold(struct reread_gate *g, bool held);
void __wrap_reread_gate_hold(struct reread_gate *g, bool held);

void __wrap_reread_gate_hold(struct reread_gate *g, bool held)
{
    gives_way = held;
    __real_reread_gate_hold(g, held);
}

void __wrap_agent_asked(struct agent *a, const void *json, size_t len)
{
    (void)a;
    n_failed += memmem(json, len, UUID_F, sizeof(UUID_F) - 1) &&
                memmem(json, len, "\"error\":5,", 10);
    if (memmem(json, len, "snap_go", 7) || memmem(json, len, "\"error\":116", 11)) {
        n_gone++;
        snprintf(gone, sizeof(gone), "%.*s", (int)len, (const char *)json);
    }
    if (memmem(json, len, "snap_where", 10)) {
        n_said++;
        snprintf(where, sizeof(where), "%.*s", (int)len, (const char *)json);
    }
    if (memmem(json, len, "snap_rebuild", 12)) {
        snprintf(rebuild, sizeof(rebuild), "%.*s", (int)len, (const char *)json);
    }
}

static void on_saved(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct bed *b = arg;

    (void)path, (void)step, (void)generation, (void)is_new, (void)is_later;
    b->n_saved++;
}

static void on_failed(void *arg, const char *name, const char *why)
{
    struct bed *b = arg;

    snprintf(b->failed, sizeof(b->failed), "%s", why ? name : "");
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    struct bed *b = arg;

    (void)step;
    (void)written;
    b->saving = ranks;
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    struct bed *b = arg;

    b->n_took[level] += seconds >= 0;
}

static void on_held(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    struct bed *b = arg;

    b->n_shown++;
    b->held_step = step;
    b->held_ranks = ranks;
    b->n_held = n;
    memcpy(b->held, held, (n < 4 ? n : 4) * sizeof(*held));
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    struct bed *b = arg;

    b->is_busy[level] = is_busy;
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    const struct bed *b = arg;

    (void)level;
    return b->every_ms;
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

static const char *pinned(void *arg)
{
    (void)arg;
    return "";
}

static const struct lead_snap_ops ops = {
    .on_saved = on_saved, .on_failed = on_failed, .on_saving = on_saving,
    .started = started,
    .is_lost = is_lost, .pinned = pinned, .on_quiet = on_quiet, .on_held = on_held,
    .on_took = on_took, .every = every, .on_busy = on_busy,
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

/* Facts of which one value makes no sense. */
static void test_nonsense(struct bed *b)
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
    ok(gives_way, "while it is on its way nothing is read again");
    wait_settled(b);
    ok(!gives_way, "and is then");
    is_int((int)b->n_saved, 0, "without files it is no checkpoint");
    is_int((int)b->n_quiet, 0, "of those whose workers have ended one may offer it again");
    for (int i = 0; i < 100 && b->n_quiet == 0; i++) {
        turn(b, 100);
        uv_sleep(100);
    }
    is_int((int)b->n_quiet, 1, "nobody does: who waits is told");
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

/* Who may lead no more begins nothing; what it would have done is done if it leads on. */
static void test_office(struct bed *b)
{
    char path[PATH_MAX];

    ok(fs_path(path, sizeof(path), NULL, "%s/step-000000000010-%.8s",
               b->agent.run.dir, UUID_G) == 0 && mkdir(path, 0700) == 0, "a save");
    lead_snap_good(b->lead, 1);
    say(b, UUID_G, 0, SNAP_STAGE_FAILED);
    say(b, UUID_G, 1, SNAP_STAGE_FAILED);
    turn(b, 100);
    ok(b->saving == 2 && access(path, F_OK) == 0,
       "that has failed, as one hears who may lead no more: it stays");
    lead_snap_good(b->lead, UINT64_MAX);
    wait_settled(b);
    ok(access(path, F_OK) < 0, "and goes, if he leads on");
}

/* Nobody will hand over the rest. */
static void test_ending(struct bed *b)
{
    unsigned n = b->n_quiet;
    char path[PATH_MAX];

    ok(fs_path(path, sizeof(path), NULL, "%s/step-000000000010-%.8s",
               b->agent.run.dir, UUID_D) == 0 && mkdir(path, 0700) == 0, "a save");
    say(b, UUID_D, 0, SNAP_STAGE_WRITTEN);
    turn(b, 100);
    ok(!lead_snap_ask_removed(b->lead) && access(path, F_OK) == 0,
       "that one rank has not handed over is not waited for");
    lead_snap_end(NULL);
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "but where the run ends");
    wait_settled(b);
    while (b->n_quiet == n) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    ok(access(path, F_OK) < 0, "for it goes");
}

/* Of four ranks, of agents 0 and 1, copied to the other one and to agent 2. */
static void say_of(struct bed *b, const char *uuid, int step, uint32_t rank,
                   uint32_t agent, json_int_t from)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", step,
                             "generation", 1, "token", 1, "rank", (int)rank,
                             "ranks", 4, "stage", SNAP_STAGE_HELD);

    if (from != NOBODY) {
        json_object_set_new(fact, "from", json_integer(from));
    }
    lead_snap_fact(b->lead, agent, fact);
    json_decref(fact);
}

static void say_more(struct bed *b, uint32_t rank, uint32_t agent, json_int_t from)
{
    say_of(b, UUID_C, 20, rank, agent, from);
}

static void want(struct bed *b, const char *uuid, int generation)
{
    json_t *fact = json_pack("{s:s, s:i}", "uuid", uuid, "generation", generation);

    uv_update_time(&b->agent.loop);
    lead_snap_want(b->lead, fact);
    json_decref(fact);
}

static void want_path(struct bed *b, const char *step, const char *uuid, int generation)
{
    json_t *fact = json_pack("{s:o, s:i}", "path",
                             json_sprintf("%s/step-%s-%.8s", b->agent.run.dir, step, uuid),
                             "generation", generation);

    uv_update_time(&b->agent.loop);
    lead_snap_want(b->lead, fact);
    json_decref(fact);
}

static bool is_said(const char *ranks)
{
    return strstr(where, ranks) && strstr(where, ranks)[strlen(ranks)] == '}';
}

static void test_want(struct bed *b)
{
    want(b, UUID_C, 1);
    ok(n_said == 1 && is_said("\"ranks\":[]"), "of a save that nobody knows: %s", where);
    say_more(b, 0, 0, NOBODY);
    say_more(b, 1, 0, NOBODY);
    say_more(b, 3, 1, NOBODY);
    say_more(b, 2, 1, -2);
    say_more(b, 2, 1, INT64_C(4294967297));
    want(b, UUID_C, 1);
    is_int(n_said, 1, "what was said just now is not said again");
    want(b, UUID_C, 2);
    ok(n_said == 2 && is_said("[[0,2,0],[3,1,1]]"), "who has saved it, and not: %s",
       where);
    say_more(b, 0, 1, 0);
    say_more(b, 1, 1, 0);
    say_more(b, 2, 2, 1);
    want(b, UUID_C, 3);
    ok(is_said("[[0,2,0,1],[2,1,1,2],[3,1,1]]"), "and who has a copy: %s", where);
    b->lost = 1;
    want(b, UUID_C, 4);
    ok(is_said("[[0,2,0],[2,1,2]]"), "those that are there: %s", where);
    b->lost = UINT32_MAX;
    want(b, UUID_D, 4);
    ok(is_said("\"ranks\":[]"), "another save is another question: %s", where);
    want(b, UUID_C, 4);
    ok(is_said("[[0,2,0,1],[2,1,1,2],[3,1,1]]"), "and may be asked for again: %s",
       where);
    while (n_said == 6) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
        want(b, UUID_C, 4);
    }
    ok(true, "so is the same, in time");
    want_path(b, "000000000020", UUID_C, 5);
    ok(n_said == 8 && strstr(where, UUID_C) && strstr(where, "/step-000000000020-0000") &&
           is_said("[[0,2,0,1],[2,1,1,2],[3,1,1]]"),
       "and by its path: %s", where);
    want(b, "short", 1);
    want(b, "", 1);
    want_path(b, "000000000021", UUID_C, 6);
    want_path(b, "000000000020", "dddddddd", 6);
    lead_snap_want(NULL, NULL);
    is_int(n_said, 8, "what is no save is not looked for");
}

static bool is_held(const struct status_held *h, uint32_t first, uint32_t n, int node,
                    int copied_to)
{
    return h->first == first && h->n == n && h->node == node &&
           h->copied_to == copied_to;
}

static void wait_shown(struct bed *b)
{
    int n = b->n_shown;

    while (b->n_shown == n) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

/* What the status has of it. */
static void test_held(struct bed *b)
{
    wait_shown(b);
    ok(b->held_step == 20 && b->held_ranks == 4 && b->n_held == 3, "the newest save");
    ok(is_held(&b->held[0], 0, 2, 0, 1) && is_held(&b->held[1], 2, 1, 1, 2) &&
           is_held(&b->held[2], 3, 1, 1, -1), "who has what, and what is copied");
    b->lost = 1;
    wait_shown(b);
    ok(b->n_held == 2 && is_held(&b->held[0], 0, 2, 0, -1) &&
           is_held(&b->held[1], 2, 1, 2, -1), "a copy counts where its node is lost");
    b->lost = UINT32_MAX;
    is_int(b->n_took[INTERVAL_PARTNER], 0, "one is not copied yet");
    say_more(b, 3, 2, 1);
    say_more(b, 3, 2, 1);
    is_int(b->n_took[INTERVAL_PARTNER], 1, "all are, which is told once");
    for (uint32_t rank = 0; rank < 4; rank++) {
        say_of(b, UUID_D, 40, rank, 0, NOBODY);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        say_of(b, UUID_E, 30, rank, 0, NOBODY);
    }
    say_of(b, UUID_F, 50, 0, 0, NOBODY);
    wait_shown(b);
    is_int((int)b->held_step, 40, "the newest that is whole, in whatever order");
}

/* Old ones are forgotten, but not what is on its way. */
static void test_many(struct bed *b)
{
    char uuid[sizeof(UUID_A)];

    for (int i = 0; i < 20; i++) {
        snprintf(uuid, sizeof(uuid), "%032d", i);
        say_of(b, uuid, 100 + i, 0, 0, NOBODY);
    }
    snprintf(uuid, sizeof(uuid), "%032d", 0);
    want(b, uuid, 9);
    ok(is_said("[[0,1,0]]"), "the first of twenty is known: %s", where);
}

enum { WAITS = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER | 1 << INTERVAL_DISK };

/* Of two ranks, each of an agent of its own, that wait for the lead's word. */
static void say_waits(struct bed *b, const char *uuid, int step, uint32_t rank, int waits,
                      bool is_wanted)
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

static void say_both(struct bed *b, const char *uuid, int step)
{
    say_waits(b, uuid, step, 0, WAITS, false);
    say_waits(b, uuid, step, 1, WAITS, false);
}

static bool is_gone(const char *uuid, int levels)
{
    char want[128];

    snprintf(want, sizeof(want), "\"uuid\":\"%s\",\"levels\":%d", uuid, levels);
    return strstr(gone, want) != NULL;
}

#define FOUR "[[0,0],[1,1],[2,2],[3,3]]"

/* As an agent says that it keeps parity of four ranks, of agents 0 to 3. */
static void say_parity(struct bed *b, const char *uuid, uint32_t agent,
                       const char *members, int parities)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
                             "uuid", uuid, "root", b->agent.run.dir, "step", 60,
                             "generation", 1, "token", 1, "rank", 0,
                             "ranks", 4, "stage", SNAP_STAGE_HELD, "parities",
                             parities);

    json_object_set_new(fact, "members", json_loads(members, 0, NULL));
    lead_snap_parity(b->lead, agent, fact);
    json_decref(fact);
}

/* Which saves go on from memory: as a lead says who has heard of none. */
static void test_levels(struct bed *b)
{
    n_gone = n_failed = 0;
    b->failed[0] = '\0';
    b->every_ms = 3600000;
    say_waits(b, UUID_A, 10, 0, WAITS, false);
    is_int(n_gone, 0, "one that a rank has not handed over goes nowhere");
    say_waits(b, UUID_A, 10, 1, WAITS, false);
    ok(n_gone == 1 && is_gone(UUID_A, 6), "the first one goes everywhere: %s", gone);
    say_waits(b, UUID_A, 10, 1, WAITS, false);
    is_int(n_gone, 1, "which is not said again at once");
    ok(b->is_busy[INTERVAL_DISK] && b->is_busy[INTERVAL_PARTNER],
       "something is on its way to both");
    say_both(b, UUID_B, 20);
    ok(n_gone == 2 && is_gone(UUID_B, 0), "the next one stays in memory: %s", gone);
    ok(b->saving == 2 && lead_snap_ask(b->lead) && lead_snap_forget(b->lead),
       "the first one is on its way");
    ok(n_gone == 3 && is_gone(UUID_B, 6), "and so is the other one, where workers start "
       "again: %s", gone);
    say_both(b, UUID_C, 40);
    token = 2; /* the step is saved again */
    say_both(b, UUID_D, 40);
    ok(n_gone == 6 && strstr(gone, UUID_C) && strstr(gone, "116"), "one that stays gives "
       "its place to the next: %s", gone);
    is_str(b->failed, "", "which is no failure to who waits for it");
    say_waits(b, UUID_D, 40, 0, WAITS, true);
    ok(n_gone == 7 && is_gone(UUID_D, 6), "that somebody waits for: %s", gone);
    say_waits(b, UUID_E, 50, 0, WAITS, false);
    say_waits(b, UUID_E, 50, 1, 0, false);
    ok(n_gone == 8 && is_gone(UUID_E, 6), "what one agent does not wait with goes: %s",
       gone);
    b->every_ms = 0;
    say_both(b, UUID_F, 60);
    ok(n_gone == 9 && is_gone(UUID_F, 6), "each one, where that is the plan: %s", gone);
    say(b, UUID_F, 0, SNAP_STAGE_FAILED);
    while (n_failed == 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    like(b->failed, "step-000000000060-", "and whoever waits for one that has failed is told");
    b->every_ms = 3600000;
    say_both(b, UUID_G, 70);
    ok(is_gone(UUID_G, 6), "where one has failed the next one goes: %s", gone);
    for (uint64_t until = uv_now(&b->agent.loop) + 1100;
         uv_now(&b->agent.loop) < until;) {
        uv_run(&b->agent.loop, UV_RUN_ONCE); /* it was said only a moment ago */
    }
    n_failed = 0;
    say_parity(b, UUID_F, 0, FOUR, 1);
    is_int(n_failed, 1, "who comes late, with parity of one that has failed, hears of that");
}

/* --- parity --- */

#define UUID_P "00000000000000000000000000000123"

static void test_parity_hostile(struct bed *b)
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
        say_parity(b, UUID_P, 0, bad[i], 1);
    }
    for (uint32_t agent = 0; agent < 4; agent++) {
        say_parity(b, UUID_P, agent, FOUR, 0);
        say_parity(b, UUID_P, agent, FOUR, 4);
        say_parity(b, "x", agent, FOUR, 1);
        say_parity(b, UUID_P, agent + 4, FOUR, 1);
    }
    is_int(b->n_took[INTERVAL_PARTNER], n, "what makes no sense is no parity");
}

static void test_parity(struct bed *b)
{
    int n = b->n_took[INTERVAL_PARTNER];

    lead_snap_parity(NULL, 0, NULL);
    test_parity_hostile(b);
    for (uint32_t rank = 0; rank < 4; rank++) {
        say_of(b, UUID_P, 60, rank, rank, NOBODY);
        is_int(b->n_took[INTERVAL_PARTNER], n, "not all keep parity yet");
        say_parity(b, UUID_P, rank, FOUR, 1);
    }
    is_int(b->n_took[INTERVAL_PARTNER], n + 1, "all do: the save is with partners");
    b->lost = 1;
    want(b, UUID_P, 1);
    ok(is_said("[[0,1,0],[1,1,2],[2,1,2],[3,1,3]]"),
       "of who is lost somebody can make it again: %s", where);
    ok(lead_snap_ask(b->lead), "so all of it will be on the disk");
    ok(strstr(rebuild, "\"ranks\":[[1,2]],\"lost\":[1]") != NULL, "who is to: %s",
       rebuild);
    rebuild[0] = '\0';
    lead_snap_ask(b->lead);
    ok(strstr(rebuild, "[[1,2]]") != NULL, "and again, until it is there");
    say_of(b, UUID_P, 60, 1, 2, 1);
    rebuild[0] = '\0';
    lead_snap_ask(b->lead);
    is_str(rebuild, "", "now it is");
    lead_snap_forget(b->lead);
    b->lost = UINT32_MAX;
}

/* As say_waits(), of a save of four ranks that stays in memory. */
static void say_stays(struct bed *b, const char *uuid, int step)
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
 * again, where a node is lost. */
static void test_parity_levels(struct bed *b)
{
    b->every_ms = 3600000;
    say_stays(b, UUID_A, 10); /* to the disk */
    say_stays(b, UUID_B, 20);
    for (uint32_t agent = 0; agent < 4; agent++) {
        say_parity(b, UUID_B, agent, FOUR, 1);
    }
    gone[0] = '\0';
    say_stays(b, UUID_C, 30);
    ok(!strstr(gone, UUID_B), "one with parity stays, as the next one has none: %s", gone);
    for (uint32_t agent = 0; agent < 3; agent++) {
        say_parity(b, UUID_C, agent, FOUR, 1);
    }
    ok(!strstr(gone, UUID_B), "nor that of all: %s", gone);
    rebuild[0] = '\0';
    b->lost = 3;
    uv_update_time(&b->agent.loop);
    lead_snap_ask(b->lead);
    lead_snap_forget(b->lead);
    ok(is_gone(UUID_C, 6), "a node is lost: the newest that can be made again goes to the "
       "disk: %s", gone);
    ok(strstr(rebuild, UUID_C) && strstr(rebuild, "\"ranks\":[[3,"),
       "and that part of it is made: %s", rebuild);
    b->lost = UINT32_MAX;
    say_parity(b, UUID_C, 3, FOUR, 1);
    ok(strstr(gone, UUID_B) && strstr(gone, "116"), "with parity of all of the later one "
       "the one before is of no use: %s", gone);
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
    test_nonsense(b);
    test_nothing(b);
    test_waits(b);
    test_forgets(b);
    test_office(b);
    test_want(b);
    test_held(b);
    test_many(b);
    test_parity(b);
    lead_snap_destroy(b->lead);
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_levels(b);
    lead_snap_destroy(b->lead);
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_parity_levels(b);
    lead_snap_destroy(b->lead);
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    lead_snap_good(b->lead, UINT64_MAX);
    test_ending(b);
    lead_snap_destroy(b->lead);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
