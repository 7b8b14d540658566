/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/saves_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/part.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what others are told --- */

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
                                  uint64_t image_bytes, bool is_crowded);
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
    return &saves_bed.order;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return saves_bed.now_ms;
}

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    saves_bed.n_told++;
    snprintf(saves_bed.told, sizeof(saves_bed.told), "%.*s", (int)w->to->len, w->to->data);
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    (void)a, (void)fmt;
    saves_bed.n_notes++;
}

void __wrap_crew_finish(struct crew *c)
{
    (void)c;
    saves_bed.n_finished++;
}

bool __wrap_agent_fetch_begin(struct agent_snap *p, const struct snap_question *q,
                              uint32_t rank, const char *uuid)
{
    (void)p, (void)q, (void)rank, (void)uuid;
    saves_bed.n_fetches++;
    return saves_bed.fetches;
}

void __wrap_agent_fetch_forget(struct agent_snap *p)
{
    (void)p;
    saves_bed.n_forgot++;
}

void __wrap_agent_partner_send(struct crew *c, struct saved *s)
{
    (void)c, (void)s;
    saves_bed.n_sent++;
}

void saves_bed_settle(struct agent_snap *p)
{
    while (p->saved) {
        struct saved *s = p->saved;

        p->saved = s->next;
        free(s);
    }
}

void __wrap_agent_snap_flush(struct agent_snap *p)
{
    saves_bed.n_flushed++;
    if (saves_bed.settles == p) {
        saves_bed_settle(p);
    }
}

void __wrap_snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                                  uint64_t image_bytes, bool is_crowded)
{
    (void)h, (void)rank, (void)uuid, (void)image_bytes, (void)is_crowded;
    saves_bed.n_ahead_begun++;
}

void __wrap_snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    (void)h, (void)rank, (void)uuid;
    saves_bed.n_ahead_ended++;
}

void __wrap_snap_hold_make_ahead(struct snap_hold *h, uint32_t rank)
{
    (void)h, (void)rank;
    saves_bed.n_made_ahead++;
}

void __wrap_snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    saves_bed.n_drained++;
    __real_snap_hold_drain(h, rank, uuid);
}

uint64_t __wrap_snap_hold_n_written(const struct snap_hold *h, uint32_t rank,
                                    const char *uuid)
{
    (void)rank, (void)uuid;
    saves_bed.asked_of = h;
    return saves_bed.n_written;
}

void __wrap_worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                                      const struct worker_snap *snap, int fd)
{
    struct saves_answered *a = &saves_bed.answered;

    close_fd(&a->fd);
    a->n++;
    a->socket = w;
    a->connection = connection;
    a->snap = *snap;
    a->fd = fd;
    if (connection - SAVES_CONNECTION < SAVES_N) {
        memcpy(a->uuid_of[connection - SAVES_CONNECTION], snap->uuid, sizeof(snap->uuid));
    }
}

void __wrap_worker_socket_tell_snap(struct worker_socket *w,
                                    const struct worker_snap_status *status)
{
    saves_bed.worker.n++;
    saves_bed.worker.socket = w;
    saves_bed.worker.status = *status;
}

/* --- the bed --- */

struct worker_socket *saves_bed_socket(unsigned local_rank)
{
    return (struct worker_socket *)(uintptr_t)(local_rank + 1);
}

void saves_bed_forget(struct saves_bed *b)
{
    close_fd(&b->answered.fd);
    memset(&b->answered, 0, sizeof(b->answered));
    b->answered.fd = -1;
    memset(&b->worker, 0, sizeof(b->worker));
    b->told[0] = '\0';
    b->n_told = b->n_notes = b->n_finished = b->n_fetches = b->n_forgot = 0;
    b->n_sent = b->n_flushed = 0;
    b->n_ahead_begun = b->n_ahead_ended = b->n_drained = b->n_made_ahead = 0;
    b->n_written = 0;
    b->fetches = false;
    b->settles = NULL;
}

