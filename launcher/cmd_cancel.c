/* SPDX-License-Identifier: Apache-2.0 */
/* muster cancel: asks a run to save its state and end. */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/run_request.h"

#include <stdio.h>

static const struct options options = {
    .command = "cancel",
    .usage = "RUN [--force]",
    .about = "Asks a run to stop: its workers are told to save, get the grace "
             "time of the job, and the run ends with exit status 130, to be "
             "resumed by hand. RUN is a run directory, a run id or a name.",
    .table = run_request_table,
    .min_args = 1,
    .max_args = 1,
};

int cmd_cancel(int argc, char **argv)
{
    _run_view_ struct run_view v = {0};
    bool force = false;
    int rc = run_request_start(&options, argc, argv, &force, &v);

    if (rc >= 0) {
        return rc;
    }
    rc = run_request(&v, "cancel", force, "cancelling");
    if (rc == RUN_REQUEST_IS_OVER) {
        printf("run %s is over already: %s\n", v.dir->id,
               status_run_name(v.status->state));
        return EXIT_OK;
    }
    return rc;
}
