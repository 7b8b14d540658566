/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that says `suspend: true`: its run is made, with all that muster resume
 * has to know, and nothing is started. So nothing is asked of its hosts, either.
 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/key.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/options.h"
#include "launcher/runview.h"
#include "launcher/status_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A run that was there already keeps what it had. */
static int write_status(const struct rundir *dir, const struct job *job,
                        struct error *e)
{
    _run_view_ struct run_view v = {0};
    bool is_reduced = false;
    struct run_status *s;
    int rc = run_view_open(dir->path, &v, e);

    if (rc < 0) {
        return rc;
    }
    s = v.status;
    if (!v.has_status) {
        str_copy(s->id, sizeof(s->id), dir->id);
        str_copy(s->name, sizeof(s->name), dir->name);
        str_copy(s->version, sizeof(s->version), PACKAGE_VERSION);
        str_copy(s->run_dir, sizeof(s->run_dir), dir->path);
        s->created_ns = dir->created_ns;
        s->max_restarts = (int)job->restart.max;
    }
    s->state = STATUS_SUSPENDED;
    s->verdict = (struct status_verdict){.is_set = true, .is_resumable = true,
                                         .exit_status = EXIT_RESUMABLE,
                                         .reason = "made with suspend: true"};
    s->updated_ns = clock_wall_ns();
    rc = status_file_write(dir->path, s, &is_reduced, e);
    return is_reduced ? 0 : rc;
}

static int write_record(const struct rundir *dir,
                        const struct front_record *was, struct error *e)
{
    struct front_record r = *was;
    const char *job = getenv("SLURM_JOB_ID");

    gethostname(r.host, sizeof(r.host) - 1);
    str_copy(r.slurm_job, sizeof(r.slurm_job), job ? job : "");
    if (!getcwd(r.cwd, sizeof(r.cwd))) {
        r.cwd[0] = '\0';
    }
    return front_record_write(dir, &r, e);
}

int run_make_suspended(const struct run_options *o, struct spec_result *r,
                       const struct front_record *was)
{
    _cleanup_(rundir) struct rundir *dir = NULL;
    _secret_ uint8_t *key = secret_alloc(JOB_KEY_BYTES);
    struct error e = {0};

    if (run_make_dir(o, r->job, &dir, key, &e) < 0 ||
        write_record(dir, was, &e) < 0 ||
        write_status(dir, r->job, &e) < 0) {
        return command_fail(&e);
    }
    fprintf(stderr, "muster: run %s is made, and suspended: muster resume %s "
            "starts it; it is in %s\n", dir->id, dir->id, dir->path);
    return EXIT_RESUMABLE;
}
