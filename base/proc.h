/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc tells of processes, and the sweep: ending a whole tree of processes
 * that may fork while it is being ended. No state, no loop: callable anywhere. By
 * their environment processes are found with base/proc_env.h.
 */
#ifndef MUSTER_BASE_PROC_H
#define MUSTER_BASE_PROC_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROC_PID_LIMIT = 1 << 22 }; /* the kernel's own */

struct proc {
    pid_t pid;
    pid_t parent;
    pid_t group;
    pid_t session;
    char state;      /* R S D T t Z X I */
    uint64_t start;  /* clock ticks since boot: with the pid, an identity */
    uint64_t cpu_ticks; /* used so far, with children that it has waited for */
    char name[16];   /* the kernel's short name of it */
};

/* Zero-initialised is empty. */
struct proc_list {
    struct proc *items;
    size_t n;
    size_t cap;
};

#define _proc_list_ __attribute__((cleanup(proc_list_release)))
void proc_list_release(struct proc_list *l);

/* Appends one. 0 or -ENOMEM. */
int proc_list_add(struct proc_list *l, const struct proc *p);

/* 0, or -ESRCH where there is no such process (any more). */
int proc_read(pid_t pid, struct proc *ret);

/* CPU time, in clock ticks, of those of its threads that are alive and have this name (15
 * bytes at most: prctl(2), PR_SET_NAME); 0 of what cannot be seen. */
uint64_t proc_thread_ticks(pid_t pid, const char *name);

/* Whether SIGKILL was sent to it as a whole, so that it does nothing more: it may have
 * ended or be about to. false for what cannot be seen. (proc(5), status, ShdPnd.) */
bool proc_is_killed(pid_t pid);

/* Where in the kernel it waits, as the kernel calls that ("folio_wait_bit_common"):
 * "" where it does not wait, or the kernel does not tell. */
void proc_wait_name(pid_t pid, char *to, size_t size);

/* Appends the process, unless it has ended. 0 or -ENOMEM. */
int proc_list_add_living(struct proc_list *l, pid_t pid);

/* Appends all living descendants of `root`, not itself, parents before their
 * children; zombies are left out. It is a snapshot: a process whose parent ends
 * meanwhile can be missed, so call until nothing new appears. */
int proc_descendants(pid_t root, struct proc_list *l, struct error *e);

/* As above, without those children of `root` that `f` says, and without what is
 * below them: they are not even looked at. */
typedef bool proc_skip_f(void *arg, pid_t pid);
int proc_descendants_but(pid_t root, proc_skip_f *f, void *arg,
                         struct proc_list *l, struct error *e);

/* Appends all processes of this user but the caller, their pids alone: what else there
 * is to know takes ten times as long. `root` is /proc. */
int proc_list_mine(const char *root, struct proc_list *l, struct error *e);

/* Kills what a session has left whose leader has ended, and been waited for: all of
 * this user that are still in it. Returns how many; 0 also where the leader, or
 * another of that pid, is alive; or a negative code. */
int proc_end_session(pid_t leader, struct error *e);

/* 1 if `root` is the process itself or one of its ancestors, else 0; -ESRCH where
 * there is no such process, or its line does not stand still. */
int proc_is_below(pid_t pid, pid_t root);

/* Signals the very process that `p` describes: never one that has got its pid
 * since. 0, -ESRCH, -EPERM. */
int proc_signal(const struct proc *p, int sig);

/* Which of the descendants a sweep takes; NULL means all. */
typedef bool proc_pick_f(void *arg, const struct proc *p);

/* One round against the descendants of `root`: stops the picked ones (and all
 * below them) with SIGSTOP until no new one appears, so that none can fork or
 * change its parent, then kills them all with SIGKILL. Does not wait for their
 * end. Bounded: gives up stopping after 64 scans and kills what it has.
 * Returns how many were signalled (0: nobody is left), or a negative code. */
int proc_sweep(pid_t root, proc_pick_f *pick, void *arg, struct error *e);

/* The open descriptors of this process above 2, as "3:/path 5:pipe:[77]" in
 * ascending order, for tests of what leaks. The caller frees it. */
char *proc_fd_inventory(void);

#endif
