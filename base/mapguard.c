/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/mapguard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Never freed, as a handler may be looking: the next one takes it. */
struct mapguard {
    struct mapguard *next; /* as it is pushed, for ever */
    atomic_bool is_taken;
    _Atomic uintptr_t at;
    _Atomic size_t len; /* 0: nothing is looked for here */
    atomic_bool is_torn;
};

/* A handler is told nothing but an address: what it knows beside that is the whole
 * program's. */
static struct mapguard *_Atomic first;
static struct sigaction before;

static struct mapguard *find(uintptr_t address)
{
    for (struct mapguard *g = atomic_load(&first); g; g = g->next) {
        if (address - atomic_load(&g->at) < atomic_load(&g->len)) {
            return g;
        }
    }
    return NULL;
}

/* All of it, as each page by itself would soon be more mappings than there may be. It
 * is torn first: who finds zeros finds that, too. */
static bool tear(struct mapguard *g)
{
    atomic_store(&g->is_torn, true);
    return mmap((void *)atomic_load(&g->at), atomic_load(&g->len),
                PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    int error = errno;
    struct mapguard *g = find((uintptr_t)info->si_addr);

    (void)sig;
    (void)context;
    if (!g || !tear(g)) {
        sigaction(SIGBUS, &before, NULL); /* and it comes again */
    }
    errno = error;
}

void mapguard_admit(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void mapguard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    struct sigaction was;

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &was) == 0 &&
        (!(was.sa_flags & SA_SIGINFO) || was.sa_sigaction != on_sigbus)) {
        before = was;
        sigaction(SIGBUS, &action, NULL);
    }
    mapguard_admit();
}

/* --- the list --- */

static struct mapguard *take_free(void)
{
    for (struct mapguard *g = atomic_load(&first); g; g = g->next) {
        bool free = false;

        if (atomic_compare_exchange_strong(&g->is_taken, &free, true)) {
            return g;
        }
    }
    return NULL;
}

static struct mapguard *push_new(void)
{
    struct mapguard *g = calloc(1, sizeof(*g));

    if (g) {
        atomic_store(&g->is_taken, true);
        g->next = atomic_load(&first);
        while (!atomic_compare_exchange_weak(&first, &g->next, g)) {
        }
    }
    return g;
}

struct mapguard *mapguard_add(void *at, size_t len)
{
    struct mapguard *g = take_free();

    g = g ? g : push_new();
    if (g) {
        atomic_store(&g->is_torn, false);
        atomic_store(&g->at, (uintptr_t)at);
        atomic_store(&g->len, len);
    }
    return g;
}

void mapguard_remove(struct mapguard *g)
{
    if (g) {
        atomic_store(&g->len, 0);
        atomic_store(&g->is_taken, false);
    }
}

bool mapguard_is_torn(const struct mapguard *g)
{
    return atomic_load(&g->is_torn);
}
