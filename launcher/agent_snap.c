/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/mapguard.h"
#include "base/str.h"
#include "ckpt/io_direct.h"
#include "ckpt/part.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    TELL_MS = 2000,  /* what is not settled, again */
    TELL_STAYS = 3,  /* of what stays in memory every so many times, for that lasts */
    WAIT_MS = 30000, /* of workers that have ended well: without getting on, and ... */
    WAIT_MAX_MS = 600 * 1000, /* ... in all */
    WAIT_STOP_MS = 5000, /* beyond a grace: less than the lead waits */
};

/* --- to the lead --- */

/* Since it was told last. */
static bool has_moved(struct agent *a, struct saved *s)
{
    const struct snap_hold *h = s->is_copy ? a->snap->copies : a->snap->hold;
    uint64_t before = s->n_written;

    s->n_written = snap_hold_n_written(h, s->head.rank, s->head.uuid);
    if (s->n_written <= before) {
        return false;
    }
    a->snap->moved_ms = uv_now(&a->loop);
    return true;
}

void agent_snap_tell_lead(struct agent *a, struct saved *s)
{
    _buf_ struct buf b = {0};
    struct jsonw w = agent_fact_begin(&b, "snap");

    jsonw_str(&w, "uuid", s->head.uuid);
    jsonw_str(&w, "root", s->head.root);
    jsonw_int(&w, "step", (int64_t)s->head.step);
    jsonw_int(&w, "generation", s->head.generation);
    jsonw_int(&w, "token", (int64_t)s->head.token);
    jsonw_int(&w, "rank", s->head.rank);
    jsonw_int(&w, "ranks", s->head.n_ranks);
    jsonw_int(&w, "stage", (int64_t)s->stage);
    jsonw_int(&w, "error", s->error);
    jsonw_str(&w, "why", s->why);
    if (s->has_ended) {
        jsonw_bool(&w, "ended", true);
    }
    if (has_moved(a, s)) {
        jsonw_bool(&w, "moves", true);
    }
    if (s->again) {
        jsonw_int(&w, "again", s->again);
    }
    if (s->is_copy) {
        jsonw_int(&w, "from", s->from);
    }
    if (s->waits) {
        jsonw_int(&w, "waits", s->waits);
        jsonw_int(&w, "wanted", s->is_wanted);
    }
    agent_fact_send(a, &w);
}

static bool stays(const struct saved *s)
{
    return (s->waits & 1u << INTERVAL_DISK) && !(s->waits & 1u << INTERVAL_MEMORY) &&
           !s->is_wanted;
}

/* Where this agent leads it may be settled on the way. */
static void tell_again(struct agent_snap *p)
{
    bool all = p->n_tells++ % TELL_STAYS == 0;
    struct saved *s;

    for (unsigned i = 0, at; ; i++) {
        for (s = p->saved, at = 0; s && at < i; at++) {
            s = s->next;
        }
        if (!s) {
            return;
        }
        if (all || !stays(s)) {
            agent_snap_tell_lead(p->agent, s);
        }
    }
}

/* And of what parity there is. */
static void tell_all(struct agent_snap *p)
{
    tell_again(p);
    if (p->parity) {
        snap_parity_tell(p->parity);
    }
}

void agent_snap_tell(struct agent *a)
{
    if (a->snap) {
        a->snap->n_tells = 0; /* what stays, too */
        tell_all(a->snap);
    }
}

/* Who was told to stop has its grace for it. */
static uint64_t wait_until(const struct agent_snap *p, const struct crew *c)
{
    uint64_t since = p->waits_since_ms, until = since + WAIT_MS, stop;

    if (p->moved_ms > since) {
        until = p->moved_ms + WAIT_MS < since + WAIT_MAX_MS ? p->moved_ms + WAIT_MS
                                                             : since + WAIT_MAX_MS;
    }
    stop = c->stopped_ms + member_order(p->agent->member)->grace_ms +
           WAIT_STOP_MS;
    return c->stopping && stop < until &&
                   member_order(p->agent->member)->stop != ORDER_STOP_NONE
               ? stop : until;
}

/* What others have still to write is not in our hands, nor is it lost by our end. */
static bool has_unwritten(const struct agent_snap *p)
{
    const struct saved *s = p->saved;

    while (s && (s->is_copy || s->stage != SNAP_STAGE_HELD)) {
        s = s->next;
    }
    return s != NULL;
}

