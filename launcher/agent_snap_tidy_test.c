/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a save that has become a checkpoint takes the place of is removed once all have
 * been told, by what is known then; who starts workers or ends the run waits for it. Here
 * removing takes as long as the test wants.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/commit_bed.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = COMMIT_BED_RANKS, MANY = 20 }; /* saves that are forgotten */

struct bed {
    struct agent agent;
    struct lead_snap *lead;
    struct commit_bed saves; /* in its run directory */
    char pinned[PATH_MAX + STEP_NAME_BYTES + 2], copied[PATH_MAX + STEP_NAME_BYTES + 2];
    unsigned n_quiet, n_saved;
};

/* --- what the threads do, by the linker's hand --- */

static sem_t may_go;
static atomic_int n_begun, n_tidied, n_made_up_for;
static atomic_int n_shared; /* of those whose files children would have as well */
static atomic_bool is_slow, is_slow_to_make_up;
static atomic_uint room_for = 9; /* so many more */
/* What the last one was told to leave. */
static char tidied_pinned[STEP_NAME_BYTES], tidied_copied[STEP_NAME_BYTES];

void __real_snap_tidy(const struct snap_commit *c, struct io *io);
void __wrap_snap_tidy(const struct snap_commit *c, struct io *io);
bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n);
void __wrap_agent_asked(struct agent *a, const void *json, size_t len);

void __wrap_snap_tidy(const struct snap_commit *c, struct io *io)
{
    atomic_fetch_add(&n_shared, !lead_bed_is_apart());
    if (!c->strays) { /* after one was read again */
        while (is_slow_to_make_up && sem_wait(&may_go) < 0) {
        }
        __real_snap_tidy(c, io);
        atomic_fetch_add(&n_made_up_for, 1);
        return;
    }
    str_copy(tidied_pinned, sizeof(tidied_pinned), c->pinned);
    str_copy(tidied_copied, sizeof(tidied_copied), c->copied);
    atomic_fetch_add(&n_begun, 1);
    while (is_slow && sem_wait(&may_go) < 0) {
    }
    __real_snap_tidy(c, io);
    atomic_fetch_add(&n_tidied, 1);
}

bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n)
{
    (void)c, (void)io;
    return n > room_for;
}

static int n_told, n_tidied_when_told;

void __wrap_agent_asked(struct agent *a, const void *json, size_t len)
{
    (void)a;
    if (memmem(json, len, "\"ask\":\"snap\"", 12) && memmem(json, len, "\"error\":0", 9)) {
        n_told++;
        n_tidied_when_told = n_tidied;
    }
}

/* --- the lead --- */

static void on_saved(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct bed *b = arg;

    (void)path, (void)step, (void)generation, (void)is_new, (void)is_later;
    b->n_saved++;
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    (void)arg, (void)step, (void)written, (void)ranks;
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    (void)arg, (void)level, (void)seconds;
}

static void on_held(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    (void)arg, (void)step, (void)ranks, (void)held, (void)n;
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    (void)arg, (void)level, (void)is_busy;
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    (void)arg, (void)level;
    return 0;
}

static uint32_t started(void *arg)
{
    (void)arg;
    return 1;
}

static bool is_lost(void *arg, uint32_t agent)
{
    (void)arg, (void)agent;
    return false;
}

static void on_quiet(void *arg)
{
    struct bed *b = arg;

    b->n_quiet++;
}

static const char *pinned(void *arg)
{
    const struct bed *b = arg;

    return b->pinned;
}

static const char *copied(void *arg)
{
    const struct bed *b = arg;

    return b->copied;
}

static const struct lead_snap_ops ops = {
    .on_saved = on_saved, .on_saving = on_saving, .started = started,
    .is_lost = is_lost, .pinned = pinned, .copied = copied, .on_quiet = on_quiet,
    .on_held = on_held, .on_took = on_took, .every = every, .on_busy = on_busy,
};

static void begin(struct bed *b)
{
    struct error e = {0};

    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    lead_snap_good(b->lead, UINT64_MAX);
}

/* --- saves --- */

