/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/clock.h"
#include "base/str.h"
#include "launcher/control.h"
#include "launcher/runview.h"

#include <poll.h>
#include <string.h>

enum { LOOK_MS = 500 };

/* Whether its lead writes another status before the last one is stale. */
static bool says_more(struct run_view *v)
{
    uint64_t updated_ns = v->status->updated_ns;
    uint64_t from_ms = clock_mono_ms();

    while (!v->is_stale && clock_mono_ms() - from_ms < STATUS_STALE_MS) {
        poll(NULL, 0, LOOK_MS);
        if (run_view_refresh(v, NULL) < 0) {
            return false;
        }
        if (v->status->updated_ns != updated_ns) {
            return !status_run_is_over(v->status->state);
        }
    }
    return false;
}

int takeup_check(const struct rundir *dir, struct error *e)
{
    _run_view_ struct run_view v = {0};
    int rc = dir->reopened ? run_view_open(dir->path, &v, e) : 0;

    if (rc < 0 || !v.has_status || status_run_is_over(v.status->state)) {
        return rc;
    }
    if (!control_is_heard(dir->id) &&
        (run_view_is_all_here(&v) || !says_more(&v))) {
        return 0;
    }
    return error_text(e, ERR_LOCKED, "run %s is alive, and only its front end is "
                      "gone: muster attach %s takes it over", dir->id, dir->id);
}

int takeup_run(const struct rundir *dir, struct run_config *config,
               struct error *e)
{
    _run_view_ struct run_view v = {0};
    const struct run_status *s;
    int rc = dir->reopened ? run_view_open(dir->path, &v, e) : 0;

    if (rc < 0 || !v.has_status) {
        return rc;
    }
    s = v.status;
    config->first_generation = (uint32_t)s->generation + 1;
    if (s->state == STATUS_SUCCEEDED || s->state == STATUS_FAILED) {
        return 0;
    }
    config->n_restarts = (uint32_t)s->restarts;
    if (strlen(s->resume_path) < sizeof(config->resume_path)) {
        str_copy(config->resume_path, sizeof(config->resume_path),
                 s->resume_path);
        config->resume_step = s->resume_path[0] ? s->resume_step : 0;
    }
    return 0;
}
