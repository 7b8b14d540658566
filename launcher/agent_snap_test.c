/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent and what its workers save: what they are answered, what the lead is told, and for
 * how long it is waited for. Memory, threads and files are real; the workers' sockets, the
 * order, other agents and the time are the linker's hand.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/part.h"
#include "ckpt/step.h"
#include "launcher/lead_bed.h"
#include "launcher/snap_bed.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FIRST = 4, N = 2, WORLD = 8, GENERATION = 3,
    IMAGE = 5000, ROOM = 8 * SNAP_PAGE_BYTES,
};

struct bed {
    struct agent agent;
    struct crew crew;
    struct crew_worker workers[N];
    char root[160];
};

/* --- what others are told --- */

static struct order order;
static uint64_t now_ms;
static char told[1024]; /* the lead, last */
static int n_told, n_notes, n_finished, n_fetches, n_forgot, n_sent, n_flushed;
static bool fetches; /* it may come from another node */
static struct agent_snap *settles; /* as soon as it is to go to the disk */
static int n_ahead_begun, n_ahead_ended, n_drained, n_made_ahead;
static uint64_t n_written; /* bytes, of a hold ... */
static const struct snap_hold *asked_of;

static struct {
    int n;
    struct worker_socket *socket;
    uint64_t connection;
    struct worker_snap snap;
    int fd;
    char uuid_of[N][WORKER_UUID_SIZE]; /* by connection, from 70 on */
} answered;
static struct {
    int n;
    struct worker_socket *socket;
    struct worker_snap_status status;
} worker;

const struct order *__wrap_member_order(const struct member *m);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);
void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_crew_finish(struct crew *c);
bool __wrap_agent_fetch_begin(struct agent_snap *p, const struct snap_question *q,
                              uint32_t rank, const char *uuid);
void __wrap_agent_fetch_forget(struct agent_snap *p);
void __wrap_agent_partner_send(struct crew *c, struct saved *s);
void __wrap_agent_snap_flush(struct agent_snap *p);
void __wrap_snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                                  uint64_t image_bytes);
void __wrap_snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid);
void __wrap_snap_hold_make_ahead(struct snap_hold *h, uint32_t rank);
void __real_snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid);
void __wrap_snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid);
uint64_t __wrap_snap_hold_n_written(const struct snap_hold *h, uint32_t rank,
                                    const char *uuid);
void __wrap_worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                                      const struct worker_snap *snap, int fd);
void __wrap_worker_socket_tell_snap(struct worker_socket *w,
                                    const struct worker_snap_status *status);

const struct order *__wrap_member_order(const struct member *m)
{
    (void)m;
    return &order;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    n_told++;
    snprintf(told, sizeof(told), "%.*s", (int)w->to->len, w->to->data);
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    (void)a, (void)fmt;
    n_notes++;
}

void __wrap_crew_finish(struct crew *c)
{
    (void)c;
    n_finished++;
}

bool __wrap_agent_fetch_begin(struct agent_snap *p, const struct snap_question *q,
                              uint32_t rank, const char *uuid)
{
    (void)p, (void)q, (void)rank, (void)uuid;
    n_fetches++;
    return fetches;
}

void __wrap_agent_fetch_forget(struct agent_snap *p)
{
    (void)p;
    n_forgot++;
}

void __wrap_agent_partner_send(struct crew *c, struct saved *s)
{
    (void)c, (void)s;
    n_sent++;
}

static void settle_all(struct agent_snap *p)
{
    while (p->saved) {
        struct saved *s = p->saved;

        p->saved = s->next;
        free(s);
    }
}

void __wrap_agent_snap_flush(struct agent_snap *p)
{
    n_flushed++;
    if (settles == p) {
        settle_all(p);
    }
}

void __wrap_snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                                  uint64_t image_bytes)
{
    (void)h, (void)rank, (void)uuid, (void)image_bytes;
    n_ahead_begun++;
}

void __wrap_snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    (void)h, (void)rank, (void)uuid;
    n_ahead_ended++;
}

