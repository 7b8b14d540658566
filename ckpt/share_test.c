/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes what: once, balanced, and the same as every rank sees it. */
#include <config.h>

#include "ckpt/share.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})
enum { MAX_RANKS = 8, MAX_PIECES = 64 };

struct world {
    uint32_t n;
    struct part tables[MAX_RANKS];
    struct part_piece pieces[MAX_RANKS][MAX_PIECES];
};

static void hold(struct world *w, uint32_t rank, const char *name,
                 const uint64_t *shape, const uint64_t *at,
                 const uint64_t *len)
{
    struct part *t = &w->tables[rank];

    t->pieces = w->pieces[rank];
    t->pieces[t->n_pieces++] = (struct part_piece){name, DTYPE_F32, 1, shape, at,
                                                   len, 0};
}

/* How many write each piece of rank 0's table, where all hold the same. */
static void test_replicas(void)
{
    static const uint64_t lens[] = {1000, 10, 400, 300, 300, 200, 7, 1};
    static const uint64_t zero;
    static char names[ARRAY_SIZE(lens)][8];
    struct world w = {.n = 4};
    uint64_t load[MAX_RANKS] = {0}, most = 0, sum = 0;
    unsigned n_writers[ARRAY_SIZE(lens)] = {0};

    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        for (uint32_t r = 0; r < w.n; r++) {
            hold(&w, r, names[i], &lens[i], &zero, &lens[i]);
        }
    }
    for (uint32_t r = 0; r < w.n; r++) {
        _free_ struct share *mine = NULL;

        is_int(share_out(w.tables, w.n, r, &mine, NULL, NULL), 0, "rank %u", r);
        for (size_t i = 0; mine && i < ARRAY_SIZE(lens); i++) {
            n_writers[i] += mine[i].is_mine;
            load[r] += mine[i].is_mine ? lens[i] : 0;
        }
        most = load[r] > most ? load[r] : most;
        sum += load[r];
    }
    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        is_int(n_writers[i], 1, "%s is written once", names[i]);
    }
    is_int((int)sum, 2218, "all of it");
    is_int((int)most, 1000, "nobody has more than the largest");
}

static void test_chunks(void)
{
    const uint64_t shape[1] = {9};
    struct world w = {.n = 2};
    _free_ struct share *first = NULL, *none = NULL;
    struct share *second = NULL;

    hold(&w, 0, "a", shape, NUMBERS(0), NUMBERS(3));
    hold(&w, 0, "a", shape, NUMBERS(6), NUMBERS(3));
    hold(&w, 0, "b", shape, NUMBERS(0), NUMBERS(9));
    hold(&w, 0, "b", shape, NUMBERS(4), NUMBERS(0));
    hold(&w, 1, "a", shape, NUMBERS(3), NUMBERS(3));
    is_int(share_out(w.tables, 2, 0, &first, NULL, NULL), 0, "two pieces of one");
    is_int(share_out(w.tables, 2, 1, &second, NULL, NULL), 0, "and one");
    ok(first && first[0].chunk == 1 && first[1].chunk == 2, "are told apart");
    ok(second && second[0].chunk == 1, "on all ranks");
    ok(first && first[2].is_mine && first[2].chunk == 0, "one piece is not");
    ok(first && !first[3].is_mine, "nothing is not written");
    free(second);
    w.tables[1].n_pieces = 0;
    is_int(share_out(w.tables, 2, 1, &none, NULL, NULL), -EINVAL, "a hole");
}

/* What a rank has whole tensors of may be in pieces elsewhere; what all have alike is not. */
static void test_sum(void)
{
    static const uint64_t shape[] = {9}, none[] = {0};
    struct world w = {.n = 3};
    struct share *mine = NULL;
    struct share_sum sum = {0};

    for (uint32_t r = 0; r < 3; r++) {
        hold(&w, r, "a", shape, none, shape);
        hold(&w, r, "nothing", none, none, none);
    }
    hold(&w, 1, "b", shape, NUMBERS(0), NUMBERS(9));
    hold(&w, 2, "b", shape, NUMBERS(0), NUMBERS(0));
    is_int(share_out(w.tables, 3, 0, &mine, &sum, NULL), 0, "whole tensors, and empty boxes");
    ok(sum.bytes == 72 && !sum.has_pieces, "are none in pieces: %llu bytes",
       (unsigned long long)sum.bytes);
    free(mine);
    hold(&w, 1, "c", shape, NUMBERS(0), NUMBERS(4));
    hold(&w, 2, "c", shape, NUMBERS(4), NUMBERS(5));
    is_int(share_out(w.tables, 3, 0, &mine, &sum, NULL), 0, "two ranks have one in pieces");
    ok(sum.bytes == 108 && sum.has_pieces, "which a third one hears of");
    free(mine);
}

