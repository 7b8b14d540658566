/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent answers its workers: memory to save into, whatever becomes of what is in it;
 * and what one of them looks for.
 */
#include <config.h>

#include "launcher/saves_bed.h"

#include "base/str.h"
#include "ckpt/part.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct saves_bed saves_bed;

/* --- a save --- */

static uint64_t token_of(struct saves_bed *b, uint32_t rank, const char *uuid)
{
    struct snap *s = snap_hold_fill(b->agent.snap->hold, rank, uuid);

    return s ? s->head.token : 0;
}

static void test_saved(struct saves_bed *b)
{
    const uint64_t first = (uint64_t)SAVES_GENERATION << 32;

    saves_bed_open(b);
    saves_bed_begin(b, 1, 9, UUID(1), SAVES_ROOM);
    saves_bed_run_until(b, &b->answered.n, 1);
    ok(b->answered.socket == saves_bed_socket(1) && b->answered.connection == 71 &&
           b->answered.fd >= 0 && b->answered.snap.error == 0,
       "a worker gets memory: %s", b->answered.snap.why);
    ok((fcntl(b->answered.fd, F_GETFD) & FD_CLOEXEC) && b->answered.snap.bytes == SAVES_ROOM &&
           b->answered.snap.is_bare && b->answered.snap.step == 9,
       "of which it takes what it needs");
    is_str(b->answered.snap.uuid, UUID(1), "for that save");
    ok(!b->agent.snap->questions, "the question is answered");
    ok(token_of(b, SAVES_FIRST + 1, UUID(1)) == first + 1, "which is the first of that rank");
    saves_bed_done(b, 1, UUID(1), saves_bed_fill(b, SAVES_FIRST + 1, 9, UUID(1)));
    ok(b->worker.n == 1 && b->worker.socket == saves_bed_socket(1) &&
           b->worker.status.level == WORKER_SNAP_HELD && b->worker.status.error == 0,
       "once it is there it outlives the worker");
    ok(b->n_told >= 1 && strstr(b->told, UUID(1)) && strstr(b->told, "\"rank\":5") &&
           strstr(b->told, "\"ranks\":8") && strstr(b->told, "\"token\":12884901889") &&
           strstr(b->told, "\"error\":0"),
       "which the lead hears: %s", b->told);
    ok(b->n_drained == 1 && b->n_sent == 1 && b->n_made_ahead == 1, "it goes everywhere");
    ok(uv_is_active((uv_handle_t *)b->agent.snap->timer), "and is told of again");
    saves_bed_run_until(b, &b->n_told, 2);
    ok(strstr(b->told, "\"stage\":2") && b->agent.snap->saved->stage == SNAP_STAGE_WRITTEN,
       "it gets to the disk: %s", b->told);
    saves_bed_begin(b, 1, 10, UUID(2), SAVES_ROOM);
    saves_bed_run_until(b, &b->answered.n, 2);
    saves_bed_begin(b, 1, 10, UUID(2), SAVES_ROOM);
    saves_bed_run_until(b, &b->answered.n, 3);
    ok(token_of(b, SAVES_FIRST + 1, UUID(2)) == first + 2, "the next one has the next token, once");
    is_int(b->agent.snap->served, SAVES_GENERATION, "for ranks of that generation");
    saves_bed_close(b);
}

static void test_not_written(struct saves_bed *b)
{
    saves_bed_open(b);
    str_copy(b->root, sizeof(b->root), "/nonexistent/agent_snap_test");
    saves_bed_save(b, 0, 9, UUID(1));
    saves_bed_run_until(b, &b->n_told, 2);
    ok(b->agent.snap->saved && b->agent.snap->saved->stage == SNAP_STAGE_FAILED,
       "one that does not get to the disk has failed");
    ok(strstr(b->told, "\"error\":2,") && !strstr(b->told, "\"why\":\"\""), "and why: %s", b->told);
    saves_bed_close(b);
}