void __wrap_snap_hold_make_ahead(struct snap_hold *h, uint32_t rank)
{
    (void)h, (void)rank;
    n_made_ahead++;
}

void __wrap_snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    n_drained++;
    __real_snap_hold_drain(h, rank, uuid);
}

uint64_t __wrap_snap_hold_n_written(const struct snap_hold *h, uint32_t rank,
                                    const char *uuid)
{
    (void)rank, (void)uuid;
    asked_of = h;
    return n_written;
}

void __wrap_worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                                      const struct worker_snap *snap, int fd)
{
    close_fd(&answered.fd);
    answered.n++;
    answered.socket = w;
    answered.connection = connection;
    answered.snap = *snap;
    answered.fd = fd;
    if (connection - 70 < N) {
        memcpy(answered.uuid_of[connection - 70], snap->uuid, sizeof(snap->uuid));
    }
}

void __wrap_worker_socket_tell_snap(struct worker_socket *w,
                                    const struct worker_snap_status *status)
{
    worker.n++;
    worker.socket = w;
    worker.status = *status;
}

/* --- a bed --- */

static struct worker_socket *socket_of(unsigned local_rank)
{
    return (struct worker_socket *)(uintptr_t)(local_rank + 1); /* only ever told apart */
}

static void forget_all(void)
{
    close_fd(&answered.fd);
    memset(&answered, 0, sizeof(answered));
    answered.fd = -1;
    memset(&worker, 0, sizeof(worker));
    told[0] = '\0';
    n_told = n_notes = n_finished = n_fetches = n_forgot = n_sent = n_flushed = 0;
    n_ahead_begun = n_ahead_ended = n_drained = n_made_ahead = 0;
    n_written = 0;
    fetches = false;
    settles = NULL;
}

static void open_bed(struct bed *b)
{
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    answered.fd = -1;
    forget_all();
    now_ms = 1000000;
    order = (struct order){.stop = ORDER_STOP_NONE, .grace_ms = 7000};
    lead_bed_make(&b->agent);
    snprintf(b->agent.run.id, sizeof(b->agent.run.id), "agent_snap_test-%d", (int)getpid());
    snprintf(b->root, sizeof(b->root), "%.100s/ck", b->agent.run.dir);
    mkdir(b->root, 0700);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_DISK;
    b->agent.has_run = true;
    b->agent.crew = &b->crew;
    b->crew.agent = &b->agent;
    b->crew.generation = GENERATION;
    b->crew.layout.first_rank = FIRST;
    b->crew.layout.n_local = N;
    b->crew.layout.world = WORLD;
    b->crew.list = b->workers;
    for (unsigned i = 0; i < N; i++) {
        b->workers[i].socket = socket_of(i);
    }
    if (agent_snap_need(&b->agent, &e) < 0) {
        bail_out("no snapshots: %s", e.text);
    }
}

static void close_bed(struct bed *b)
{
    forget_all();
    agent_snap_stop(&b->agent, false);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

static void run_until(struct bed *b, const int *count, int n)
{
    for (int i = 0; i < 20000 && *count < n; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, *count < n);
    }
    is_int(*count, n, "it comes");
}

static void begin(struct bed *b, uint32_t local_rank, uint64_t step, const char *uuid,
                  uint64_t bytes)
{
    struct worker_snap_begin m = {.step = step, .bytes = bytes};

    str_copy(m.uuid, sizeof(m.uuid), uuid);
    str_copy(m.root, sizeof(m.root), b->root);
    agent_snap_begin(&b->crew, local_rank, 70 + local_rank, &m);
}

/* Its image and its part are there; how long the part is. */
static uint64_t fill(struct bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    struct snap *s = snap_hold_fill(b->agent.snap->hold, rank, uuid);
    struct part p = {.step = step, .rank = rank, .n_ranks = WORLD, .file_bytes = IMAGE,
                     .n_blocks = 1};
    uint64_t block = 0;
    _buf_ struct buf bytes = {0};
    struct error e = {0};

    p.blocks = &block;
    str_copy(p.uuid, sizeof(p.uuid), uuid);
    if (!s || part_encode(&p, &bytes, &e) < 0) {
        bail_out("no part: %s", e.text);
    }
    memset(s->map + SNAP_PAGE_BYTES, 'a', IMAGE);
    memcpy(s->map + SNAP_PAGE_BYTES + snap_room(IMAGE, 0), bytes.data, bytes.len);
    return bytes.len;
}