void saves_bed_open(struct saves_bed *b)
{
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    b->answered.fd = -1;
    saves_bed_forget(b);
    b->now_ms = 1000000;
    b->order = (struct order){.stop = ORDER_STOP_NONE, .grace_ms = 7000};
    lead_bed_make(&b->agent);
    snprintf(b->agent.run.id, sizeof(b->agent.run.id), "saves_bed-%d", (int)getpid());
    snprintf(b->root, sizeof(b->root), "%.100s/ck", b->agent.run.dir);
    mkdir(b->root, 0700);
    b->agent.config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_DISK;
    b->agent.has_run = true;
    b->agent.crew = &b->crew;
    b->crew.agent = &b->agent;
    b->crew.generation = SAVES_GENERATION;
    b->crew.layout.first_rank = SAVES_FIRST;
    b->crew.layout.n_local = SAVES_N;
    b->crew.layout.world = SAVES_WORLD;
    b->crew.list = b->workers;
    for (unsigned i = 0; i < SAVES_N; i++) {
        b->workers[i].socket = saves_bed_socket(i);
    }
    if (agent_snap_need(&b->agent, &e) < 0) {
        bail_out("no snapshots: %s", e.text);
    }
}

void saves_bed_close(struct saves_bed *b)
{
    saves_bed_forget(b);
    agent_snap_stop(&b->agent, false);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

void saves_bed_run_until(struct saves_bed *b, const int *count, int n)
{
    for (int i = 0; i < 20000 && *count < n; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, *count < n);
    }
    is_int(*count, n, "it comes");
}

void saves_bed_wait_answered(struct saves_bed *b)
{
    for (int i = 0; i < 20000 && b->agent.snap->questions; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    ok(!b->agent.snap->questions, "no question is left");
}

void saves_bed_begin(struct saves_bed *b, uint32_t local_rank, uint64_t step, const char *uuid,
                     uint64_t bytes)
{
    struct worker_snap_begin m = {.step = step, .bytes = bytes};

    str_copy(m.uuid, sizeof(m.uuid), uuid);
    str_copy(m.root, sizeof(m.root), b->root);
    agent_snap_begin(&b->crew, local_rank, SAVES_CONNECTION + local_rank, &m);
}

uint64_t saves_bed_fill(struct saves_bed *b, uint32_t rank, uint64_t step, const char *uuid)
{
    struct snap *s = snap_hold_fill(b->agent.snap->hold, rank, uuid);
    struct part p = {.step = step, .rank = rank, .n_ranks = SAVES_WORLD, .file_bytes = SAVES_IMAGE,
                     .n_blocks = 1};
    uint64_t block = 0;
    _buf_ struct buf bytes = {0};
    struct error e = {0};

    p.blocks = &block;
    str_copy(p.uuid, sizeof(p.uuid), uuid);
    if (!s || part_encode(&p, &bytes, &e) < 0) {
        bail_out("no part: %s", e.text);
    }
    memset(s->map + SNAP_PAGE_BYTES, 'a', SAVES_IMAGE);
    memcpy(s->map + SNAP_PAGE_BYTES + snap_room(SAVES_IMAGE, 0), bytes.data, bytes.len);
    return bytes.len;
}

void saves_bed_done(struct saves_bed *b, uint32_t local_rank, const char *uuid,
                    uint64_t part_bytes)
{
    struct worker_snap_done m = {.image_bytes = SAVES_IMAGE, .part_bytes = part_bytes};

    str_copy(m.uuid, sizeof(m.uuid), uuid);
    agent_snap_done(&b->crew, local_rank, &m);
}

void saves_bed_save(struct saves_bed *b, uint32_t local_rank, uint64_t step, const char *uuid)
{
    int n = b->answered.n;

    saves_bed_begin(b, local_rank, step, uuid, SAVES_ROOM); /* which may answer at once */
    saves_bed_run_until(b, &b->answered.n, n + 1);
    saves_bed_done(b, local_rank, uuid, saves_bed_fill(b, SAVES_FIRST + local_rank, step, uuid));
}

struct saved *saves_bed_add(struct saves_bed *b, uint32_t rank, const char *uuid)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s) {
        bail_out("memory");
    }
    s->head = (struct snap_head){.rank = rank, .step = 9, .generation = SAVES_GENERATION,
                                 .token = 77, .n_ranks = SAVES_WORLD};
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    s->stage = SNAP_STAGE_HELD;
    s->next = b->agent.snap->saved;
    b->agent.snap->saved = s;
    return s;
}
