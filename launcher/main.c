/* SPDX-License-Identifier: Apache-2.0 */
/* muster: one program, a command each. This file only finds the command. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "launcher/show.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
    bool is_hidden; /* for muster itself, not for people */
};

static int cmd_help(int argc, char **argv);

static const struct command commands[] = {
    {"run", "Run a job", cmd_run, false},
    {"status", "Show the state of a run", cmd_status, false},
    {"describe", "Show a run with its job and what happened", cmd_describe,
     false},
    {"list", "List runs", cmd_list, false},
    {"logs", "Show what workers printed", cmd_logs, false},
    {"cancel", "Stop a run", cmd_cancel, false},
    {"checkpoint", "Ask a run to save now", cmd_checkpoint, false},
    {"scale", "Give a run more nodes, or fewer", cmd_scale, false},
    {"suspend", "Stop a run until it is resumed", cmd_suspend, false},
    {"resume", "Go on with a run that was stopped", cmd_resume, false},
    {"attach", "Take over a run whose front end is gone", cmd_attach, false},
    {"exec", "Run a program as one rank of an MPI launch", cmd_exec, false},
    {"shell", "Start a shell where a worker is", cmd_shell, false},
    {"torchrun", "Run a script as torchrun would", cmd_torchrun, false},
    {"validate", "Check a job spec", cmd_validate, false},
    {"explain", "Show every value of a job, and who said so", cmd_explain,
     false},
    {"nodes", "Show hosts, and which run uses what", cmd_nodes, false},
    {"ckpt", "Look at checkpoints", cmd_ckpt, false},
    {"gc", "Remove what dead runs left", cmd_gc, false},
    {"version", "Show versions", cmd_version, false},
    {"agent", "Supervise one node", cmd_agent, true},
    {"keep", "Keep the agents of one node", cmd_keep, true},
    {"end", "End one process of a run", cmd_end, true},
    {"tidy", "Take away what an agent left", cmd_tidy, true},
    {"ckpt-copy", "Copy a checkpoint for an agent", cmd_ckpt_copy, true},
    {"ckpt-look", "Look for a checkpoint for an agent", cmd_ckpt_look, true},
    {"ckpt-watch", "Look at checkpoints for an agent", cmd_ckpt_watch, true},
    {"gpus-free", "Wait for memory of GPUs", cmd_gpus_free, true},
    {"probe", "Look at one host", cmd_probe, true},
    {"reach", "Look at some hosts", cmd_reach, true},
    {"help", "Show this text, or that of one command", cmd_help, false},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void print_help(FILE *to)
{
    fputs("usage: muster COMMAND [OPTION...]\n"
          "\n"
          "Gathers processes on many machines into one training job, and keeps "
          "that job\ngoing until it is done.\n"
          "\n"
          "commands:\n", to);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!commands[i].is_hidden) {
            fprintf(to, "  %-12s%s\n", commands[i].name, commands[i].summary);
        }
    }
    fputs("\n`muster help COMMAND` tells more; so do the manual pages "
          "muster-COMMAND(1).\n", to);
}

static int unknown_command(const char *name)
{
    const char *names[ARRAY_SIZE(commands) + 1] = {NULL};
    _buf_ struct buf shown = {0};
    const char *near;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!commands[i].is_hidden) {
            names[n++] = commands[i].name;
        }
    }
    near = str_nearest(name, names);
    utf8_put_printable(&shown, name, 100);
    fprintf(stderr, "muster: unknown command '%s'", buf_str(&shown));
    if (near) {
        fprintf(stderr, " (did you mean '%s'?)", near);
    }
    fputs("\nmuster --help lists the commands\n", stderr);
    return EXIT_USAGE;
}

static int cmd_help(int argc, char **argv)
{
    const struct command *c;
    char help[] = "--help";

    if (argc < 2 || argv[1][0] == '-') {
        print_help(stdout);
        return EXIT_OK;
    }
    c = find_command(argv[1]);
    if (!c) {
        return unknown_command(argv[1]);
    }
    if (c->run == cmd_help) {
        print_help(stdout);
        return EXIT_OK;
    }
    return c->run(2, (char *[]){argv[1], help, NULL});
}

/* Descriptors 0 to 2 must be open, or the next file that is opened becomes one
 * of them. A closed stdout is opened so that writing to it fails. */
static void open_missing_stdio(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd) {
            _exit(EXIT_FAILED);
        }
    }
}

int main(int argc, char **argv)
{
    const struct command *c;

    open_missing_stdio();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the file size: EFBIG says it */
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return show_finish(EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        argv[1] += 2;
    }
    c = find_command(argv[1]);
    if (!c) {
        return unknown_command(argv[1]);
    }
    return show_finish(c->run(argc - 1, argv + 1));
}
