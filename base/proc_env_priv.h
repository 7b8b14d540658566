/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside proc_env*.c.
 *
 *   proc_env.c       who is asked, for how long, and what is known of the silent
 *   proc_env_read.c  the thread that reads
 */
#ifndef MUSTER_BASE_PROC_ENV_PRIV_H
#define MUSTER_BASE_PROC_ENV_PRIV_H

#include "base/proc_env.h"

/* Reads here and now, for as long as it takes. */
enum proc_env_answer env_look(const char *root, pid_t pid, const char *entry);

/* A thread that asks some processes, one after the other. */
struct env_reader;

/* 0, or a negative code: there is no memory, or no thread to be had. */
int env_reader_start(const char *root, const char *entry,
                     const struct proc *procs, size_t n,
                     struct env_reader **ret);

/* Waits until all have answered, or one has taken `patience_ms`. Writes the answers
 * in order and returns how many there are. With all of them the reader is gone; else
 * the next process is silent, and the reader is left behind. */
size_t env_reader_wait(struct env_reader *r, unsigned patience_ms,
                       enum proc_env_answer *ret_answers);

/* Whether one that was left behind still waits. */
bool env_reader_waits(const struct env_reader *r);
/* The caller's hold of one that was left behind. It goes when it has its answer. */
void env_reader_drop(struct env_reader *r);

#endif
