/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over a run whose front end is gone. The lead still looks for that one:
 * it is asked to come here instead, over the control socket of an agent on this
 * host, else by a file in the run directory. Once it has come, this is a front
 * end like the first, but for the MPI world: the mpirun that made it may live on,
 * as a child of nobody we know, and is left alone as long as the nodes have their
 * world. When that is lost, this front end makes the next one.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "launcher/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ASK_MS = 3000,         /* for an agent to answer */
    ASK_AGAIN_MS = 2000,
    COME_MS = 30000,       /* for the lead to come */
    COME_BY_FILE_MS = 90000, /* the same: directories on NFS are cached */
    LOST_WORLD_MS = 2000,  /* for an mpirun that lost a node to end by itself */
};

/* --- the request: on libuv's thread pool, where it may hang --- */

struct attach_request {
    uv_work_t work;
    struct front *front;
    char run_id[RUNDIR_ID_SIZE];
    char run_dir[PATH_MAX];
    json_t *body;
    bool by_file; /* at the socket of this host it is this process that answers */
    bool is_working;
    char dropped[PATH_MAX]; /* that file; "" for none */
    char refused[256];      /* the answer was a no, or there was none */
};

static void take_reply(struct attach_request *r, json_t *reply)
{
    const char *text = json_string_value(json_object_get(reply, "text"));

    if (!json_is_true(json_object_get(reply, "ok"))) {
        str_copy(r->refused, sizeof(r->refused), text ? text : "no reason");
    }
    json_decref(reply);
}

/* One is enough, until somebody has taken it. */
static bool lies_there(const struct attach_request *r)
{
    return r->dropped[0] && access(r->dropped, F_OK) == 0;
}

static void ask(uv_work_t *work)
{
    struct attach_request *r = work->data;
    json_t *reply = NULL;
    struct error e = {.code = ENOENT};

    r->refused[0] = '\0';
    if (!r->by_file && control_ask(r->run_id, r->body, ASK_MS, &reply, &e) == 0) {
        take_reply(r, reply);
    } else if (e.code != ENOENT) {
        str_copy(r->refused, sizeof(r->refused), e.text);
    } else if (!lies_there(r) &&
               control_drop(r->run_dir, r->body, r->dropped, &e) < 0) {
        str_copy(r->refused, sizeof(r->refused), e.text);
    }
}

static void free_request(struct attach_request *r)
{
    if (r->dropped[0]) {
        unlink(r->dropped); /* nobody took it */
    }
    json_decref(r->body);
    free(r);
}

static void after_ask(uv_work_t *work, int status)
{
    struct attach_request *r = work->data;
    struct front *f = r->front;

    (void)status;
    r->is_working = false;
    if (!f) {
        free_request(r);
        return;
    }
    str_copy(f->refused, sizeof(f->refused), r->refused);
    if (r->dropped[0] && !f->asked_by_file && f->phase == FRONT_STARTING) {
        f->asked_by_file = true;
        screen_note(f->screen, "nobody of the run is on this host: left a "
                    "request for its lead in %s/control", r->run_dir);
    }
}

static json_t *describe(const struct front *f, struct error *e)
{
    _buf_ struct buf ways = {0};
    char from[HOSTS_NAME_BYTES + 64], host[HOSTS_NAME_BYTES] = "";
    json_t *body = NULL;

    if (front_address(f, &ways, e) < 0) {
        return NULL;
    }
    gethostname(host, sizeof(host) - 1);
    snprintf(from, sizeof(from), "muster attach (pid %ld on %s)",
             (long)getpid(), host);
    if (!ways.failed) {
        body = json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "op", "attach", "front",
                         buf_str(&ways), "from", from);
    }
    if (!body) {
        error_set(e, ENOMEM, "ask the lead");
    }
    return body;
}

static void ask_lead(struct front *f, bool by_file)
{
    struct attach_request *r = f->request;

    f->asked_ms = front_now_ms(f);
    if (!r->is_working) {
        r->by_file = by_file;
        r->is_working = uv_queue_work(&f->loop, &r->work, ask, after_ask) == 0;
    }
}

static int make_request(struct front *f, struct error *e)
{
    const struct rundir *dir = f->config->dir;
    struct attach_request *r = calloc(1, sizeof(*r));

    if (!r) {
        return error_set(e, ENOMEM, "ask the lead");
    }
    r->body = describe(f, e);
    if (!r->body) {
        free(r);
        return -e->code;
    }
    r->work.data = r;
    r->front = f;
    str_copy(r->run_id, sizeof(r->run_id), dir->id);
    str_copy(r->run_dir, sizeof(r->run_dir), dir->path);
    f->request = r;
    return 0;
}