static void done(struct bed *b, uint32_t local_rank, const char *uuid, uint64_t part_bytes)
{
    struct worker_snap_done m = {.image_bytes = IMAGE, .part_bytes = part_bytes};

    str_copy(m.uuid, sizeof(m.uuid), uuid);
    agent_snap_done(&b->crew, local_rank, &m);
}

static void save(struct bed *b, uint32_t local_rank, uint64_t step, const char *uuid)
{
    int n = answered.n;

    begin(b, local_rank, step, uuid, ROOM); /* which may answer at once */
    run_until(b, &answered.n, n + 1);
    done(b, local_rank, uuid, fill(b, FIRST + local_rank, step, uuid));
}

static struct saved *add(struct bed *b, uint32_t rank, const char *uuid)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s) {
        bail_out("memory");
    }
    s->head = (struct snap_head){.rank = rank, .step = 9, .generation = GENERATION,
                                 .token = 77, .n_ranks = WORLD};
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    s->stage = SNAP_STAGE_HELD;
    s->next = b->agent.snap->saved;
    b->agent.snap->saved = s;
    return s;
}

static uint64_t token_of(struct bed *b, uint32_t rank, const char *uuid)
{
    struct snap *s = snap_hold_fill(b->agent.snap->hold, rank, uuid);

    return s ? s->head.token : 0;
}

static bool is_in_memory(const struct bed *b)
{
    return snap_dir_has_agent(b->agent.run.id, b->agent.index);
}

/* --- a save --- */

static void test_saved(struct bed *b)
{
    const uint64_t first = (uint64_t)GENERATION << 32;

    open_bed(b);
    begin(b, 1, 9, UUID(1), ROOM);
    run_until(b, &answered.n, 1);
    ok(answered.socket == socket_of(1) && answered.connection == 71 && answered.fd >= 0 &&
           answered.snap.error == 0,
       "a worker gets memory: %s", answered.snap.why);
    ok((fcntl(answered.fd, F_GETFD) & FD_CLOEXEC) && answered.snap.bytes == ROOM &&
           answered.snap.is_bare && answered.snap.step == 9,
       "of which it takes what it needs");
    is_str(answered.snap.uuid, UUID(1), "for that save");
    ok(!b->agent.snap->questions, "the question is answered");
    ok(token_of(b, FIRST + 1, UUID(1)) == first + 1, "which is the first of that rank");
    done(b, 1, UUID(1), fill(b, FIRST + 1, 9, UUID(1)));
    ok(worker.n == 1 && worker.socket == socket_of(1) &&
           worker.status.level == WORKER_SNAP_HELD && worker.status.error == 0,
       "once it is there it outlives the worker");
    ok(n_told >= 1 && strstr(told, UUID(1)) && strstr(told, "\"rank\":5") &&
           strstr(told, "\"ranks\":8") && strstr(told, "\"token\":12884901889") &&
           strstr(told, "\"error\":0"),
       "which the lead hears: %s", told);
    ok(n_drained == 1 && n_sent == 1 && n_made_ahead == 1, "it goes everywhere");
    ok(uv_is_active((uv_handle_t *)b->agent.snap->timer), "and is told of again");
    run_until(b, &n_told, 2);
    ok(strstr(told, "\"stage\":2") && b->agent.snap->saved->stage == SNAP_STAGE_WRITTEN,
       "it gets to the disk: %s", told);
    begin(b, 1, 10, UUID(2), ROOM);
    run_until(b, &answered.n, 2);
    begin(b, 1, 10, UUID(2), ROOM);
    run_until(b, &answered.n, 3);
    ok(token_of(b, FIRST + 1, UUID(2)) == first + 2, "the next one has the next token, once");
    is_int(b->agent.snap->served, GENERATION, "for ranks of that generation");
    close_bed(b);
}