static void on_timer(uv_timer_t *t)
{
    struct agent_snap *p = t->data;
    struct crew *c;

    tell_all(p);
    c = p->waits; /* unless that has been settled, too */
    if (!c) {
        return;
    }
    if (uv_now(&p->agent->loop) >= wait_until(p, c) && has_unwritten(p)) {
        agent_note(p->agent, "node %u: what its workers saved last is on its way "
                   "to the disk still: it may be lost", p->agent->rank);
    }
    p->waits = NULL;
    crew_finish(c); /* which may wait on */
}

void agent_snap_keep_telling(struct agent_snap *p)
{
    if (!p->saved) {
        uv_timer_stop(p->timer);
    } else if (!uv_is_active((uv_handle_t *)p->timer)) {
        uv_timer_start(p->timer, on_timer, TELL_MS, TELL_MS);
    }
}

/* --- to the workers --- */

static struct worker_socket *socket_of(const struct agent *a, uint32_t rank)
{
    const struct crew *c = a->crew;

    return c && rank >= c->layout.first_rank &&
                   rank - c->layout.first_rank < c->layout.n_local
               ? c->list[rank - c->layout.first_rank].socket
               : NULL;
}

void agent_snap_tell_worker(struct agent *a, uint32_t rank, const char *uuid,
                            enum worker_snap_level level, int error,
                            const char *why)
{
    struct worker_socket *w = socket_of(a, rank);
    struct worker_snap_status status = {.level = (uint8_t)level,
                                        .error = (uint32_t)error};

    if (w) {
        str_copy(status.uuid, sizeof(status.uuid), uuid);
        str_copy(status.why, sizeof(status.why), why);
        worker_socket_tell_snap(w, &status);
    }
}

/* `why` without an error: it stays there. */
void agent_snap_tell_own(struct agent *a, const struct saved *s)
{
    agent_snap_tell_worker(a, s->head.rank, s->head.uuid, s->level, 0,
                           stays(s) ? "it stays in memory" : "");
}

static struct worker_snap describe(const struct snap *s, const struct error *e)
{
    struct worker_snap m = {0};

    if (s) {
        m.bytes = s->room;
        m.is_bare = s->is_bare;
        m.step = s->head.step;
        m.image_bytes = s->head.image_bytes;
        m.part_bytes = s->head.part_bytes;
        str_copy(m.uuid, sizeof(m.uuid), s->head.uuid);
    } else {
        m.error = (uint32_t)e->code;
        str_copy(m.why, sizeof(m.why), e->text);
    }
    return m;
}

static void answer(struct agent *a, const struct snap_question *q,
                   const struct worker_snap *m, int fd)
{
    struct crew *c = a->crew;

    if (c && c->generation == q->generation && c->list[q->local_rank].socket) {
        worker_socket_answer_snap(c->list[q->local_rank].socket, q->connection, m, fd);
    } else {
        close_fd(&fd);
    }
}

void agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                         uint32_t rank, const struct snap *s)
{
    int fd = s ? snap_for_reading(s) : -1;
    struct error e = {0};
    struct worker_snap m;

    if (fd < 0) {
        error_text(&e, ENOENT, "no snapshot of rank %u on %s", rank, a->host);
    }
    m = describe(fd < 0 ? NULL : s, &e);
    m.is_bare = fd >= 0 && s->head.state == SNAP_FILLING; /* it is on its way here */
    answer(a, q, &m, fd);
}

/* --- what comes of it --- */

/* Workers go on without, and nobody would know why they wait for the disk: told once. They
 * wait for a buffer (EBUSY), though; ENOTSUP is what the job wants, and ECANCELED the end. */
static void tell_without(struct agent *a, const struct error *e)
{
    bool is_without = e->code && e->code != EBUSY && e->code != ENOTSUP && e->code != ECANCELED;

    if (is_without && a->snap && !a->snap->has_told_without) {
        a->snap->has_told_without = true;
        agent_note(a, "%s: workers write what they save by themselves, and wait for the "
                   "disk: %s", a->host, e->text);
    }
}

static struct snap_question *take_question(struct agent_snap *p, uint64_t id)
{
    struct snap_question **at = &p->questions, *q;