static void say(struct bed *b, uint64_t step, uint32_t rank, enum snap_stage stage)
{
    json_t *fact = json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:s}",
                             "uuid", commit_bed_uuid(&b->saves, step), "root",
                             b->saves.top, "step", (json_int_t)step, "generation", 1,
                             "token", 1, "rank", (int)rank, "ranks", N,
                             "stage", (int)stage, "error",
                             stage == SNAP_STAGE_FAILED ? 5 : 0, "why", "");

    lead_snap_fact(b->lead, rank, fact);
    json_decref(fact);
}

/* All of it is on the disk, and the lead hears so. */
static void save(struct bed *b, uint64_t step)
{
    commit_bed_write(&b->saves, step, N);
    for (uint32_t r = 0; r < N; r++) {
        say(b, step, r, SNAP_STAGE_WRITTEN);
    }
}

static bool is_there(struct bed *b, uint64_t step)
{
    return commit_bed_has(&b->saves, step, "COMMIT");
}

/* Turns of the loop until there are so many, for 20 s at most. */
static bool comes_to(struct bed *b, const atomic_int *count, int n)
{
    uint64_t end_ms = clock_mono_ms() + 20000;

    while (*count < n && clock_mono_ms() < end_ms) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    return *count >= n;
}

static void turn(struct bed *b)
{
    for (int i = 0; i < 50; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
}

/* Nothing is read again, nor what may go by that. A machine may be busy. */
static void wait_for_check(struct bed *b)
{
    const struct lead_check *c = &b->lead->check;

    for (int i = 0; i < 400 && (b->lead->n_works > 0 || c->is_running || c->is_missed ||
                                c->tidying.data); i++) {
        turn(b);
    }
}

/* The next one that is removed is not done before it is let_go(). */
static void save_slowly(struct bed *b, uint64_t step)
{
    int begun = n_begun;

    is_slow = true;
    save(b, step);
    ok(comes_to(b, &n_begun, begun + 1), "step %d is saved", (int)step);
}

static void let_go(struct bed *b)
{
    int tidied = n_tidied;

    is_slow = false;
    sem_post(&may_go);
    ok(comes_to(b, &n_tidied, tidied + 1), "removing comes to its end");
    turn(b);
}

/* --- cases --- */

static void test_told_first(struct bed *b)
{
    save(b, 1);
    ok(comes_to(b, &n_tidied, 1), "the first one");
    save_slowly(b, 2);
    ok(n_told == 2 && n_tidied_when_told == 1 && b->n_saved == 2,
       "all hear of the next one before anything goes");
    ok(is_there(b, 1) && is_there(b, 2), "which is there still");
    save(b, 3);
    turn(b);
    ok(n_told == 2 && !is_there(b, 3), "one at a time: the one after that waits");
    let_go(b);
    ok(comes_to(b, &n_tidied, 3) && n_told == 3 && is_there(b, 3), "until then");
}

static void test_short(struct bed *b)
{
    int told = n_told, tidied = n_tidied;
    char name[STEP_NAME_BYTES];

    room_for = 0;
    save_slowly(b, 4);
    turn(b);
    ok(n_told == told, "where there is little room nobody hears of it ...");
    is_slow = false;
    sem_post(&may_go);
    ok(comes_to(b, &n_tidied, tidied + 2), "removing comes to its end");
    turn(b);
    ok(n_told == told + 1 && n_tidied_when_told == tidied + 2 && n_tidied == tidied + 2,
       "... until the others are gone, which stayed until it was read again");
    commit_bed_name(&b->saves, 4, name);
    is_str(b->lead->check.right.name, name, "as is known from then on");
    ok(!b->lead->check.is_running, "so nobody reads it once more");
    room_for = 9;
}

static void spoil(struct bed *b, uint64_t step)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];
    int fd;

    commit_bed_name(&b->saves, step, name);
    snprintf(path, sizeof(path), "%.4000s/%s/r00000.safetensors", b->saves.top, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    ok(fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && close(fd) == 0, "what is written is spoilt");
}