/* That a table's own order says nothing of. */
static void test_order(void)
{
    static const char *const names[] = {"b", "a10", "a9", "a1"};
    static const size_t want[] = {3, 1, 2, 5, 4, 0};
    static const uint64_t shape[] = {9}, none[] = {0};
    struct world w = {.n = 2};
    _free_ struct share *mine = NULL;
    int n_right = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        hold(&w, 0, names[i], shape, none, shape);
        hold(&w, 1, names[i], shape, none, shape);
    }
    hold(&w, 0, "az", shape, NUMBERS(5), NUMBERS(4));
    hold(&w, 0, "az", shape, NUMBERS(0), NUMBERS(5));
    is_int(share_out(w.tables, 2, 0, &mine, NULL, NULL), 0, "tensors in any order");
    for (size_t i = 0; mine && i < ARRAY_SIZE(want); i++) {
        n_right += mine[i].by_name == want[i];
    }
    is_int(n_right, (int)ARRAY_SIZE(want), "and their order by name, and box");
}

/* Names of which many begin alike, however long, and a few as no others do. */
static void test_names(void)
{
    static const char *const parts[][2] = {{"a.layers.", ".self_attn.q_proj.weight"},
                                           {"a.layers.1", ".b"}, {"a.layer", ""},
                                           {"a.layers.", ".self_attn.k"}, {"\xc3\xa4", ""}};
    static const uint64_t shape[] = {9}, none[] = {0};
    static char names[MAX_PIECES][64];
    struct world w = {.n = 1};
    _free_ struct share *mine = NULL;
    unsigned n_wrong = 0;

    for (unsigned i = 0; i < MAX_PIECES; i++) {
        const char *const *part = parts[i < MAX_PIECES - 2 ? i % 4 : 4];

        snprintf(names[i], sizeof(names[i]), "%s%u%s", part[0], i * 7919 % 101, part[1]);
        hold(&w, 0, names[i], shape, none, shape);
    }
    is_int(share_out(w.tables, 1, 0, &mine, NULL, NULL), 0, "names that begin alike");
    for (size_t i = 1; mine && i < MAX_PIECES; i++) {
        n_wrong += strcmp(names[mine[i - 1].by_name], names[mine[i].by_name]) >= 0;
    }
    is_int((int)n_wrong, 0, "are in their order");
}

static void test_empty(void)
{
    const uint64_t shape[1] = {0};
    struct world w = {.n = 3};
    unsigned n_writers = 0;

    for (uint32_t r = 0; r < 3; r++) {
        hold(&w, r, "nothing", shape, shape, shape);
    }
    for (uint32_t r = 0; r < 3; r++) {
        _free_ struct share *mine = NULL;

        n_writers += share_out(w.tables, 3, r, &mine, NULL, NULL) == 0 &&
                     mine[0].is_mine;
    }
    is_int((int)n_writers, 1, "an empty tensor is there, once");
}

static void test_hole(void)
{
    const uint64_t shape[1] = {4};
    struct world w = {.n = 2};
    struct share *mine = NULL;
    struct error e = {0};

    hold(&w, 0, "w", shape, NUMBERS(0), NUMBERS(0));
    hold(&w, 1, "w", shape, NUMBERS(4), NUMBERS(0));
    is_int(share_out(w.tables, 2, 0, &mine, NULL, &e), -EINVAL, "only empty boxes");
    like(e.text, "tensor 'w': no rank has [0:4]", "are all of it missing");
}

int main(void)
{
    test_replicas();
    test_chunks();
    test_sum();
    test_order();
    test_names();
    test_empty();
    test_hole();
    return tap_done();
}
