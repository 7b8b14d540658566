/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in memory only, as the lead hears of it: of a save that did not get to the disk,
 * which is tried again, and of those that an agent has left which is no more. Nothing here is
 * on a disk: the linker's hand says how it would go there.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "launcher/snap_commit.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"

enum { WAITS = 1 << INTERVAL_MEMORY | 1 << INTERVAL_DISK };

struct bed {
    struct agent agent;
    struct lead_snap *lead;
    uint32_t started;
    unsigned n_quiet, n_saved;
    uint32_t saved_generation;
    bool is_new, is_later;
    char resume[PATH_MAX + 32], source[PATH_MAX + 32];
    int64_t resume_step;
    uint32_t saving;
};

/* How the next one goes, and what the last one was told to leave. */
static int commit_code;
static bool was_there, is_last;
static int n_commits, n_shared; /* ... whose files children would have as well */
static char left[STEP_NAME_BYTES];
/* What was said to all, last, and what an agent answers at once. */
static char said[512];
static void (*on_stays)(void);

void __wrap_agent_asked(struct agent *a, const void *json, size_t len);
int __wrap_snap_commit(const struct snap_commit *c, struct io *io, const struct error *why,
                       struct error *e);
void __wrap_snap_tidy(const struct snap_commit *c, struct io *io);
bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n);

void __wrap_agent_asked(struct agent *a, const void *json, size_t len)
{
    (void)a;
    snprintf(said, sizeof(said), "%.*s", (int)len, (const char *)json);
    if (on_stays && strstr(said, "stays")) {
        on_stays();
    }
}

int __wrap_snap_commit(const struct snap_commit *c, struct io *io, const struct error *why,
                       struct error *e)
{
    (void)io;
    n_commits++;
    n_shared += !lead_bed_is_apart();
    *c->ret_was_there = was_there;
    *c->ret_is_last = is_last;
    snprintf(left, sizeof(left), "%s", c->source);
    return why           ? error_text(e, why->code == ESTALE ? EIO : why->code, "%s",
                                      why->text) /* as the real one takes it */
           : commit_code ? error_text(e, commit_code, "by order")
                         : 0;
}

void __wrap_snap_tidy(const struct snap_commit *c, struct io *io)
{
    (void)c, (void)io;
}

bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n)
{
    (void)c, (void)io, (void)n;
    return false;
}

/* --- the lead --- */

static void on_saved(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct bed *b = arg;

    (void)path, (void)step;
    b->n_saved++;
    b->saved_generation = generation;
    b->is_new = is_new;
    b->is_later = is_later;
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    (void)step, (void)written;
    ((struct bed *)arg)->saving = ranks;
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    (void)arg, (void)level, (void)seconds;
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    (void)arg, (void)level, (void)is_busy;
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    (void)arg, (void)level;
    return 3600 * 1000;
}

static void on_held(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    (void)arg, (void)step, (void)ranks, (void)held, (void)n;
}

static uint32_t started(void *arg)
{
    return ((struct bed *)arg)->started;
}

static bool is_lost(void *arg, uint32_t agent)
{
    (void)arg, (void)agent;
    return false;
}

static const char *pinned(void *arg)
{
    (void)arg;
    return "";
}

static const char *source(void *arg)
{
    return ((struct bed *)arg)->source;
}

static const char *resume(void *arg, int64_t *ret_step)
{
    struct bed *b = arg;

    *ret_step = b->resume_step;
    return b->resume;
}

static void on_quiet(void *arg)
{
    ((struct bed *)arg)->n_quiet++;
}

static const struct lead_snap_ops ops = {
    .on_saved = on_saved, .on_saving = on_saving, .on_took = on_took, .on_busy = on_busy,
    .every = every, .on_held = on_held, .started = started, .is_lost = is_lost,
    .pinned = pinned, .source = source, .resume = resume, .on_quiet = on_quiet,
};

static void open_lead(struct bed *b)
{
    struct error e = {0};

    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    lead_snap_good(b->lead, UINT64_MAX);
    b->started = 1;
    b->n_saved = b->n_quiet = 0;
    b->resume[0] = b->source[0] = said[0] = '\0';
    b->resume_step = -1;
    b->agent.config.first_generation = 1;
    commit_code = n_commits = 0;
}

/* --- what agents say --- */

struct word {
    const char *uuid;
    int step, generation, again, waits;
    enum snap_stage stage;
    int code; /* of what failed; 0: ENOSPC; ECONNABORTED: its worker has ended */
};