/* As long as there is room for the next one nobody waits until it was read again. */
static void test_room_for_one(struct bed *b)
{
    int told = n_told, tidied = n_tidied;

    room_for = 1;
    b->lead->check.is_running = true; /* nobody else reads it */
    save(b, 5);
    ok(comes_to(b, &n_tidied, tidied + 1), "older ones go as far as they may");
    turn(b);
    ok(n_told == told + 1 && n_tidied == tidied + 1,
       "with room for one more it is told before it was read again");
    ok(strcmp(b->lead->check.right.name, "") != 0 && is_there(b, 4) && is_there(b, 5),
       "and the one that is right stays");
    b->lead->check.is_running = false;
    room_for = 9;
    turn(b);
    commit_bed_remove(&b->saves, 5);
}

/* One that is not what was saved takes the place of none, however little room there is. */
static void test_short_and_spoilt(struct bed *b)
{
    int told = n_told;
    bool is_it_there;

    room_for = 0;
    b->saves.nth = 1; /* another save of that step */
    commit_bed_write(&b->saves, 5, N);
    spoil(b, 5);
    for (uint32_t r = 0; r < N; r++) {
        say(b, 5, r, SNAP_STAGE_WRITTEN);
    }
    for (int i = 0; i < 100 && n_told == told; i++) {
        turn(b);
    }
    turn(b);
    is_it_there = is_there(b, 5);
    commit_bed_remove(&b->saves, 5);
    b->saves.nth = 0;
    ok(n_told == told + 1 && is_it_there && is_there(b, 4), "the one before stays");
    b->saves.nth = 2; /* the next ones are of others */
    room_for = 9;
}

/* As a store does that is given what was saved just now. */
static void test_pinned(struct bed *b)
{
    char name[STEP_NAME_BYTES];

    commit_bed_name(&b->saves, 4, name);
    save_slowly(b, 5);
    is_str(tidied_pinned, "", "nothing is read");
    let_go(b);
    snprintf(b->pinned, sizeof(b->pinned), "%s/%s", b->saves.top, name);
    commit_bed_name(&b->saves, 5, name);
    snprintf(b->copied, sizeof(b->copied), "%s/%s", b->saves.top, name);
    commit_bed_name(&b->saves, 4, name);
    save_slowly(b, 6);
    is_str(tidied_pinned, name, "what is read by then is known");
    commit_bed_name(&b->saves, 5, name);
    is_str(tidied_copied, name, "and so is what is copied");
    let_go(b);
    b->pinned[0] = b->copied[0] = '\0';
}

static void test_waited_for(struct bed *b)
{
    ok(!lead_snap_ask_removed(NULL) && !lead_snap_ask_removed(b->lead),
       "nothing is being removed: no waiting");
    save_slowly(b, 7);
    ok(lead_snap_ask_removed(b->lead), "the end of a run waits for what is");
    ok(lead_snap_ask(b->lead), "so do the next workers");
    turn(b);
    ok(b->n_quiet == 0, "as long as it takes");
    let_go(b);
    for (int i = 0; i < 400 && b->n_quiet == 0; i++) {
        turn(b);
    }
    is_int((int)b->n_quiet, 1, "and no longer");
    ok(!lead_snap_ask(b->lead), "nor is there anything to wait for then");
    say(b, 8, 0, SNAP_STAGE_HELD);
    say(b, 8, 1, SNAP_STAGE_HELD);
    ok(!lead_snap_ask_removed(b->lead), "a save on its way is none of that");
    say(b, 8, 0, SNAP_STAGE_FAILED);
    turn(b);
}

/* More saves than anybody remembers, each come to nothing. */
static void test_forgotten(struct bed *b)
{
    int tidied = n_tidied;

    save_slowly(b, 9);
    for (uint64_t step = 100; step < 100 + MANY; step++) {
        say(b, step, 0, SNAP_STAGE_HELD);
        lead_snap_drop(b->lead->saves, EIO, "");
    }
    say(b, 200, 0, SNAP_STAGE_HELD);
    ok(lead_save_find(b->lead, commit_bed_uuid(&b->saves, 9)) &&
           !lead_save_find(b->lead, commit_bed_uuid(&b->saves, 100)),
       "one whose older ones are being removed is not forgotten");
    lead_snap_drop(lead_save_find(b->lead, commit_bed_uuid(&b->saves, 200)), EIO, "");
    let_go(b);
    save(b, 10);
    ok(comes_to(b, &n_tidied, tidied + 2) && is_there(b, 10), "the next one is saved");
    turn(b);
}

