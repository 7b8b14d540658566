/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/sort.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void sort_items(void *items, size_t n, size_t size,
                int (*compare)(const void *, const void *))
{
    for (size_t i = 1; i < n; i++) {
        const char *at = (const char *)items + i * size;

        if (compare(at - size, at) > 0) {
            qsort(items, n, size, compare);
            return;
        }
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
