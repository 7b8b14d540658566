/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files are one checkpoint together, and whether all of it is there. No file says
 * how many there have to be: what others have, of other steps, tells of what is missing.
 * So it is with directories in which each rank writes a file, as far as none in there says
 * it (rng_state_<rank>.pth, say), and with those of which nothing says which files they have
 * to have at all (n_parts).
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/beside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Some structures, each of which begins with what was found. */
struct list {
    const char *all;
    size_t stride;
};

static const struct found *at(const struct list *l, size_t i)
{
    return (const struct found *)(const void *)(l->all + i * l->stride);
}

static bool is_of_set(const struct found *a, const struct found *b)
{
    return found_is_file(a) && found_is_file(b) && a->has_step && b->has_step &&
           a->step == b->step && !a->is_inside && !b->is_inside &&
           ((a->is_step && b->is_step) ||
            (beside_is_like(a->name, b->name) && found_is_rank_name(a->name) &&
             found_is_rank_name(b->name)));
}

/* Those of one step follow each other. */
static void find_first(const struct list *l, size_t i, const size_t *series,
                       struct found_set *sets)
{
    for (size_t k = i; series[i] != FOUND_NO_SERIES && k-- > 0;) {
        if (at(l, k)->step != at(l, i)->step || !at(l, k)->has_step) {
            return;
        }
        if (series[k] == series[i] && is_of_set(at(l, k), at(l, i))) {
            sets[k].first = sets[k].first ? sets[k].first : k + 1;
            sets[i].first = sets[k].first;
            return;
        }
    }
}

/* How many there are of the name of which there are most, numbers aside; in a directory,
 * those of ranks. */
static size_t count(const struct list *l, size_t n, size_t first,
                    const struct found_set *sets)
{
    size_t most = 1, run = 1, last = first;

    if (!found_is_file(at(l, first)) && at(l, first)->n_ranks > 1) {
        return at(l, first)->n_ranks;
    }
    for (size_t i = first + 1; i < n && at(l, i)->step == at(l, first)->step; i++) {
        if (sets[first].first == 0 || sets[i].first != first + 1) {
            continue;
        }
        run = beside_is_like(at(l, last)->name, at(l, i)->name) ? run + 1 : 1;
        most = run > most ? run : most;
        last = i;
    }
    return most;
}

static bool is_first(const struct found_set *sets, size_t i)
{
    return sets[i].first == 0 || sets[i].first == i + 1;
}

/* Whether one tells how many files of ranks the other has to have. */
static bool is_comparable(const struct found *a, const struct found *b)
{
    return found_is_file(a)
               ? found_is_file(b)
               : a->n_ranks > 0 && b->n_ranks > 0 && a->kind == b->kind &&
                     beside_is_like(a->name, b->name);
}

/* Or which files. */
static bool has_parts(const struct found *a, const struct found *b)
{
    return a->n_parts > 0 && b->n_parts > 0 && a->kind == b->kind &&
           beside_is_like(a->name, b->name);
}

/* What is counted of each set, at its first, and which of them say something of another. */
struct measure {
    const size_t *n;
    bool (*is_comparable)(const struct found *a, const struct found *b);
};

/* A program that goes on with fewer ranks saves more than once. */
static bool is_few(const struct list *l, size_t n, const struct measure *m,
                   const size_t *series, const struct found_set *sets, size_t first)
{
    size_t newer = 0, older = 0;
    bool has_more = false;

    for (size_t i = 0; i < n; i++) {
        if (i == first || series[i] != series[first] || !is_first(sets, i) ||
            !m->is_comparable(at(l, first), at(l, i))) {
            continue;
        }
        if (i < first) {
            newer = m->n[i];
        } else {
            older = older ? older : m->n[i];
            has_more = has_more || m->n[i] > m->n[first];
        }
    }
    return has_more && newer != m->n[first] && older != m->n[first];
}

/* --- ranks --- */

/* One file, of a rank. */
struct rank_file {
    size_t alike; /* the place of the first that is named like it */
    uint64_t rank;
    size_t set;   /* the place of the first of its set */
};

static int by_rank(const void *a, const void *b)
{
    const struct rank_file *x = a, *y = b;

    return x->alike != y->alike ? (x->alike < y->alike ? -1 : 1)
                                : (x->rank > y->rank) - (x->rank < y->rank);
}