static void test_not_written(struct bed *b)
{
    open_bed(b);
    str_copy(b->root, sizeof(b->root), "/nonexistent/agent_snap_test");
    save(b, 0, 9, UUID(1));
    run_until(b, &n_told, 2);
    ok(b->agent.snap->saved && b->agent.snap->saved->stage == SNAP_STAGE_FAILED,
       "one that does not get to the disk has failed");
    ok(strstr(told, "\"error\":2,") && !strstr(told, "\"why\":\"\""), "and why: %s", told);
    close_bed(b);
}

static void test_refused(struct bed *b)
{
    struct worker_snap_done m = {.image_bytes = IMAGE, .uuid = UUID(3)};

    open_bed(b);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_DISK;
    begin(b, 0, 9, UUID(1), ROOM);
    ok(answered.n == 1 && answered.snap.error == ENOTSUP && n_notes == 0,
       "a job that wants none: %s", answered.snap.why);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_MEMORY;
    answered.n = 0;
    begin(b, 0, 9, UUID(1), (uint64_t)1 << 60);
    ok(answered.n == 1 && answered.fd < 0 && answered.snap.error == ENOMEM &&
           answered.snap.why[0],
       "more than there is: %s", answered.snap.why);
    ok(!b->agent.snap->questions && n_notes == 1, "people are told why workers wait");
    begin(b, 1, 9, UUID(1), (uint64_t)1 << 60);
    ok(answered.n == 2 && n_notes == 1, "once");
    agent_snap_done(&b->crew, 0, &m);
    ok(worker.status.level == WORKER_SNAP_NONE && worker.status.error == ENOENT && n_told == 0,
       "one that was never begun is none");
    close_bed(b);
}