/* What was read again while others were at work: what may go then goes, by what was
 * known when that began. */
static void test_missed(struct bed *b)
{
    struct lead_check *check = &b->lead->check;
    char right[STEP_NAME_BYTES];
    int made_up_for;

    save_slowly(b, 11);
    turn(b); /* the one before was read again, or will be */
    str_copy(right, sizeof(right), check->right.name);
    made_up_for = n_made_up_for;
    check->lead = b->lead;
    check->is_missed = true;
    is_slow_to_make_up = true;
    let_go(b);
    for (int i = 0; i < 100 && (check->is_running || strcmp(check->right.name, right) == 0);
         i++) {
        turn(b);
    }
    ok(check->tidying.data, "what was missed is made up for");
    ok(check->is_missed && !check->is_running && strcmp(check->right.name, right) != 0,
       "the next one is found right meanwhile");
    is_str(check->tidy.verified, right, "nobody changes what is being worked by");
    is_slow_to_make_up = false;
    sem_post(&may_go);
    ok(comes_to(b, &n_made_up_for, made_up_for + 2), "and what may go then goes");
    turn(b);
    ok(!check->is_missed && strcmp(check->tidy.verified, right) != 0, "by that one");
}

static void test_dies(struct bed *b)
{
    int tidied = n_tidied;

    save_slowly(b, 12);
    lead_snap_destroy(b->lead);
    let_go(b);
    is_int(n_tidied, tidied + 1, "a lead that leaves meanwhile");
    begin(b);
    save(b, 13);
    lead_snap_destroy(b->lead); /* it is being committed */
    ok(comes_to(b, &n_tidied, tidied + 2) && is_there(b, 13),
       "or before: it is seen to all the same");
    turn(b);
}

static bool has_lease(struct bed *b)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/.muster-run-x", b->saves.top);
    return access(path, F_OK) == 0;
}

/* Until there is one, or none, for 20 s at most. */
static bool lease_is(struct bed *b, bool is_there)
{
    uint64_t end_ms = clock_mono_ms() + 20000;

    while (has_lease(b) != is_there && clock_mono_ms() < end_ms) {
        turn(b);
    }
    turn(b);
    return has_lease(b) == is_there;
}

/* The directory is this run's until nobody leads it any more. */
static void test_lease(struct bed *b)
{
    unsigned n_quiet = b->n_quiet;
    int tidied = n_tidied;

    ok(has_lease(b), "a lead that has left leaves what another one goes on with");
    begin(b);
    save_slowly(b, 14);
    lead_snap_leave(b->lead);
    ok(lead_snap_ask_removed(b->lead), "the end of the run");
    turn(b);
    ok(has_lease(b) && b->n_quiet == n_quiet, "waits for what is being removed");
    let_go(b);
    ok(comes_to(b, &n_tidied, tidied + 1), "it is");
    ok(lease_is(b, false), "then others may have the directory");
    is_int((int)b->n_quiet, (int)n_quiet + 1, "and it goes on");
    save(b, 15);
    ok(comes_to(b, &n_tidied, tidied + 2), "a save that comes late");
    ok(lease_is(b, true), "has the directory again");
    lead_snap_destroy(b->lead);
    ok(lease_is(b, false), "and leaves nothing either");
}

/* Another run may be alive, for all that can be seen: whoever waits for what is saved does
 * not give it up before that is known. */
static void test_lease_is_asked(struct bed *b)
{
    char path[PATH_MAX + 32];
    int tidied = n_tidied;
    uint64_t moved_ms;

    snprintf(path, sizeof(path), "%s/.muster-run-other", b->saves.top);
    fs_write_replace(path, "?", 1, NULL);
    begin(b);
    save(b, 16);
    ok(lead_snap_ask(b->lead), "a save is waited for");
    moved_ms = b->lead->moved_ms;
    for (int i = 0; i < 60 && b->lead->moved_ms == moved_ms; i++) {
        turn(b);
    }
    ok(b->lead->moved_ms > moved_ms && !is_there(b, 16), "and itself waits for another run");
    b->lead->leases->asks_ms -= 80 * 1000;
    moved_ms = b->lead->moved_ms;
    for (int i = 0; i < 50; i++) {
        turn(b);
    }
    ok(b->lead->moved_ms == moved_ms, "but not for one that hangs");
    unlink(path);
    ok(comes_to(b, &n_tidied, tidied + 1) && is_there(b, 16), "which is over");
    turn(b);
    lead_snap_leave(b->lead);
    lead_snap_destroy(b->lead);
    ok(lease_is(b, false), "nothing is left");
}

