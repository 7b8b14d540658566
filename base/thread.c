/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*body)(void *arg), void *arg)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(ret, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