    while (*at && (*at)->id != id) {
        at = &(*at)->next;
    }
    q = *at;
    if (q) {
        *at = q->next;
    }
    return q;
}

static void on_begun(void *arg, uint64_t id, const struct snap *s,
                     const struct error *e)
{
    struct agent_snap *p = arg;
    struct snap_question *q = take_question(p, id);
    struct error why = *e;
    struct worker_snap m;
    int fd = -1;

    if (!q) {
        return;
    }
    if (s) {
        fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
        s = fd < 0 ? NULL : s;
        if (fd < 0) {
            error_set(&why, errno, "hand a snapshot out");
        }
    }
    tell_without(p->agent, &why);
    m = describe(s, &why);
    answer(p->agent, q, &m, fd);
    free(q);
}

struct saved *agent_snap_saved(struct agent_snap *p, uint32_t rank,
                               const char *uuid)
{
    struct saved *s = p->saved;

    while (s && (s->head.rank != rank || strcmp(s->head.uuid, uuid) != 0)) {
        s = s->next;
    }
    return s;
}

void agent_snap_on_written(void *arg, const struct snap_head *head,
                           const struct error *e)
{
    struct agent_snap *p = arg;
    struct saved *s = agent_snap_saved(p, head->rank, head->uuid);

    if (!s && head->state == SNAP_FULL) { /* it was put off as it was being written */
        agent_snap_offer_late(p, head->generation, 0);
    }
    if (!s) {
        return; /* settled meanwhile */
    }
    s->stage = e->code ? SNAP_STAGE_FAILED : SNAP_STAGE_WRITTEN;
    s->error = e->code;
    str_copy(s->why, sizeof(s->why), e->text);
    agent_snap_tell_lead(p->agent, s);
}

/* --- life --- */

static uint64_t left(void *arg)
{
    struct snap_budget now;

    (void)arg;
    snap_budget_find(0, &now);
    return now.bytes;
}

static void free_timer(uv_handle_t *h)
{
    free(h);
}

static int create(struct agent *a, struct error *e)
{
    struct agent_snap *p = calloc(1, sizeof(*p));
    struct snap_budget budget;
    char dir[PATH_MAX];
    struct snap_hold_config config = {
        .loop = &a->loop, .dir = dir, .agent = a->index, .left = left,
        .io = io_direct(),
        .finish = part_finish,
        .on_begun = on_begun, .on_written = agent_snap_on_written, .arg = p,
    };
    int rc;

    if (!p) {
        return error_set(e, ENOMEM, "hold snapshots");
    }
    snap_budget_find(snap_dir_agent_bytes(a->run.id, a->index), &budget);
    config.budget = budget.bytes;
    config.budget_why = budget.why;
    rc = snap_dir(a->run.id, dir, sizeof(dir), e);
    rc = rc < 0 ? rc : snap_hold_create(&config, &p->hold, e);
    p->timer = rc < 0 ? NULL : calloc(1, sizeof(*p->timer));
    if (rc == 0 && !p->timer) {
        rc = error_set(e, ENOMEM, "hold snapshots");
    }
    p->agent = a;
    rc = rc < 0 ? rc : agent_partner_create(p, &config, e);
    if (rc < 0) {
        snap_hold_destroy(p->hold);
        free(p->timer);
        free(p);
        return rc;
    }
    mapguard_install();
    uv_timer_init(&a->loop, p->timer);
    p->timer->data = p;
    a->snap = p;
    return 0;
}

int agent_snap_need(struct agent *a, struct error *e)
{
    return a->snap ? 0 : create(a, e);
}

/* For the ranks of that crew. */
static int hold_for(struct crew *c, struct error *e)
{
    struct agent *a = c->agent;
    int rc = agent_snap_need(a, e);

    if (rc == 0 && a->snap->served != c->generation) {
        a->snap->served = c->generation;
        agent_snap_forget_ranks(a->snap);
        snap_hold_serve(a->snap->hold, c->layout.first_rank, c->layout.n_local);
    }
    return rc;
}

