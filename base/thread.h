/* SPDX-License-Identifier: Apache-2.0 */
/* Threads beside the main one. */
#ifndef MUSTER_BASE_THREAD_H
#define MUSTER_BASE_THREAD_H

#include <pthread.h>

/* Starts one that takes no signals: they are the main thread's. 0, or an errno
 * value. */
int thread_start(pthread_t *ret, void *(*body)(void *arg), void *arg);

#endif