static void wait_answered(struct bed *b)
{
    for (int i = 0; i < 20000 && b->agent.snap->questions; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    ok(!b->agent.snap->questions, "no question is left");
}

/* The workers that asked are gone. */
static void test_late(struct bed *b)
{
    int before;

    open_bed(b);
    begin(b, 0, 9, UUID(1), ROOM);
    wait_answered(b);
    forget_all();
    before = fds_n_open();
    begin(b, 1, 9, UUID(1), ROOM);
    b->crew.generation++;
    wait_answered(b);
    is_int(answered.n, 0, "nobody is answered");
    is_int(fds_n_open(), before + 1, "nothing stays open but the memory");
    b->crew.generation = GENERATION;
    close_bed(b);
}

static void test_two(struct bed *b)
{
    open_bed(b);
    begin(b, 0, 9, UUID(1), ROOM);
    begin(b, 1, 9, UUID(2), ROOM);
    wait_answered(b);
    is_int(answered.n, 2, "two ask at once");
    is_str(answered.uuid_of[0], UUID(1), "each hears of its own");
    is_str(answered.uuid_of[1], UUID(2), "each hears of its own");
    close_bed(b);
}

static void test_stays(struct bed *b)
{
    struct worker_snap_want want = {.level = WORKER_SNAP_HELD, .uuid = UUID(1)};

    open_bed(b);
    b->agent.config.job->checkpoint.disk_every_ms = 1000;
    begin(b, 0, 9, UUID(1), ROOM);
    run_until(b, &answered.n, 1);
    agent_snap_want(&b->crew, 0, &want);
    begin(b, 1, 9, UUID(1), ROOM);
    run_until(b, &answered.n, 2);
    done(b, 0, UUID(1), fill(b, FIRST, 9, UUID(1)));
    ok(n_drained == 0 && b->agent.snap->saved->waits, "one that may stay waits for the lead");
    ok(strstr(told, "\"waits\":") && strstr(told, "\"wanted\":0"), "who hears it: %s", told);
    b->crew.stopping = true;
    forget_all();
    save(b, 1, 9, UUID(1));
    ok(n_drained == 1 && n_made_ahead == 0, "the last one makes no room for another");
    b->crew.generation++;
    begin(b, 1, 10, UUID(2), ROOM);
    ok(!b->agent.snap->may_stay, "what workers before have said holds no more");
    wait_answered(b);
    close_bed(b);
}

/* A later one takes the memory of one that is nowhere else. */
static void test_taken(struct bed *b)
{
    struct saved *s;

    open_bed(b);
    s = add(b, FIRST, UUID(7));
    s->waits = 1u << INTERVAL_DISK;
    begin(b, 0, 9, UUID(1), ROOM);
    ok(s->stage == SNAP_STAGE_FAILED && s->error == ESTALE, "which has failed by that");
    wait_answered(b);
    close_bed(b);
}

static void test_ahead(struct bed *b)
{
    struct worker_snap_fill m = {.image_bytes = IMAGE, .uuid = UUID(1)};

    open_bed(b);
    agent_snap_fill(&b->crew, 0, &m);
    ok(n_ahead_begun == 1 && n_ahead_ended == 0, "one that is filled goes to the disk meanwhile");
    b->crew.stopping = true;
    agent_snap_fill(&b->crew, 0, &m);
    is_int(n_ahead_begun, 1, "not where its worker is to end");
    b->crew.stopping = false;
    b->agent.config.job->checkpoint.disk_every_ms = 1000;
    m.may_stay = true;
    agent_snap_fill(&b->crew, 0, &m);
    is_int(n_ahead_begun, 1, "nor where it may stay in memory");
    m.image_bytes = 0;
    agent_snap_fill(&b->crew, 0, &m);
    ok(n_ahead_begun == 1 && n_ahead_ended == 1, "one that comes to nothing does not");
    close_bed(b);
}

/* --- looking for one --- */

static void look(struct bed *b, uint32_t local_rank, uint32_t rank, const char *uuid)
{
    struct worker_snap_find find = {.rank = rank};

    forget_all();
    str_copy(find.uuid, sizeof(find.uuid), uuid);
    agent_snap_find(&b->crew, local_rank, 5, &find);
}

static void test_find(struct bed *b)
{
    open_bed(b);
    save(b, 0, 9, UUID(1));
    run_until(b, &n_told, 2);
    look(b, 0, FIRST, UUID(1));
    ok(answered.n == 1 && answered.fd >= 0 && answered.snap.step == 9 &&
           answered.snap.image_bytes == IMAGE && answered.snap.part_bytes > 0,
       "its own");
    ok(pwrite(answered.fd, "x", 1, 0) < 0, "only to be read");
    look(b, 1, FIRST, UUID(1));
    ok(answered.fd >= 0, "another one of this node has it, too");
    look(b, 0, FIRST, UUID(2));
    ok(answered.n == 1 && answered.fd < 0 && answered.snap.error == ENOENT && n_fetches == 1,
       "one that nobody has: %s", answered.snap.why);
    look(b, 1, FIRST, UUID(2));
    ok(answered.n == 1 && n_fetches == 0, "nobody else's is fetched");
    forget_all();
    fetches = true;
    agent_snap_find(&b->crew, 0, 5, &(struct worker_snap_find){.rank = FIRST, .uuid = UUID(2)});
    ok(answered.n == 0 && n_fetches == 1, "one that another node has is answered later");
    look(b, 0, FIRST, "");
    ok(answered.n == 1 && answered.snap.error == ENOENT, "none is part of a checkpoint yet");
    snap_hold_settle(b->agent.snap->hold, UUID(1), true);
    look(b, 0, FIRST, "");
    ok(answered.fd >= 0 && answered.snap.step == 9, "then one is");
    close_bed(b);
}

/* What is kept here of ranks that run elsewhere is in a hold of its own. */
static void test_find_copy(struct bed *b)
{
    struct snap_hold_config config = {.dir = b->root, .budget = 1 << 20, .budget_why = "",
                                      .io = io_system(), .finish = part_finish};
    struct snap_hold *own = NULL;
    struct agent_snap *p;
    struct error e = {0};

    open_bed(b);
    save(b, 0, 9, UUID(1));
    run_until(b, &n_told, 2);
    p = b->agent.snap;
    config.loop = &b->agent.loop;
    if (snap_hold_create(&config, &own, &e) < 0) {
        bail_out("no hold: %s", e.text);
    }
    snap_hold_settle(p->hold, UUID(1), true);
    p->copies = p->hold;
    p->hold = own;
    b->crew.layout.first_rank = 0;
    look(b, 1, FIRST, UUID(1));
    ok(answered.fd >= 0 && answered.snap.step == 9, "a copy is handed out");
    look(b, 1, FIRST, "");
    ok(answered.n == 1 && answered.snap.error == ENOENT, "not as the newest of that rank");
    b->crew.layout.first_rank = FIRST;
    p->hold = p->copies;
    p->copies = NULL;
    snap_hold_destroy(own);
    close_bed(b);
}

/* --- telling --- */

static void test_told_worker(struct bed *b)
{
    static const struct {
        uint32_t rank;
        int local; /* -1: nobody's */
    } cases[] = {{FIRST - 1, -1}, {FIRST, 0}, {FIRST + 1, 1}, {FIRST + N, -1}, {0, -1}};
    struct saved *s;

    open_bed(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        forget_all();
        agent_snap_tell_worker(&b->agent, cases[i].rank, UUID(1), WORKER_SNAP_DURABLE, EIO,
                               "why");
        ok(cases[i].local < 0 ? worker.n == 0
                              : worker.n == 1 && worker.socket ==
                                                     socket_of((unsigned)cases[i].local),
           "rank %u", cases[i].rank);
    }
    s = add(b, FIRST, UUID(1));
    s->waits = 1u << INTERVAL_DISK;
    s->level = WORKER_SNAP_HELD;
    agent_snap_tell_own(&b->agent, s);
    is_str(worker.status.why, "it stays in memory", "one that stays hears it");
    s->waits |= 1u << INTERVAL_MEMORY;
    agent_snap_tell_own(&b->agent, s);
    is_str(worker.status.why, "", "not before the lead has said so");
    s->waits = 1u << INTERVAL_DISK;
    s->is_wanted = true;
    agent_snap_tell_own(&b->agent, s);
    is_str(worker.status.why, "", "nor where it is waited for");
    close_bed(b);
}

static void test_told_lead(struct bed *b)
{
    struct saved *s;

    open_bed(b);
    s = add(b, FIRST, UUID(1));
    s->error = EIO;
    str_copy(s->why, sizeof(s->why), "broken");
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(told, "\"error\":5,") && strstr(told, "broken") && strstr(told, "\"token\":77") &&
           strstr(told, "\"generation\":3"),
       "what is wrong: %s", told);
    ok(!strstr(told, "ended") && !strstr(told, "moves") && !strstr(told, "again") &&
           !strstr(told, "from") && !strstr(told, "waits"),
       "and nothing else");
    n_written = 100;
    now_ms = 5000;
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(told, "\"moves\":true") && asked_of == b->agent.snap->hold &&
           b->agent.snap->moved_ms == 5000,
       "that it gets on");
    now_ms = 6000;
    agent_snap_tell_lead(&b->agent, s);
    ok(!strstr(told, "moves") && b->agent.snap->moved_ms == 5000, "as long as it does");
    s->has_ended = s->is_copy = true;
    s->again = 6;
    s->from = 2;
    agent_snap_tell_lead(&b->agent, s);
    ok(strstr(told, "\"ended\":true") && strstr(told, "\"again\":6") &&
           strstr(told, "\"from\":2") && asked_of == b->agent.snap->copies,
       "of a copy, tried again: %s", told);
    close_bed(b);
}

