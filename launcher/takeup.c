/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/str.h"
#include "launcher/runview.h"

#include <string.h>

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
