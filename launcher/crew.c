/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/agent_snap.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* --- workers --- */

static void on_started(void *arg)
{
    struct crew *c = arg;
    struct member_event event = {.type = MEMBER_STARTED,
                                 .generation = c->generation};

    crew_tell_started(c);
    crew_warm_up(c);
    crew_blanks_fill(c);
    agent_member_step(c->agent, &event);
}

static void on_exit_(void *arg, const struct worker_end *end)
{
    struct crew *c = arg;
    struct failure f = {0};
    struct member_event event = {.type = MEMBER_EXITED,
                                 .generation = c->generation};

    crew_tell_exited(c, end);
    if (end->how.signal == SIGKILL) {
        crew_gpus_killed(c, end->how.pid);
    }
    if (end->status == 0) {
        /* What it has completed, others can complete; nothing more. */
        segment_leave(c->world->segment, end->local_rank);
    } else {
        c->any_failed = c->any_failed || !end->stopped;
        crew_world_end(c->world, end->text);
        crew_describe(c, end, &f);
        event.failure = &f;
        if (end->exec_failed) {
            /* None was released; the first one to say why speaks for all. */
            if (c->start_failed) {
                return;
            }
            c->start_failed = true;
            event.type = MEMBER_START_FAILED;
        }
    }
    if (event.type == MEMBER_EXITED && end->status != 0 && !end->stopped) {
        if (crew_hold_back(c, &f)) {
            return;
        }
        crew_tell_echoes(c);
    }
    agent_member_step(c->agent, &event);
}

static bool all_wait_in_kernel(const struct worker_survivor *who, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (who[i].state != 'D') {
            return false;
        }
    }
    return n > 0;
}

/* None of them runs an instruction of its program again, but what the kernel does
 * for them (a page that is written, memory of a device) may go on for long. So the
 * run goes on without this node, where it can: an agent that has ended is known to
 * be gone, and muster-watch waits for them. Where it is the lead's, the lead says
 * in time that it has not stopped. */
static void give_node_up(struct crew *c)
{
    if (c->stopping && !agent_leads(c->agent)) {
        agent_leave(c->agent, RUN_RESUMABLE, "its workers cannot be killed");
    }
}

static void tell_stuck(struct crew *c, const struct worker_survivor *who)
{
    char where[64];

    if (who->is_silent) {
        agent_note(c->agent, "process %ld (%s) on %s does not tell whose it is "
                   "(state %c), so workers here do not count as gone; kill it if "
                   "it is one of them", (long)who->pid, who->name,
                   c->agent->host, who->state);
        return;
    }
    proc_wait_name(who->pid, where, sizeof(where));
    agent_note(c->agent, "process %ld (%s) on %s does not die of SIGKILL "
               "(state %c%s%s)", (long)who->pid, who->name, c->agent->host,
               who->state, where[0] ? ", waits in " : "", where);
}

static void on_stuck(void *arg, const struct worker_survivor *who, size_t n)
{
    struct crew *c = arg;

    if (c->told_stuck) {
        if (all_wait_in_kernel(who, n)) {
            give_node_up(c);
        }
        return;
    }
    c->told_stuck = true;
    for (size_t i = 0; i < n; i++) {
        tell_stuck(c, &who[i]);
    }
}

static void on_gone(void *arg)
{
    struct crew *c = arg;

    if (!c->echoes) {
        crew_finish(c);
        return;
    }
    c->is_gone = true;
    if (c->world->n_nodes == 1) {
        crew_tell_echoes(c);
    }
}

static int spawn(struct crew *c, const struct order *order, struct error *e)
{
    struct agent *a = c->agent;
    const struct job *job = a->config.job;
    struct worker_spec *specs = calloc(c->layout.n_local, sizeof(*specs));
    struct workers_events events = {.on_started = on_started,
                                    .on_exit = on_exit_, .on_stuck = on_stuck,
                                    .on_gone = on_gone, .arg = c};
    struct workers_config config = {
        .workers = specs,
        .n = c->layout.n_local,
        .cwd = outfit_cwd(job, a->config.cwd),
        .oom_score_adj = OUTFIT_OOM_SCORE_ADJ,
    };
    char logs[PATH_MAX], file[PATH_MAX];
    int rc;

    if (!specs) {
        return error_set(e, ENOMEM, "start workers");
    }
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        specs[i] = (struct worker_spec){
            .argv = c->list[i].outfit.argv.items,
            .envp = c->list[i].outfit.env.items,
            .starts = job->program == JOB_MPI ? c->list[i].outfit.argv.items[2]
                                              : NULL,
            .rank = c->layout.first_rank + i,
        };
    }
    rc = fs_path(logs, sizeof(logs), e, "%s/logs/%u", a->run.dir,
                 order->generation);
    rc = rc < 0 ? rc : fs_path(file, sizeof(file), e, "%s/node-%u", logs,
                               a->rank);
    if (rc == 0) {
        config.warm = crew_warm(c);
        config.blanks = a->blanks;
        config.logs_dir = job->logs.files == JOB_FILES_RANK ? logs : NULL;
        config.log_file = job->logs.files == JOB_FILES_NODE ? file : NULL;
        rc = workers_start(&a->workers_host, &config, &events, &c->workers, e);
    }
    free(specs);
    return rc;
}

