/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose processes are these? That is known by an entry (NAME=VALUE) of the
 * environment that they were started with, which their children inherit.
 *
 * The kernel may not answer. While a process becomes another program, execve()
 * closes descriptors under a lock that who reads /proc/PID/environ waits for: as
 * long as a filesystem takes that answers nobody. That is so of all that shows
 * the memory or the state of its threads (auxv, maps, smaps, mem, pagemap, io,
 * stack, syscall, personality), not of stat, status, children and cmdline. So a
 * thread asks. One that gets no answer is left behind: SIGKILL ends its wait, so it
 * holds up neither exit nor exec. Its process is silent, and not asked again while
 * that thread waits.
 */
#ifndef MUSTER_BASE_PROC_ENV_H
#define MUSTER_BASE_PROC_ENV_H

#include "base/proc.h"

/* Who asks. Zero-initialised it is ready for use; the members above the line are the
 * caller's. For one thread at a time, and not for a child that was forked. */
struct proc_env {
    /* Once a process that is silent, from inside a call. Or NULL. */
    void (*on_silent)(void *arg, const struct proc *p);
    void *arg;
    const char *root; /* of what tests have instead of /proc; NULL */
    /* --- */
    struct proc_env_silent *silent;
    size_t n_silent;
};

#define _proc_env_ __attribute__((cleanup(proc_env_release)))
void proc_env_release(struct proc_env *a);

enum proc_env_answer {
    PROC_ENV_LACKS,  /* also where it may not be read */
    PROC_ENV_HAS,
    PROC_ENV_NONE,   /* there is nothing to be seen: it is in the middle of an exec,
                        or of its end (look again), or was given none */
    PROC_ENV_SILENT, /* nobody knows */
};

/* Whether the initial environment of `p` holds the entry. The first that is silent
 * takes a second, more of them share another one or a little more. */
enum proc_env_answer proc_env_ask(struct proc_env *a, const struct proc *p,
                                  const char *entry);

/* Appends all processes of this user whose initial environment holds the entry,
 * except the caller. Zombies have none, and silent ones are left out: whether there
 * were any is in *ret_any_silent, which may be NULL. */
int proc_env_list(struct proc_env *a, const char *entry, struct proc_list *l,
                  bool *ret_any_silent, struct error *e);

/* As proc_sweep(), for processes by environment instead of by parent. Of those that
 * are silent it takes who is below one with the entry. */
int proc_sweep_env(struct proc_env *a, const char *entry, struct error *e);

/* What to say of one that is silent, as "process 7 (python3) ..." */
void proc_env_word(const struct proc *p, char *to, size_t size);

#endif