void agent_snap_stop(struct agent *a, bool is_resumable)
{
    struct agent_snap *p = a->snap;

    if (!p) {
        if (!is_resumable && a->has_run) {
            snap_dir_remove_agent(a->run.id, a->index); /* of one before this one */
        }
        return;
    }
    a->snap = NULL;
    agent_partner_destroy(p);
    if (!is_resumable) {
        snap_hold_serve(p->hold, 0, 0); /* also what an agent before this one left */
        snap_hold_remove(p->hold);
    }
    snap_hold_destroy(p->hold);
    if (!is_resumable) { /* copies that one before this one had, which kept them */
        snap_dir_remove_agent(a->run.id, a->index);
    }
    agent_snap_forget_ranks(p);
    uv_close((uv_handle_t *)p->timer, free_timer);
    while (p->questions) {
        struct snap_question *q = p->questions;

        p->questions = q->next;
        free(q);
    }
    while (p->saved) {
        struct saved *s = p->saved;

        p->saved = s->next;
        free(s);
    }
    free(p);
}

/* --- what workers say --- */

/* Saves of one step, too, are told apart by their tokens. */
static uint64_t token_of(struct crew *c, uint32_t local_rank, const char *uuid)
{
    struct crew_worker *w = &c->list[local_rank];

    if (strcmp(w->save, uuid) != 0) {
        str_copy(w->save, sizeof(w->save), uuid);
        w->n_saves++;
    }
    return (uint64_t)c->generation << 32 | w->n_saves;
}

static int begin(struct crew *c, const struct snap_question *from,
                 const struct worker_snap_begin *m, struct error *e)
{
    struct agent *a = c->agent;
    struct snap_question *q;
    struct snap_rank who = {
        .rank = c->layout.first_rank + from->local_rank,
        .n_ranks = c->layout.world,
        .generation = c->generation,
        .token = token_of(c, from->local_rank, m->uuid),
    };
    uint64_t id;
    int rc;

    if (!(a->config.job->checkpoint.levels & JOB_LEVEL_MEMORY)) {
        return error_text(e, ENOTSUP, "the job wants no snapshots in memory");
    }
    rc = hold_for(c, e);
    if (rc < 0) {
        return rc;
    }
    q = calloc(1, sizeof(*q));
    if (!q) {
        return error_set(e, ENOMEM, "hold a snapshot");
    }
    id = a->snap->n_questions++;
    *q = *from;
    q->id = id;
    q->next = a->snap->questions;
    a->snap->questions = q;
    rc = snap_hold_begin(a->snap->hold, &who, m->step, m->uuid, m->root,
                         m->bytes, id, e);
    if (rc < 0) {
        free(take_question(a->snap, id));
        return rc;
    }
    agent_snap_taken(a->snap, who.rank);
    return 0;
}

void agent_snap_begin(struct crew *c, uint32_t local_rank, uint64_t connection,
                      const struct worker_snap_begin *m)
{
    struct snap_question q = {.generation = c->generation, .local_rank = local_rank,
                         .connection = connection};
    struct error e = {0};

    if (begin(c, &q, m, &e) < 0) {
        struct worker_snap none = describe(NULL, &e);

        tell_without(c->agent, &e);
        answer(c->agent, &q, &none, -1);
    }
}

/* What is of ranks that do not run here stays until those that do save: others may ask
 * for it, of other nodes, too. */
static const struct snap *find_here(struct crew *c, const struct worker_snap_find *find)
{
    const struct agent_snap *p = c->agent->snap;
    bool runs_here = find->rank >= c->layout.first_rank &&
                     find->rank - c->layout.first_rank < c->layout.n_local;
    const struct snap *s = runs_here
                               ? snap_hold_find(p->hold, find->rank, find->uuid)
                               : snap_hold_get(p->hold, find->rank, find->uuid);

    return s || !p->copies || !find->uuid[0]
               ? s : snap_hold_get(p->copies, find->rank, find->uuid);
}

void agent_snap_find(struct crew *c, uint32_t local_rank, uint64_t connection,
                     const struct worker_snap_find *find)
{
    struct agent *a = c->agent;
    struct snap_question q = {.generation = c->generation, .local_rank = local_rank,
                         .connection = connection};
    bool is_own = find->rank == c->layout.first_rank + local_rank;
    const struct snap *s = NULL;

    if (agent_snap_need(a, NULL) == 0) {
        s = find_here(c, find);
    }
    if (s || !is_own || !a->snap ||
        !agent_fetch_begin(a->snap, &q, find->rank, find->uuid)) {
        agent_snap_hand_out(a, &q, find->rank, s);
    }
}

