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

/* Of which of the `n` ranks of the newest world something was heard. */
static bool *find_heard(const struct front *f, unsigned n)
{
    static const char word[] = "muster-mpi: rank ";
    bool *heard = calloc(n + 1, sizeof(*heard));
    _free_ char *text = NULL;
    const char *at;
    size_t len;

    if (!heard || fs_read(f->log_path, MAX_LOG, &text, &len, NULL) < 0) {
        return heard;
    }
    at = text + (f->log_from < len ? f->log_from : len);
    while ((at = strstr(at, word))) {
        char *end;
        unsigned long rank;

        at += strlen(word);
        rank = strtoul(at, &end, 10);
        if (rank < n && str_starts(end, " is here")) {
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

static void mark(const struct host_list *hosts, const char *name, bool *unheard)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->items[i].name, name) == 0) {
            unheard[i] = true;
        }
    }
}

/* Ranks of a world are in the order of its hosts. */
size_t front_find_unheard(const struct front *f, bool *unheard)
{
    const struct mpirun_plan *plan = &f->config->plan;
    const struct front_reach *r = f->reach;
    const struct host_list *hosts = r->world.n ? &r->world : plan->hosts;
    unsigned rank = 0, left = r->world.n ? r->n_agents : plan->n_agents;
    _free_ bool *heard = find_heard(f, left);
    size_t n_missing = 0;

    for (size_t i = 0; heard && i < hosts->n && left; i++) {
        unsigned n = left < plan->agents_per_host ? left
                                                  : plan->agents_per_host;

        left -= n;
        if (lacks_one(heard, rank, n)) {
            n_missing++;
            mark(plan->hosts, hosts->items[i].name, unheard);
        }
        rank += n;
    }
    return n_missing;
}

size_t front_name_unheard(const struct front *f, struct buf *names)
{
    const struct host_list *hosts = f->config->plan.hosts;
    _free_ bool *unheard = calloc(hosts->n + 1, sizeof(*unheard));
    size_t n = 0;

    if (!unheard || front_find_unheard(f, unheard) == 0) {
        return 0;
    }
    for (size_t i = 0; i < hosts->n; i++) {
        if (unheard[i] && n++ < MAX_NAMED) {
            buf_printf(names, "%s%s", names->len ? ", " : "", hosts->items[i].name);
        }
    }
    return n;
}

void front_word_late(const struct front *f, char *to, size_t size)
{
    static const char late[] = "the nodes did not gather in time "
                               "(gang.timeout)";
    _buf_ struct buf names = {0};
    size_t n;

    if (f->config->by_hand) {
        str_copy(to, size, late);
        return;
    }
    n = front_name_unheard(f, &names);
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
