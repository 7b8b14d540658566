/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster ckpt-look: what this host sees of a checkpoint, and beside it, for an agent
 * (launcher/agent_look.h). A process of its own, because the filesystem may hang.
 * Says a JSON object on stdout: `state` (ckpt/beside.h), and of another one its
 * `path`, `step`, `changed` and whether it is `whole`; or `error`.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/beside.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct look_options {
    const char *older_than;
};

static const struct option_def table[] = {
    {"older-than", "PATHS", "one beside it that is older, and none of these lines",
     OPTION_STR, offsetof(struct look_options, older_than), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "ckpt-look",
    .usage = "PATH",
    .about = "Looks for a checkpoint, and for those beside it; run by agents before "
             "workers start from it.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

static void put(struct jsonw *w, const struct beside *b)
{
    jsonw_str(w, "state", beside_state_name(b->state));
    if (b->state == BESIDE_OTHER) {
        jsonw_str(w, "path", b->path);
        jsonw_int(w, "step", b->step);
        jsonw_int(w, "changed", b->changed_ns);
        jsonw_bool(w, "whole", b->is_whole);
    }
}

int cmd_ckpt_look(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    _free_ struct beside *b = calloc(1, sizeof(*b));
    _buf_ struct buf out = {0};
    struct jsonw w = jsonw_start(&out);
    struct error e = {0};
    struct look_options look = {0};
    int status = options_start(&options, argc, argv, &look, &args), rc;

    if (status >= 0 || !b) {
        return status >= 0 ? status : EXIT_FAILED;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    jsonw_object(&w, NULL);
    rc = look.older_than ? beside_older(io_system(), args.words.items[0],
                                        look.older_than, b, &e)
                         : beside_find(io_system(), args.words.items[0], b, &e);
    if (rc < 0) {
        jsonw_str(&w, "error", e.text);
    } else {
        put(&w, b);
    }
    jsonw_end_object(&w);
    buf_putc(&out, '\n');
    return out.failed || fs_write_all(STDOUT_FILENO, out.data, out.len) < 0
               ? EXIT_FAILED : EXIT_OK;
}