/* Of two ranks, each of an agent of its own. */
static void say(struct bed *b, uint32_t rank, struct word w)
{
    json_t *fact = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s}",
                             "uuid", w.uuid, "root", b->agent.run.dir, "step", w.step,
                             "generation", w.generation, "token", 1, "rank", (int)rank,
                             "ranks", 2, "stage", (int)w.stage, "error",
                             w.stage != SNAP_STAGE_FAILED ? 0 : w.code ? w.code : ENOSPC,
                             "why", "full");

    if (w.waits) {
        json_object_set_new(fact, "waits", json_integer(w.waits));
    }
    if (w.again) {
        json_object_set_new(fact, "again", json_integer(w.again));
    }
    if (w.code == ECONNABORTED) {
        json_object_set_new(fact, "ended", json_true());
    }
    uv_update_time(&b->agent.loop);
    lead_snap_fact(b->lead, rank, fact);
    json_decref(fact);
}

static void say_both(struct bed *b, struct word w)
{
    say(b, 0, w);
    say(b, 1, w);
}

/* Threads have come to their end, within 20 s. */
static void settle(struct bed *b)
{
    int n = 20000;

    do {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        uv_sleep(1);
    } while (b->saving > 0 && n-- > 0);
    ok(n > 0, "it is settled");
}

static bool goes_to_disk(const char *uuid)
{
    return strstr(said, "snap_go") && strstr(said, uuid);
}

/* --- cases --- */

static void test_disk_full(struct bed *b)
{
    const struct word held = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};
    struct word w = held;

    open_lead(b);
    say_both(b, held);
    w.stage = SNAP_STAGE_FAILED;
    say(b, 0, w);
    settle(b);
    ok(n_commits == 1 && strstr(said, "\"stays\":true"), "a save that all have in memory "
       "finds the disk full: %s", said);
    say(b, 1, held);
    ok(n_commits == 1 && b->saving == 0, "who has not heard of it changes nothing");
    w = held;
    w.again = 1;
    w.waits = WAITS;
    say_both(b, w);
    ok(goes_to_disk(UUID_A), "as workers end it is tried again: %s", said);
    w.stage = SNAP_STAGE_FAILED;
    w.again = 0;
    say(b, 1, w);
    ok(n_commits == 1 && b->saving == 2, "a word of the first try is late");
    w.stage = SNAP_STAGE_WRITTEN;
    w.again = 1;
    say_both(b, w);
    settle(b);
    ok(b->n_saved == 1 && strstr(said, "\"error\":0"), "and gets there");
    w.again = 2;
    say_both(b, w);
    is_int(n_commits, 2, "what is a checkpoint is tried no more");
    said[0] = '\0';
    uv_sleep(1100);
    say(b, 1, held);
    ok(strstr(said, "\"error\":0") && !strstr(said, "stays"),
       "and who has heard of no try hears that: %s", said);
    lead_snap_destroy(b->lead);
}

/* The disk is as full as before: once for each generation. */
static void test_still_full(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};

    open_lead(b);
    for (int again = 0; again < 3; again++) {
        w.again = again;
        w.waits = again ? WAITS : 0;
        w.stage = SNAP_STAGE_HELD;
        say_both(b, w);
        w.stage = SNAP_STAGE_FAILED;
        say(b, 0, w);
        settle(b);
        is_int(n_commits, again + 1, "try %d comes to nothing", again);
    }
    ok(!lead_snap_ask(b->lead), "nobody waits for it");
    lead_snap_destroy(b->lead);
}

/* The disk is full before all have handed it over. */
static void test_full_early(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_FAILED, 0};

    open_lead(b);
    say(b, 0, w);
    is_int(n_commits, 0, "a rank has no room, and another one is still to come");
    w.stage = SNAP_STAGE_HELD;
    say(b, 1, w);
    ok(lead_snap_ask(b->lead), "who wants to start waits for what becomes of it");
    settle(b);
    ok(n_commits == 1 && strstr(said, "stays"), "then all hear of it: %s", said);
    ok(lead_snap_ask(b->lead), "and may tell, a moment later, that workers have ended");
    w.again = 1;
    w.waits = WAITS;
    say_both(b, w);
    ok(goes_to_disk(UUID_A), "all have it when it is tried again");
    lead_snap_destroy(b->lead);
}

/* An agent whose workers have ended hears of it while the lead says so to all. */
static struct bed *answers;

static void answer_at_once(void)
{
    struct word w = {UUID_A, 10, 1, 1, WAITS, SNAP_STAGE_HELD, 0};

    on_stays = NULL;
    say(answers, 0, w);
}

static void test_at_once(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};

    open_lead(b);
    answers = b;
    on_stays = answer_at_once;
    say_both(b, w);
    w.stage = SNAP_STAGE_FAILED;
    say(b, 0, w);
    for (int i = 0; i < 5000 && on_stays; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    w = (struct word){UUID_A, 10, 1, 1, WAITS, SNAP_STAGE_HELD, 0};
    say(b, 1, w);
    ok(lead_snap_ask(b->lead) && goes_to_disk(UUID_A), "an agent that leads is heard, too: %s",
       said);
    w.stage = SNAP_STAGE_WRITTEN;
    say_both(b, w);
    settle(b);
    ok(n_commits == 2 && b->n_saved == 1, "and what it had becomes a checkpoint");
    lead_snap_destroy(b->lead);
}

