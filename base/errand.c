/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/errand.h"

#include "base/thread.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

struct errand {
    pthread_t thread;
    pid_t pid;
    bool is_out; /* sent, and not waited for */
    sem_t go, done;
    void (*body)(void *arg); /* NULL: the thread is to end */
    void *arg;
};

static void await(sem_t *s)
{
    while (sem_wait(s) < 0 && errno == EINTR) {
    }
}

static void *serve(void *arg)
{
    struct errand *e = arg;

    for (await(&e->go); e->body; await(&e->go)) {
        e->body(e->arg);
        sem_post(&e->done);
    }
    return NULL;
}

struct errand *errand_create(void)
{
    struct errand *e = calloc(1, sizeof(*e));

    if (!e) {
        return NULL;
    }
    sem_init(&e->go, 0, 0);
    sem_init(&e->done, 0, 0);
    e->pid = getpid();
    if (thread_start(&e->thread, serve, e) != 0) {
        free(e);
        return NULL;
    }
    return e;
}

void errand_send(struct errand *e, void (*body)(void *arg), void *arg)
{
    e->body = body;
    e->arg = arg;
    e->is_out = true;
    sem_post(&e->go);
}

void errand_await(struct errand *e)
{
    if (e->is_out) {
        await(&e->done);
        e->is_out = false;
    }
}

bool errand_is_here(const struct errand *e)
{
    return e->pid == getpid();
}

void errand_destroy(struct errand *e)
{
    if (!e) {
        return;
    }
    if (errand_is_here(e)) {
        errand_await(e);
        errand_send(e, NULL, NULL);
        pthread_join(e->thread, NULL);
        sem_destroy(&e->go);
        sem_destroy(&e->done);
    }
    free(e);
}
