/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is behind, in a run that hangs. Ranks wait for each other, so the one that
 * is quiet first by the clock may be one that waits. What is known is looked at
 * in the order of what it is worth; each look leaves those that it speaks
 * against, and all where it tells them not apart:
 *
 *  1. calls of muster's own collectives: who has made fewer than others;
 *  2. steps: of those that report, who is at an older one. Where they go down (a program
 *     that counts anew in each epoch) who is there more rarely comes first;
 *  3. the store: whose key others wait for;
 *  4. stacks: who does not wait in a collective, while others do;
 *  5. time: whose last sign of life is the oldest; at last the lowest rank.
 *
 * From the second look on, who still reports is left alone where others do not: in a
 * run whose ranks do not wait for each other one may hang before its first report, and
 * others are only slower than the rest.
 */
#include <config.h>

#include "launcher/hang_priv.h"

#include "base/clock.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What speaks against a rank: the least of all is the most. `ret` is not
 * written where there is nothing to say of it. */
typedef bool weigh_f(const struct hang_rank *r, int64_t *ret);

static bool weigh_entered(const struct hang_rank *r, int64_t *ret)
{
    *ret = r->seen.entered > INT64_MAX ? INT64_MAX : (int64_t)r->seen.entered;
    return true;
}

static bool weigh_turns(const struct hang_rank *r, int64_t *ret)
{
    *ret = r->seen.turns;
    return r->seen.reports > 0;
}

static bool weigh_step(const struct hang_rank *r, int64_t *ret)
{
    *ret = r->seen.step;
    return r->seen.reports > 0;
}

static bool weigh_missed(const struct hang_rank *r, int64_t *ret)
{
    *ret = -(int64_t)r->n_missed;
    return true;
}

static bool weigh_wait(const struct hang_rank *r, int64_t *ret)
{
    *ret = r->wait == HANG_WAIT_YES;
    return r->wait != HANG_WAIT_UNKNOWN;
}

static bool weigh_time(const struct hang_rank *r, int64_t *ret)
{
    uint64_t last = r->worked_ms;

    last = r->printed_ms > last ? r->printed_ms : last;
    *ret = (int64_t)(r->reported_ms > last ? r->reported_ms : last);
    return true;
}

/* The order of struct look, of the words below. */
static weigh_f *const looks[] = {
    weigh_entered, weigh_turns, weigh_step, weigh_missed, weigh_wait, weigh_time,
};

struct finding {
    int by;        /* the look that told, or -1 */
    int64_t least; /* what it weighed, and what the others have at most */
    int64_t most;
};

/* Of those that were watched until somebody else was quiet for long enough. */
static bool still_reports(const struct hang *h, const struct hang_rank *r)
{
    return r->seen.reports > 0 && h->clock_ms - r->reported_ms < h->timeout_ms / 2;
}

/* Whether the look speaks only against ranks that report, while others do not. */
static bool is_astray(const struct hang *h, int i, const bool *in, int64_t least)
{
    bool any_silent = false;
    int64_t weight;

    for (uint32_t k = 0; k < h->n_ranks; k++) {
        if (!in[k] || still_reports(h, &h->ranks[k])) {
            continue;
        }
        if (looks[i](&h->ranks[k], &weight) && weight == least) {
            return false;
        }
        any_silent = true;
    }
    return any_silent && looks[i] != weigh_entered;
}

/* Leaves those of `in` against whom the look speaks, or all. */
static void look(const struct hang *h, int i, bool *in, struct finding *f)
{
    int64_t weight, least = INT64_MAX, most = INT64_MIN;

    for (uint32_t k = 0; k < h->n_ranks; k++) {
        if (in[k] && looks[i](&h->ranks[k], &weight)) {
            least = weight < least ? weight : least;
            most = weight > most ? weight : most;
        }
    }
    if (least >= most || is_astray(h, i, in, least)) {
        return;
    }
    for (uint32_t k = 0; k < h->n_ranks; k++) {
        in[k] = in[k] && looks[i](&h->ranks[k], &weight) && weight == least;
    }
    if (f->by < 0) {
        *f = (struct finding){i, least, most};
    }
}

static uint32_t first_of(const struct hang *h, const bool *in)
{
    for (uint32_t k = 0; k < h->n_ranks; k++) {
        if (in[k]) {
            return k;
        }
    }
    return h->quiet;
}

static uint32_t find(const struct hang *h, struct finding *f)
{
    bool *in = calloc(h->n_ranks + 1, sizeof(*in));
    uint32_t rank;

    *f = (struct finding){.by = -1};
    if (!in) {
        return h->quiet;
    }
    for (uint32_t k = 0; k < h->n_ranks; k++) {
        in[k] = h->ranks[k].seen.is_alive;
    }
    for (int i = 0; i < (int)ARRAY_SIZE(looks); i++) {
        look(h, i, in, f);
    }
    rank = first_of(h, in);
    free(in);
    return rank;
}

static void word_quiet(const struct hang *h, uint32_t about, char *to,
                       size_t size)
{
    char span[32];
    char whose[32] = "";

    clock_format_span(h->quiet_ms, span, sizeof(span));
    if (h->quiet != about) {
        snprintf(whose, sizeof(whose), " of rank %u", h->quiet);
    }
    snprintf(to, size, "%s%s for %s", h->lacks, whose, span);
}

void hang_word(const struct hang *h, char why[HANG_WHY_BYTES])
{
    char quiet[96];

    word_quiet(h, h->quiet, quiet, sizeof(quiet));
    snprintf(why, HANG_WHY_BYTES, "rank %u: %s", h->quiet, quiet);
}

static void word_finding(const struct hang_rank *r, const struct finding *f,
                         char *to, size_t size)
{
    to[0] = '\0';
    if (f->by < 0) {
        return;
    }
    if (looks[f->by] == weigh_entered && f->most == INT64_MAX) {
        snprintf(to, size, "; it has made %" PRId64 " calls of collectives, and "
                 "others are through with theirs", f->least);
    } else if (looks[f->by] == weigh_entered) {
        snprintf(to, size, "; it has made %" PRId64 " calls of collectives, "
                 "others %" PRId64, f->least, f->most);
    } else if (looks[f->by] == weigh_turns) {
        snprintf(to, size, "; it is at step %" PRId64 ", and its steps have begun anew %"
                 PRId64 " time%s, those of others %" PRId64, r->seen.step, f->least,
                 f->least == 1 ? "" : "s", f->most);
    } else if (looks[f->by] == weigh_step) {
        snprintf(to, size, "; its last step is %" PRId64 ", others are at %"
                 PRId64, f->least, f->most);
    } else if (looks[f->by] == weigh_missed) {
        snprintf(to, size, "; others wait in the store for '%s', which it has to "
                 "set", r->key);
    } else if (looks[f->by] == weigh_wait) {
        str_copy(to, size, "; others wait in a collective, it does not");
    }
}

uint32_t hang_culprit(const struct hang *h, char why[HANG_WHY_BYTES])
{
    struct finding f;
    uint32_t rank = find(h, &f);
    char quiet[96];
    char finding[160];

    word_quiet(h, rank, quiet, sizeof(quiet));
    word_finding(&h->ranks[rank], &f, finding, sizeof(finding));
    snprintf(why, HANG_WHY_BYTES, "%s%s", quiet, finding);
    return rank;
}
