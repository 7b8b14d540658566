/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/unbegun.h"

#include "base/build.h"
#include "base/str.h"
#include "base/thread.h"
#include "launcher/runview.h"
#include "launcher/status_file.h"

#include <errno.h>
#include <stdlib.h>

/* A thread that is left behind has it for good. */
struct ending {
    char path[PATH_MAX];
    int status;
    char reason[1024];
    int rc;
    struct error e;
};

static bool has_begun(const struct run_view *v)
{
    const struct run_status *s = v->status;

    return v->has_status && (s->state == STATUS_SUSPENDED || s->generation > 0 ||
                             s->n_nodes > 0);
}

static int write_end(struct run_status *s, const struct ending *end, struct error *e)
{
    bool is_reduced;

    str_copy(s->version, sizeof(s->version), build_name());
    s->starts++;
    run_status_end(s, end->status, false, end->reason);
    s->updated_ns = s->ended_ns;
    return status_file_write(end->path, s, &is_reduced, e);
}

static void run_ending(void *arg)
{
    struct ending *end = arg;
    _run_view_ struct run_view v = {0};

    end->rc = run_view_read(end->path, &v, &end->e);
    if (end->rc == 0 && !has_begun(&v)) {
        end->rc = write_end(v.status, end, &end->e);
    }
}

int unbegun_end(const struct rundir *dir, int status, const char *reason,
                struct error *e)
{
    struct ending *end = calloc(1, sizeof(*end));
    int rc;

    if (!end) {
        return error_set(e, ENOMEM, "write a status");
    }
    str_copy(end->path, sizeof(end->path), dir->path);
    str_copy(end->reason, sizeof(end->reason), reason);
    end->status = status;
    if (!thread_call_within(run_ending, end, RUN_VIEW_PATIENCE_MS)) {
        return error_text(e, ETIMEDOUT, "%s does not answer", dir->path);
    }
    rc = end->rc;
    if (rc < 0 && e) {
        *e = end->e;
    }
    free(end);
    return rc;
}