/* Each generation that ends has a try of its own, whatever failed before, and whoever starts
 * the next one waits a moment for it. */
static void test_tries(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};

    open_lead(b);
    commit_code = ENOSPC;
    for (b->started = 1; b->started < 4; b->started++) {
        say_both(b, w);
        settle(b);
        ok(strstr(said, "stays") && lead_snap_ask(b->lead),
           "a commit fails as workers of generation %u end", b->started);
        w.again = (int)b->started;
    }
    b->started = 3;
    say_both(b, w);
    settle(b);
    ok(strstr(said, "stays") && !lead_snap_ask(b->lead), "that one's try was waited for");
    lead_snap_destroy(b->lead);
}

/* The word that it failed was lost on its way to one agent, which says again what it said. */
static void test_not_heard(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};

    open_lead(b);
    say_both(b, w);
    w.stage = SNAP_STAGE_FAILED;
    say(b, 0, w);
    settle(b);
    w = (struct word){UUID_A, 10, 1, 1, WAITS, SNAP_STAGE_HELD, 0};
    say(b, 0, w);
    w = (struct word){UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};
    uv_sleep(1100);
    say(b, 1, w);
    ok(strstr(said, "stays") && strstr(said, "\"on\":1") && !strstr(said, "again") &&
           strstr(said, "full"), "is told of that try, and of the next: %s", said);
    said[0] = '\0';
    say(b, 1, w);
    is_str(said, "", "but not with each word");
    lead_snap_destroy(b->lead);
}

/* A later one has taken its memory, as is right. */
static void test_no_news(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, WAITS, SNAP_STAGE_HELD, 0};

    open_lead(b);
    say_both(b, w);
    w.stage = SNAP_STAGE_FAILED;
    w.code = ESTALE;
    say(b, 0, w);
    settle(b);
    ok(!strstr(said, "stays") && strstr(said, "\"error\":116"), "it is no loss: %s", said);
    lead_snap_destroy(b->lead);
}

/* Some had it in memory: nothing of it is of use. */
static void test_partial(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};

    open_lead(b);
    commit_code = ECONNABORTED;
    say(b, 0, w);
    lead_snap_end(b->lead);
    settle(b);
    ok(n_commits == 1 && !strstr(said, "stays"), "a save of which a rank has nothing goes: %s",
       said);
    w = (struct word){UUID_B, 20, 1, 1, WAITS, SNAP_STAGE_HELD, 0};
    say(b, 0, w);
    ok(!lead_snap_ask(b->lead), "nor is one waited for that is in memory of one rank only");
    lead_snap_end(b->lead);
    ok(strstr(said, UUID_B) && strstr(said, "not all ranks") && n_commits == 1,
       "at the end it goes, and no disk is looked at: %s", said);
    lead_snap_destroy(b->lead);
}

/* A worker has ended without what others have handed over: nobody waits for that, and nothing
 * of it is of use. */
static void test_ended(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_HELD, 0};
    struct word ended = {UUID_A, 10, 1, 1, 0, SNAP_STAGE_FAILED, ECONNABORTED};

    open_lead(b);
    commit_code = ECONNABORTED;
    say(b, 1, ended);
    ok(b->lead->saves == NULL, "what nobody has is no save");
    say(b, 0, w);
    say(b, 1, ended);
    settle(b);
    ok(n_commits == 1 && !strstr(said, "stays") && strstr(said, UUID_A),
       "one that others have goes at once: %s", said);
    said[0] = '\0';
    ended.again = 7;
    say(b, 1, ended);
    ok(n_commits == 1 && b->saving == 0 && b->lead->saves->is_settled,
       "and is not tried again by that word");
    w = (struct word){UUID_B, 20, 1, 0, WAITS, SNAP_STAGE_HELD, 0};
    ended = (struct word){UUID_B, 20, 1, 0, 0, SNAP_STAGE_FAILED, ECONNABORTED};
    say(b, 0, w);
    say(b, 1, ended);
    ok(b->lead->saves->tally.n_failed == 0, "of one that stays in memory it is no news");
    lead_snap_destroy(b->lead);
}

