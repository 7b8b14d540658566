/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/hang_priv.h"

#include "base/str.h"
#include "rendezvous/layout.h"

#include <stdlib.h>

enum {
    LOOKS = 10, /* in a timeout */
    MIN_MS = 100,
    MAX_MS = 10000,
    STEP = 2, /* intervals, the most that one tick counts for */
};

uint64_t hang_interval_ms(uint64_t timeout_ms)
{
    uint64_t ms = timeout_ms / LOOKS;

    return ms < MIN_MS ? MIN_MS : ms > MAX_MS ? MAX_MS : ms;
}

struct hang *hang_create(uint64_t timeout_ms)
{
    struct hang *h = calloc(1, sizeof(*h));

    if (h) {
        h->timeout_ms = timeout_ms;
        h->interval_ms = hang_interval_ms(timeout_ms);
    }
    return h;
}

void hang_stop(struct hang *h)
{
    free(h->ranks);
    free(h->nodes);
    h->ranks = NULL;
    h->nodes = NULL;
    h->n_ranks = h->n_nodes = 0;
    h->phase = HANG_IDLE;
}

void hang_destroy(struct hang *h)
{
    if (h) {
        hang_stop(h);
        free(h);
    }
}

bool hang_start(struct hang *h, uint32_t generation, const uint16_t *n_procs,
                uint32_t n_nodes, uint64_t now_ms)
{
    struct layout whole = layout_of(n_procs, n_nodes, 0);

    hang_stop(h);
    h->ranks = calloc(whole.world + 1, sizeof(*h->ranks));
    h->nodes = calloc(n_nodes + 1, sizeof(*h->nodes));
    if (!h->ranks || !h->nodes) {
        hang_stop(h);
        return false;
    }
    h->n_ranks = whole.world;
    h->n_nodes = n_nodes;
    h->generation = generation;
    h->until_ms = now_ms;
    h->clock_ms = h->said_ms = 0;
    h->quiet = 0;
    h->phase = HANG_WATCHING;
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        uint32_t local;
        struct hang_rank *r = &h->ranks[i];

        r->node = layout_node_of(n_procs, n_nodes, i, &local);
        r->seen.is_alive = true;
        r->seen.step = -1;
        h->nodes[r->node].n_alive++;
    }
    return true;
}

uint32_t hang_generation(const struct hang *h)
{
    return h->generation;
}

/* --- what is seen --- */

static void see(struct hang *h, struct hang_rank *r,
                const struct hang_seen *seen)
{
    bool was_alive = r->seen.is_alive;

    if (seen->reports != r->seen.reports) {
        r->reported_ms = h->said_ms = h->clock_ms;
    }
    if (seen->outputs != r->seen.outputs) {
        r->printed_ms = h->said_ms = h->clock_ms;
    }
    if (seen->cpu != r->seen.cpu) {
        r->worked_ms = h->clock_ms;
    }
    r->seen = *seen;
    r->seen.is_alive = was_alive; /* who has ended stays so */
}

void hang_see(struct hang *h, uint32_t node, uint32_t first,
              const struct hang_seen *seen, uint32_t n, bool is_held,
              uint64_t now_ms)
{
    if (h->phase == HANG_IDLE || node >= h->n_nodes) {
        return;
    }
    h->nodes[node].seen_ms = now_ms;
    h->nodes[node].is_held = is_held;
    if (h->phase != HANG_WATCHING) {
        return; /* a debugger makes them look alive */
    }
    for (uint32_t i = 0; i < n && first + i < h->n_ranks; i++) {
        struct hang_rank *r = &h->ranks[first + i];

        if (r->node != node) {
            continue;
        }
        see(h, r, &seen[i]);
        if (!seen[i].is_alive) {
            hang_end(h, first + i);
        }
    }
}

void hang_end(struct hang *h, uint32_t rank)
{
    if (rank < h->n_ranks && h->ranks[rank].seen.is_alive) {
        h->ranks[rank].seen.is_alive = false;
        h->nodes[h->ranks[rank].node].n_alive--;
    }
}

void hang_dumped(struct hang *h, uint32_t rank, enum hang_wait wait)
{
    if (rank < h->n_ranks) {
        h->ranks[rank].is_dumped = true;
        h->ranks[rank].wait = wait;
    }
}

void hang_missed(struct hang *h, uint32_t rank, const char *key)
{
    if (rank < h->n_ranks) {
        h->ranks[rank].n_missed++;
        str_copy(h->ranks[rank].key, sizeof(h->ranks[rank].key), key);
    }
}

/* --- the judgement --- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What is seen at one look may have come just before the next. */
static uint64_t since(const struct hang *h, uint64_t ms)
{
    uint64_t past = h->clock_ms - ms;

    return past > h->interval_ms ? past - h->interval_ms : 0;
}

/* For how long a rank has made no progress. */
static uint64_t quiet_ms(const struct hang *h, const struct hang_rank *r)
{
    uint64_t idle = since(h, r->worked_ms);

    if (r->seen.reports) {
        return since(h, r->reported_ms);
    }
    if (r->seen.outputs) {
        return min_u64(since(h, r->printed_ms),
                       max_u64(idle, since(h, h->said_ms)));
    }
    return idle;
}

/* Until when all that live were seen; 0 where one was not, or could not go on. */
static uint64_t seen_until(const struct hang *h)
{
    uint64_t until = UINT64_MAX;

    for (uint32_t i = 0; i < h->n_nodes; i++) {
        const struct hang_node *n = &h->nodes[i];

        if (n->n_alive) {
            until = min_u64(until, n->is_held ? 0 : n->seen_ms);
        }
    }
    return until == UINT64_MAX ? 0 : until;
}

static void advance(struct hang *h)
{
    uint64_t until = seen_until(h);

    if (until > h->until_ms) {
        h->clock_ms += min_u64(until - h->until_ms, STEP * h->interval_ms);
        h->until_ms = until;
    }
}

static const char *lacks(const struct hang *h, const struct hang_rank *r)
{
    return r->seen.reports ? "no report"
           : !r->seen.outputs ? "no CPU time"
           : since(h, h->said_ms) >= h->timeout_ms ? "no output"
                                                   : "neither output nor CPU "
                                                     "time";
}

static bool find_quiet(struct hang *h)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < h->n_ranks; i++) {
        const struct hang_rank *r = &h->ranks[i];
        uint64_t ms = r->seen.is_alive ? quiet_ms(h, r) : 0;

        if (ms > most) {
            most = ms;
            h->quiet = i;
        }
    }
    h->quiet_ms = most;
    h->lacks = lacks(h, &h->ranks[h->quiet]);
    return most >= h->timeout_ms;
}

static bool all_dumped(const struct hang *h)
{
    for (uint32_t i = 0; i < h->n_ranks; i++) {
        if (h->ranks[i].seen.is_alive && !h->ranks[i].is_dumped) {
            return false;
        }
    }
    return true;
}

enum hang_action hang_tick(struct hang *h, uint64_t now_ms)
{
    switch (h->phase) {
    case HANG_WATCHING:
        advance(h);
        if (!find_quiet(h)) {
            return HANG_NONE;
        }
        h->phase = HANG_DUMPING;
        h->dump_ms = now_ms;
        return HANG_DUMP;
    case HANG_DUMPING:
        if (!all_dumped(h) && now_ms - h->dump_ms < HANG_DUMP_MS) {
            return HANG_NONE;
        }
        h->phase = HANG_BLAMING;
        return HANG_BLAME;
    case HANG_BLAMING:
        return HANG_BLAME;
    case HANG_IDLE:
        break;
    }
    return HANG_NONE;
}
