/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/sort.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- by comparing --- */

enum { RUN_ITEMS = 8 }; /* as long as that they are on average, or merging them does not pay */

/* Items of one size, and how they follow one another. */
struct kind {
    size_t size;
    int (*compare)(const void *, const void *);
};

/* Where each run of items that are sorted ends, in `ends`, or NULL. Returns how many there are;
 * SIZE_MAX: more than `most`. */
static size_t list_runs(const struct kind *k, const char *items, size_t n, size_t *ends,
                        size_t most)
{
    size_t n_runs = 0;

    for (size_t i = 1; i <= n; i++) {
        const char *at = items + i * k->size;

        if (i < n && k->compare(at - k->size, at) <= 0) {
            continue;
        }
        if (n_runs == most) {
            return SIZE_MAX;
        }
        if (ends) {
            ends[n_runs] = i;
        }
        n_runs++;
    }
    return n_runs;
}

/* Two runs, [a, b) and [b, end), become one. */
static void merge_two(const struct kind *k, const char *a, const char *b, const char *end,
                      char *to)
{
    const char *middle = b;

    while (a < middle && b < end) {
        const char **least = k->compare(a, b) <= 0 ? &a : &b;

        memcpy(to, *least, k->size);
        *least += k->size;
        to += k->size;
    }
    memcpy(to, a, (size_t)(middle - a)); /* of one of them there is nothing left */
    memcpy(to + (middle - a), b, (size_t)(end - b));
}

/* Each two neighbours, into `to`. Returns how many runs are left. */
static size_t merge_once(const struct kind *k, const char *from, char *to, size_t *ends,
                         size_t n_runs)
{
    size_t begin = 0, n_left = 0;

    for (size_t i = 0; i < n_runs; i += 2) {
        size_t middle = ends[i], end = i + 1 < n_runs ? ends[i + 1] : middle;

        merge_two(k, from + begin * k->size, from + middle * k->size, from + end * k->size,
                  to + begin * k->size);
        begin = end;
        ends[n_left++] = end;
    }
    return n_left;
}

/* False: there is no memory to do that in. */
static bool merge_runs(const struct kind *k, char *items, size_t n, size_t n_runs)
{
    _free_ size_t *ends = reallocarray(NULL, n_runs, sizeof(*ends));
    _free_ char *other = reallocarray(NULL, n, k->size);
    char *from = items, *to = other;

    if (!ends || !other) {
        return false;
    }
    list_runs(k, items, n, ends, n_runs);
    while (n_runs > 1) {
        char *merged = to;

        n_runs = merge_once(k, from, merged, ends, n_runs);
        to = from;
        from = merged;
    }
    if (from != items) {
        memcpy(items, from, n * k->size);
    }
    return true;
}

void sort_items(void *items, size_t n, size_t size,
                int (*compare)(const void *, const void *))
{
    struct kind k = {size, compare};
    size_t n_runs = n > 0 ? list_runs(&k, items, n, NULL, n / RUN_ITEMS + 1) : 0;

    if (n_runs > 1 && (n_runs == SIZE_MAX || !merge_runs(&k, items, n, n_runs))) {
        qsort(items, n, size, compare);
    }
}

/* --- by numbers --- */

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS };

/* By one digit of the number. What is the same stays in its order. */
static void sort_by_digit(const struct sort_place *from, struct sort_place *to, size_t n,
                          unsigned shift)
{
    size_t ends[N_DIGITS + 1] = {0};

    for (size_t i = 0; i < n; i++) {
        ends[(from[i].number >> shift) % N_DIGITS + 1]++;
    }
    for (size_t d = 1; d < N_DIGITS; d++) {
        ends[d] += ends[d - 1];
    }
    for (size_t i = 0; i < n; i++) {
        to[ends[(from[i].number >> shift) % N_DIGITS]++] = from[i];
    }
}

/* From the lowest digit on; one that is the same for all is passed over. */
static void sort_by_number(struct sort_place **places, struct sort_place **other, size_t n)
{
    uint64_t differs = 0;

    for (size_t i = 1; i < n; i++) {
        differs |= (*places)[i].number ^ (*places)[0].number;
    }
    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        if ((differs >> shift) % N_DIGITS != 0) {
            struct sort_place *sorted = *other;

            sort_by_digit(*places, sorted, n, shift);
            *other = *places;
            *places = sorted;
        }
    }
}

int sort_places(struct sort_place *places, size_t n)
{
    struct sort_place *sorted = places, *other;
    _free_ struct sort_place *room = NULL;
    size_t i = 1;

    while (i < n && places[i - 1].number <= places[i].number) {
        i++;
    }
    if (i >= n) {
        return 0;
    }
    room = other = reallocarray(NULL, n, sizeof(*room));
    if (!room) {
        return -ENOMEM;
    }
    sort_by_number(&sorted, &other, n);
    if (sorted != places) {
        memcpy(places, sorted, n * sizeof(*places));
    }
    return 0;
}

/* --- items --- */

static bool is_sorted(const char *items, size_t n, size_t size,
                      struct sort_key (*key)(const void *item))
{
    struct sort_key last = {0};

    for (size_t i = 0; i < n; i++) {
        struct sort_key k = key(items + i * size);

        if (k.high < last.high || (k.high == last.high && k.low < last.low)) {
            return false;
        }
        last = k;
    }
    return true;
}

/* Each item goes where it belongs: round by round, of which each ends where it began. */
static void move_items(char *items, size_t size, struct sort_place *places, size_t n, char *spare)
{
    for (size_t i = 0; i < n; i++) {
        size_t to = i, from = places[i].at;

        if (from == i) {
            continue;
        }
        memcpy(spare, items + i * size, size);
        while (from != i) {
            memcpy(items + to * size, items + from * size, size);
            places[to].at = to;
            to = from;
            from = places[to].at;
        }
        memcpy(items + to * size, spare, size);
        places[to].at = to;
    }
}

int sort_by_key(void *items, size_t n, size_t size, struct sort_key (*key)(const void *item))
{
    _free_ struct sort_place *room = NULL;
    _free_ char *spare = NULL;
    struct sort_place *places, *other;

    if (is_sorted(items, n, size, key)) {
        return 0;
    }
    room = reallocarray(NULL, n, 2 * sizeof(*room));
    spare = malloc(size);
    if (!room || !spare) {
        return -ENOMEM;
    }
    places = room;
    other = room + n;
    for (size_t i = 0; i < n; i++) {
        places[i] = (struct sort_place){key((char *)items + i * size).low, i};
    }
    sort_by_number(&places, &other, n);
    for (size_t i = 0; i < n; i++) {
        places[i].number = key((char *)items + places[i].at * size).high;
    }
    sort_by_number(&places, &other, n);
    move_items(items, size, places, n, spare);
    return 0;
}
