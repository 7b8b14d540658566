/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which saves wait in memory for the lead's word, and what an agent makes of that: what is
 * to go to the disk goes, what somebody waits for is told of, and what has lost its place
 * is given up.
 */
#include <config.h>

#include "launcher/agent_snap_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_RANK = 4 };

static const unsigned disk = 1u << INTERVAL_DISK, partner = 1u << INTERVAL_PARTNER,
                      untold = 1u << INTERVAL_MEMORY;

/* What the lead was told last, and of which save its worker. */
static char told[1024];
static int n_told;
static const struct saved *worker;

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);
void __wrap_agent_snap_tell_own(struct agent *a, const struct saved *s);

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    n_told++;
    snprintf(told, sizeof(told), "%.*s", (int)w->to->len, w->to->data);
}

void __wrap_agent_snap_tell_own(struct agent *a, const struct saved *s)
{
    (void)a;
    worker = s;
}

/* What is written while it is filled, and what no longer is. */
static struct {
    int n_begun, n_ended;
    uint32_t rank; /* of the last one */
    uint64_t bytes;
    bool is_crowded;
    char uuid[COMMIT_UUID_BYTES];
} ahead;

void __wrap_snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                                  uint64_t image_bytes, bool is_crowded);
void __wrap_snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid);

void __wrap_snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                                  uint64_t image_bytes, bool is_crowded)
{
    (void)h;
    ahead.n_begun++;
    ahead.rank = rank;
    ahead.bytes = image_bytes;
    ahead.is_crowded = is_crowded;
    str_copy(ahead.uuid, sizeof(ahead.uuid), uuid);
}

void __wrap_snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    (void)h;
    ahead.n_ended++;
    ahead.rank = rank;
    str_copy(ahead.uuid, sizeof(ahead.uuid), uuid);
}

static void open_bed(struct agent_snap_bed *b)
{
    agent_snap_bed_open(b);
    b->crew.layout.first_rank = FIRST_RANK;
    b->agent.config.job->checkpoint.disk_every_ms = 1000;
    told[0] = '\0';
    worker = NULL;
    n_told = 0;
}

/* The worker says of its next save that memory is enough; that one waits for these levels. */
static unsigned waits_of(struct agent_snap_bed *b, const char *uuid, bool is_chosen)
{
    struct worker_snap_want w = {.level = WORKER_SNAP_HELD, .is_chosen = is_chosen};

    str_copy(w.uuid, sizeof(w.uuid), uuid);
    agent_snap_want(&b->crew, 0, &w);
    return agent_snap_waiting(&b->crew, FIRST_RANK, uuid);
}

/* --- which wait --- */

static void test_said(struct agent_snap_bed *b)
{
    struct worker_snap_want other = {.level = WORKER_SNAP_HELD, .uuid = UUID(4)};

    open_bed(b);
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK, UUID(1)), 0,
           "a save of which nothing is said goes everywhere");
    is_int(waits_of(b, UUID(1), false), disk | untold, "one that may stay waits for the lead");
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK, UUID(1)), 0, "once");
    waits_of(b, UUID(2), false);
    agent_snap_want(&b->crew, 1, &other);
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK, UUID(4)), 0, "not for another rank's word");
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK + 1, UUID(3)), 0, "nor of another save");
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK + 1, UUID(4)), disk | untold,
           "but that rank's own");
    b->crew.stopping = true;
    is_int(waits_of(b, UUID(5), false), 0, "workers that end save for the disk");
    agent_snap_bed_close(b);
}

