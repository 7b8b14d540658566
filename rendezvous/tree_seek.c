/* SPDX-License-Identifier: Apache-2.0 */
/*
 * None of the ways up of this member answers. Then all of lower ranks are asked
 * whether they are there, from the lowest on, some at a time: a host that refuses
 * the port has lost its agent; who takes the connection is dialled; who does
 * neither is asked again. Who takes the connection and no member may be an agent
 * that is just being killed: it is asked once more at once. One that finds nobody
 * stands at the top: those of higher ranks, which look as well, will find it, as it
 * finds who comes back below it.
 */
#include <config.h>

#include "rendezvous/tree_priv.h"

#include "base/addr.h"

#include <stdlib.h>
#include <string.h>

enum {
    TICK_MS = 50,
    FIRST_WINDOW = 64,
    MAX_WINDOW = 512,
    MAX_ASK_MS = 1000, /* for a host to answer */
    REST_MS = 1000,    /* between two rounds */
};

enum state {
    UNASKED = 0,
    ASKED,
    THERE,  /* it takes connections */
    SILENT, /* or it does not welcome this member */
};

struct probe {
    struct probe *next;
    struct seek *seek; /* NULL: nobody waits for it any more */
    uint32_t rank;
    bool is_second; /* it was there, but did not welcome this member */
    uint64_t until_ms;
    uv_tcp_t tcp;
    uv_connect_t request;
};

struct seek {
    struct tree *tree;
    uv_timer_t timer;
    uint8_t *states; /* by rank, of those below this member's */
    uint32_t n;
    uint32_t next;   /* who has not been asked in this round */
    unsigned window;
    unsigned n_asked;
    struct probe *probes;
    uint64_t rest_until_ms;
};

/* --- one --- */

static void on_probe_closed(uv_handle_t *h)
{
    free(h->data);
}

static void end_probe(struct probe *p)
{
    struct probe **at = &p->seek->probes;

    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    p->seek->n_asked--;
    p->seek = NULL;
    uv_close((uv_handle_t *)&p->tcp, on_probe_closed);
}

bool tree_may_be_ours(const struct tree *t, uint32_t rank)
{
    const struct roster_entry *other = &t->config.roster->entries[rank];
    const struct roster_entry *own =
        &t->config.roster->entries[t->config.rank];

    if (strcmp(other->boot_id, own->boot_id) == 0) {
        return false; /* and so it is */
    }
    for (size_t i = 0; i < own->n_addrs; i++) {
        if (strcmp(own->addrs[i], other->addrs[0]) == 0) {
            return true;
        }
    }
    return false;
}

static void take_answer(struct seek *s, uint32_t rank, int status,
                        bool is_second)
{
    struct tree *t = s->tree;

    s->states[rank] = status == 0 && !is_second ? THERE : SILENT;
    if (status == UV_ECONNREFUSED && !tree_may_be_ours(t, rank)) {
        tree_is_dead(t, rank);
    }
}

static void on_answer(uv_connect_t *request, int status)
{
    struct probe *p = request->data;
    struct seek *s = p->seek;
    uint32_t rank = p->rank;
    bool is_second = p->is_second;

    if (s) {
        end_probe(p);
        take_answer(s, rank, status, is_second);
    }
}

static bool is_out(const struct tree *t, uint32_t rank)
{
    return t->config.roster->entries[rank].port == 0 || t->below[rank].dead;
}

