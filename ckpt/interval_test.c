/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/interval.h"

#include "tests/lib/tap.h"

#include <math.h>

#define HOUR 3600.0

static double every(double cost, double ran, uint64_t n_failures,
                    uint32_t n_workers)
{
    struct interval_facts f = {cost, ran, n_failures, n_workers};
    struct interval i;

    interval_choose(&f, &i);
    return i.seconds;
}

static double mtbf(double ran, uint64_t n_failures, uint32_t n_workers)
{
    struct interval_facts f = {1, ran, n_failures, n_workers};
    struct interval i;

    interval_choose(&f, &i);
    return i.mtbf_s;
}

static bool is_near(double got, double want)
{
    return fabs(got - want) <= want / 100;
}

static void test_mtbf(void)
{
    ok(is_near(mtbf(0, 0, 16384), 50e3 * HOUR / 16384),
       "at first what is known of such machines");
    ok(is_near(mtbf(10 * HOUR, 0, 50000), 11 * HOUR),
       "time without a failure adds to it");
    ok(is_near(mtbf(31 * HOUR, 10, 8), 3.1 * HOUR), "then what was seen");
    ok(is_near(mtbf(50 * HOUR, 1, 50000), 25.5 * HOUR),
       "but not better than was expected");
    ok(mtbf(0, 3, 1) >= 1, "a crash loop");
    ok(is_near(mtbf(-5, 0, 50000), HOUR) && is_near(mtbf(NAN, 0, 50000), HOUR),
       "no sense counts as nothing");
    ok(isfinite(mtbf(0, 0, 0)), "nobody");
}

/* Of the same cost and mtbf, Young alone is published as 375, 149 and 67 s. */
static void test_interval(void)
{
    ok(is_near(every(0.2, 31 * HOUR, 10, 8), 67), "0.2 s, 3.1 h");
    ok(is_near(every(1, 31 * HOUR, 10, 8), 149), "1 s");
    ok(is_near(every(6.3, 31 * HOUR, 10, 8), 371), "6.3 s, less by higher order");
    ok(is_near(every(10, 0, 0, 8), 3600), "no more than an hour is lost");
    ok(is_near(every(1e-6, 10, 10, 8), 1), "never twice in a second");
    ok(is_near(every(100, 10, 10, 8), 2000), "nor all the time");
    ok(is_near(every(0, 31 * HOUR, 10, 8), 149), "a cost of 1 s before any");
    ok(is_near(interval_daly(3, 2), sqrt(12) * (1 + sqrt(0.75) / 3 + 0.75 / 9) - 3) &&
       interval_daly(4, 2) <= 2 && interval_daly(6, 2) <= 2 && interval_daly(6, 2) >= 2,
       "of what costs twice as much as a failure is away, that");
    ok(is_near(every(NAN, 31 * HOUR, 10, 8), 149), "or where it is none");
}

static void test_explain(void)
{
    struct interval_facts f = {0.2, 31 * HOUR, 10, 8};
    char text[INTERVAL_TEXT_BYTES];
    struct interval i;

    interval_choose(&f, &i);
    interval_explain(&f, &i, text);
    is_str(text, "1m06s: a save holds up 0.2 s, a failure is expected every "
           "3h06m (10 in 1d07h)", "in words");
    f = (struct interval_facts){0, INFINITY, UINT64_MAX, UINT32_MAX};
    interval_choose(&f, &i);
    interval_explain(&f, &i, text);
    like(text, "(assumed)", "what is not known is assumed");
}

int main(void)
{
    test_mtbf();
    test_interval();
    test_explain();
    return tap_done();
}
