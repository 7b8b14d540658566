/* SPDX-License-Identifier: Apache-2.0 */
/* muster cancel: asks a run to save its state and end. */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/options.h"
#include "launcher/run_request.h"

#include <stdio.h>

struct cancel_options {
    bool force;
};

static const struct option_def table[] = {
    {"force", NULL, "do not wait for a checkpoint: workers are killed at once",
     OPTION_FLAG, offsetof(struct cancel_options, force), NULL, 'f'},
    {0},
};

static const struct options options = {
    .command = "cancel",
    .usage = "RUN [--force]",
    .about = "Asks a run to stop: its workers are told to save, get the grace "
             "time of the job, and the run ends with exit status 130, to be "
             "resumed by hand. RUN is a run directory, a run id or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

int cmd_cancel(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct cancel_options set = {0};
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (run_view_load(args.words.items[0], &v, &e) < 0) {
        return command_fail(&e);
    }
    rc = run_request(&v, "cancel", set.force, "cancelling");
    if (rc == RUN_REQUEST_IS_OVER) {
        printf("run %s is over already: %s\n", v.dir->id,
               status_run_name(v.status->state));
        return EXIT_OK;
    }
    return rc;
}
