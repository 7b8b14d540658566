/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of muster-exec share. Private to exec_main.c, exec_setup.c,
 * exec_find.c, exec_python.c and exec_wait.c; not of launcher/exec.h, which is the
 * agent's side, too.
 */
#ifndef MUSTER_LAUNCHER_EXEC_SETUP_H
#define MUSTER_LAUNCHER_EXEC_SETUP_H

#include "launcher/exec.h"

#include <sys/types.h>

enum { EXEC_MAX_KEEP = 64 };

struct setup {
    struct exec_options o;
    int keep[EXEC_MAX_KEEP];
    pid_t parent;
    int wait_fd; /* of a blank; -1 */
    char **argv;
};

/* Tells the parent, or the terminal, and ends. */
__attribute__((format(printf, 4, 5))) _Noreturn void
exec_fail(const struct setup *s, enum exec_stage stage, int code,
          const char *fmt, ...);

/* exec_setup.c: all that a worker gets before its program. */
void exec_set_up(const struct setup *s);
/* The part of it that a blank has already while it waits. */
void exec_tie_to_parent(const struct setup *s);

/* exec_find.c: the file that s->argv[0] is, once it is known that the kernel
 * can start it: what execve() would say too little about fails here. `path` has
 * PATH_MAX bytes. */
void exec_find(const struct setup *s, char *path);

/* exec_python.c: if what s->argv starts, perhaps by #! lines and env, is Python,
 * s->argv and `path` become that with the same options and an empty program. */
void exec_python(struct setup *s, char *path);

/* exec_wait.c: the command line that a blank is told to have had, and descriptors
 * that are not named there. */
struct exec_role {
    int argc;
    char **argv;
    int status_fd, gate_fd;
};
/* Waits for it; environment, stdout and stderr are those that came with it. Does not
 * return where none comes. */
void exec_wait(const struct setup *s, struct exec_role *ret);

#endif