/* What is not settled is told again; what stays more seldom. */
static void test_again(struct bed *b)
{
    static const int want[] = {2, 1, 1, 2, 1, 1, 2};
    struct agent_snap *p;
    struct saved *s;

    open_bed(b);
    p = b->agent.snap;
    add(b, FIRST, UUID(1));
    s = add(b, FIRST + 1, UUID(1));
    s->waits = 1u << INTERVAL_DISK;
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        p->waits = &b->crew;
        n_told = 0;
        agent_snap_hurry(&b->crew);
        run_until(b, &n_finished, (int)i + 1);
        is_int(n_told, want[i], "told for the %zuth time", i);
        ok(!p->waits, "who waited goes on");
    }
    n_told = 0;
    agent_snap_tell(&b->agent);
    is_int(n_told, 2, "another lead hears all");
    n_told = 0;
    agent_snap_tell(&b->agent);
    is_int(n_told, 2, "each time");
    agent_snap_keep_telling(p);
    ok(uv_is_active((uv_handle_t *)p->timer), "it goes on");
    uv_sleep(5);
    uv_update_time(&b->agent.loop);
    agent_snap_keep_telling(p);
    ok(uv_timer_get_due_in(p->timer) < 2000, "and does not begin anew with each save");
    settle_all(p);
    agent_snap_keep_telling(p);
    ok(!uv_is_active((uv_handle_t *)p->timer), "until all are settled");
    close_bed(b);
}

