/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/interval_levels.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Before any was seen: of the failures that ckpt/interval.c expects about half take the
 * node along, a tenth the run, and a hundredth what it has on the disk. */
static const double times_worker[INTERVAL_N_LEVELS] = {1, 2, 10, 100};

/* What goes to a partner, a disk or a store does so behind the program's back: it takes
 * a core, and memory and network that the program would use. */
#define BEHIND_SHARE (1.0 / 20)
#define BEHIND_UNKNOWN_S 1.0

#define MAX_TIMES 1e5 /* of one level; of all that is a number still */

/* Nobody loses more than that, whatever is cheapest. */
static const double most_s[INTERVAL_N_LEVELS] = {3600, 3600, 3600, 24 * 3600};

const char *interval_level_name(enum interval_level_id id)
{
    static const char *const names[] = {"memory", "partner", "disk", "store"};

    return names[id];
}

static double no_less(double v, double least)
{
    return v > least ? v : least; /* NaN is less */
}

/* Of kind i: what is helped by level i, and by none below. */
struct kind {
    uint64_t n;
    double mtbf_s;
};

static void look_at_kinds(const struct interval_levels_facts *f,
                          struct kind kinds[INTERVAL_N_LEVELS])
{
    double n = no_less(f->n_workers, 1);

    kinds[INTERVAL_MEMORY].n = 0; /* whatever level is the first helps with all of these */
    kinds[INTERVAL_PARTNER].n = f->n_nodes;
    kinds[INTERVAL_DISK].n = f->n_runs;
    kinds[INTERVAL_STORE].n = 0;
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        kinds[i].mtbf_s = interval_mtbf(f->ran_s, kinds[i].n,
                                        times_worker[i] * INTERVAL_WORKER_MTBF_S / n);
    }
}

/* Failures that need level `at` or a higher one that is there. */
static void add_up(const struct kind kinds[INTERVAL_N_LEVELS], unsigned there,
                   size_t at, struct interval_level *ret)
{
    double rate = 0;
    size_t below = at; /* the first kind that no level below helps with */

    while (below > 0 && !(there & 1u << (below - 1))) {
        below--;
    }
    for (size_t i = below; i < INTERVAL_N_LEVELS; i++) {
        if (there >> i) { /* one that helps */
            rate += 1 / kinds[i].mtbf_s; /* never 0 */
            ret->n_failures += kinds[i].n;
        }
    }
    ret->mtbf_s = 1 / no_less(rate, 1e-12);
}

static void look_at_cost(const struct interval_levels_facts *f, size_t at,
                         struct interval_level *ret)
{
    double took = no_less(f->took_s[at], 0);

    double slower = no_less(f->slower[at], 0);

    ret->is_assumed = took <= 0;
    ret->is_measured = took > 0 && f->slower_known & 1u << at && slower < 1e9;
    ret->cost_s = ret->is_assumed    ? BEHIND_UNKNOWN_S
                  : ret->is_measured ? took * slower / (1 + slower)
                                     : took * BEHIND_SHARE;
    ret->best_s = no_less(interval_daly(ret->cost_s, ret->mtbf_s), 0);
}

/* What goes higher goes here as well: so no more seldom than what is best there. */
static double want_s(const struct interval_level l[INTERVAL_N_LEVELS], size_t at)
{
    double want = INFINITY;

    for (size_t i = at; i < INTERVAL_N_LEVELS; i++) {
        if (l[i].is_there) {
            want = l[i].best_s < want ? l[i].best_s : want;
            want = most_s[i] < want ? most_s[i] : want;
        }
    }
    return want;
}

static void choose(const struct interval_levels_facts *f, size_t at, double want,
                   const struct interval_level *below, struct interval_level *ret)
{
    double took = no_less(f->took_s[at], 0), times;

    times = round(want / below->seconds);
    times = no_less(times, ceil(took / below->seconds));
    times = no_less(times < MAX_TIMES ? times : MAX_TIMES, 1);
    ret->saves = below->saves * (uint64_t)times;
    ret->seconds = below->seconds * times;
}

void interval_levels(const struct interval_levels_facts *f,
                     struct interval_level ret[INTERVAL_N_LEVELS])
{
    const struct interval_level *below = NULL;
    struct kind kinds[INTERVAL_N_LEVELS];

    look_at_kinds(f, kinds);
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        ret[i] = (struct interval_level){.is_there = f->there & 1u << i};
        if (!ret[i].is_there) {
            continue;
        }
        if (!below) { /* where saves go first */
            ret[i].n_failures = f->n_failures + f->n_runs;
            ret[i].is_first = true;
            ret[i].cost_s = no_less(f->first.cost_s, 0);
            ret[i].mtbf_s = no_less(f->first.mtbf_s, 1);
            ret[i].best_s = interval_daly(ret[i].cost_s, ret[i].mtbf_s);
            ret[i].saves = 1;
            ret[i].seconds = no_less(f->first.seconds, 1);
        } else {
            add_up(kinds, f->there, i, &ret[i]);
            look_at_cost(f, i, &ret[i]);
        }
        below = &ret[i];
    }
    below = NULL;
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (ret[i].is_there && below) {
            choose(f, i, want_s(ret, i), below, &ret[i]);
        }
        below = ret[i].is_there ? &ret[i] : below;
    }
}

static void span(double seconds, char *to, size_t size)
{
    clock_format_span((uint64_t)(no_less(seconds, 0) < 1e12 ? no_less(seconds, 0) * 1e3
                                                            : 1e15), to, size);
}

/* Where the cost comes from. */
static void derive(const struct interval_levels_facts *f, enum interval_level_id id,
                   const struct interval_level *l, char to[96])
{
    if (l->is_first) {
        snprintf(to, 96, "for which it holds workers up");
    } else if (l->is_assumed) {
        snprintf(to, 96, "as long as none was measured");
    } else if (l->is_measured) {
        snprintf(to, 96, "of steps that are %.3g %% slower for %.3g s",
                 f->slower[id] * 100, f->took_s[id]);
    } else {
        snprintf(to, 96, "a twentieth of %.3g s: too few steps were reported "
                 "meanwhile", f->took_s[id]);
    }
}

void interval_level_explain(const struct interval_levels_facts *f,
                            enum interval_level_id id, const struct interval_level *l,
                            char to[INTERVAL_TEXT_BYTES])
{
    char which[48] = "every save", every[32], mtbf[32], ran[32], best[32], cost[96];

    if (l->saves > 1) {
        snprintf(which, sizeof(which), "one save in %" PRIu64, l->saves);
    }
    span(l->seconds, every, sizeof(every));
    span(l->best_s, best, sizeof(best));
    span(l->mtbf_s, mtbf, sizeof(mtbf));
    span(f->ran_s, ran, sizeof(ran));
    derive(f, id, l, cost);
    snprintf(to, INTERVAL_TEXT_BYTES,
             "%s, %s: sqrt(2 x %.3g s x %s) = %s, needed %" PRIu64 " times in %s; "
             "%.3g s a save, %s", which, every, l->cost_s, mtbf, best, l->n_failures,
             ran, l->cost_s, cost);
}