static size_t rank_files(const struct list *l, size_t n, const size_t *series,
                         const struct found_set *sets, struct rank_file *ret)
{
    size_t n_files = 0;

    for (size_t i = 0; i < n; i++) {
        struct rank_file f = {.set = sets[i].first ? sets[i].first - 1 : i};
        const char *name = at(l, i)->name;
        size_t k = 0;

        if (series[i] == FOUND_NO_SERIES || !found_is_file(at(l, i)) ||
            !found_rank(name, &f.rank)) {
            continue;
        }
        while (k < n_files && (series[ret[k].alike] != series[i] ||
                               !beside_is_like(at(l, ret[k].alike)->name, name))) {
            k++;
        }
        f.alike = k < n_files ? ret[k].alike : i;
        ret[n_files++] = f;
    }
    qsort(ret, n_files, sizeof(*ret), by_rank);
    return n_files;
}

/* Upwards through the ranks of which there is any file; `last` has, at the first of each
 * set, which of those it was of which it had one last: from 1 on, and 0 before. Ranks of
 * which nobody has one are no gap: not all need to save. */
static void find_gaps(const struct rank_file *files, size_t n, size_t *last,
                      struct found_set *sets)
{
    size_t n_ranks = 0;

    for (size_t i = 0; i < n; i++) {
        bool is_new = i == 0 || files[i].alike != files[i - 1].alike;

        for (size_t k = i; is_new && k < n && files[k].alike == files[i].alike; k++) {
            last[files[k].set] = 0;
        }
        n_ranks = is_new ? 1 : n_ranks + (files[i].rank != files[i - 1].rank);
        sets[files[i].set].is_short |= last[files[i].set] + 1 < n_ranks;
        last[files[i].set] = n_ranks;
    }
}

/* --- all --- */

static void find_short(const struct list *l, size_t n, const size_t *series,
                       const size_t *n_files, const size_t *n_parts, struct found_set *sets)
{
    const struct measure files = {n_files, is_comparable}, parts = {n_parts, has_parts};

    for (size_t i = 0; i < n; i++) {
        const struct found *f = at(l, i);

        if (series[i] == FOUND_NO_SERIES) {
            continue;
        }
        if (!is_first(sets, i)) {
            sets[i].is_short = sets[sets[i].first - 1].is_short;
            sets[i].n_files = sets[sets[i].first - 1].n_files;
            continue;
        }
        sets[i].n_files = n_files[i] + n_parts[i];
        sets[i].lacks_parts = n_parts[i] > 0 && is_few(l, n, &parts, series, sets, i);
        sets[i].is_short = sets[i].lacks_parts ||
                           ((f->world == 0 || n_files[i] < f->world) &&
                            (sets[i].is_short || is_few(l, n, &files, series, sets, i)));
    }
}

struct found_set *found_sets(const struct found *all, size_t stride, size_t n,
                             const size_t *series)
{
    const struct list l = {.all = (const char *)all, .stride = stride};
    _free_ struct found_set *sets = calloc(n + 1, sizeof(*sets));
    _free_ struct rank_file *files = calloc(n + 1, sizeof(*files));
    _free_ size_t *n_files = calloc(n + 1, sizeof(*n_files));
    _free_ size_t *n_parts = calloc(n + 1, sizeof(*n_parts));

    if (!sets || !files || !n_files || !n_parts) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        sets[i].n_files = 1;
        find_first(&l, i, series, sets);
    }
    find_gaps(files, rank_files(&l, n, series, sets, files), n_files, sets);
    for (size_t i = 0; i < n; i++) {
        n_files[i] = is_first(sets, i) ? count(&l, n, i, sets) : 0;
        n_parts[i] = at(&l, i)->n_parts;
    }
    find_short(&l, n, series, n_files, n_parts, sets);
    return take_ptr(&sets);
}

/* --- what tells --- */

struct place {
    struct io *io;
    int dir; /* borrowed */
    struct found *all;
    size_t n;
    const size_t *series;
    bool *is_whole; /* of each: it was looked at, and is */
};