static void test_found(struct bed *b)
{
    const struct error none = {0};
    struct saved *one, *other;
    struct snap_head h;

    open_bed(b);
    one = add(b, FIRST, UUID(1));
    other = add(b, FIRST + 1, UUID(1));
    add(b, FIRST, UUID(2));
    ok(agent_snap_saved(b->agent.snap, FIRST, UUID(1)) == one &&
           agent_snap_saved(b->agent.snap, FIRST + 1, UUID(1)) == other,
       "each save of each rank");
    ok(!agent_snap_saved(b->agent.snap, FIRST + 1, UUID(2)), "and no other one");
    h = one->head;
    agent_snap_on_written(b->agent.snap, &h, &none);
    ok(one->stage == SNAP_STAGE_WRITTEN && other->stage == SNAP_STAGE_HELD && n_told == 1,
       "of which one is written");
    str_copy(h.uuid, sizeof(h.uuid), UUID(7));
    agent_snap_on_written(b->agent.snap, &h, &none);
    is_int(n_told, 1, "of one that was settled nobody is told");
    close_bed(b);
}

/* --- waiting --- */

static void test_waits(struct bed *b)
{
    struct agent_snap *p;
    struct saved *s;

    open_bed(b);
    p = b->agent.snap;
    ok(!agent_snap_waits(&b->crew) && !p->waits, "there is nothing to wait for");
    s = add(b, FIRST, UUID(1));
    ok(agent_snap_waits(&b->crew) && p->waits == &b->crew && n_flushed == 1,
       "what is on its way is waited for");
    agent_snap_forget(&b->crew);
    ok(!p->waits && n_forgot == 1, "until nobody does any more");
    now_ms += 29999;
    ok(agent_snap_waits(&b->crew), "for half a minute");
    now_ms += 1;
    ok(!agent_snap_waits(&b->crew), "and no longer");
    p->moved_ms = now_ms;
    ok(agent_snap_waits(&b->crew), "unless it gets on");
    now_ms += 30000;
    ok(!agent_snap_waits(&b->crew), "which is asked again");
    now_ms = 1000000 + 599999;
    p->moved_ms = now_ms;
    ok(agent_snap_waits(&b->crew), "for ten minutes");
    now_ms++;
    ok(!agent_snap_waits(&b->crew), "in all");
    b->crew.generation++;
    ok(agent_snap_waits(&b->crew), "the next workers have as long");
    b->crew.any_failed = true;
    ok(!agent_snap_waits(&b->crew), "not where one has failed");
    b->crew.any_failed = false;
    order.broken = true;
    ok(!agent_snap_waits(&b->crew), "nor where the generation has");
    order.broken = false;
    s->is_copy = true;
    ok(!agent_snap_waits(&b->crew), "nor for what others have saved");
    s->is_copy = false;
    p->waits = NULL;
    settles = p;
    ok(!agent_snap_waits(&b->crew) && !p->waits, "nor for what is settled by then");
    close_bed(b);
}

