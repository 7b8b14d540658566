/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of `muster`. Each is one file, cmd_NAME.c, with one entry point
 * that takes its own argv (argv[0] is the command's name) and returns the exit
 * status of the process. main.c lists them; a command that is not listed there
 * does not exist.
 */
#ifndef MUSTER_LAUNCHER_COMMANDS_H
#define MUSTER_LAUNCHER_COMMANDS_H

/* Exit statuses that have a meaning of their own. A failed job's own status is
 * reported as 1 where it would read as one of these. */
enum exit_status {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,        /* bad usage or spec */
    EXIT_NOT_GATHERED = 69, /* nodes did not come in time */
    EXIT_RESUMABLE = 75,   /* stopped, can be resumed */
    EXIT_DEADLINE = 124,
    EXIT_CANNOT_EXEC = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_CANCELLED = 130,
};

int cmd_run(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_end(int argc, char **argv);
int cmd_gpus_free(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_keep(int argc, char **argv);
int cmd_nodes(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_reach(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_gc(int argc, char **argv);
int cmd_torchrun(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_ckpt(int argc, char **argv);
int cmd_scale(int argc, char **argv);
int cmd_suspend(int argc, char **argv);
int cmd_tidy(int argc, char **argv);
int cmd_ckpt_copy(int argc, char **argv);
int cmd_ckpt_look(int argc, char **argv);
int cmd_ckpt_watch(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_version(int argc, char **argv);

#endif
