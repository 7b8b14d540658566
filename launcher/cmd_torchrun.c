/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster torchrun: stands in for the command of that name. Its words become
 * `muster run -- torchrun WORDS`, which spec/command_torch.c reads, with
 * torchrun's own defaults.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/str.h"
#include "launcher/options.h"
#include "spec/spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct options options = {
    .command = "torchrun",
    .usage = "[OPTION...] SCRIPT [ARG...]",
    .about = "Runs a script as torchrun would, with its options and defaults "
             "(one process, no restarts). Options of muster run may stand "
             "among them, with their value behind =, as in --hosts=n1,n2: where "
             "torchrun is started on every node, muster is started once, and "
             "reaches the others itself. muster run --help and torchrun --help "
             "tell what options there are.",
    .max_args = SIZE_MAX,
    .stops_at_positional = true,
};

/* torchrun's options and the script go behind `--`, what is left before it. */
static void split(int argc, char **argv, struct strlist *own,
                  struct strlist *torchrun)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0) {
        int n_values = spec_torchrun_option(argv[i]);

        strlist_add(n_values < 0 ? own : torchrun, argv[i++]);
        for (; n_values > 0 && i < argc; n_values--) {
            strlist_add(torchrun, argv[i++]);
        }
    }
    while (i < argc) {
        strlist_add(torchrun, argv[i++]);
    }
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int cmd_torchrun(int argc, char **argv)
{
    _strlist_ struct strlist words = {0}, torchrun = {0};
    struct error e = {0};

    if (argc > 1 && asks_for_help(argv[1])) {
        _buf_ struct buf help = {0};

        options_help(&options, &help);
        fputs(buf_str(&help), stdout);
        return EXIT_OK;
    }
    strlist_add(&words, "run");
    strlist_add(&words, "--as-launcher");
    strlist_add(&torchrun, "torchrun");
    split(argc, argv, &words, &torchrun);
    strlist_add(&words, "--");
    strlist_add_all(&words, torchrun.items);
    if (words.failed || torchrun.failed) {
        error_set(&e, ENOMEM, "read the options");
        return command_fail(&e);
    }
    return cmd_run((int)words.n, words.items);
}