static void test_refused(struct saves_bed *b)
{
    struct worker_snap_done m = {.image_bytes = SAVES_IMAGE, .uuid = UUID(3)};

    saves_bed_open(b);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_DISK;
    saves_bed_begin(b, 0, 9, UUID(1), SAVES_ROOM);
    ok(b->answered.n == 1 && b->answered.snap.error == ENOTSUP && b->n_notes == 0,
       "a job that wants none: %s", b->answered.snap.why);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_MEMORY;
    b->answered.n = 0;
    saves_bed_begin(b, 0, 9, UUID(1), (uint64_t)1 << 60);
    ok(b->answered.n == 1 && b->answered.fd < 0 && b->answered.snap.error == ENOMEM &&
           b->answered.snap.why[0],
       "more than there is: %s", b->answered.snap.why);
    ok(!b->agent.snap->questions && b->n_notes == 1, "people are told why workers wait");
    saves_bed_begin(b, 1, 9, UUID(1), (uint64_t)1 << 60);
    ok(b->answered.n == 2 && b->n_notes == 1, "once");
    agent_snap_done(&b->crew, 0, &m);
    ok(b->worker.status.level == WORKER_SNAP_NONE && b->worker.status.error == ENOENT &&
           b->n_told == 0,
       "one that was never begun is none");
    saves_bed_close(b);
}

/* The workers that asked are gone. */
static void test_late(struct saves_bed *b)
{
    int before;

    saves_bed_open(b);
    saves_bed_begin(b, 0, 9, UUID(1), SAVES_ROOM);
    saves_bed_wait_answered(b);
    saves_bed_forget(b);
    before = fds_n_open();
    saves_bed_begin(b, 1, 9, UUID(1), SAVES_ROOM);
    b->crew.generation++;
    saves_bed_wait_answered(b);
    is_int(b->answered.n, 0, "nobody is answered");
    is_int(fds_n_open(), before + 1, "nothing stays open but the memory");
    b->crew.generation = SAVES_GENERATION;
    saves_bed_close(b);
}

static void test_two(struct saves_bed *b)
{
    saves_bed_open(b);
    saves_bed_begin(b, 0, 9, UUID(1), SAVES_ROOM);
    saves_bed_begin(b, 1, 9, UUID(2), SAVES_ROOM);
    saves_bed_wait_answered(b);
    is_int(b->answered.n, 2, "two ask at once");
    is_str(b->answered.uuid_of[0], UUID(1), "each hears of its own");
    is_str(b->answered.uuid_of[1], UUID(2), "each hears of its own");
    saves_bed_close(b);
}

static void test_stays(struct saves_bed *b)
{
    struct worker_snap_want want = {.level = WORKER_SNAP_HELD, .uuid = UUID(1)};

    saves_bed_open(b);
    b->agent.config.job->checkpoint.disk_every_ms = 1000;
    saves_bed_begin(b, 0, 9, UUID(1), SAVES_ROOM);
    saves_bed_run_until(b, &b->answered.n, 1);
    agent_snap_want(&b->crew, 0, &want);
    saves_bed_begin(b, 1, 9, UUID(1), SAVES_ROOM);
    saves_bed_run_until(b, &b->answered.n, 2);
    saves_bed_done(b, 0, UUID(1), saves_bed_fill(b, SAVES_FIRST, 9, UUID(1)));
    ok(b->n_drained == 0 && b->agent.snap->saved->waits, "one that may stay waits for the lead");
    ok(strstr(b->told, "\"waits\":") && strstr(b->told, "\"wanted\":0"), "who hears it: %s",
       b->told);
    b->crew.stopping = true;
    saves_bed_forget(b);
    saves_bed_save(b, 1, 9, UUID(1));
    ok(b->n_drained == 1 && b->n_made_ahead == 0, "the last one makes no room for another");
    b->crew.generation++;
    saves_bed_begin(b, 1, 10, UUID(2), SAVES_ROOM);
    ok(!b->agent.snap->may_stay, "what workers before have said holds no more");
    saves_bed_wait_answered(b);
    saves_bed_close(b);
}

/* A later one takes the memory of one that is nowhere else. */
static void test_taken(struct saves_bed *b)
{
    struct saved *s;

    saves_bed_open(b);
    s = saves_bed_add(b, SAVES_FIRST, UUID(7));
    s->waits = 1u << INTERVAL_DISK;
    saves_bed_begin(b, 0, 9, UUID(1), SAVES_ROOM);
    ok(s->stage == SNAP_STAGE_FAILED && s->error == ESTALE, "which has failed by that");
    saves_bed_wait_answered(b);
    saves_bed_close(b);
}

static void test_ahead(struct saves_bed *b)
{
    struct worker_snap_fill m = {.image_bytes = SAVES_IMAGE, .uuid = UUID(1)};

    saves_bed_open(b);
    agent_snap_fill(&b->crew, 0, &m);
    ok(b->n_ahead_begun == 1 && b->n_ahead_ended == 0,
       "one that is filled goes to the disk meanwhile");
    b->crew.stopping = true;
    agent_snap_fill(&b->crew, 0, &m);
    is_int(b->n_ahead_begun, 1, "not where its worker is to end");
    b->crew.stopping = false;
    b->agent.config.job->checkpoint.disk_every_ms = 1000;
    m.may_stay = true;
    agent_snap_fill(&b->crew, 0, &m);
    is_int(b->n_ahead_begun, 1, "nor where it may stay in memory");
    m.image_bytes = 0;
    agent_snap_fill(&b->crew, 0, &m);
    ok(b->n_ahead_begun == 1 && b->n_ahead_ended == 1, "one that comes to nothing does not");
    saves_bed_close(b);
}

