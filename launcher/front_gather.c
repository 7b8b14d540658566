/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is missing when nodes do not gather. Each muster-mpi says that it is there
 * before MPI_Init, which waits for all of them; mpirun's log has that.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LOG = 64 << 20,
    MAX_NAMED = 8, /* hosts in one message */
};

/* Ranks of the first world are in the order of the hosts. */
static bool *find_heard(const struct front *f)
{
    static const char word[] = "muster-mpi: rank ";
    const struct mpirun_plan *plan = &f->config->plan;
    bool *heard = calloc(plan->n_agents + 1, sizeof(*heard));
    _free_ char *text = NULL;
    const char *at;

    if (!heard || fs_read(f->log_path, MAX_LOG, &text, NULL, NULL) < 0) {
        return heard;
    }
    for (at = text; (at = strstr(at, word)); ) {
        char *end;
        unsigned long rank;

        at += strlen(word);
        rank = strtoul(at, &end, 10);
        if (rank < plan->n_agents && str_starts(end, " is here")) {
            heard[rank] = true;
        }
    }
    return heard;
}

/* Whether nothing was heard of one of the `n` ranks from `first` on. */
static bool lacks_one(const bool *heard, unsigned first, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (!heard[first + i]) {
            return true;
        }
    }
    return false;
}

static size_t name_missing(const struct front *f, const bool *heard,
                           struct buf *names)
{
    const struct mpirun_plan *plan = &f->config->plan;
    const bool *absent = f->config->absent;
    unsigned rank = 0, left = plan->n_agents;
    size_t n_missing = 0;

    for (size_t i = 0; i < plan->hosts->n && left; i++) {
        unsigned n = left < plan->agents_per_host ? left
                                                  : plan->agents_per_host;

        left -= n;
        if (absent && absent[i]) {
            continue; /* mpirun knows nothing of it */
        }
        if (lacks_one(heard, rank, n) && n_missing++ < MAX_NAMED) {
            buf_printf(names, "%s%s", names->len ? ", " : "",
                       plan->hosts->items[i].name);
        }
        rank += n;
    }
    return n_missing;
}

void front_word_late(const struct front *f, char *to, size_t size)
{
    static const char late[] = "the nodes did not gather in time "
                               "(gang.timeout)";
    _free_ bool *heard = f->config->by_hand ? NULL : find_heard(f);
    _buf_ struct buf names = {0};
    size_t n;

    if (!heard) {
        str_copy(to, size, late);
        return;
    }
    n = name_missing(f, heard, &names);
    if (n) {
        snprintf(to, size, "%s: mpirun was to start muster-mpi there, and nothing "
                 "was heard of it from %s%s", late, buf_str(&names),
                 n > MAX_NAMED ? " and others" : "");
    } else {
        snprintf(to, size, "%s: muster-mpi is on all of them, and did not get "
                 "through MPI_Init: can they reach one another by TCP? "
                 "(network.interface)", late);
    }
}
