/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an agent: its companion gets the verdict, its workers' output and
 * that of the agents below goes up, records are finished, each within its time;
 * then links and sockets close and the loop ends.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "launcher/agent_snap.h"
#include "launcher/agent_steps.h"
#include "launcher/snap_budget.h"
#include "rendezvous/restart.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    OUTPUT_MS = 5000, /* for output to get out */
    OUTPUT_SUCCESS_MS = 30000,
    DRAIN_MS = 10000, /* for that of others, and what is on its way */
    MPI_LOOK_MS = 20, /* for mpirun, which is about to end */
    LEAVE_MS = 45000, /* then the process ends, whatever is left */
};

static void close_loop(struct agent *a)
{
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++) {
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    }
    uv_close((uv_handle_t *)&a->start_timer, NULL);
    uv_close((uv_handle_t *)&a->member_timer, NULL);
    uv_close((uv_handle_t *)&a->soon_timer, NULL);
    uv_close((uv_handle_t *)&a->drain_timer, NULL);
    uv_close((uv_handle_t *)&a->strand_timer, NULL);
    uv_close((uv_handle_t *)&a->procs_timer, NULL);
    uv_unref((uv_handle_t *)&a->leave_timer);
}

/* The last part of leaving: all output is out, or its time is over. */
static void finish_leaving(uv_timer_t *t)
{
    struct agent *a = t->data;
    bool is_resumable;

    if (crew_mpi_outlives(a)) {
        uv_timer_start(t, finish_leaving, MPI_LOOK_MS, 0);
        return;
    }
    agent_lead_stop(a);
    agent_heir_stop(a);
    agent_steps_stop(a);
    is_resumable = a->status == RUN_RESUMABLE || a->status == RUN_CANCELLED;
    a->leaves_files = a->leaves_alone && is_resumable &&
                      snap_dir_has_agent(a->run.id, a->index);
    agent_snap_stop(a, is_resumable);
    tree_close(a->tree);
    a->tree = NULL;
    if (a->companion) {
        companion_link_keep_open(a->companion);
    }
    companion_link_destroy(a->companion);
    link_listener_close(a->listener);
    control_server_destroy(a->control);
    child_table_destroy(a->children);
    proc_env_release(&a->workers_host.env);
    crew_mpi_forget(a);
    close_loop(a);
}

static void on_drain_late(uv_timer_t *t)
{
    agent_log(t->data, "some output did not get through to the front end");
    finish_leaving(t);
}

/* From within the tree, which must not be closed there. */
void agent_drained(struct agent *a)
{
    uv_timer_start(&a->drain_timer, finish_leaving, 0, 0);
}

/* The tree has all output of this agent: now it goes up. */
static void on_output_gone(void *arg, bool all_done)
{
    struct agent *a = arg;

    if (!all_done) {
        agent_log(a, "some output could not be delivered or written");
    }
    a->output = NULL; /* until now the tree may ask for more of it */
    if (!a->tree) {
        agent_drained(a);
        return;
    }
    uv_timer_start(&a->drain_timer, on_drain_late, DRAIN_MS, 0);
    tree_finish(a->tree, a->leaves_alone ? TREE_FINISH_OWN : TREE_FINISH_ALL);
}

/* After 0 muster-watch takes it that nothing is left. */
static int untidy(uint8_t status)
{
    return status ? status : EXIT_FAILURE;
}

static void on_leave_late(uv_timer_t *t)
{
    struct agent *a = t->data;

    agent_log(a, "could not end in order");
    _exit(untidy(a->status));
}

void agent_leave(struct agent *a, uint8_t status, const char *reason)
{
    if (a->leaving) {
        return;
    }
    a->leaving = true;
    a->leaves_alone = a->member && member_order(a->member)->step != ORDER_LEAVE;
    a->status = status;
    agent_log(a, "leaving: %u %s", status, reason);
    uv_timer_start(&a->leave_timer, on_leave_late, LEAVE_MS, 0);
    if (a->companion) {
        companion_link_verdict(a->companion, status, reason);
    }
    agent_member_stop(a);
    crew_unstrand(a);
    crew_warm_end(a);
    crew_blanks_end(a);
    if (a->crew) {
        /* Not dead after repeated SIGKILL: muster-watch goes on after us. */
        agent_log(a, "leaving %u workers to muster-watch", crew_alive(a));
        _exit(untidy(status));
    }
    crew_world_close(a, take_ptr(&a->parted));
    crew_mpi_leave(a);
    if (a->output) {
        output_destroy(a->output, status == RUN_SUCCEEDED ? OUTPUT_SUCCESS_MS
                                                          : OUTPUT_MS,
                       on_output_gone, a);
    } else {
        on_output_gone(a, true);
    }
}
