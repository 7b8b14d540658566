/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the warm interpreter. Private to warm*.c.
 *
 *   warm.c        its life: probe, imports, ready, over
 *   warm_blank.c  blanks: from the order to fork one to the job that it gets
 *   warm_check.c  what of a worker must be as it was when the imports ran
 *   warm_line.c   a socket to one of them
 */
#ifndef MUSTER_LAUNCHER_WARM_PRIV_H
#define MUSTER_LAUNCHER_WARM_PRIV_H

#include "base/seqsock.h"
#include "launcher/warm.h"

/* Part of the protocol with launcher/warm/sitecustomize.py. */
enum warm_message {
    WARM_PROBED = 1, /* the interpreter: our sitecustomize runs */
    WARM_READY,      /* number of arguments, words, names looked at: each ended
                        by a zero byte */
    WARM_REFUSED,    /* why */
    WARM_FORK,       /* to it: with the socket of a blank */
    WARM_BORN,       /* a blank: its pid, as text; it is a child of ours */
    WARM_ADOPTED,    /* to it: now it may leave the interpreter's session */
    WARM_WAITING,    /* a blank: in a session of its own */
    WARM_JOB,        /* to it: a blob; id, directory, number of arguments,
                        those, the environment: each ended by a zero byte */
    WARM_GO,         /* to it: stdout, stderr, status, gate */
};

/* --- warm_line.c --- */

struct warm_line;

/* With NULL at the end; the line is closed then or before. It may be closed
 * from inside. */
typedef void warm_line_f(void *arg, const struct seqsock_msg *m);

/* A pair: our end is a line, the other one is returned in `ret_fd`. */
int warm_line_open(struct warm *w, warm_line_f *f, void *arg,
                   struct warm_line **ret, int *ret_fd, struct error *e);
int warm_line_send(struct warm_line *l, enum warm_message type,
                   const struct buf *data, const int *fds, size_t n_fds);
/* Takes what has come already, now. It may be closed from inside. */
void warm_line_drain(struct warm_line *l);
/* NULL is allowed. */
void warm_line_close(struct warm_line *l);

/* --- warm_check.c --- */

/* What an interpreter was started with, and has looked at. */
struct warm_past {
    struct strlist argv, env;
    size_t n_args;        /* at the end of argv; they may be others */
    struct strlist names; /* of variables */
};
void warm_past_release(struct warm_past *p);

/* Of a worker's environment what is the same for all, and sweeps look for. */
void warm_base_env(char *const *envp, struct strlist *ret);
enum warm_fit warm_past_check(const struct warm_past *p, char *const *argv,
                              char *const *envp, struct error *why);

/* --- the thing itself --- */

enum warm_state { WARM_IS_PROBING, WARM_IS_IMPORTING, WARM_IS_READY, WARM_IS_OVER };

struct blank {
    struct warm *warm;
    struct blank *next;
    struct warm_line *line;
    pid_t pid;  /* -1: not born, or dead */
    bool waits;
};

struct warm {
    struct warm_config config; /* with strings of our own */
    char *exec_path, *hook_dir, *cwd, *core, *modules;
    struct warm_past past;
    enum warm_state state;
    bool was_probed;
    char boast[300];       /* to be told when the first blanks wait */
    unsigned n_lives;
    pid_t pid;             /* of the interpreter, or -1 */
    struct warm_line *line;
    int said_fd;           /* what it prints before it diverts that; or -1 */
    uv_timer_t timer;
    struct blank *blanks;
    unsigned n_wanted;
    unsigned n_handles;
    bool destroyed;
};

/* A handle of it has been closed. */
void warm_handle_closed(struct warm *w);

/* --- warm_blank.c --- */

/* Orders as many as are missing. */
void warm_order(struct warm *w);
void warm_drop_all(struct warm *w);

#endif