static void crew_free(struct crew *c)
{
    agent_snap_forget(c);
    crew_blame_end(c);
    crew_hang_end(c);
    crew_timers_end(c);
    crew_mpi_destroy(c);
    crew_strip(c);
    crew_world_close(c->agent, c->world);
    free(c->list);
    strlist_release(&c->killed);
    workers_destroy(c->workers);
    free(c);
}

int crew_start(struct agent *a, const struct order *order, struct error *e)
{
    struct crew *c = calloc(1, sizeof(*c));
    int rc;

    if (!c) {
        return error_set(e, ENOMEM, "start workers");
    }
    crew_world_close(a, take_ptr(&a->parted));
    c->agent = a;
    c->generation = order->generation;
    c->since_ns = clock_wall_ns();
    c->layout = layout_of(order->n_procs, order->n_nodes, a->rank);
    c->list = calloc(c->layout.n_local + 1, sizeof(*c->list));
    rc = c->list ? crew_blame_start(c, e)
                 : error_set(e, ENOMEM, "start workers");
    rc = rc < 0 ? rc : crew_equip(c, order, e);
    rc = rc < 0 ? rc : crew_mpi_start(c, order, e);
    rc = rc < 0 ? rc : crew_hang_start(c, e);
    rc = rc < 0 ? rc : crew_timers_start(c, e);
    rc = rc < 0 ? rc : spawn(c, order, e);
    if (rc < 0) {
        crew_free(c);
        return rc;
    }
    crew_see(a, order->resume_path);
    a->crew = c;
    a->generation = order->generation;
    a->first_rank = c->layout.first_rank;
    crew_join_world(a);
    agent_fetch_ahead(c, order->resume_path);
    return 0;
}

void crew_stop(struct agent *a, bool kill)
{
    struct crew *c = a->crew;
    const struct order *order = member_order(a->member);

    if (!c) {
        return;
    }
    if (!c->stopping) {
        crew_blanks_rest(a);
        c->stopping = true;
        c->stopped_ms = uv_now(&a->loop);
        if (order->broken) {
            crew_accuse(c); /* before what follows makes others fail */
        }
        crew_put_stop_file(c, true);
        for (uint32_t i = 0; i < c->layout.n_local; i++) {
            worker_socket_set_state(c->list[i].socket, true,
                                    c->n_checkpoints);
        }
    }
    agent_snap_hurry(c);
    if (order->broken) {
        crew_world_break(c->world);
    } else if (kill) {
        crew_world_end(c->world, "the workers are being killed");
    } else if (crew_is_stranded(a)) {
        crew_world_end(c->world, "the MPI world is lost");
    }
    crew_tell_echoes(c);
    crew_mpi_stop(c);
    if (!c->is_gone) {
        /* The member says when the grace is over. */
        workers_stop(c->workers, kill ? 0 : UINT32_MAX);
    }
}

void crew_ask_checkpoint(struct agent *a, const char *id)
{
    struct crew *c = a->crew;
    char *to;

    if (!c || c->stopping) {
        return;
    }
    c->n_checkpoints++;
    to = c->asked[c->n_checkpoints % CREW_N_ASKED];
    str_copy(to, STATUS_ASKED_ID_BYTES, id);
    c->told_heard = c->told_heard == to ? NULL : c->told_heard;
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        worker_socket_set_state(c->list[i].socket, false, c->n_checkpoints);
    }
}

unsigned crew_alive(const struct agent *a)
{
    return a->crew ? workers_alive(a->crew->workers) : 0;
}

void crew_destroy(struct agent *a)
{
    struct crew *c = a->crew;
    struct crew_world *world;

    if (!c) {
        return;
    }
    a->crew = NULL;
    world = take_ptr(&c->world);
    crew_free(c);
    crew_world_part(a, world);
}

void crew_finish(struct crew *c)
{
    struct agent *a = c->agent;
    struct member_event event = {.type = MEMBER_GONE,
                                 .generation = c->generation};

    if (!crew_mpi_is_gone(c) || !crew_gpus_are_free(c)) {
        return;
    }
    agent_snap_offer(c);
    if (agent_snap_waits(c)) {
        return;
    }
    crew_destroy(a);
    /* After what was told of its workers. */
    agent_member_soon(a, &event);
}
