/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/sort.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct item {
    uint64_t high, low;
    size_t number; /* in the order in which they were made */
    char rest[20];
};

static size_t n_asked;

static struct sort_key key_of(const void *item)
{
    const struct item *x = item;

    n_asked++;
    return (struct sort_key){x->high, x->low};
}

static void set(struct item *to, uint64_t high, uint64_t low, size_t number)
{
    memset(to, 0, sizeof(*to));
    to->high = high;
    to->low = low;
    to->number = number;
    memset(to->rest, (char)('a' + number % 26), sizeof(to->rest));
}

/* Each item is there once, whole, and behind those that it should be behind. */
static bool is_right(const struct item *items, size_t n)
{
    _free_ bool *is_there = calloc(n + 1, sizeof(*is_there));

    if (!is_there) {
        bail_out("memory");
    }
    for (size_t i = 0; i < n; i++) {
        const struct item *x = &items[i], *before = &items[i ? i - 1 : 0];

        if (x->number >= n || is_there[x->number] ||
            x->rest[0] != (char)('a' + x->number % 26) || x->rest[19] != x->rest[0]) {
            return false;
        }
        is_there[x->number] = true;
        if (i > 0 && (before->high > x->high ||
                      (before->high == x->high && before->low > x->low) ||
                      (before->high == x->high && before->low == x->low &&
                       before->number > x->number))) {
            return false;
        }
    }
    return true;
}

static uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 20;
}

/* Numbers below `high` and `low`; 0: any. */
static void test_random(size_t n, uint64_t high, uint64_t low)
{
    _free_ struct item *items = calloc(n + 1, sizeof(*items));
    uint64_t x = n + high + low;

    if (!items) {
        bail_out("memory");
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t a = next(&x), b = next(&x);

        set(&items[i], high ? a % high : a << 20 ^ b, low ? b % low : b << 20 ^ a, i);
    }
    is_int(sort_by_key(items, n, sizeof(*items), key_of), 0, "%zu items are sorted", n);
    ok(is_right(items, n), "by the higher number, then the lower one, then as they were");
}

/* Only one bit differs, wherever it is. */
static void test_each_bit(void)
{
    struct item items[3];
    bool is = true;

    for (int bit = 0; bit < 128; bit++) {
        uint64_t one = UINT64_C(1) << bit % 64;

        set(&items[0], bit < 64 ? 7 : 7 | one, bit < 64 ? 9 | one : 9, 0);
        set(&items[1], bit < 64 ? 7 : 7 & ~one, bit < 64 ? 9 & ~one : 9, 1);
        set(&items[2], bit < 64 ? 7 : 7 | one, bit < 64 ? 9 | one : 9, 2);
        is = is && sort_by_key(items, 3, sizeof(items[0]), key_of) == 0 &&
             items[0].number == 1 && items[1].number == 0 && items[2].number == 2;
    }
    ok(is, "each bit of both numbers counts");
}

static void test_sorted(void)
{
    struct item items[100];

    for (size_t i = 0; i < 100; i++) {
        set(&items[i], i / 10, i % 10 / 2, i);
    }
    n_asked = 0;
    is_int(sort_by_key(items, 100, sizeof(items[0]), key_of), 0, "what is sorted is");
    ok(is_right(items, 100), "as it was");
    is_int((intmax_t)n_asked, 100, "and was looked at once");
    is_int(sort_by_key(NULL, 0, sizeof(items[0]), key_of), 0, "nothing is sorted");
}

