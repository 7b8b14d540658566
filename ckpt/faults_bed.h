/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of faults share: two ranks on the real filesystem, with a layer between that
 * lets single calls fail. Who is told what, and what is loaded then, is theirs to say.
 */
#ifndef MUSTER_CKPT_FAULTS_BED_H
#define MUSTER_CKPT_FAULTS_BED_H

#include "ckpt/group.h"
#include "ckpt/io.h"
#include "ckpt/step.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULTS_JOINED "(joined)"

enum { FAULTS_WORLD = 2, FAULTS_MAX_FDS = 1024 };

enum fault_call {
    FAULT_NO_CALL,
    FAULT_OPEN,
    FAULT_CREATE,
    FAULT_WRITE,
    FAULT_READ,
    FAULT_SYNC,
    FAULT_CLOSE,
    FAULT_RENAME,
    FAULT_UNLINK,
};

struct fault {
    enum fault_call call;
    int error;
    bool is_done_all_the_same; /* as of a server whose answer was lost */
    const char *file;  /* names begin so; FAULTS_JOINED: the directory of a save, as all
                        * ranks but that which has made it have it open */
    const char *aside; /* then the root's only directory gets that name */
    unsigned limit;    /* so often; 0: always */
    unsigned after;    /* so many calls that work */
    unsigned n;        /* how often it came to it */
};

struct faults_bed {
    int root; /* of checkpoints */
    char root_path[PATH_MAX];
    struct fault fault;
    struct io io;
    struct io_ops ops;
    char names[FAULTS_MAX_FDS][64]; /* what is open */
    atomic_uint n_dirs; /* of a step, opened since it was begun to be saved */
};

/* Of the test, which defines it: what is called in the layer knows no other one. */
extern struct faults_bed faults_bed;

/* What the ranks do, and what came of it. */
struct faults_play {
    int roots[FAULTS_WORLD]; /* where each looks; 0: the same place */
    int64_t step; /* to save; 0: the newest is loaded */
    int64_t data; /* of which step that has, or should have, the data; 0: of its own */
    int rc[FAULTS_WORLD];
    int64_t loaded[FAULTS_WORLD];
    uint64_t n_wrong[FAULTS_WORLD];
    char text[FAULTS_WORLD][400];
};

/* A root of its own; it goes. */
void faults_begin(void);
void faults_end(void);

/* For team_run(); `arg` is the play. */
void faults_body(void *arg, const struct muster_ckpt_group *group);
/* With that fault; NULL: with none. */
struct faults_play faults_save(int64_t step, const struct fault *f);
struct faults_play faults_load(const struct fault *f);
/* All load that step, and all of it. */
bool faults_is_loaded(const struct faults_play *p, int64_t step);

/* The layer by itself, and what is called so there from now on: returns `fd`; NULL: nothing. */
struct io *faults_layer(void);
int faults_remember(int fd, const char *name);

/* The directory of a step, "" where there is none, and the path of a file of it. */
void faults_dir_of(int64_t step, char to[STEP_NAME_BYTES]);
void faults_path_of(int64_t step, const char *file, char to[PATH_MAX]);
unsigned faults_n_steps(void);

#endif
