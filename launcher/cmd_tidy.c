/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster tidy: what muster-watch becomes when its agent was killed, or has left a run
 * that goes on. It takes away what that agent left on this host, files at once, and
 * memory of snapshots at the end of the run, unless another agent has come in its place,
 * which does that itself. Where the run's directory hangs it hangs, too, and nobody
 * waits for it.
 */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/options.h"
#include "launcher/tidy.h"

#include <errno.h>
#include <limits.h>

struct tidy_options {
    const char *tag;
    int64_t index;
};

static const struct option_def table[] = {
    {"tag", "TAG", "where it met others on this host", OPTION_STR,
     offsetof(struct tidy_options, tag), NULL, 0},
    {"index", "N", "which agent of this host it was", OPTION_INT,
     offsetof(struct tidy_options, index), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "tidy",
    .usage = "--tag=TAG --index=N",
    .about = "Takes away what an agent left that was killed: memory of snapshots at "
             "the end of its run. What muster-watch becomes.",
    .table = table,
};

int cmd_tidy(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct tidy_options o = {0};
    struct error e = {0};
    int status = options_start(&options, argc, argv, &o, &args);
    int rc;

    if (status >= 0 || !o.tag || o.index < 0 || o.index > INT_MAX) {
        return status >= 0 ? status : EXIT_USAGE;
    }
    rc = tidy_up(o.tag, (unsigned)o.index, true, &e);
    return rc == 0 || rc == -ENOENT ? EXIT_OK : command_fail(&e);
}
