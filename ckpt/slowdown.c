/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/slowdown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void slowdown_turn(struct slowdown *s, enum interval_level_id level, bool is_busy,
                   uint64_t now_ms)
{
    if (s->is_busy[level] != is_busy) {
        s->is_busy[level] = is_busy;
        s->since_ms[level] = now_ms;
    }
}

void slowdown_restart(struct slowdown *s)
{
    memset(&s->quiet, 0, sizeof(s->quiet));
    memset(s->busy, 0, sizeof(s->busy));
}

static void add(struct slowdown_steps *s, double seconds)
{
    s->seconds[s->next] = seconds;
    s->next = (s->next + 1) % SLOWDOWN_WINDOW;
    s->n += s->n < SLOWDOWN_WINDOW;
}

void slowdown_step(struct slowdown *s, double seconds, double span_s, uint64_t now_ms)
{
    struct slowdown_steps *of = &s->quiet;
    double began_ms = (double)now_ms - span_s * 1e3;

    if (!isfinite(seconds) || !isfinite(span_s) || seconds <= 0 || span_s < seconds) {
        return;
    }
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (s->since_ms[i] > 0 && (double)s->since_ms[i] > began_ms) {
            return;
        }
        of = s->is_busy[i] ? &s->busy[i] : of;
    }
    add(of, seconds);
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* 0: there are too few. */
static double median(const struct slowdown_steps *s)
{
    double sorted[SLOWDOWN_WINDOW];

    if (s->n < SLOWDOWN_ENOUGH) {
        return 0;
    }
    memcpy(sorted, s->seconds, s->n * sizeof(sorted[0]));
    qsort(sorted, s->n, sizeof(sorted[0]), compare);
    return s->n % 2 ? sorted[s->n / 2] : (sorted[s->n / 2 - 1] + sorted[s->n / 2]) / 2;
}

bool slowdown_of(const struct slowdown *s, enum interval_level_id level, double *ret)
{
    double quiet = median(&s->quiet), busy = median(&s->busy[level]);

    if (quiet <= 0 || busy <= 0) {
        return false;
    }
    *ret = busy > quiet ? busy / quiet - 1 : 0;
    return true;
}