/* Whether an older one has more. */
static bool is_below(const struct place *p, size_t i, size_t older)
{
    const struct found *f = &p->all[i], *than = &p->all[older];

    return p->series[older] == p->series[i] && !found_is_file(f) &&
           ((is_comparable(f, than) && than->n_ranks > f->n_ranks) ||
            (has_parts(f, than) && than->n_parts > f->n_parts));
}

/* What is not whole, or says itself that it is, needs no others, and tells nothing of
 * them. */
static void look_inside(const struct place *p, size_t i)
{
    struct found_facts facts;

    p->is_whole[i] = found_check(p->io, p->dir, &p->all[i], false, &facts, NULL) == 0;
    if (!p->is_whole[i] || facts.is_counted) {
        p->all[i].n_ranks = 0;
    }
    if (!p->is_whole[i]) {
        p->all[i].n_parts = 0;
    }
}

/* Those that may be short, and in a row. */
static void look_at_few(const struct place *p)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t older = i + 1;

        while (older < p->n && !is_below(p, i, older)) {
            older++;
        }
        if (older < p->n) {
            look_inside(p, i);
        }
    }
}

/* Whether what tells that one is short is not whole: then all is to be told anew. */
static bool is_mistaken(const struct place *p, size_t i)
{
    bool is_mistaken = false;

    for (size_t older = i + 1; older < p->n; older++) {
        if (is_below(p, i, older)) {
            if (!p->is_whole[older]) {
                look_inside(p, older);
            }
            if (p->all[older].n_ranks > 0 || p->all[older].n_parts > 0) {
                return false;
            }
            is_mistaken = true;
        }
    }
    return is_mistaken;
}

struct found_set *found_sets_in(struct io *io, int dir, struct found *all, size_t n,
                                const size_t *series)
{
    _free_ bool *is_whole = calloc(n + 1, sizeof(*is_whole));
    const struct place p = {.io = io, .dir = dir, .all = all, .n = n, .series = series,
                            .is_whole = is_whole};
    struct found_set *sets;
    size_t i = 0;

    if (!is_whole) {
        return NULL;
    }
    look_at_few(&p);
    sets = found_sets(all, sizeof(*all), n, series);
    while (sets && i < n) {
        if (sets[i].is_short && is_mistaken(&p, i)) {
            free(sets);
            sets = found_sets(all, sizeof(*all), n, series);
            i = 0;
        } else {
            i++;
        }
    }
    return sets;
}

bool found_lacks_parts(struct io *io, int dir, const struct found *f)
{
    _free_ struct found_set *sets = NULL;
    _free_ struct found *all = NULL;
    _free_ size_t *series = NULL;
    bool is = false;
    size_t n = 0;

    if (f->n_parts == 0 || found_list(io, dir, &all, &n, NULL) < 0) {
        return false;
    }
    series = found_series(all, sizeof(*all), n);
    sets = series ? found_sets_in(io, dir, all, n, series) : NULL;
    for (size_t i = 0; i < n && sets; i++) {
        is = is || (sets[i].lacks_parts && strcmp(all[i].name, f->name) == 0);
    }
    return is;
}

int found_tell_short(const struct found *f, const struct found_set *set, struct error *e)
{
    return found_is_file(f)
               ? error_text(e, ENOENT, "%s: a file of its step is missing, as others have it",
                            f->name)
           : set->lacks_parts
               ? error_text(e, ENOENT, "%s: it was never finished: an older one has files that "
                            "it lacks", f->name)
               : error_text(e, ENOENT, "%s: it was never finished: of what each rank writes "
                            "%u are there, and an older one has more", f->name, f->n_ranks);
}

int found_tell_short_in(struct io *io, int dir, const struct found *all, size_t n,
                        const struct found_set *sets, size_t i, struct error *e)
{
    char what[128];

    for (size_t k = i + 1; k < n && sets[i].lacks_parts; k++) {
        if (has_parts(&all[i], &all[k]) && all[k].n_parts > all[i].n_parts &&
            found_lacks(io, dir, &all[i], &all[k], what, sizeof(what))) {
            return error_text(e, ENOENT, "%s: it was never finished: %s has %s, which it lacks",
                              all[i].name, all[k].name, what);
        }
    }
    return found_tell_short(&all[i], &sets[i], e);
}