/* Numbers below `most`, of which some are equal. */
static void test_places(size_t n, uint64_t most)
{
    _free_ struct sort_place *places = calloc(n + 1, sizeof(*places));
    uint64_t x = most;
    size_t n_wrong = 0, sum = 0;

    if (!places) {
        bail_out("memory");
    }
    for (size_t i = 0; i < n; i++) {
        places[i] = (struct sort_place){next(&x) % most, i};
    }
    is_int(sort_places(places, n), 0, "%zu places are sorted", n);
    for (size_t i = 0; i < n; i++) {
        const struct sort_place *p = &places[i], *before = &places[i ? i - 1 : 0];

        n_wrong += i > 0 && (before->number > p->number ||
                             (before->number == p->number && before->at >= p->at));
        sum += p->at;
    }
    is_int((intmax_t)n_wrong, 0, "by their numbers, then as they were");
    is_int((intmax_t)sum, (intmax_t)(n * (n - 1) / 2), "each of them");
    is_int(sort_places(NULL, 0), 0, "nothing is sorted");
}

static int by_low(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    n_asked++;
    return x->low < y->low ? -1 : x->low > y->low;
}

static void test_compare(void)
{
    struct item items[50];

    for (size_t i = 0; i < 50; i++) {
        set(&items[i], 0, i * 17 % 50, i);
    }
    sort_items(items, 50, sizeof(items[0]), by_low);
    for (size_t i = 1; i < 50; i++) {
        if (items[i - 1].low >= items[i].low) {
            bail_out("%zu is not behind the one before", i);
        }
    }
    ok(true, "sorted by a function that compares");
    sort_items(NULL, 0, sizeof(items[0]), by_low);
}

static bool has_no_memory;

void *__real_reallocarray(void *at, size_t n, size_t size);
void *__wrap_reallocarray(void *at, size_t n, size_t size);

void *__wrap_reallocarray(void *at, size_t n, size_t size)
{
    return has_no_memory ? NULL : __real_reallocarray(at, n, size);
}

/* That many runs, of about as many items each, of which some are equal across runs. At most
 * `per_item` looks at each. */
static void test_runs(size_t n, size_t n_runs, size_t per_item)
{
    _free_ struct item *items = calloc(n + 1, sizeof(*items));
    uint64_t x = n_runs, low = 0;
    size_t run = 0;

    if (!items) {
        bail_out("memory");
    }
    for (size_t i = 0; i < n; i++) {
        if (i * n_runs / n != run) {
            run = i * n_runs / n;
            low = 0;
        }
        low += next(&x) % 5;
        set(&items[i], 0, low, i);
    }
    n_asked = 0;
    sort_items(items, n, sizeof(*items), by_low);
    ok(is_right(items, n), "%zu items in %zu runs are sorted, equal ones as they were", n, n_runs);
    ok(n_asked <= n * per_item, "by no more than %zu looks at each: %zu", per_item, n_asked);
}

/* Whatever there is no memory for, it is sorted. */
static void test_no_memory(void)
{
    struct item items[64];

    for (size_t i = 0; i < 64; i++) {
        set(&items[i], 0, (i + 32) % 64, i);
    }
    has_no_memory = true;
    sort_items(items, 64, sizeof(items[0]), by_low);
    has_no_memory = false;
    for (size_t i = 0; i < 64; i++) {
        if (items[i].low != i) {
            bail_out("%zu is where %zu belongs", (size_t)items[i].low, i);
        }
    }
    ok(true, "without memory for another order, too");
}

int main(void)
{
    test_random(1, 0, 0);
    test_random(2, 1, 0);
    test_random(10000, 3, 50);      /* many that are equal */
    test_random(10000, 1, 0);
    test_random(10000, 0, 1);
    test_random(10000, 0, 0);
    test_each_bit();
    test_sorted();
    test_places(1, 2);
    test_places(10000, 1 << 10);     /* one digit, and two: in either room */
    test_places(10000, 1 << 20);
    test_compare();
    test_runs(10000, 1, 1);
    test_runs(10000, 2, 3); /* to find them, to find where they end, and to merge */
    test_runs(10000, 3, 4);
    test_runs(10000, 16, 6);
    test_runs(10001, 17, 7);
    test_runs(9, 2, 3);
    test_no_memory();
    return tap_done();
}