void front_attach_drop(struct front *f)
{
    struct attach_request *r = f->request;

    f->request = NULL;
    if (r && r->is_working) {
        r->front = NULL; /* it goes with its answer */
    } else if (r) {
        free_request(r);
    }
}

/* --- until the lead has come --- */

static void show_status(struct front *f)
{
    _buf_ struct buf b = {0};

    run_status_to_json(f->config->attach->status, &b);
    if (!b.failed) {
        screen_status(f->screen, b.data, b.len);
    }
}

int front_attach_start(struct front *f, struct error *e)
{
    const struct front_attach *a = f->config->attach;

    f->attach_ms = front_now_ms(f);
    f->nth_start = a->status->starts;
    f->started_ms -= run_status_elapsed_ms(a->status, clock_wall_ns());
    f->epoch = a->was->epoch > a->status->mpi_epoch ? a->was->epoch
                                                    : a->status->mpi_epoch;
    f->is_kept = a->was->is_kept;
    front_old_find(f);
    show_status(f);
    if (make_request(f, e) < 0) {
        return -e->code;
    }
    ask_lead(f, false);
    return 0;
}

void front_attach_done(struct front *f)
{
    if (f->config->attach) {
        front_attach_drop(f);
        front_take_commands(f); /* not before: it is an agent that was asked */
        screen_note(f->screen, "attached to run %s; what its workers printed "
                    "before: muster logs %s", f->config->dir->id,
                    f->config->dir->id);
    }
}

static void give_up(struct front *f, uint64_t waited_ms)
{
    char text[1024];

    snprintf(text, sizeof(text), "the lead of run %s did not come within "
             "%llu s%s%s; see muster status %s", f->config->dir->id,
             (unsigned long long)waited_ms / 1000, f->refused[0] ? ": " : "",
             f->refused, f->config->dir->id);
    front_leave(f, EXIT_FAILED, text);
}

static void wait_for_lead(struct front *f)
{
    uint64_t waited_ms = front_now_ms(f) - f->attach_ms;

    if (front_now_ms(f) - f->asked_ms < ASK_AGAIN_MS ||
        front_settle_from_record(f)) {
        return;
    }
    if (waited_ms > (f->asked_by_file ? COME_BY_FILE_MS : COME_MS)) {
        give_up(f, waited_ms);
    } else {
        ask_lead(f, false);
    }
}

/* The one that came was lost before it could tell others of this front end, or, on a
 * host that had stopped, was no lead any more: whoever is has to be told. */
static void look_for_lead(struct front *f)
{
    uint64_t now = front_now_ms(f);
    struct error e = {0};

    if (!f->lead_gone_ms) {
        front_attach_drop(f);
    } else if (now - f->lead_gone_ms > ASK_AGAIN_MS && now - f->asked_ms > ASK_AGAIN_MS &&
               (f->request || make_request(f, &e) == 0)) {
        ask_lead(f, true);
    }
}

/* The record may be old, and this host's clock not the lead's. */
void front_attach_see(struct front *f, const struct run_status *s)
{
    if (f->config->attach && !f->is_timed && s->elapsed_ms) {
        f->is_timed = true;
        f->started_ms = front_now_ms(f) - s->elapsed_ms;
    }
}

/* --- MPI worlds, of others, too --- */

void front_see_world(struct front *f, const struct run_status *s)
{
    bool is_lost = s->mpi_lost && s->mpi_lost >= s->mpi_epoch;

    if (f->phase != FRONT_RUNNING) {
        return;
    }
    front_see_joined(f, s->mpi_epoch); /* the events may have come to nobody */
    front_on_mpi_lost(f, s->mpi_lost);
    if (!f->config->attach) {
        return;
    }
    f->epoch = s->mpi_epoch > f->epoch ? s->mpi_epoch : f->epoch;
    if (!is_lost || f->mpirun_pid > 0 || f->repeat_at_ms ||
        f->config->plan.n_agents < 2) {
        return;
    }
    if (f->config->mpirun) {
        front_remake_world(f, LOST_WORLD_MS, "the MPI world is lost");
    } else if (!f->told_no_mpirun) {
        f->told_no_mpirun = true;
        screen_note(f->screen, "the MPI world is lost, and no new one can be "
                    "made here: %s", f->config->attach->why_no_mpirun);
    }
    front_old_end(f, LOST_WORLD_MS);
}

void front_attach_tick(struct front *f)
{
    if (f->config->attach && f->phase == FRONT_STARTING) {
        wait_for_lead(f);
    } else if (f->config->attach && f->phase == FRONT_RUNNING) {
        look_for_lead(f);
    }
    front_old_tick(f);
}