static void ask(struct seek *s, uint32_t rank, bool is_second)
{
    struct tree *t = s->tree;
    const struct roster_entry *to = &t->config.roster->entries[rank];
    uint64_t patience_ms = t->config.lease_ms / 4;
    struct probe *p = calloc(1, sizeof(*p));
    struct sockaddr_storage sa;

    s->states[rank] = SILENT;
    if (!p || addr_parse(to->addrs[0], to->port, &sa, NULL) < 0 ||
        uv_tcp_init(t->config.loop, &p->tcp) < 0) {
        free(p);
        return;
    }
    p->seek = s;
    p->rank = rank;
    p->is_second = is_second;
    p->until_ms = tree_now_ms(t) + (patience_ms < MAX_ASK_MS ? patience_ms
                                                             : MAX_ASK_MS);
    p->tcp.data = p->request.data = p;
    p->next = s->probes;
    s->probes = p;
    s->n_asked++;
    if (uv_tcp_connect(&p->request, &p->tcp, (struct sockaddr *)&sa,
                       on_answer) < 0) {
        end_probe(p);
    } else {
        s->states[rank] = ASKED;
    }
}

/* --- all of them --- */

static void drop_late(struct seek *s)
{
    uint64_t now = tree_now_ms(s->tree);
    struct probe *next;

    for (struct probe *p = s->probes; p; p = next) {
        next = p->next;
        if (now >= p->until_ms) {
            s->states[p->rank] = SILENT;
            end_probe(p);
        }
    }
}

static void ask_more(struct seek *s)
{
    while (s->next < s->n && s->n_asked < s->window) {
        uint32_t rank = s->next++;

        if (is_out(s->tree, rank)) {
            s->states[rank] = SILENT;
        } else if (s->states[rank] == UNASKED) {
            ask(s, rank, false);
        }
    }
}

/* The lowest that is there, unless a lower one may still answer. */
static uint32_t lowest(const struct seek *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->states[i] == THERE) {
            return i;
        }
        if (s->states[i] != SILENT) {
            break;
        }
    }
    return NO_RANK;
}

static bool all_asked(const struct seek *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->states[i] != SILENT) {
            return false;
        }
    }
    return true;
}

static void next_round(struct seek *s)
{
    memset(s->states, UNASKED, s->n);
    s->next = 0;
    s->window = s->window * 2 < MAX_WINDOW ? s->window * 2 : MAX_WINDOW;
    s->rest_until_ms = tree_now_ms(s->tree) + REST_MS;
}

/* Nobody, in a whole round. */
static void stand_at_top(struct seek *s)
{
    struct tree *t = s->tree;

    next_round(s);
    if (!t->is_top) {
        t->is_top = true;
        tree_tell_top(t);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct seek *s = timer->data;
    struct tree *t = s->tree;
    uint32_t rank;

    drop_late(s);
    if (tree_now_ms(t) < s->rest_until_ms) {
        return;
    }
    ask_more(s);
    rank = t->up ? NO_RANK : lowest(s);
    if (rank != NO_RANK) {
        tree_dial(t, rank);
    } else if (all_asked(s)) {
        stand_at_top(s);
    }
}

void tree_seek_failed(struct tree *t, uint32_t rank)
{
    struct seek *s = t->seek;

    /* One that has not been asked yet still is: it may refuse by then. */
    if (s && rank < s->n && s->states[rank] == THERE) {
        ask(s, rank, true);
    }
}

void tree_seek(struct tree *t)
{
    struct seek *s;

    if (t->seek || tree_is_lead(t)) {
        return;
    }
    s = calloc(1, sizeof(*s));
    if (s) {
        s->states = calloc(t->config.rank + 1, 1);
    }
    if (!s || !s->states) {
        free(s);
        return; /* the ways that it knows have to do */
    }
    s->tree = t;
    s->n = t->config.rank;
    s->window = FIRST_WINDOW;
    uv_timer_init(t->config.loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_tick, 0, TICK_MS);
    t->seek = s;
}

static void on_seek_closed(uv_handle_t *h)
{
    struct seek *s = h->data;

    free(s->states);
    free(s);
}

void tree_seek_end(struct tree *t)
{
    struct seek *s = t->seek;

    t->is_top = false;
    if (!s) {
        return;
    }
    t->seek = NULL;
    while (s->probes) {
        end_probe(s->probes);
    }
    uv_close((uv_handle_t *)&s->timer, on_seek_closed);
}
