/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster torchrun: stands in for the command of that name. Its words become
 * `muster run -- torchrun WORDS`, which spec/command_torch.c reads, with
 * torchrun's own defaults.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/str.h"
#include "launcher/cmd_run.h"
#include "launcher/options.h"
#include "spec/spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* For --help: spec/command_torch.c reads them. */
static const struct option_def torchrun_options[] = {
    {.name = "nnodes", .value = "N|MIN:MAX", .help = "number of nodes; 1"},
    {.name = "nproc-per-node", .value = "N|auto|cpu|gpu",
     .help = "processes on each node; 1"},
    {.name = "max-restarts", .value = "N",
     .help = "restarts before the job fails; 0"},
    {.name = "module", .help = "the script is a Python module", .letter = 'm'},
    {.name = "no-python", .help = "the script is a program, not Python"},
    {.name = "run-path", .help = "the script is Python in any case"},
    {.name = "role", .value = "NAME", .help = "ROLE_NAME of the workers"},
    {.name = "rdzv-id", .value = "ID",
     .help = "TORCHELASTIC_RUN_ID of the workers"},
    {.name = "rdzv-conf", .value = "KEY=VALUE,...",
     .help = "join_timeout is how long nodes may take to gather; others are "
             "without effect"},
    {.name = "shutdown-timeout", .value = "SECONDS",
     .help = "between SIGTERM and SIGKILL; 30"},
    {.name = "log-dir", .value = "DIR",
     .help = "the run directory, logs in it, is made below DIR"},
    {.name = "log-line-prefix-template", .value = "TEMPLATE",
     .help = "what stands before lines, as '[${role_name}${rank}]: '"},
    {.name = "redirects", .value = "STREAMS",
     .help = "not shown: 0, 1 (stdout), 2 (stderr), 3, or by local rank: "
             "0:1,1:2; files have all", .letter = 'r'},
    {.name = "tee", .value = "STREAMS",
     .help = "shown in spite of --redirects, behind the role and the local rank", .letter = 't'},
    {.name = "local-ranks-filter", .value = "RANKS",
     .help = "local ranks whose output is shown, as 0,2"},
    {.name = "local-addr", .value = "ADDRESS",
     .help = "nodes meet in the network that it is in"},
    {0},
};

static const struct options options = {
    .command = "torchrun",
    .usage = "[OPTION...] SCRIPT [ARG...]",
    .about = "Runs a script as torchrun would, with its options and defaults "
             "(one process, no restarts), and PET_NAME in the environment as "
             "the default of --name. Options of muster run may stand among "
             "them, as --hosts n1,n2: where "
             "torchrun is started on every node, muster is started once, and "
             "reaches the others itself. An option of torchrun that is not "
             "below has no effect, which is told, or is refused by its name.",
    .table = torchrun_options,
    .max_args = SIZE_MAX,
    .stops_at_positional = true,
};

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* torchrun's options and the script go behind `--`, what is left before it.
 * False where help is asked for. */
static bool split(int argc, char **argv, struct strlist *own,
                  struct strlist *torchrun)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-' && argv[i][1] &&
           strcmp(argv[i], "--") != 0) {
        int of_torchrun = spec_torchrun_option(argv[i]);
        struct strlist *to = of_torchrun < 0 ? own : torchrun;
        int n_values = of_torchrun < 0 ? run_option_values(argv[i])
                                       : of_torchrun;

        if (asks_for_help(argv[i])) {
            return false;
        }
        strlist_add(to, argv[i++]);
        for (; n_values > 0 && i < argc; n_values--) {
            strlist_add(to, argv[i++]);
        }
    }
    while (i < argc) {
        strlist_add(torchrun, argv[i++]);
    }
    return true;
}

int cmd_torchrun(int argc, char **argv)
{
    _strlist_ struct strlist words = {0}, torchrun = {0};
    struct error e = {0};

    strlist_add(&words, "run");
    strlist_add(&words, "--as-launcher");
    strlist_add(&torchrun, "torchrun");
    if (!split(argc, argv, &words, &torchrun)) {
        _buf_ struct buf help = {0};

        options_help(&options, &help);
        fputs(buf_str(&help), stdout);
        return EXIT_OK;
    }
    strlist_add(&words, "--");
    strlist_add_all(&words, torchrun.items);
    if (words.failed || torchrun.failed) {
        error_set(&e, ENOMEM, "read the options");
        return command_fail(&e);
    }
    return cmd_run((int)words.n, words.items);
}