static void test_levels(struct agent_snap_bed *b)
{
    struct job_checkpoint *k;

    open_bed(b);
    k = &b->agent.config.job->checkpoint;
    k->partner_every_ms = 1000;
    is_int(waits_of(b, UUID(1), false), disk | untold, "there is no partner to wait for");
    b->snap.copy = (struct snap_copy *)(void *)b; /* there is */
    is_int(waits_of(b, UUID(1), false), disk | partner | untold, "there is one");
    k->disk_every_ms = 0;
    is_int(waits_of(b, UUID(1), false), partner | untold, "each goes to the disk");
    k->partner_every_ms = 0;
    is_int(waits_of(b, UUID(1), true), 0, "each goes everywhere");
    k->disk_every_ms = JOB_AUTO;
    is_int(waits_of(b, UUID(1), false), 0, "muster picks: not for a program that picks itself");
    is_int(waits_of(b, UUID(1), true), disk | untold, "but where muster has");
    b->snap.copy = NULL;
    agent_snap_bed_close(b);
}

/* What is being filled goes to the disk meanwhile only where it goes there in any case. */
static void test_for_disk(struct agent_snap_bed *b)
{
    static const struct {
        uint64_t every_ms;
        bool of[2][2]; /* what need not stay, and may; by who picks: the program, muster */
    } cases[] = {
        {0, {{true, true}, {true, true}}},
        {1000, {{true, true}, {false, false}}},
        {JOB_AUTO, {{true, true}, {true, false}}},
    };
    struct worker_snap_fill m = {.image_bytes = 1 << 20, .uuid = UUID(1)};

    open_bed(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        b->agent.config.job->checkpoint.disk_every_ms = cases[i].every_ms;
        for (int k = 0; k < 4; k++) {
            m.may_stay = (uint8_t)(k >> 1);
            m.is_chosen = k & 1;
            is_int(agent_snap_is_for_disk(&b->crew, &m), cases[i].of[k >> 1][k & 1],
                   "the disk has case %zu, %s, picked by %s", i,
                   m.may_stay ? "which may stay" : "which does not stay",
                   m.is_chosen ? "muster" : "the program");
        }
    }
    agent_snap_bed_close(b);
}

static void test_fill(struct agent_snap_bed *b)
{
    struct worker_snap_fill m = {.image_bytes = 9000, .uuid = UUID(1)},
                            none = {.uuid = UUID(2)};

    open_bed(b);
    memset(&ahead, 0, sizeof(ahead));
    agent_snap_fill(&b->crew, 2, &m);
    ok(ahead.n_begun == 1 && ahead.rank == FIRST_RANK + 2 && ahead.bytes == 9000,
       "what is being filled goes to the disk");
    is_str(ahead.uuid, UUID(1), "that save");
    ok(!ahead.is_crowded, "of which digests are found meanwhile");
    m.is_crowded = 1;
    agent_snap_fill(&b->crew, 2, &m);
    ok(ahead.n_begun == 2 && ahead.is_crowded, "or when it is full, without a processor for that");
    ahead.n_begun = 1;
    m.may_stay = 1;
    agent_snap_fill(&b->crew, 2, &m);
    is_int(ahead.n_begun, 1, "unless it may stay in memory");
    m.may_stay = 0;
    b->crew.stopping = true;
    agent_snap_fill(&b->crew, 2, &m);
    ok(ahead.n_begun == 1 && ahead.n_ended == 0, "or the workers end");
    agent_snap_fill(&b->crew, 3, &none);
    ok(ahead.n_begun == 1 && ahead.n_ended == 1 && ahead.rank == FIRST_RANK + 3,
       "what comes to nothing no longer does, also then");
    is_str(ahead.uuid, UUID(2), "that one");
    b->crew.stopping = false;
    for (none.may_stay = 0; none.may_stay < 2; none.may_stay++) {
        agent_snap_fill(&b->crew, 3, &none);
        ok(ahead.n_begun == 1 && ahead.n_ended == 2 + none.may_stay, "wherever it was to go to");
    }
    b->agent.snap = NULL;
    agent_snap_fill(&b->crew, 2, &m);
    agent_snap_fill(&b->crew, 2, &none);
    ok(ahead.n_begun == 1 && ahead.n_ended == 3, "an agent that holds none hears of it in vain");
    b->agent.snap = &b->snap;
    agent_snap_bed_close(b);
}

