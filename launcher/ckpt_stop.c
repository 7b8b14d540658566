/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_stop.h"

#include "base/cleanup.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};

/* A handler is told nothing but the signal: 0, or the first that came. */
static atomic_int came;

static void note(int sig)
{
    int none = 0;

    atomic_compare_exchange_strong(&came, &none, sig);
}

static void set(void (*from)(int), void (*to)(int), int flags)
{
    struct sigaction now, then = {.sa_handler = to, .sa_flags = flags};

    sigemptyset(&then.sa_mask);
    for (size_t i = 0; i < ARRAY_SIZE(stops); i++) {
        if (sigaction(stops[i], NULL, &now) == 0 && now.sa_handler == from) {
            sigaction(stops[i], &then, NULL);
        }
    }
}

void ckpt_stop_begin(void)
{
    came = 0;
    set(SIG_DFL, note, (int)SA_RESETHAND | SA_RESTART);
}

bool ckpt_stop_came(void)
{
    return came != 0;
}

void ckpt_stop_end(void)
{
    set(note, SIG_DFL, 0);
    if (came) {
        fflush(stdout);
        raise(came);
    }
}