/* --- looking for one --- */

static void look(struct saves_bed *b, uint32_t local_rank, uint32_t rank, const char *uuid)
{
    struct worker_snap_find find = {.rank = rank};

    saves_bed_forget(b);
    str_copy(find.uuid, sizeof(find.uuid), uuid);
    agent_snap_find(&b->crew, local_rank, 5, &find);
}

static void test_find(struct saves_bed *b)
{
    saves_bed_open(b);
    saves_bed_save(b, 0, 9, UUID(1));
    saves_bed_run_until(b, &b->n_told, 2);
    look(b, 0, SAVES_FIRST, UUID(1));
    ok(b->answered.n == 1 && b->answered.fd >= 0 && b->answered.snap.step == 9 &&
           b->answered.snap.image_bytes == SAVES_IMAGE && b->answered.snap.part_bytes > 0,
       "its own");
    ok(pwrite(b->answered.fd, "x", 1, 0) < 0, "only to be read");
    look(b, 1, SAVES_FIRST, UUID(1));
    ok(b->answered.fd >= 0, "another one of this node has it, too");
    look(b, 0, SAVES_FIRST, UUID(2));
    ok(b->answered.n == 1 && b->answered.fd < 0 && b->answered.snap.error == ENOENT &&
           b->n_fetches == 1,
       "one that nobody has: %s", b->answered.snap.why);
    look(b, 1, SAVES_FIRST, UUID(2));
    ok(b->answered.n == 1 && b->n_fetches == 0, "nobody else's is fetched");
    saves_bed_forget(b);
    b->fetches = true;
    agent_snap_find(&b->crew, 0, 5,
                    &(struct worker_snap_find){.rank = SAVES_FIRST, .uuid = UUID(2)});
    ok(b->answered.n == 0 && b->n_fetches == 1, "one that another node has is answered later");
    look(b, 0, SAVES_FIRST, "");
    ok(b->answered.n == 1 && b->answered.snap.error == ENOENT, "none is part of a checkpoint yet");
    snap_hold_settle(b->agent.snap->hold, UUID(1), true);
    look(b, 0, SAVES_FIRST, "");
    ok(b->answered.fd >= 0 && b->answered.snap.step == 9, "then one is");
    saves_bed_close(b);
}

/* What is kept here of ranks that run elsewhere is in a hold of its own. */
static void test_find_copy(struct saves_bed *b)
{
    struct snap_hold_config config = {.dir = b->root, .budget = 1 << 20, .budget_why = "",
                                      .io = io_system(), .finish = part_finish};
    struct snap_hold *own = NULL;
    struct agent_snap *p;
    struct error e = {0};

    saves_bed_open(b);
    saves_bed_save(b, 0, 9, UUID(1));
    saves_bed_run_until(b, &b->n_told, 2);
    p = b->agent.snap;
    config.loop = &b->agent.loop;
    if (snap_hold_create(&config, &own, &e) < 0) {
        bail_out("no hold: %s", e.text);
    }
    snap_hold_settle(p->hold, UUID(1), true);
    p->copies = p->hold;
    p->hold = own;
    b->crew.layout.first_rank = 0;
    look(b, 1, SAVES_FIRST, UUID(1));
    ok(b->answered.fd >= 0 && b->answered.snap.step == 9, "a copy is handed out");
    look(b, 1, SAVES_FIRST, "");
    ok(b->answered.n == 1 && b->answered.snap.error == ENOENT, "not as the newest of that rank");
    b->crew.layout.first_rank = SAVES_FIRST;
    p->hold = p->copies;
    p->copies = NULL;
    snap_hold_destroy(own);
    saves_bed_close(b);
}

int main(void)
{
    test_saved(&saves_bed);
    test_not_written(&saves_bed);
    test_refused(&saves_bed);
    test_late(&saves_bed);
    test_two(&saves_bed);
    test_stays(&saves_bed);
    test_taken(&saves_bed);
    test_ahead(&saves_bed);
    test_find(&saves_bed);
    test_find_copy(&saves_bed);
    return tap_done();
}
