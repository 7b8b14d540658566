/* SPDX-License-Identifier: Apache-2.0 */
/* muster checkpoint: asks the workers of a run to save now, and to go on. */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/run_request.h"
#include "launcher/runview.h"

#include <stdio.h>

static const struct option_def table[] = {
    {0},
};

static const struct options options = {
    .command = "checkpoint",
    .usage = "RUN",
    .about = "Asks the workers of a run to save a checkpoint now, and to go on. "
             "RUN is a run directory, a run id or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

int cmd_checkpoint(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, NULL, &args);

    if (rc >= 0) {
        return rc;
    }
    if (run_request_view(args.words.items[0], &v, &e) < 0) {
        return command_fail(&e);
    }
    rc = run_request(&v, "checkpoint", false, "asking its workers to save");
    if (rc == RUN_REQUEST_IS_OVER) {
        fprintf(stderr, "muster: run %s is over: %s\n", v.dir->id,
                status_run_name(v.status->state));
        return EXIT_FAILED;
    }
    return rc;
}
