/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pace {
    double last[SLOW_WINDOW]; /* a ring */
    uint64_t n;               /* step times so far, those left out as well */
    bool is_slow;
};

struct slow {
    uint32_t n_ranks;
    struct pace *paces;
    double *sorted; /* room for one a rank */
    double *own;    /* median of each; 0: not known */
    double all;     /* their median, by the last look; 0: not known */
};

struct slow *slow_create(uint32_t n_ranks)
{
    struct slow *s = calloc(1, sizeof(*s));

    if (!s) {
        return NULL;
    }
    s->n_ranks = n_ranks;
    s->paces = calloc(n_ranks + 1, sizeof(*s->paces));
    s->sorted = calloc(n_ranks + 1, sizeof(*s->sorted));
    s->own = calloc(n_ranks + 1, sizeof(*s->own));
    if (!s->paces || !s->sorted || !s->own) {
        slow_destroy(s);
        return NULL;
    }
    return s;
}

void slow_destroy(struct slow *s)
{
    if (s) {
        free(s->paces);
        free(s->sorted);
        free(s->own);
        free(s);
    }
}

void slow_add(struct slow *s, uint32_t rank, double seconds)
{
    struct pace *p;

    if (rank >= s->n_ranks || !isfinite(seconds) || seconds <= 0) {
        return;
    }
    p = &s->paces[rank];
    if (p->n >= SLOW_SKIP) {
        p->last[(p->n - SLOW_SKIP) % SLOW_WINDOW] = seconds;
    }
    p->n++;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of an even number the lower one: of two ranks the slow one stands out. */
static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[(n - 1) / 2];
}

static double own_median(const struct pace *p)
{
    double sorted[SLOW_WINDOW];
    uint64_t n = p->n > SLOW_SKIP ? p->n - SLOW_SKIP : 0;

    if (n < SLOW_ENOUGH) {
        return 0;
    }
    n = n < SLOW_WINDOW ? n : SLOW_WINDOW;
    memcpy(sorted, p->last, n * sizeof(*sorted));
    return median(sorted, n);
}

/* The median over ranks, or 0 where there is nobody to compare with. */
static double median_of_all(struct slow *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_ranks; i++) {
        s->own[i] = own_median(&s->paces[i]);
        if (s->own[i] > 0) {
            s->sorted[n++] = s->own[i];
        }
    }
    return n > 1 ? median(s->sorted, n) : 0;
}

struct slow_change slow_worst(const struct slow *s)
{
    struct slow_change worst = {.median_s = s->all};

    for (uint32_t i = 0; s->all > 0 && i < s->n_ranks; i++) {
        if (s->own[i] > worst.own_s) {
            worst.rank = i;
            worst.own_s = s->own[i];
        }
    }
    if (worst.own_s > 0) {
        double percent = worst.own_s / s->all * 100;

        worst.percent = (uint32_t)(percent < 1000000 ? percent : 1000000);
    }
    return worst;
}

size_t slow_look(struct slow *s, struct slow_change *ret, size_t max)
{
    double all = median_of_all(s);
    size_t n = 0;

    s->all = all;
    for (uint32_t i = 0; all > 0 && i < s->n_ranks && n < max; i++) {
        struct pace *p = &s->paces[i];
        double percent = s->own[i] / all * 100;
        bool is_slow = percent >= (p->is_slow ? SLOW_UNTIL_PERCENT
                                              : SLOW_AT_PERCENT);

        if (s->own[i] > 0 && is_slow != p->is_slow) {
            p->is_slow = is_slow;
            percent = percent < 1000000 ? percent : 1000000;
            ret[n++] = (struct slow_change){
                .rank = i, .percent = is_slow ? (uint32_t)percent : 0,
                .own_s = s->own[i], .median_s = all,
            };
        }
    }
    return n;
}
