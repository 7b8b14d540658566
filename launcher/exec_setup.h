/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of muster-exec share. Private to exec_main.c, exec_setup.c,
 * exec_find.c and exec_python.c; not of launcher/exec.h, which is the agent's side, too.
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
    char **argv;
};

/* Tells the parent, or the terminal, and ends. */
__attribute__((format(printf, 4, 5))) _Noreturn void
exec_fail(const struct setup *s, enum exec_stage stage, int code,
          const char *fmt, ...);

/* exec_setup.c: all that a worker gets before its program. */
void exec_set_up(const struct setup *s);

/* exec_find.c: the file that s->argv[0] is, once it is known that the kernel
 * can start it: what execve() would say too little about fails here. `path` has
 * PATH_MAX bytes. */
void exec_find(const struct setup *s, char *path);

/* exec_python.c: if what s->argv starts, perhaps by #! lines and env, is Python,
 * s->argv and `path` become that with the same options and an empty program. */
void exec_python(struct setup *s, char *path);

#endif
