/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/threads_bed.h"

#include "base/thread.h"

#include <errno.h>

int __real_thread_start_beside(pthread_t *t, void *(*body)(void *arg), void *arg);
int __wrap_thread_start_beside(pthread_t *t, void *(*body)(void *arg), void *arg);
int __real_pthread_join(pthread_t t, void **ret);
int __wrap_pthread_join(pthread_t t, void **ret);

int __wrap_thread_start_beside(pthread_t *t, void *(*body)(void *arg), void *arg)
{
    if (threads_bed.n_started == threads_bed.n_granted) {
        return EAGAIN;
    }
    threads_bed.n_started++;
    return __real_thread_start_beside(t, body, arg);
}

int __wrap_pthread_join(pthread_t t, void **ret)
{
    threads_bed.n_joined++;
    return __real_pthread_join(t, ret);
}

void threads_bed_reset(void)
{
    threads_bed.n_started = threads_bed.n_joined = 0;
}
