/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/box.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct box box2(uint64_t a, uint64_t b, uint64_t n, uint64_t m)
{
    return (struct box){2, {a, b}, {n, m}};
}

static void test_volume(void)
{
    struct box none = {.n_dims = 0};
    struct box big = box2(0, 0, UINT64_MAX, 2);
    struct box empty = box2(0, 0, UINT64_MAX, 0);
    struct box some = {3, {0}, {4, 5, 6}};
    struct box last = {3, {0}, {UINT64_MAX, 2, 0}};
    uint64_t n = 7;

    ok(box_volume(&none, &n) && n == 1, "no dimension: one element");
    ok(box_volume(&some, &n) && n == 120, "4 x 5 x 6");
    ok(!box_volume(&big, &n), "too many to count");
    ok(box_volume(&empty, &n) && n == 0, "too many times none");
    n = 7;
    ok(box_volume(&last, &n) && n == 0, "also where it is the last that is none");
}

static void test_contains(void)
{
    struct box whole = box2(0, 0, 8, 4);
    static const struct {
        struct box b;
        bool is_in;
    } cases[] = {
        {{2, {0, 0}, {8, 4}}, true},
        {{2, {8, 4}, {0, 0}}, true},
        {{2, {7, 3}, {1, 1}}, true},
        {{2, {7, 3}, {2, 1}}, false},
        {{2, {9, 0}, {0, 0}}, false},
        {{2, {1, 0}, {UINT64_MAX, 1}}, false},
        {{2, {UINT64_MAX, 0}, {2, 1}}, false},
        {{1, {0}, {1}}, false},
        {{3, {0}, {1, 1, 1}}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(box_contains(&whole, &cases[i].b), cases[i].is_in, "case %zu",
               i);
    }
}

static void test_whole(void)
{
    const uint64_t shape[] = {4, 3}, zero[] = {0, 0};
    static const struct {
        uint64_t at[2], len[2];
        bool is_whole;
    } cases[] = {
        {{0, 0}, {4, 3}, true},  {{1, 0}, {4, 3}, false}, {{0, 1}, {4, 3}, false},
        {{0, 0}, {3, 3}, false}, {{0, 0}, {4, 2}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(box_is_whole(2, shape, cases[i].at, cases[i].len), cases[i].is_whole,
               "case %zu of a whole", i);
    }
    ok(box_is_whole(0, NULL, NULL, NULL), "a point is");
    ok(box_is_whole(1, shape, zero, (const uint64_t[]){4, 9}), "other dimensions do not count");
}

/* Wherever it is cut: a text that ends, and nothing behind its room. */
static void test_format_cut(void)
{
    const struct box b = box2(1, 20, 3, 4);
    const char whole[] = "[1:4, 20:24]";
    unsigned n_wrong = 0;

    for (size_t size = 1; size < sizeof(whole) + 4; size++) {
        char text[32];

        memset(text, 'x', sizeof(text));
        box_format(&b, text, size);
        n_wrong += strncmp(text, whole, size - 1) != 0 ||
                   strlen(text) != (size < sizeof(whole) ? size - 1 : sizeof(whole) - 1);
        for (size_t i = size; i < sizeof(text); i++) {
            n_wrong += text[i] != 'x';
        }
    }
    is_int((int)n_wrong, 0, "a text is cut to fit any room");
}

static void test_meet(void)
{
    struct box a = box2(0, 0, 4, 4), b = box2(2, 1, 8, 2), r = {0};
    struct box beside = box2(4, 0, 1, 4), point = {.n_dims = 0};
    char text[64];

    ok(box_meet(&a, &b, &r), "they share something");
    box_format(&r, text, sizeof(text));
    is_str(text, "[2:4, 1:3]", "what");
    ok(!box_meet(&a, &beside, &r), "neighbours do not");
    ok(box_meet(&point, &point, &r), "points do");
    box_format(&point, text, sizeof(text));
    is_str(text, "[]", "a point's text");
    box_format(&a, text, 6);
    is_str(text, "[0:4,", "cut to fit");
}

/* --- cover --- */

static int cover(const struct box *whole, const struct box *boxes, size_t n,
                 struct box_cover *ret)
{
    _free_ struct box *copy = calloc(n + 1, sizeof(*copy));

    for (size_t i = 0; i < n; i++) {
        copy[i] = boxes[i]; /* exactly so long, for ASan */
    }
    return box_check_cover(whole, copy, n, ret);
}

static void test_cover(void)
{
    struct box whole = box2(0, 0, 6, 6), row = {1, {0}, {6}};
    struct box point = {.n_dims = 0}, none = box2(0, 0, 0, 6);
    struct box pinwheel[] = {box2(0, 0, 2, 4), box2(0, 4, 4, 2),
                             box2(4, 2, 2, 4), box2(2, 0, 4, 2),
                             box2(2, 2, 2, 2)};
    struct box mixed[] = {box2(0, 0, 3, 6), box2(3, 0, 3, 1), box2(3, 1, 3, 5),
                          box2(2, 2, 0, 1)};
    struct box_cover r;
    char text[64];

    is_int(cover(&whole, &whole, 1, &r), 0, "one box");
    is_int(cover(&whole, mixed, 4, &r), 0, "rows, of which one is cut");
    is_int(cover(&whole, pinwheel, 5, &r), 0, "a pinwheel");
    is_int(cover(&point, &point, 1, &r), 0, "a point");
    is_int(cover(&point, NULL, 0, &r), BOX_HOLE, "no point");
    is_int(cover(&none, NULL, 0, &r), 0, "nothing to cover");
    is_int(cover(&none, &none, 1, &r), 0, "by nothing");

    is_int(cover(&whole, mixed, 2, &r), BOX_HOLE, "a piece is missing");
    box_format(&r.hole, text, sizeof(text));
    is_str(text, "[3:6, 1:6]", "which");
    is_int(cover(&whole, pinwheel, 4, &r), BOX_HOLE, "of a pinwheel");
    box_format(&r.hole, text, sizeof(text));
    is_str(text, "[2:4, 2:4]", "which");
    is_int(cover(&whole, mixed + 1, 2, &r), BOX_HOLE, "the first rows");
    box_format(&r.hole, text, sizeof(text));
    is_str(text, "[0:3, 0:6]", "which");

    pinwheel[4] = box2(2, 2, 2, 3);
    is_int(cover(&whole, pinwheel, 5, &r), BOX_OVERLAP, "two reach too far");
    ok((r.a == 4) != (r.b == 4), "one of them is named");
    mixed[2] = mixed[1];
    is_int(cover(&whole, mixed, 3, &r), BOX_OVERLAP, "one came twice");
    ok(r.a + r.b == 3, "both are named");
    mixed[2] = box2(3, 1, 3, 6);
    is_int(cover(&whole, mixed, 3, &r), BOX_OUTSIDE, "one reaches out");
    is_int((int)r.a, 2, "it is named");
    is_int(cover(&whole, &row, 1, &r), BOX_OUTSIDE, "other dimensions");
}

/* No dimension parts a pinwheel, nor one whose parts are pinwheels: what is missing of such a
 * one is found between all others, whatever their order. */
enum { WHEEL_DEPTH = 2, WHEEL_MAX = 25, WHEEL_EDGE = 25 };

static size_t add_wheel(struct box *to, struct box b, int depth)
{
    const uint64_t x = b.at[0], y = b.at[1], n = b.len[0], m = b.len[1];
    const uint64_t n1 = n * 2 / 5, n2 = n * 3 / 5, m1 = m * 2 / 5, m2 = m * 3 / 5;
    const struct box parts[] = {
        box2(x, y, n1, m2),           box2(x, y + m2, n2, m - m2),
        box2(x + n2, y + m1, n - n2, m - m1), box2(x + n1, y, n - n1, m1),
        box2(x + n1, y + m1, n2 - n1, m2 - m1),
    };
    size_t n_added = 0;

    if (depth == 0) {
        to[0] = b;
        return 1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        n_added += add_wheel(to + n_added, parts[i], depth - 1);
    }
    return n_added;
}

/* Whether just that hole is found, or some of it. */
static bool finds_hole(const struct box *whole, const struct box *boxes, size_t n,
                       const struct box *missing)
{
    struct box_cover r;

    return cover(whole, boxes, n, &r) == BOX_HOLE && !box_is_empty(&r.hole) &&
           box_contains(missing, &r.hole);
}

static void test_wheels(void)
{
    const struct box whole = box2(0, 0, WHEEL_EDGE, WHEEL_EDGE);
    struct box boxes[WHEEL_MAX], others[WHEEL_MAX];
    struct box_cover r;
    size_t n = add_wheel(boxes, whole, WHEEL_DEPTH);
    unsigned n_wrong = 0;

    is_int((int)n, WHEEL_MAX, "a pinwheel of pinwheels");
    is_int(cover(&whole, boxes, n, &r), 0, "is whole");
    for (size_t i = 0; i < n; i++) {
        for (size_t turn = 0; turn < n - 1; turn++) {
            for (size_t k = 0; k < n - 1; k++) {
                size_t from = (k + turn) % (n - 1);

                others[k] = boxes[from < i ? from : from + 1];
            }
            n_wrong += !finds_hole(&whole, others, n - 1, &boxes[i]);
        }
        for (uint32_t d = 0; d < 2; d++) { /* its last row or column alone */
            struct box missing = boxes[i];

            memcpy(others, boxes, sizeof(others));
            others[i].len[d]--;
            missing.at[d] += missing.len[d] - 1;
            missing.len[d] = 1;
            n_wrong += !finds_hole(&whole, others, n, &missing);
            others[i] = boxes[i]; /* and its first one */
            others[i].at[d]++;
            others[i].len[d]--;
            missing.at[d] = boxes[i].at[d];
            n_wrong += !finds_hole(&whole, others, n, &missing);
        }
    }
    is_int((int)n_wrong, 0, "and what is missing of one is told");
}

/* Any cut of a small tensor against a count of each element. */
static int brute(const struct box *whole, const struct box *boxes, size_t n)
{
    int worst = 0;

    for (uint64_t i = 0; i < whole->len[0]; i++) {
        for (uint64_t k = 0; k < whole->len[1]; k++) {
            struct box cell = box2(i, k, 1, 1), r;
            int count = 0;

            for (size_t b = 0; b < n; b++) {
                count += box_meet(&cell, &boxes[b], &r);
            }
            if (count > 1) {
                return BOX_OVERLAP;
            }
            worst = count ? worst : BOX_HOLE;
        }
    }
    return worst;
}

/* Cuts one of the boxes in two. */
static size_t cut_some(struct box *boxes, size_t n, unsigned *seed)
{
    size_t i = (size_t)rand_r(seed) % n;
    uint32_t d = (uint32_t)rand_r(seed) % 2;
    uint64_t at;

    if (boxes[i].len[d] < 2) {
        return n;
    }
    at = 1 + (uint64_t)rand_r(seed) % (boxes[i].len[d] - 1);
    boxes[n] = boxes[i];
    boxes[n].at[d] += at;
    boxes[n].len[d] -= at;
    boxes[i].len[d] = at;
    return n + 1;
}

static void test_random_covers(void)
{
    unsigned n_wrong = 0, n_whole = 0, n_holes = 0, n_overlaps = 0;

    for (unsigned i = 0; i < 20000; i++) {
        unsigned seed = i;
        struct box whole = box2(0, 0, 7, 5), boxes[16] = {whole};
        struct box_cover r;
        size_t n = 1;
        int want, got;

        while (n < 2 + i % 12) {
            size_t before = n;

            n = cut_some(boxes, n, &seed);
            if (n == before && rand_r(&seed) % 8 == 0) {
                break;
            }
        }
        if (i % 3 == 1) {
            boxes[(size_t)rand_r(&seed) % n].len[i % 2]--;
        } else if (i % 3 == 2 && boxes[0].len[0] + boxes[0].at[0] < 7) {
            boxes[0].len[0]++;
        }
        want = brute(&whole, boxes, n);
        got = cover(&whole, boxes, n, &r);
        n_whole += got == 0;
        n_holes += got == BOX_HOLE;
        n_overlaps += got == BOX_OVERLAP;
        if (got == BOX_HOLE) { /* what is named is one */
            for (size_t b = 0; b < n; b++) {
                struct box shared;

                n_wrong += box_meet(&r.hole, &boxes[b], &shared);
            }
            n_wrong += box_is_empty(&r.hole);
        }
        /* One that has both may be told either way. */
        n_wrong += want == 0 ? got != 0 : got == 0;
    }
    is_int((int)n_wrong, 0, "20000 cuts as counted");
    ok(n_whole > 1000 && n_holes > 1000 && n_overlaps > 500,
       "of each kind: %u whole, %u with holes, %u with overlaps", n_whole,
       n_holes, n_overlaps);
}

/* --- copies and flat ranges --- */

/* Between whole boxes. */
static void copy(const struct box *part, uint16_t *to, const struct box *to_box,
                 const uint16_t *from, const struct box *from_box)
{
    box_copy(part, sizeof(*to), to + box_first(to_box, part), to_box,
             from + box_first(from_box, part), from_box);
}

static void test_copy(void)
{
    enum { X = 5, Y = 4, Z = 3 };
    struct box whole = {3, {0}, {X, Y, Z}};
    struct box from = {3, {1, 0, 0}, {4, 4, 3}}, to = {3, {2, 1, 1}, {3, 3, 2}};
    uint16_t source[4 * 4 * 3], target[3 * 3 * 2];
    struct box part, point = {.n_dims = 0};
    unsigned n_wrong = 0, n = 0;

    for (uint16_t i = 0; i < ARRAY_SIZE(source); i++) {
        source[i] = (uint16_t)(i + box_first(&whole, &from)); /* its own place */
    }
    memset(target, 0xff, sizeof(target));
    ok(box_meet(&from, &to, &part) && box_equal(&part, &to), "all of it");
    copy(&part, target, &to, source, &from);
    for (uint64_t x = 2; x < X; x++) {
        for (uint64_t y = 1; y < Y; y++) {
            for (uint64_t z = 1; z < Z; z++) {
                n_wrong += target[n++] != (x * Y + y) * Z + z;
            }
        }
    }
    is_int((int)n_wrong, 0, "each element in its place");

    part.len[2] = 0;
    memset(target, 0xff, sizeof(target));
    copy(&part, target, &to, source, &from);
    ok(target[0] == 0xffff, "nothing of an empty part");
    is_int(box_next_byte(&part, 2, &from, 0) == UINT64_MAX, 1, "which has no byte");
    part.len[2] = 2;
    part.len[0] = 0;
    copy(&part, target, &to, source, &from);
    ok(target[0] == 0xffff, "nor of one without a row");
    is_int(box_next_byte(&part, 2, &from, 0) == UINT64_MAX, 1, "nor has that one");
    copy(&point, target, &point, source, &point);
    ok(target[0] == source[0] && target[1] == 0xffff, "one element of a point");
}

/* Every range of bytes of a part, out of boxes in which it lies apart, or together. */
static void test_copy_bytes(void)
{
    static const struct {
        struct box part, from, to;
    } cases[] = {
        {{2, {1, 1}, {3, 2}}, {2, {0, 0}, {5, 4}}, {2, {1, 0}, {3, 5}}},
        {{3, {1, 0, 0}, {2, 2, 3}}, {3, {0, 0, 0}, {3, 3, 3}}, {3, {1, 0, 0}, {2, 2, 3}}},
        {{3, {0, 1, 1}, {3, 1, 1}}, {3, {0, 0, 0}, {3, 2, 2}}, {3, {0, 0, 0}, {3, 2, 2}}},
        {{1, {2}, {4}}, {1, {0}, {9}}, {1, {2}, {4}}},
        {{0}, {0}, {0}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct box *part = &cases[i].part, *from = &cases[i].from;
        const struct box *to = &cases[i].to;
        uint64_t n_bytes = 2 * (box_end(from, part) - box_first(from, part)), next;
        uint16_t source[64], all[64] = {0}, got[64];
        char taken[128];
        unsigned n_wrong = 0;

        for (uint16_t k = 0; k < ARRAY_SIZE(source); k++) {
            source[k] = (uint16_t)(0x101 * (k + 1));
        }
        box_copy(part, 2, all, to, source, from);
        for (uint64_t a = 0; a <= n_bytes; a++) {
            for (uint64_t b = a; b <= n_bytes; b++) { /* in three ranges */
                uint64_t ends[] = {0, a, b, n_bytes};

                memset(got, 0, sizeof(got));
                for (size_t k = 0; k < 3; k++) {
                    box_copy_bytes(part, 2, got, to, (char *)source + ends[k], from,
                                   ends[k], ends[k + 1]);
                }
                n_wrong += memcmp(got, all, sizeof(got)) != 0;
            }
        }
        memset(taken, 0, sizeof(taken)); /* bytes of the source that are the part's */
        for (uint64_t a = 0; a < n_bytes; a++) {
            memset(got, 0, sizeof(got));
            box_copy_bytes(part, 2, got, to, (char *)source + a, from, a, a + 1);
            taken[a] = memchr(got, (int)(a / 2 + 1), sizeof(got)) != NULL;
        }
        next = UINT64_MAX;
        for (uint64_t a = n_bytes; a-- > 0;) {
            next = taken[a] ? a : next;
            n_wrong += box_next_byte(part, 2, from, a) != next;
        }
        n_wrong += box_next_byte(part, 2, from, n_bytes) != UINT64_MAX;
        n_wrong += box_is_together(part, from) != !memchr(taken, 0, n_bytes);
        is_int((int)n_wrong, 0, "case %zu, by bytes", i);
    }
}

/* Each range of a small tensor: the pieces follow each other without a gap. */
static void check_flat(const struct box *whole, uint64_t volume_of_it)
{
    struct box pieces[BOX_MAX_FLAT];
    unsigned n_wrong = 0;
    size_t most = 0;

    for (uint64_t begin = 0; begin <= volume_of_it; begin++) {
        for (uint64_t end = begin; end <= volume_of_it; end++) {
            size_t n = box_from_flat(whole, begin, end, pieces);
            uint64_t at = begin, volume;

            for (size_t i = 0; i < n; i++) {
                n_wrong += !box_contains(whole, &pieces[i]) ||
                           box_first(whole, &pieces[i]) != at;
                box_volume(&pieces[i], &volume);
                at += volume;
                n_wrong += box_end(whole, &pieces[i]) != at;
            }
            n_wrong += at != end;
            most = n > most ? n : most;
        }
    }
    is_int((int)n_wrong, 0, "each range, in its order");
    is_int((int)most, 5, "at most twice the dimensions less one");
    ok(box_from_flat(whole, 0, volume_of_it, pieces) == 1 && box_equal(&pieces[0], whole),
       "all of it is one");
}

static void test_flat(void)
{
    const struct box odd = {3, {0}, {3, 4, 5}}, even = {3, {0}, {4, 4, 6}};
    struct box pieces[BOX_MAX_FLAT];

    check_flat(&odd, 60);
    check_flat(&even, 96);
    is_int((int)box_from_flat(&(struct box){0}, 0, 1, pieces), 1, "a point");
    is_int((int)box_from_flat(&(struct box){0}, 0, 0, pieces), 0, "none of it");
}

int main(void)
{
    test_volume();
    test_contains();
    test_whole();
    test_format_cut();
    test_meet();
    test_cover();
    test_wheels();
    test_random_covers();
    test_copy();
    test_copy_bytes();
    test_flat();
    return tap_done();
}
