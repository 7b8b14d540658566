/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's side of muster-exec, the program that sets a process up and then
 * becomes it: the options to start it with, and what its report means.
 *
 * muster-exec reports at most one failure over the status descriptor: one
 * record, below PIPE_BUF bytes, so that many of them can share one pipe. The
 * end of the pipe without a record means that all were executed (or died of a
 * signal, which waiting tells).
 */
#ifndef MUSTER_LAUNCHER_EXEC_H
#define MUSTER_LAUNCHER_EXEC_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Stages are part of the protocol between the two: append only. */
enum exec_stage {
    EXEC_OPTIONS = 1, /* muster-exec itself was started wrongly */
    EXEC_PARENT,      /* the parent is gone already */
    EXEC_SESSION,
    EXEC_CWD,
    EXEC_CPUS,
    EXEC_LIMITS,
    EXEC_FDS,
    EXEC_STDIN,
    EXEC_FIND,        /* no such program, or not one that may be run */
    EXEC_INTERPRETER, /* of its #! line, or its ELF loader */
    EXEC_FORMAT,      /* neither a #! line nor a program of this machine */
    EXEC_GATE,        /* let go without having been released */
    EXEC_RUN,         /* execve failed otherwise */
    EXEC_PYTHON,      /* not what a warm interpreter can be made of */
    EXEC_N_STAGES
};

struct exec_report {
    uint32_t id; /* as given to exec_options */
    enum exec_stage stage;
    int code; /* errno */
    char detail[512]; /* what it was about; for FIND and INTERPRETER in words */
};

enum { EXEC_RECORD_MAX = 600 };

/* How to set a process up; all borrowed. Zero-initialise, then set the
 * descriptors (-1 where there is none). Its stdout and stderr are those that
 * muster-exec was started with, its stdin is empty unless 0 is in `keep`, and
 * every other descriptor but those in `keep` is closed. It leads a session of its
 * own unless told to stay. The parent-death signal is SIGKILL; limits on
 * open files and locked memory are raised as far as they go. */
struct exec_options {
    uint32_t id;        /* comes back in a report */
    const char *cwd;    /* NULL: stay */
    const char *cpus;   /* "0-3,8", or NULL */
    bool same_session;  /* also in the same process group */
    int oom_score_adj;  /* 0: leave */
    const char *umask;  /* octal, or NULL */
    const char *find;   /* a program to look for, too, which the one of argv
                           will start; or NULL */
    bool python_only;   /* run the Python that the program would, but without a
                           program: see exec_python.c */
    const char *core;   /* core size limit: "0", "unlimited", bytes; NULL: leave */
    int status_fd;      /* reports go here */
    int gate_fd;        /* read one byte before the exec; -1: no gate */
    const int *keep;    /* further descriptors to keep open */
    size_t n_keep;
};

/* A limit that is raised, as far as the hard one allows and it says. */
struct exec_limit {
    int what; /* RLIMIT_... */
    const char *name;
    rlim_t most;
};
enum { EXEC_N_LIMITS = 3 };
extern const struct exec_limit exec_limits[EXEC_N_LIMITS];
/* The soft limit that comes of it; never less than it was. */
rlim_t exec_limit_soft(const struct exec_limit *l, const struct rlimit *was);

/* Appends muster-exec's own name and options, "--" and the program's argv. */
void exec_argv(struct strlist *to, const struct exec_options *o,
               char *const *argv);

void exec_report_encode(struct buf *b, const struct exec_report *r);

/* Takes one record off the front of `b`. 1, 0 if there is none yet, or
 * -ERR_FORMAT. */
int exec_report_decode(struct buf *b, struct exec_report *ret);

/* The failure in words, without saying whose: "cannot run ./train.sh:
 * interpreter /usr/bin/pyton (line 1) not found". `program` is argv[0]. */
void exec_report_text(const struct exec_report *r, const char *program,
                      char *to, size_t size);

/* A blank (launcher/blanks.h) is muster-exec with no more than the pid of its agent and
 * one end of a socket (base/seqsock.h). */
void exec_wait_argv(struct strlist *to, int fd);

/* What is said over it. */
enum exec_wait_message {
    EXEC_ROLE = 1,   /* to it: what it is to be, and is from then on */
    EXEC_ROLE_TAKEN, /* its answer, the last thing that it says */
};

/* What comes with EXEC_ROLE. The blob is the number of words that exec_argv() made
 * (32 bits), those, and the environment: each ended by a zero byte. */
enum exec_role_fd {
    EXEC_ROLE_BLOB, EXEC_ROLE_OUT, EXEC_ROLE_ERR, EXEC_ROLE_STATUS,
    EXEC_ROLE_GATE, EXEC_ROLE_N_FDS
};
enum { EXEC_ROLE_MAX = 64 << 20 };

/* As bash: 127 where the program does not exist, 126 otherwise. */
int exec_report_status(const struct exec_report *r);

#endif
