/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

/* Random numbers --------------------------------------------------------- */

uint64_t sim_rnd(struct sim *s)
{
    uint64_t z = s->rng += 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t sim_pick(struct sim *s, uint64_t low, uint64_t high)
{
    return low + sim_rnd(s) % (high - low + 1);
}

bool sim_chance(struct sim *s, uint32_t per_mille)
{
    return sim_rnd(s) % 1000 < per_mille;
}

/* Events in order of time ------------------------------------------------ */

void sim_trace(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->trace) {
        return;
    }
    buf_printf(&s->log, "%8" PRIu64 " ", s->now_ms);
    va_start(ap, fmt);
    buf_vprintf(&s->log, fmt, ap);
    va_end(ap);
    buf_putc(&s->log, '\n');
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

void sim_push(struct sim *s, struct sim_event event)
{
    size_t i = s->n_events;

    if (i == s->cap_events) {
        s->cap_events = s->cap_events ? s->cap_events * 2 : 256;
        s->heap = realloc(s->heap, s->cap_events * sizeof(*s->heap));
        if (!s->heap) {
            abort();
        }
    }
    s->n_events++;
    for (; i > 0 && is_before(&event, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = event;
}

struct sim_event sim_pop(struct sim *s)
{
    struct sim_event top = s->heap[0];
    struct sim_event last = s->heap[--s->n_events];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= s->n_events) {
            break;
        }
        if (child + 1 < s->n_events &&
            is_before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!is_before(&s->heap[child], &last)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

void sim_post(struct sim *s, uint64_t at_ms, enum sim_event_type type,
                 uint32_t node, uint32_t tag)
{
    sim_push(s, (struct sim_event){.at_ms = at_ms, .seq = ++s->seq,
                                   .type = (uint8_t)type, .node = node,
                                   .tag = tag});
}
