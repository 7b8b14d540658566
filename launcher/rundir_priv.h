/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of run directories share. Private to rundir*.c.
 *
 *   rundir.c        making and opening one; what it holds
 *   rundir_claim.c  which directory, and which id, a new run gets
 *   rundir_check.c  whether it could, for who makes none
 *   rundir_file.c   run.json, which says whose directory it is
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_PRIV_H
#define MUSTER_LAUNCHER_RUNDIR_PRIV_H

#include "launcher/rundir.h"

/* What run.json says. */
struct run_file {
    char id[RUNDIR_ID_SIZE];
    char name[RUNDIR_NAME_SIZE];
    uint64_t created_ns;
    int64_t slurm_restart; /* SLURM_RESTART_COUNT when last opened; -1: none */
};

/* Whether it may be an id or a name: one component of a path. */
bool run_file_is_word(const char *s, size_t size);
/* -ERR_FORMAT where `dir` exists, and is no run directory. */
int run_file_read(const char *dir, struct run_file *f, struct error *e);
/* -EEXIST where it was not reopened, and somebody else has written one meanwhile. */
int run_file_write(const struct rundir *r, struct error *e);

/* Slurm's own words, or NULL outside of a job; how often it has requeued it, or
 * -1 outside. */
const char *rundir_slurm_job(void);
int64_t rundir_slurm_restart(void);

/* From the current directory on, unless it is absolute. */
int rundir_absolute(const char *path, char *to, size_t size, struct error *e);

/* A directory that is there: 0 if it holds a run, whose file is in *f; 1 if it may be
 * one, being empty, or left behind without its run.json by a muster that found the
 * disk full or was killed. `may_adopt`: whatever else is in it. */
int rundir_adopt(const char *dir, bool may_adopt, struct run_file *f,
                 struct error *e);

/* Finds r->path, and r->id where it is not given, and makes the directory. 1 if
 * it is new, 0 if it holds a run already, whose file is in *f. */
int rundir_claim(struct rundir *r, const struct rundir_params *p,
                 struct run_file *f, struct error *e);

#endif