/* All have written it, and whoever led had no time to say that it is a checkpoint. */
static void test_written(struct bed *b)
{
    struct word w = {UUID_B, 40, 1, 0, WAITS, SNAP_STAGE_HELD, 0};

    open_lead(b);
    b->started = 0;
    b->agent.config.first_generation = 2;
    say_both(b, w);
    ok(goes_to_disk(UUID_B), "a later one is on its way: %s", said);
    w = (struct word){UUID_A, 30, 1, 0, WAITS, SNAP_STAGE_WRITTEN, 0};
    say_both(b, w);
    for (int i = 0; i < 1000 && b->n_saved == 0; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    ok(b->n_saved == 1 && b->saved_generation == 1 && b->is_new, "it is one before that");
    lead_snap_destroy(b->lead);
}

static void test_found(struct bed *b)
{
    struct word w = {UUID_A, 30, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};

    open_lead(b);
    was_there = true;
    say_both(b, w);
    settle(b);
    ok(b->n_saved == 1 && !b->is_new, "one that a lead before has made is no new one");
    was_there = false;
    lead_snap_destroy(b->lead);
}

/* A step that was saved twice: which of the two counts. */
static void test_found_again(struct bed *b)
{
    static const struct {
        bool was_there, is_last;
        const char *in;
        bool want;
        const char *what;
    } cases[] = {
        {false, true, "", true, "one that is made now"},
        {true, true, "", true, "one that was there, and counts there"},
        {true, false, "", false, "one that was there, and does not"},
        {true, true, "/elsewhere", false, "one that was there, where nobody can tell"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct word w = {UUID_A, 30, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};

        open_lead(b);
        snprintf(b->resume, sizeof(b->resume), "%s%s/step-000000000030-bbbbbbbb",
                 b->agent.run.dir, cases[i].in);
        b->resume_step = 30;
        was_there = cases[i].was_there;
        is_last = cases[i].is_last;
        say_both(b, w);
        settle(b);
        ok(b->n_saved == 1 && b->is_later == cases[i].want, "%s is%s later", cases[i].what,
           cases[i].want ? "" : " not");
        lead_snap_destroy(b->lead);
    }
    was_there = is_last = false;
    b->resume[0] = '\0';
}

/* What a life before has left, and another one has gone on from later ones. */
static void test_past(struct bed *b)
{
    struct word w = {UUID_A, 40, 1, 0, WAITS, SNAP_STAGE_HELD, 0};

    open_lead(b);
    b->started = 0;
    b->agent.config.first_generation = 3;
    snprintf(b->resume, sizeof(b->resume), "%s/step-000000000100-bbb", b->agent.run.dir);
    b->resume_step = 100;
    say_both(b, w);
    ok(strstr(said, UUID_A) && strstr(said, "\"error\":116"), "is of no use: %s", said);
    ok(!lead_snap_ask(b->lead), "and not waited for");
    w = (struct word){UUID_B, 110, 2, 0, WAITS, SNAP_STAGE_HELD, 0};
    say_both(b, w);
    ok(goes_to_disk(UUID_B), "what is later is: %s", said);
    lead_snap_destroy(b->lead);
}

/* What programs report is in a directory of its own each time: nobody watches over that. */
static void test_reported(struct bed *b)
{
    open_lead(b);
    snprintf(b->resume, sizeof(b->resume), "%s/step_100/model.pt", b->agent.run.dir);
    lead_lease_look(b->lead);
    ok(!b->lead->leases, "what a program says that it has saved has no lease");
    lead_snap_destroy(b->lead);
}

/* Late saves take no place from what others are loading. */
static void test_source(struct bed *b)
{
    struct word w = {UUID_A, 10, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};

    open_lead(b);
    b->started = 2;
    snprintf(b->source, sizeof(b->source), "%s/step-5", b->agent.run.dir);
    say_both(b, w);
    settle(b);
    is_str(left, "step-5", "what workers start from stays");
    w = (struct word){UUID_B, 20, 2, 0, 0, SNAP_STAGE_WRITTEN, 0};
    say_both(b, w);
    settle(b);
    is_str(left, "", "until they have saved themselves");
    lead_snap_destroy(b->lead);

    open_lead(b);
    b->started = 2;
    snprintf(b->resume, sizeof(b->resume), "%s/step-6", b->agent.run.dir);
    b->resume_step = 6;
    w = (struct word){UUID_A, 10, 1, 0, 0, SNAP_STAGE_WRITTEN, 0};
    say_both(b, w);
    settle(b);
    is_str(left, "step-6", "nor from what the next ones are to start from");
    w = (struct word){UUID_B, 20, 2, 0, 0, SNAP_STAGE_WRITTEN, 0};
    say_both(b, w);
    settle(b);
    is_str(left, "", "which a save of their own takes the place of");
    lead_snap_destroy(b->lead);
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    lead_bed_make(&b->agent);
    test_disk_full(b);
    test_still_full(b);
    test_full_early(b);
    test_at_once(b);
    test_tries(b);
    test_not_heard(b);
    test_no_news(b);
    test_partial(b);
    test_ended(b);
    test_written(b);
    test_found(b);
    test_found_again(b);
    test_past(b);
    test_reported(b);
    test_source(b);
    is_int(n_shared, 0, "no child has what a thread opens to commit");
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
