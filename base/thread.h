/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads beside the main one.
 *
 * What is open in a process is copied into every child, which closes it when it
 * becomes a program. Closing a file of a filesystem that hangs (FUSE, NFS) hangs, too,
 * and who starts the child waits for it. So files of such a filesystem are opened apart:
 * by threads with a table of descriptors of their own, of which children get nothing.
 *
 * Where the kernel refuses that (a filter of system calls), and under the thread
 * sanitizer, which knows of one table, they have the one of all others. In a table of
 * its own a thread can use none of what others open, nor call libuv: uv_async_send()
 * would write to a descriptor of another's. It wakes a loop with base/waker.h.
 * /proc/self/fd is the table of the main thread.
 */
#ifndef MUSTER_BASE_THREAD_H
#define MUSTER_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts one that takes no signals: they are the main thread's. 0, or an errno
 * value. */
int thread_start(pthread_t *ret, void *(*body)(void *arg), void *arg);

/* The same for one that works beside who starts it, for milliseconds: it begins on another
 * processor, where this thread may run on more than one. Where all have something to do just
 * then, if only for a moment, the kernel lets both share one, and an idle one is found to be
 * so only milliseconds later. */
int thread_start_beside(pthread_t *ret, void *(*body)(void *arg), void *arg);

/* As thread_start(), with a table of descriptors of its own: of what is open now it has 0, 1, 2
 * and `keep` (-1: none). It has that table when this returns. */
int thread_start_apart(pthread_t *ret, void *(*body)(void *arg), void *arg,
                       int keep);

/* Calls `body` in such a thread, and waits for its end. */
void thread_apart(void (*body)(void *arg), void *arg, int keep);

/* Calls `body` in a thread and waits for its end, so long at most. False when that has
 * not come: the thread goes on, `arg` is its own then, and a filesystem that it waits
 * for holds up neither exit nor exec. Where there is no thread to be had it is called
 * here. */
bool thread_call_within(void (*body)(void *arg), void *arg, unsigned ms);

/* Tries whether such a thread gets a table of its own here. */
bool thread_can_be_apart(void);

#endif
