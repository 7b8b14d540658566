/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that breaks says little: an agent may have ended, or a switch have
 * lost its memory. But an agent listens as long as it lives. If its host refuses
 * a connection to that port, it is dead, and its workers with it (base/child.h,
 * launcher/watch_main.c), and nobody need wait for its lease. A host that does
 * not answer tells nothing; a port that answers is asked again, for the agent may
 * be about to end. The same goes for the lead of a member that has found another way
 * while that was ending: the way may be of those who wait for who follows them.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/addr.h"

#include <stdlib.h>

enum { AGAIN_MS = 100 };

struct look {
    struct tree *tree; /* NULL once it has ended */
    struct look *next;
    uint32_t rank;
    bool is_lead;     /* of this member, which has heard nothing newer than ... */
    uint64_t stamp_ms; /* ... this */
    struct sockaddr_storage to;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t request;
    bool has_tcp;
    unsigned n_open; /* handles, the timer among them */
};

static void on_closed(uv_handle_t *h)
{
    struct look *k = h->data;

    if (--k->n_open == 0) {
        free(k);
    }
}

static void close_tcp(struct look *k)
{
    if (k->has_tcp) {
        k->has_tcp = false;
        uv_close((uv_handle_t *)&k->tcp, on_closed);
    }
}

static void end(struct look *k)
{
    struct look **at = &k->tree->looks;

    while (*at != k) {
        at = &(*at)->next;
    }
    *at = k->next;
    k->tree = NULL;
    close_tcp(k);
    uv_close((uv_handle_t *)&k->timer, on_closed);
}

/* Nobody knows yet what has become of it. */
static bool is_open(const struct look *k)
{
    const struct tree *t = k->tree;
    const struct below *b = &t->below[k->rank];

    if (!k->is_lead) {
        return b->due_ms != 0;
    }
    return t->lead == k->rank && t->up_rank != k->rank && !b->dead &&
           t->word.stamp_ms == k->stamp_ms;
}

static void on_answer(uv_connect_t *request, int status)
{
    struct look *k = request->data;
    struct tree *t = k->tree;
    uint32_t rank = k->rank;

    if (!t) {
        return;
    }
    if (status == UV_ECONNREFUSED && is_open(k)) {
        end(k);
        tree_is_dead(t, rank);
        return;
    }
    close_tcp(k);
}

static void ask(struct look *k)
{
    if (uv_tcp_init(k->tree->config.loop, &k->tcp) < 0) {
        return; /* its lease tells */
    }
    k->tcp.data = k;
    k->has_tcp = true;
    k->n_open++;
    k->request.data = k;
    if (uv_tcp_connect(&k->request, &k->tcp, (struct sockaddr *)&k->to,
                       on_answer) < 0) {
        close_tcp(k);
    }
}

static void on_again(uv_timer_t *timer)
{
    struct look *k = timer->data;

    if (!is_open(k)) {
        end(k); /* it is back, or given up */
    } else if (k->n_open == 1) {
        ask(k);
    }
}

static void start(struct tree *t, uint32_t rank, const char *address,
                  bool is_lead)
{
    struct look *k = calloc(1, sizeof(*k));

    if (!k || addr_parse(address, t->config.roster->entries[rank].port, &k->to,
                         NULL) < 0) {
        free(k);
        return;
    }
    k->tree = t;
    k->rank = rank;
    k->is_lead = is_lead;
    k->stamp_ms = t->word.stamp_ms;
    uv_timer_init(t->config.loop, &k->timer);
    k->timer.data = k;
    k->n_open = 1;
    uv_timer_start(&k->timer, on_again, AGAIN_MS, AGAIN_MS);
    k->next = t->looks;
    t->looks = k;
    ask(k);
}

void tree_look(struct tree *t, uint32_t rank, const char *address)
{
    if (t->below[rank].due_ms) {
        start(t, rank, address, false);
    }
}

static bool looks_at_lead(const struct tree *t)
{
    for (const struct look *k = t->looks; k; k = k->next) {
        if (k->is_lead) {
            return true;
        }
    }
    return false;
}

void tree_look_at_lead(struct tree *t)
{
    uint32_t rank = t->lead;

    if (rank < t->config.rank && rank != t->up_rank && rank < t->n_below &&
        t->config.roster->entries[rank].port && !t->below[rank].dead &&
        !tree_may_be_ours(t, rank) && !looks_at_lead(t)) {
        start(t, rank, t->config.roster->entries[rank].addrs[0], true);
    }
}

void tree_look_end(struct tree *t)
{
    while (t->looks) {
        end(t->looks);
    }
}