void agent_snap_fill(struct crew *c, uint32_t local_rank, const struct worker_snap_fill *m)
{
    struct agent_snap *p = c->agent->snap;
    uint32_t rank = c->layout.first_rank + local_rank;

    if (p && m->image_bytes > 0 && agent_snap_is_for_disk(c, m) && !c->stopping) {
        snap_hold_drain_ahead(p->hold, rank, m->uuid, m->image_bytes, m->is_crowded);
    } else if (p && m->image_bytes == 0) {
        snap_hold_end_ahead(p->hold, rank, m->uuid);
    }
}

static int take(struct crew *c, uint32_t rank, const struct worker_snap_done *m,
                struct saved **ret, struct error *e)
{
    struct agent_snap *p = c->agent->snap;
    struct saved *s = calloc(1, sizeof(*s));
    int rc;

    if (s && p) {
        s->waits = agent_snap_waiting(c, rank, m->uuid);
    }
    rc = !s   ? error_set(e, ENOMEM, "hold a snapshot")
         : !p ? error_text(e, ENOENT, "no snapshot was begun")
              : snap_hold_stay(p->hold, rank, m->uuid, m->image_bytes, m->part_bytes, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->head = snap_hold_find(p->hold, rank, m->uuid)->head;
    s->stage = SNAP_STAGE_HELD;
    s->level = WORKER_SNAP_HELD;
    s->next = p->saved;
    p->saved = s;
    *ret = s;
    return 0;
}

void agent_snap_done(struct crew *c, uint32_t local_rank,
                     const struct worker_snap_done *m)
{
    struct agent *a = c->agent;
    uint32_t rank = c->layout.first_rank + local_rank;
    struct saved *s = NULL;
    struct error e = {0};
    int rc = take(c, rank, m, &s, &e);

    agent_snap_tell_worker(a, rank, m->uuid,
                           rc < 0 ? WORKER_SNAP_NONE : WORKER_SNAP_HELD, e.code,
                           e.text);
    if (s && !(s->waits & 1u << INTERVAL_DISK)) { /* the worker has the processor first */
        snap_hold_drain(a->snap->hold, rank, m->uuid);
    }
    if (s && !c->stopping) {
        snap_hold_make_ahead(a->snap->hold, rank);
    }
    if (s) { /* a lead that is here may answer at once, that it came to nothing: then
                `s` goes, and the crew where only that was waited for */
        if (!(s->waits & 1u << INTERVAL_PARTNER)) {
            agent_partner_send(c, s);
        }
        agent_snap_tell_lead(a, s);
        agent_snap_keep_telling(a->snap);
    }
}

/* --- waiting --- */

void agent_snap_hurry(struct crew *c)
{
    struct agent_snap *p = c->agent->snap;

    if (p && c->stopping && !member_order(c->agent->member)->broken) {
        agent_snap_flush(p);
    }
    if (p && p->waits == c) {
        uv_timer_start(p->timer, on_timer, 0, TELL_MS);
    }
}

void agent_snap_forget(struct crew *c)
{
    struct agent_snap *p = c->agent->snap;

    if (p && p->waits == c) {
        p->waits = NULL;
    }
    if (p) {
        agent_fetch_forget(p);
    }
}

/* They had ended well, and what they left behind is killed: nobody has stopped them. */
static bool is_lingering(const struct agent_snap *p, const struct crew *c)
{
    return p->waited_for == c->generation &&
           member_order(c->agent->member)->stop == ORDER_STOP_NONE;
}

bool agent_snap_waits(struct crew *c)
{
    struct agent_snap *p = c->agent->snap;
    const struct order *order = member_order(c->agent->member);
    uint64_t now = uv_now(&c->agent->loop);

    if (!p || !agent_snap_has_own(p) || c->any_failed || order->broken ||
        (c->stopping && order->stop != ORDER_STOP_GRACE && !is_lingering(p, c))) {
        return false;
    }
    if (p->waited_for != c->generation) {
        p->waited_for = c->generation;
        p->waits_since_ms = now;
    }
    if (now >= wait_until(p, c)) {
        return false;
    }
    agent_snap_flush(p);
    if (!agent_snap_has_own(p)) {
        return false; /* it came to nothing at once, as this agent leads */
    }
    p->waits = c;
    return true;
}