static bool has_dir(struct bed *b, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", b->saves.top, name);
    return access(path, F_OK) == 0;
}

static void make_dir(struct bed *b, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", b->saves.top, name);
    if (mkdir(path, 0700) < 0) {
        bail_out("mkdir %s", path);
    }
}

/* Somebody was killed who saved there before. */
static void test_swept(struct bed *b)
{
    static const char before[] = "step-000000000003-0badc0de";
    static const char behind[] = "step-000000000099-0badc0de";
    int tidied = n_tidied, made_up_for;

    make_dir(b, before);
    make_dir(b, behind);
    begin(b);
    save(b, 17);
    ok(comes_to(b, &n_tidied, tidied + 1) && is_there(b, 17), "a save");
    save(b, 18);
    ok(comes_to(b, &n_tidied, tidied + 2) && is_there(b, 18), "and another one");
    turn(b);
    ok(has_dir(b, before), "what was never finished may be somebody's");
    ok(!lead_snap_ask_removed(b->lead), "nobody waits for it");
    wait_for_check(b);
    made_up_for = n_made_up_for;
    is_slow_to_make_up = true;
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "but where the run ends");
    is_slow_to_make_up = false;
    sem_post(&may_go);
    ok(comes_to(b, &n_made_up_for, made_up_for + 1), "it is looked at once more");
    turn(b);
    ok(!has_dir(b, before), "and goes");
    ok(has_dir(b, behind) && is_there(b, 18), "but what is of a later step, or finished");
    ok(n_made_up_for <= made_up_for + 2, "once, and again if the last one is read then");
    ok(!lead_snap_ask_removed(b->lead), "and that was all");
    lead_snap_leave(b->lead);
    lead_snap_destroy(b->lead);
    ok(lease_is(b, false), "nothing is left");
}

/* Saves that came too fast for any of them to be read again. */
static void test_last_is_read(struct bed *b)
{
    int tidied = n_tidied;
    unsigned n_quiet = b->n_quiet;

    begin(b);
    b->lead->check.is_running = true; /* nobody else reads */
    for (uint64_t step = 20; step < 23; step++) {
        save(b, step);
        ok(comes_to(b, &n_tidied, ++tidied) && is_there(b, step), "a save");
        turn(b);
    }
    ok(is_there(b, 20) && is_there(b, 21), "nobody knows which is right: all stay");
    b->lead->check.is_running = false;
    lead_snap_end(b->lead);
    ok(lead_snap_ask_removed(b->lead), "the end of the run waits");
    for (int i = 0; i < 400 && b->n_quiet == n_quiet; i++) {
        turn(b);
    }
    is_int((int)(b->n_quiet - n_quiet), 1, "until the last was read again");
    ok(!is_there(b, 20) && !is_there(b, 21) && is_there(b, 22), "and older ones are gone");
    lead_snap_leave(b->lead);
    lead_snap_destroy(b->lead);
    ok(lease_is(b, false), "nothing is left");
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    if (!b || sem_init(&may_go, 0, 0) < 0) {
        bail_out("memory");
    }
    lead_bed_make(&b->agent);
    commit_bed_open(&b->saves, b->agent.run.dir);
    b->agent.config.job->checkpoint.keep = 1;
    begin(b);
    test_told_first(b);
    test_short(b);
    test_room_for_one(b);
    test_short_and_spoilt(b);
    test_pinned(b);
    test_waited_for(b);
    test_forgotten(b);
    test_missed(b);
    test_dies(b);
    test_lease(b);
    is_int(atomic_load(&n_shared), 0, "no child has what a thread opens to tidy up");
    test_lease_is_asked(b);
    test_swept(b);
    test_last_is_read(b);
    commit_bed_close(&b->saves);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
