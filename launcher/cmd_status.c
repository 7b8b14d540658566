/* SPDX-License-Identifier: Apache-2.0 */
/* muster status: one run, from its status.json. */
#include <config.h>

#include "launcher/commands.h"

#include "launcher/options.h"
#include "launcher/run_text.h"
#include "launcher/runview.h"
#include "launcher/show.h"

#include <stdio.h>

enum { FEW_WORKERS = 16 };

struct status_options {
    enum show_format format;
};

static const struct option_def table[] = {
    SHOW_OPTION(struct status_options, format),
    {0},
};

static const struct options options = {
    .command = "status",
    .usage = "[RUN] [-o json|yaml|wide]",
    .about = "Shows the state of a run: its nodes, workers, progress, and the "
             "first failure. RUN is a run directory, a run id or a name (its "
             "newest run); without it the newest run is shown.",
    .table = table,
    .max_args = 1,
};

int cmd_status(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct status_options set = {0};
    _run_view_ struct run_view v = {0};
    _buf_ struct buf text = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (run_view_load(args.words.n ? args.words.items[0] : NULL, &v, &e) < 0) {
        return command_fail(&e);
    }
    if (set.format == SHOW_JSON || set.format == SHOW_YAML) {
        run_view_json(&v, &text);
        return show_json(&text, set.format);
    }
    run_text_head(&text, &v);
    run_text_nodes(&text, v.status);
    if (v.status->n_workers &&
        (set.format == SHOW_WIDE || v.status->n_workers <= FEW_WORKERS)) {
        run_text_workers(&text, v.status);
    }
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}
