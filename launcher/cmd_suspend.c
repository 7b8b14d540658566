/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster suspend: asks a run to save its state, to end, and to give up its
 * machines until `muster resume`. One that was stopped already is only marked:
 * so nothing that would start it again, such as a job in the queue, does.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/clock.h"
#include "launcher/control.h"
#include "launcher/run_request.h"
#include "launcher/status_file.h"

#include <stdio.h>

static const struct options options = {
    .command = "suspend",
    .usage = "RUN [--force]",
    .about = "Asks a run to save its state and end, and keeps it from going on "
             "until muster resume: its workers get the grace time of the job, "
             "and muster run ends with exit status 75. RUN is a run directory, "
             "a run id or a name.",
    .table = run_request_table,
    .min_args = 1,
    .max_args = 1,
};

/* It can go on, and nobody is behind it. */
static bool is_left_behind(const struct run_view *v)
{
    enum status_run_state state = v->status->state;

    return state == STATUS_STOPPED ||
           (v->has_status && !status_run_is_over(state) &&
            !run_view_is_alive(v) && !control_is_heard(v->dir->id));
}

/* With the lock, so that nobody can come meanwhile. */
static int mark(struct run_view *v)
{
    bool is_reduced = false;
    struct error e = {0};
    int rc = rundir_lock(v->dir, &e);

    rc = rc < 0 ? rc : run_view_refresh(v, &e);
    if (rc == 0 && !is_left_behind(v)) {
        rc = error_text(&e, ERR_LOCKED, "run %s has gone on meanwhile",
                        v->dir->id);
    }
    if (rc == 0) {
        v->status->state = STATUS_SUSPENDED;
        v->status->verdict = (struct status_verdict){
            .is_set = true, .is_resumable = true,
            .exit_status = EXIT_RESUMABLE, .reason = "suspended by muster "
            "suspend, after it had stopped"};
        v->status->updated_ns = clock_wall_ns();
        rc = status_file_write(v->dir->path, v->status, &is_reduced, &e);
    }
    if (rc < 0 && !is_reduced) {
        return command_fail(&e);
    }
    printf("run %s had stopped, and is suspended\n", v->dir->id);
    return EXIT_OK;
}

static int say_over(const struct run_view *v)
{
    const char *state = status_run_name(v->status->state);

    if (v->status->state == STATUS_SUSPENDED) {
        printf("run %s is suspended already\n", v->dir->id);
        return EXIT_OK;
    }
    fprintf(stderr, "muster: run %s is over: %s\n", v->dir->id, state);
    return EXIT_FAILED;
}

int cmd_suspend(int argc, char **argv)
{
    _run_view_ struct run_view v = {0};
    bool force = false;
    int rc = run_request_start(&options, argc, argv, &force, &v);

    if (rc >= 0) {
        return rc;
    }
    rc = is_left_behind(&v) ? RUN_REQUEST_IS_OVER
                            : run_request(&v, "suspend", force,
                                          "suspending");
    if (rc != RUN_REQUEST_IS_OVER) {
        return rc;
    }
    return is_left_behind(&v) ? mark(&v) : say_over(&v);
}
