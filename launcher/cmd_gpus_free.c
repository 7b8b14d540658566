/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster gpus-free: waits until GPUs of this host hold no memory of processes that
 * have been killed. Run by an agent, which must not ask the driver itself: that may
 * hang. What is still held in the end is said on stdout.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "launcher/gpus.h"
#include "launcher/options.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 100 };

struct free_options {
    int64_t timeout_ms;
};

static const struct option_def table[] = {
    {"timeout-ms", "MS", "how long to wait", OPTION_INT,
     offsetof(struct free_options, timeout_ms), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "gpus-free",
    .usage = "--timeout-ms=MS PID...",
    .about = "Waits until GPUs hold no memory of these processes; run by agents "
             "before a restart.",
    .table = table,
    .min_args = 1,
    .max_args = 4096,
};

static bool is_one_of(const struct strlist *pids, pid_t pid)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", (long)pid);
    for (size_t i = 0; i < pids->n; i++) {
        if (strcmp(pids->items[i], text) == 0) {
            return true;
        }
    }
    return false;
}

/* The first GPU that one of them has, and which; NULL: none. */
static const struct gpu *find_held(const struct gpus *gpus,
                                   const struct strlist *pids, pid_t *ret_pid)
{
    for (size_t i = 0; i < gpus->n; i++) {
        const struct gpu *g = &gpus->items[i];

        for (size_t k = 0; k < g->n_pids; k++) {
            if (is_one_of(pids, g->pids[k])) {
                *ret_pid = g->pids[k];
                return g;
            }
        }
    }
    return NULL;
}

static int wait_free(const struct strlist *pids, uint64_t until_ms)
{
    _free_ struct gpus *gpus = calloc(1, sizeof(*gpus));

    while (gpus) {
        const struct gpu *held;
        pid_t pid = 0;

        gpus_read(gpus);
        held = find_held(gpus, pids, &pid);
        if (!held) {
            return EXIT_OK;
        }
        if (clock_mono_ms() >= until_ms) {
            printf("GPU %u (%s) still holds memory of process %ld, which has "
                   "been killed\n", held->index, held->uuid, (long)pid);
            break;
        }
        poll(NULL, 0, LOOK_MS);
    }
    return EXIT_FAILED;
}

int cmd_gpus_free(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct free_options o = {0};
    int status = options_start(&options, argc, argv, &o, &args);

    if (status >= 0) {
        return status;
    }
    return o.timeout_ms < 0 ? EXIT_USAGE
                            : wait_free(&args.words, clock_mono_ms() +
                                                         (uint64_t)o.timeout_ms);
}