/* Somebody has asked for a checkpoint: of the next two one is meant. */
static void test_asked(struct agent_snap_bed *b)
{
    open_bed(b);
    b->crew.n_checkpoints = 1;
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK, UUID(1)), 0, "the next one goes everywhere");
    is_int(waits_of(b, UUID(2), false), 0, "and the one after it");
    is_int(waits_of(b, UUID(3), false), disk | untold, "but no third");
    b->crew.n_checkpoints = 2;
    is_int(agent_snap_waiting(&b->crew, FIRST_RANK, UUID(4)), 0, "asked again: one that");
    is_int(waits_of(b, UUID(5), false), 0, "says nothing counts, too");
    is_int(waits_of(b, UUID(6), false), disk | untold, "then it is as before");
    agent_snap_bed_close(b);
}

/* What is in one directory takes no place from what is in another. */
static void test_directories(struct agent_snap_bed *b)
{
    open_bed(b);
    hold_bed_begin(&b->hold, FIRST_RANK, 1, UUID(1), HOLD_ROOM);
    is_int(waits_of(b, UUID(1), false), disk | untold, "one directory");
    snprintf(b->hold.root, sizeof(b->hold.root), "%s/other", b->hold.top);
    mkdir(b->hold.root, 0700);
    hold_bed_begin(&b->hold, FIRST_RANK, 2, UUID(2), HOLD_ROOM);
    is_int(waits_of(b, UUID(2), false), 0, "another one: that goes to the disk");
    is_int(waits_of(b, UUID(1), false), 0, "and from now on all do");
    agent_snap_bed_close(b);
}

/* --- what becomes of them --- */

static struct saved *add(struct agent_snap_bed *b, uint32_t rank, uint64_t step, const char *uuid,
                         unsigned waits)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s) {
        bail_out("memory");
    }
    s->head = (struct snap_head){.rank = rank, .step = step, .generation = 2, .n_ranks = 8};
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    str_copy(s->head.root, sizeof(s->head.root), b->hold.root);
    s->stage = SNAP_STAGE_HELD;
    s->waits = waits;
    s->next = b->snap.saved;
    b->snap.saved = s;
    return s;
}

static void test_wanted(struct agent_snap_bed *b)
{
    struct worker_snap_want w = {.level = WORKER_SNAP_DURABLE, .uuid = UUID(1)};
    struct saved *s, *other;

    open_bed(b);
    other = add(b, FIRST_RANK + 1, 1, UUID(1), disk);
    s = add(b, FIRST_RANK, 1, UUID(1), 0);
    agent_snap_want(&b->crew, 0, &w);
    ok(!s->is_wanted && n_told == 0, "one that goes everywhere is waited for as it is");
    s->waits = disk;
    w.level = WORKER_SNAP_HELD;
    agent_snap_want(&b->crew, 0, &w);
    ok(!s->is_wanted && n_told == 0, "one for which memory is enough is not waited for");
    w.level = WORKER_SNAP_DURABLE;
    agent_snap_want(&b->crew, 0, &w);
    ok(s->is_wanted && !other->is_wanted, "one that stays in memory is to go to the disk");
    ok(n_told == 1 && strstr(told, UUID(1)) && strstr(told, "\"wanted\":1"),
       "which the lead hears: %s", told);
    agent_snap_want(&b->crew, 0, &w);
    is_int(n_told, 1, "once");
    agent_snap_bed_close(b);
}

