/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/cause_file.h"
#include "launcher/runview.h"
#include "launcher/snap_budget.h"
#include "launcher/unbegun.h"
#include "rendezvous/restart.h"

#include <stdlib.h>

void front_settle(struct front *f, int status, const char *reason)
{
    if (f->phase == FRONT_OVER) {
        return;
    }
    f->phase = FRONT_OVER;
    f->status = status;
    f->over_ms = front_now_ms(f);
    str_copy(f->reason, sizeof(f->reason), reason);
    f->repeat_at_ms = 0;
}

void front_leave(struct front *f, int status, const char *text)
{
    front_settle(f, status, text);
    f->has_left = true;
    front_hurry(f);
    link_close(f->lead);
    f->lead = NULL;
    uv_stop(&f->loop);
}

bool front_settle_from_record(struct front *f)
{
    _run_view_ struct run_view v = {0};

    if (run_view_open(f->config->dir->path, &v, NULL) < 0 ||
        !v.status->verdict.is_set ||
        v.status->starts < f->nth_start) {
        return false;
    }
    front_settle(f, v.status->verdict.exit_status, v.status->verdict.reason);
    return true;
}

bool front_is_storing(const struct front *f)
{
    const struct run_status *s = screen_last(f->screen);

    return f->lead && s && s->storing_path[0];
}

bool front_is_saving(const struct front *f)
{
    const struct run_status *s = screen_last(f->screen);

    return f->lead && s && s->saving_ranks > 0;
}

static uint64_t lead_end_ms(const struct front *f)
{
    return front_is_storing(f) || front_is_saving(f) ? FRONT_SAVE_END_MS
                                                     : FRONT_LEAD_END_MS;
}

void front_finish_if_done(struct front *f)
{
    uint64_t waited = front_now_ms(f) - f->over_ms;

    if (f->phase != FRONT_OVER || (f->lead && waited < lead_end_ms(f))) {
        return;
    }
    if (front_reach_is_gone(f) && front_mpirun_is_gone(f, waited) &&
        front_step_is_gone(f, waited)) {
        uv_stop(&f->loop);
    }
}

/* Who started muster may want to read the cause in a file. */
static void tell_starter(struct front *f)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    const struct run_status *s = screen_last(f->screen);
    struct error e = {0};

    if (path && path[0] && cause_file_is_due(s) &&
        cause_file_write(s, f->config->dir->path, path, &e) < 0) {
        screen_note(f->screen, "TORCHELASTIC_ERROR_FILE is not written: %s",
                    e.text);
    }
}

/* What agents hold of the program's state on this host: those that were killed have
 * left theirs. A run that can be resumed may load it. */
static void drop_snapshots(const struct front *f)
{
    const struct run_status *s = screen_last(f->screen);

    if (s && s->verdict.is_set && f->status != RUN_RESUMABLE &&
        f->status != RUN_CANCELLED) {
        snap_dir_remove(f->config->dir->id, NULL);
    }
}

/* No lead has said anything, so that none will write it. One who takes over a run knows of
 * one that did. */
void front_record_end(struct front *f)
{
    struct error e = {0};

    if (f->has_left || f->config->attach || screen_last(f->screen)) {
        return;
    }
    if (unbegun_end(f->config->dir, f->status, f->reason, &e) < 0) {
        screen_note(f->screen, "the end of the run is not recorded: %s", e.text);
    }
}

void front_say_end(struct front *f)
{
    front_drain_output(f);
    front_tell_unread(f);
    if (f->has_left) {
        screen_leave(f->screen, f->reason);
        front_drain_output(f);
        return;
    }
    tell_starter(f);
    drop_snapshots(f);
    screen_end(f->screen, f->status, f->reason,
               front_now_ms(f) - f->started_ms);
    front_drain_output(f);
}