static void test_stopped(struct bed *b)
{
    struct agent_snap *p;

    open_bed(b);
    p = b->agent.snap;
    add(b, FIRST, UUID(1));
    b->crew.stopping = true;
    b->crew.stopped_ms = now_ms;
    order.stop = ORDER_STOP_FORCE;
    ok(!agent_snap_waits(&b->crew), "who is to die at once does not wait");
    order.stop = ORDER_STOP_GRACE;
    ok(agent_snap_waits(&b->crew), "who has a grace does");
    now_ms += 11999; /* 7 s, and 5 */
    ok(agent_snap_waits(&b->crew), "for as long, and a little");
    now_ms++;
    ok(!agent_snap_waits(&b->crew), "and no longer");
    order.stop = ORDER_STOP_NONE;
    ok(agent_snap_waits(&b->crew), "what its workers leave behind is killed: as before");
    p->waited_for = 0;
    ok(!agent_snap_waits(&b->crew), "of others nobody waits");
    n_flushed = 0;
    p->waits = NULL;
    agent_snap_hurry(&b->crew);
    is_int(n_flushed, 1, "who is stopped has it go to the disk");
    order.broken = true;
    agent_snap_hurry(&b->crew);
    is_int(n_flushed, 1, "not where the generation is broken");
    close_bed(b);
}

/* Time is over, and it is said what may be lost. */
static void test_lost(struct bed *b)
{
    struct agent_snap *p;
    struct saved *s, *copy;

    open_bed(b);
    p = b->agent.snap;
    s = add(b, FIRST, UUID(1));
    copy = add(b, 0, UUID(1));
    copy->is_copy = true;
    ok(agent_snap_waits(&b->crew), "it is waited for");
    now_ms += 30000;
    agent_snap_hurry(&b->crew);
    run_until(b, &n_finished, 1);
    is_int(n_notes, 1, "what is on its way still may be lost, which is told");
    s->stage = SNAP_STAGE_WRITTEN;
    p->waits = &b->crew;
    agent_snap_hurry(&b->crew);
    run_until(b, &n_finished, 2);
    is_int(n_notes, 1, "what is written is not, nor is what others have");
    close_bed(b);
}

/* --- its end --- */

static void leave_copy(const struct bed *b)
{
    char dir[PATH_MAX], path[PATH_MAX + 16];
    _close_ int fd = -1;

    snap_dir(b->agent.run.id, dir, sizeof(dir), NULL);
    snprintf(path, sizeof(path), "%s/copy-0-7-0", dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        bail_out("no %s", path);
    }
}

static void test_stop(struct bed *b)
{
    struct error e = {0};

    open_bed(b);
    save(b, 0, 9, UUID(1));
    forget_all();
    agent_snap_stop(&b->agent, true);
    ok(!b->agent.snap && is_in_memory(b), "who may come again leaves what is in memory");
    agent_snap_stop(&b->agent, true);
    ok(is_in_memory(b), "also where nobody has saved since");
    agent_snap_need(&b->agent, &e);
    agent_snap_stop(&b->agent, true);
    b->agent.has_run = false;
    agent_snap_stop(&b->agent, false);
    ok(is_in_memory(b), "who never had a run has nothing to take away");
    b->agent.has_run = true;
    agent_snap_stop(&b->agent, false);
    ok(!is_in_memory(b), "else all of it goes in the end");
    is_int(agent_snap_need(&b->agent, &e), 0, "another one: %s", e.text);
    save(b, 0, 9, UUID(1));
    leave_copy(b);
    ok(is_in_memory(b), "has something in memory, and copies of one before it");
    close_bed(b);
    ok(!is_in_memory(b), "which go with it");
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    test_saved(b);
    test_not_written(b);
    test_refused(b);
    test_late(b);
    test_two(b);
    test_stays(b);
    test_taken(b);
    test_ahead(b);
    test_find(b);
    test_find_copy(b);
    test_told_worker(b);
    test_told_lead(b);
    test_again(b);
    test_found(b);
    test_waits(b);
    test_stopped(b);
    test_lost(b);
    test_stop(b);
    free(b);
    return tap_done();
}
