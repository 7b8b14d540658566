/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of muster run share. Private to cmd_run*.c and cmd_attach.c.
 *
 *   cmd_run.c        options, the job, and a run that starts an mpirun
 *   cmd_run_check.c  what a run would fail of here
 *   cmd_run_dir.c    the run directory, and what is told to all nodes
 *   cmd_run_dry.c    --dry-run: what would be done
 *   cmd_run_hand.c   inside an MPI launch: `mpirun ... muster run`
 *   cmd_run_place.c  how many agents, on which hosts
 *   cmd_run_later.c  a job that is made, and not started
 *   cmd_resume.c     what a run that is gone on with was
 *   cmd_attach.c     a front end for a run that goes on already
 */
#ifndef MUSTER_LAUNCHER_CMD_RUN_H
#define MUSTER_LAUNCHER_CMD_RUN_H

#include "launcher/front_record.h"
#include "launcher/hosts.h"
#include "launcher/job_options.h"
#include "launcher/mpirun.h"
#include "launcher/run_config.h"
#include "launcher/rundir.h"
#include "launcher/show.h"
#include "spec/spec.h"

#include <stdbool.h>
#include <stdint.h>

struct run_options {
    struct job_options job;
    const char *hosts, *hostfile;
    const char *run_dir;
    const char *ssh, *mpirun, *key_file;
    int64_t agents_per_node; /* 0: not said */
    bool agent_is_node, dry_run, quiet, as_root, insecure, attach;
    const char *resume; /* the run that is gone on with, or NULL */
    bool chose_hosts;   /* for this start of it */
    const char *cwd;    /* where that was started; NULL: here */
    const char *show_env; /* ranks, "" for all, or NULL */
    bool show_secrets;
    enum show_format format;
    bool as_launcher; /* for muster torchrun */
};

/* Rows of an option table for struct run_options: where it runs. */
#define RUN_HOST_OPTIONS                                                      \
    {"hosts", "A,B,...", "hosts to run on; ranges like n[1-4] are allowed",   \
     OPTION_STR, offsetof(struct run_options, hosts), NULL, 'H'},             \
    {"hostfile", "FILE", "a file with one host a line", OPTION_STR,           \
     offsetof(struct run_options, hostfile), NULL, 0},                        \
    {"ssh", "COMMAND", "remote shell, instead of ssh", OPTION_STR,            \
     offsetof(struct run_options, ssh), NULL, 0},                             \
    {"mpirun", "PATH", "mpirun to use, instead of the one in PATH",           \
     OPTION_STR, offsetof(struct run_options, mpirun), NULL, 0}

#define RUN_REQUEUE_OPTION                                                    \
    {"requeue", NULL, "in Slurm: a run that is stopped has its job requeued, "\
     "which goes on with it", OPTION_CALL, offsetof(struct run_options, job), \
     job_options_take, 0}

/* From parsed options to the end of the run: an exit status. */
int run_with_options(struct run_options *o, struct option_args *args);

/* For `o->resume`: fills in what options do not say, and the spec. */
int run_resume_options(struct run_options *o, struct option_args *args,
                       struct error *e);

/* How many words are the values of a word that is an option of muster run; -1 if
 * it is none. */
int run_option_values(const char *word);

/* What an option names and is not there counts as bad usage: returns `rc`, of
 * what was done with the value of `option`, which may be NULL. */
int run_as_usage(const char *option, int rc, struct error *e);

/* For --attach, before anything is started: the exit status if the run in `dir` has
 * succeeded, which is said; else -1. */
int run_attach_over(const char *dir);
/* As muster attach does, to the run in `dir`: an exit status. */
int run_attach(const char *dir, bool quiet);

/* The directory of this run, locked, with its key (JOB_KEY_BYTES) and spec. The
 * caller owns *ret, also on failure. */
int run_make_dir(const struct run_options *o, const struct job *job,
                 struct rundir **ret, uint8_t *key, struct error *e);
/* takeup_run(), which says where there is nothing but names to go by. */
int run_take_up(const struct rundir *dir, const struct run_options *o,
                struct run_config *config, struct error *e);
/* Gives the directory a nonce, by which agents know it: once nobody else does. */
int run_mark_dir(const struct rundir *dir, struct run_config *config,
                 struct error *e);
/* The resolver's job becomes the run configuration's. */
int run_make_config(struct spec_result *r, struct run_config *ret,
                    struct error *e);

/* Hosts that a launcher in the command names, unless options do. */
void run_take_hosts(struct run_options *o, const struct spec_result *r);

/* For procsPerNode, where that is auto or cpu: the slots of the list of hosts, as
 * many processes as mpirun would start there, else what Slurm was asked for. Hosts
 * keep slots that count, and lose others. Says so, and where there are more workers
 * on a node than CPUs that Slurm has granted. */
void run_take_slots(const struct run_options *o, struct job *job,
                    struct host_list *hosts);

/* The value of --agents-per-node. */
int run_take_agents(void *into, const struct option_def *def, const char *value,
                    struct error *e);
/* How many agents, on how many of the hosts: the rest of the list is cut. */
int run_place(const struct run_options *o, const struct job *job,
              struct host_list *hosts, unsigned *ret_per_host,
              unsigned *ret_agents, struct error *e);

/* Refuses a command that, with its environment, is too long for every kernel, or for
 * the one here where all hosts are this machine. */
int run_check_size(const struct job *job, const struct host_list *hosts,
                   struct error *e);

/* The file that mpirun needs, if it does: `path` is its own, for as long as the
 * plan lives. */
int run_write_hostfile(const struct rundir *dir, struct mpirun_plan *plan,
                       char *path, size_t size, struct error *e);

/* What mpirun starts on other hosts ends with its step; and signals to the
 * steps of a job reach a run on any number of hosts alike. */
bool run_needs_own_step(const struct host_list *hosts);

/* Who has no working directory any more gets no run directory either. */
int run_check_cwd(struct error *e);
/* For --dry-run: says what on this machine the run would fail of, in its words. The
 * exit status that it would have. */
int run_check_here(const struct run_options *o, const struct job *job,
                   const struct host_list *hosts);

/* --dry-run, and with --show-env: exit statuses. `plan` has all but what only a
 * run knows. */
int run_check_show_env(const struct run_options *o, struct error *e);
int run_show_plan(const struct mpirun *mpirun, struct mpirun_plan *plan,
                  const struct job *job);
int run_show_env(const struct run_options *o, struct spec_result *r,
                 const struct mpirun_plan *plan);

/* Makes the run of a job that says `suspend: true`, for muster resume. An exit
 * status. */
int run_make_suspended(const struct run_options *o, struct spec_result *r,
                       const struct front_record *was);

/* As a rank of an MPI launch. Returns an exit status only on failure. */
int run_by_hand(const struct run_options *o, struct spec_result *r);

#endif