static void test_go(struct agent_snap_bed *b)
{
    struct saved *s, *other, *copy;

    open_bed(b);
    hold_bed_stay(&b->hold, 0, 1, UUID(1));
    other = add(b, 0, 2, UUID(2), disk | untold);
    copy = add(b, 1, 1, UUID(1), disk | untold);
    copy->is_copy = true;
    s = add(b, 0, 1, UUID(1), disk | partner | untold);
    agent_snap_go(&b->agent, UUID(1), partner);
    is_int(s->waits, disk, "the lead says that it goes to the partner alone");
    ok(worker == s, "which its worker hears");
    is_int(snap_hold_n_writing(b->hold.hold), 0, "nothing is written");
    agent_snap_go(&b->agent, UUID(1), disk | partner);
    is_int(s->waits, 0, "then that it goes to the disk");
    ok(other->waits == (disk | untold) && copy->waits == (disk | untold),
       "not another one, nor a copy");
    hold_bed_run_until(&b->hold, &b->hold.said.n_written, 1);
    is_int(n_told, 0, "of which is told when it is there");
    agent_snap_go(&b->agent, UUID(2), disk);
    ok(other->stage == SNAP_STAGE_FAILED && other->error == ENOENT,
       "one that is not in memory any more has failed");
    ok(n_told == 1 && strstr(told, UUID(2)), "of which the lead hears: %s", told);
    agent_snap_bed_close(b);
}

/* A rank has begun another save, in memory of one that was nowhere else. */
static void test_taken(struct agent_snap_bed *b)
{
    struct saved *s, *there, *on_disk, *other, *copy;

    open_bed(b);
    hold_bed_stay(&b->hold, 0, 2, UUID(2));
    other = add(b, 1, 1, UUID(1), disk);
    on_disk = add(b, 0, 3, UUID(3), 0);
    there = add(b, 0, 2, UUID(2), disk);
    copy = add(b, 0, 1, UUID(1), disk);
    copy->is_copy = true;
    s = add(b, 0, 1, UUID(1), disk);
    agent_snap_taken(&b->snap, 0);
    ok(s->stage == SNAP_STAGE_FAILED && s->error == ESTALE, "it is given up");
    like(s->why, "a later one has its place", "and why");
    ok(n_told == 1 && strstr(told, UUID(1)), "the lead hears of it");
    ok(there->stage == SNAP_STAGE_HELD && on_disk->stage == SNAP_STAGE_HELD &&
           other->stage == SNAP_STAGE_HELD && copy->stage == SNAP_STAGE_HELD,
       "not one that is there, or goes to the disk, nor another rank's, nor a copy");
    agent_snap_bed_close(b);
}

/* Nothing later will come: the newest of each directory is to go to the disk. */
static void test_flush(struct agent_snap_bed *b)
{
    struct saved *older, *newest, *elsewhere, *failed, *copy, *goes;

    open_bed(b);
    older = add(b, 0, 1, UUID(1), disk);
    newest = add(b, 0, 2, UUID(2), disk);
    failed = add(b, 0, 3, UUID(3), disk);
    failed->stage = SNAP_STAGE_FAILED;
    copy = add(b, 1, 4, UUID(4), disk);
    copy->is_copy = true;
    elsewhere = add(b, 0, 1, UUID(5), disk);
    str_copy(elsewhere->head.root, sizeof(elsewhere->head.root), "/other");
    goes = add(b, 0, 1, UUID(6), partner);
    str_copy(goes->head.root, sizeof(goes->head.root), "/third");
    agent_snap_flush(&b->snap);
    ok(newest->is_wanted && elsewhere->is_wanted, "the newest of two directories");
    ok(!older->is_wanted && !failed->is_wanted && !copy->is_wanted && !goes->is_wanted,
       "not an older one, one that has failed, a copy, nor one that goes there anyway");
    is_int(n_told, 2, "the lead hears of both");
    agent_snap_flush(&b->snap);
    is_int(n_told, 2, "once");
    agent_snap_bed_close(b);
}

int main(void)
{
    struct agent_snap_bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    test_said(b);
    test_levels(b);
    test_for_disk(b);
    test_fill(b);
    test_asked(b);
    test_directories(b);
    test_wanted(b);
    test_go(b);
    test_taken(b);
    test_flush(b);
    free(b);
    return tap_done();
}
