/* SPDX-License-Identifier: Apache-2.0 */
/* The index of the save before: who knows it, what becomes of it, when it goes. */
#include <config.h>

#include "ckpt/index_cache.h"

#include "ckpt/index_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

static const struct index_piece pieces[] = {
    {"a", DTYPE_U8, 1, NUMBERS(8), NUMBERS(0), NUMBERS(8), 0, 0},
    {"b", DTYPE_U8, 1, NUMBERS(8), NUMBERS(0), NUMBERS(8), 1, 0},
};
static const struct index_file files[] = {{NUMBERS(11), 1}, {NUMBERS(21, 22), 2}};
static const struct digest tables[] = {{1, 2}, {3, 4}};

static struct index *make(void)
{
    struct index *x = NULL;
    struct error e = {0};

    if (index_bed_create(pieces, 2, files, 2, &x, &e) < 0) {
        bail_out("no index: %s", e.text);
    }
    return x;
}

static void put(struct index_cache *c)
{
    struct digest *copy = malloc(sizeof(tables));

    memcpy(copy, tables, sizeof(tables));
    index_cache_put(c, make(), copy, 2);
}

static void test_knows(void)
{
    _index_cache_ struct index_cache c = {0};

    ok(!index_cache_knows(&c, 0, 0, tables[0]) && !index_cache_knows(&c, 1, 0, tables[0]),
       "an empty one knows nothing");
    put(&c);
    ok(index_cache_knows(&c, 2, 0, tables[0]) && index_cache_knows(&c, 2, 1, tables[1]),
       "the parts that it was made of");
    ok(!index_cache_knows(&c, 2, 0, tables[1]) && !index_cache_knows(&c, 2, 1, tables[0]),
       "those, and not of each other's rank");
    ok(!index_cache_knows(&c, 1, 0, tables[0]) && !index_cache_knows(&c, 3, 0, tables[0]) &&
           !index_cache_knows(&c, 2, 2, tables[0]),
       "of as many ranks");
}

static bool has_blocks(const struct index *x, uint64_t of_0, uint64_t of_1, uint64_t next)
{
    size_t n, n_1;
    const uint64_t *first = index_blocks(x, 0, &n), *second = index_blocks(x, 1, &n_1);

    return n == 1 && n_1 == 2 && first[0] == of_0 && second[0] == of_1 && second[1] == next;
}

static void test_renew(void)
{
    _index_cache_ struct index_cache c = {0};
    struct part parts[2] = {{.n_blocks = 1, .blocks = (uint64_t[]){31}},
                            {.n_blocks = 2, .blocks = (uint64_t[]){41, 42}}};
    struct index *x, *again = NULL;
    const char *bytes;
    size_t len;

    ok(!index_cache_renew(&c, parts, 2), "an empty one has none");
    put(&c);
    ok(has_blocks(c.index, 11, 21, 22), "the digests that it was made with");
    x = index_cache_renew(&c, parts, 2);
    ok(x && x == c.index && has_blocks(x, 31, 41, 42), "it has new ones");
    bytes = index_bytes(x, &len);
    ok(index_decode(bytes, len, &again, NULL) == 0 && has_blocks(again, 31, 41, 42) &&
           index_find(again, "b") == 1,
       "also as it is written");
    index_destroy(again);
    ok(!index_cache_renew(&c, parts, 1), "not of fewer files");
    parts[0].n_blocks = 2;
    parts[0].blocks = (uint64_t[]){51, 52};
    parts[1].n_blocks = 1;
    ok(!index_cache_renew(&c, parts, 2), "nor of those of other lengths");
    ok(has_blocks(c.index, 31, 41, 42), "and then it is as it was");
}

static void test_goes(void)
{
    struct index_cache c = {0};
    size_t len;

    index_cache_trim(&c, 0);
    ok(!c.index, "nothing goes of an empty one");
    put(&c);
    index_bytes(c.index, &len);
    index_cache_trim(&c, len);
    ok(c.index != NULL, "one that fits stays");
    put(&c);
    ok(index_cache_knows(&c, 2, 0, tables[0]), "another one takes its place");
    index_cache_trim(&c, len - 1);
    ok(!c.index && !c.tables && c.n == 0, "one that does not fit goes");
    ok(!index_cache_knows(&c, 2, 0, tables[0]), "and nothing is known any more");
    index_cache_release(&c);
}

int main(void)
{
    test_knows();
    test_renew();
    test_goes();
    return tap_done();
}
