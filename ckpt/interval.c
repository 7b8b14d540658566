/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/interval.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define COST_BEFORE_ANY_S 1.0
#define MAX_SHARE (1.0 / 20)
#define MIN_S 1.0
#define MAX_S 3600.0

static double no_less(double v, double least)
{
    return v > least ? v : least; /* NaN is less */
}

static double no_more(double v, double most)
{
    return v < most ? v : most;
}

/* Once there are failures, the worse of the prior and of what was seen: too short an
 * interval costs the square root of the error, too long a one costs work. */
double interval_mtbf(double ran_s, uint64_t n_failures, double prior_s)
{
    double ran = no_less(ran_s, 0), k = (double)n_failures;
    double expected = (ran + prior_s) / (k + 1);

    return no_less(k > 0 ? no_more(expected, ran / k) : expected, MIN_S);
}

/* Daly (2006), eq. 37: for cost < 2 mtbf; beyond, the mtbf itself. */
double interval_daly(double cost, double mtbf)
{
    double x = cost / (2 * mtbf);

    return x < 1 ? sqrt(2 * cost * mtbf) * (1 + sqrt(x) / 3 + x / 9) - cost
                 : mtbf;
}

void interval_choose(const struct interval_facts *f, struct interval *ret)
{
    double cost = f->cost_s > 0 ? f->cost_s : COST_BEFORE_ANY_S;
    double prior = INTERVAL_WORKER_MTBF_S / no_less(f->n_workers, 1);
    double mtbf = interval_mtbf(f->ran_s, f->n_failures, prior), s;

    s = no_more(no_less(interval_daly(cost, mtbf), MIN_S), MAX_S);
    *ret = (struct interval){
        .seconds = no_less(s, cost / MAX_SHARE),
        .cost_s = cost,
        .mtbf_s = mtbf,
    };
}

static void span(double seconds, char *to, size_t size)
{
    clock_format_span((uint64_t)no_more(seconds * 1e3, 1e15), to, size);
}

void interval_explain(const struct interval_facts *f, const struct interval *i,
                      char to[INTERVAL_TEXT_BYTES])
{
    char every[32], mtbf[32], ran[32];

    span(i->seconds, every, sizeof(every));
    span(i->mtbf_s, mtbf, sizeof(mtbf));
    span(no_less(f->ran_s, 0), ran, sizeof(ran));
    snprintf(to, INTERVAL_TEXT_BYTES,
             "%s: a save holds up %.3g s%s, a failure is expected every %s "
             "(%" PRIu64 " in %s)", every, i->cost_s,
             f->cost_s > 0 ? "" : " (assumed)", mtbf, f->n_failures, ran);
}
