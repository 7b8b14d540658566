/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/index_bed.h"
#include "ckpt/plan.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { X = 6, Y = 10, MAX_FILES = 8 };

/* What their blocks are is of no interest here. */
static const uint64_t block;
static const struct index_file files[MAX_FILES] = {
    {&block, 1}, {&block, 1}, {&block, 1}, {&block, 1},
    {&block, 1}, {&block, 1}, {&block, 1}, {&block, 1},
};

/* A tensor [X, Y] of U16, saved in pieces that lie one after the other in files;
 * each element has its own place as its value. */
struct bed {
    struct index *index;
    uint16_t files[MAX_FILES][X * Y];
};

static void save(struct bed *bed, const struct box *boxes, size_t n,
                 uint32_t n_files)
{
    static const uint64_t shape[] = {X, Y};
    struct box whole = box_whole(2, shape);
    struct index_piece pieces[X * Y];
    size_t filled[MAX_FILES] = {0};
    struct error e = {0};

    memset(bed, 0xff, sizeof(*bed));
    for (size_t i = 0; i < n; i++) {
        uint32_t file = (uint32_t)i % n_files;

        pieces[i] = (struct index_piece){"w", DTYPE_U16, 2, shape, boxes[i].at,
                                         boxes[i].len, file,
                                         2 * filled[file]};
        for (uint64_t x = 0; x < boxes[i].len[0]; x++) {
            for (uint64_t y = 0; y < boxes[i].len[1]; y++) {
                struct box cell = {2, {boxes[i].at[0] + x, boxes[i].at[1] + y},
                                   {1, 1}};

                bed->files[file][filled[file]++] =
                    (uint16_t)box_first(&whole, &cell);
            }
        }
    }
    if (index_bed_create(pieces, n, files, MAX_FILES, &bed->index, &e) < 0) {
        bail_out("no index: %s", e.text);
    }
}

/* Reads one box by its plan, of each block in parts of `part` bytes; how many elements
 * are wrong, or pieces and blocks. For an odd `part` who plans hears of what is whole. */
static unsigned load(const struct bed *bed, const struct box *want,
                     uint64_t block_bytes, uint64_t part, struct plan *p)
{
    static const uint64_t shape[] = {X, Y};
    struct box whole = box_whole(2, shape);
    bool is_whole = part % 2 && box_is_whole(2, shape, want->at, want->len);
    struct plan_want wants[] = {{0, want->at, want->len, is_whole}};
    uint16_t got[X * Y];
    unsigned n_wrong = 0, n = 0;

    memset(got, 0xff, sizeof(got));
    if (plan_make(bed->index, wants, 1, block_bytes, p, NULL) < 0) {
        return 1000;
    }
    for (size_t i = 0; i < p->n_spans; i++) {
        const struct plan_span *s = &p->spans[i];
        const char *file = (const char *)bed->files[s->file];

        n_wrong += s->begin % block_bytes || s->end - s->begin != block_bytes ||
                   (i > 0 && s[-1].file == s->file && s[-1].begin >= s->begin);
        for (uint64_t at = s->begin; at < s->end; at += part) {
            uint64_t end = at + part < s->end ? at + part : s->end;
            _free_ char *bytes = malloc(end - at); /* exactly so long, for ASan */

            end = end < sizeof(bed->files[0]) ? end : sizeof(bed->files[0]);
            if (at < end) {
                memcpy(bytes, file + at, end - at);
            }
            for (size_t k = s->first; k < s->first + s->n; k++) {
                n_wrong += p->pieces[k].begin < s->begin || p->pieces[k].end > s->end;
                plan_copy(bed->index, wants, &p->pieces[k], at, end, bytes, got);
            }
        }
    }
    for (uint64_t x = 0; x < want->len[0]; x++) {
        for (uint64_t y = 0; y < want->len[1]; y++) {
            struct box cell = {2, {want->at[0] + x, want->at[1] + y}, {1, 1}};

            n_wrong += got[n++] != box_first(&whole, &cell);
        }
    }
    return n_wrong;
}

/* Every box of the tensor, out of rows, columns and tiles. */
static void test_all_boxes(void)
{
    static const struct {
        uint64_t x, y; /* of a piece */
        uint32_t n_files;
    } cuts[] = {{X, Y, 1}, {1, Y, 1}, {1, Y, 3}, {X, 1, 4}, {2, 3, 5},
                {4, 7, 2}, {1, 1, 8}};

    for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
        struct box boxes[X * Y];
        struct bed bed;
        unsigned n_wrong = 0;
        size_t n = 0;

        for (uint64_t x = 0; x < X; x += cuts[i].x) {
            for (uint64_t y = 0; y < Y; y += cuts[i].y) {
                uint64_t w = X - x < cuts[i].x ? X - x : cuts[i].x;
                uint64_t h = Y - y < cuts[i].y ? Y - y : cuts[i].y;

                boxes[n++] = (struct box){2, {x, y}, {w, h}};
            }
        }
        save(&bed, boxes, n, cuts[i].n_files);
        for (uint64_t k = 0; k < X * Y * X * Y; k++) {
            struct box want = {2, {k % X, k / X % Y}, {0}};
            _plan_ struct plan p = {0};

            want.len[0] = 1 + k / (X * Y) % X;
            want.len[1] = 1 + k / (X * Y * X);
            if (want.at[0] + want.len[0] <= X && want.at[1] + want.len[1] <= Y) {
                n_wrong += load(&bed, &want, 7 + k % 57, 1 + k % 13, &p);
            }
        }
        is_int((int)n_wrong, 0, "pieces of %llu x %llu in %u files",
               (unsigned long long)cuts[i].x, (unsigned long long)cuts[i].y,
               cuts[i].n_files);
        index_destroy(bed.index);
    }
}

static bool is_cut_in_three(const struct plan *p)
{
    return p->n_pieces == 3 && p->pieces[1].to == 50 && p->pieces[2].to == 100 &&
           p->pieces[2].end == 2 * X * Y;
}

static void test_spans(void)
{
    struct box rows[X], column = {2, {0, 0}, {X, 1}}, whole = {2, {0}, {X, Y}};
    struct bed bed;

    for (uint64_t x = 0; x < X; x++) {
        rows[x] = (struct box){2, {x, 0}, {1, Y}};
    }
    save(&bed, rows, X, 1);
    {
        _plan_ struct plan p = {0};

        is_int((int)load(&bed, &column, 4, 4, &p), 0, "a column of rows");
        is_int((int)p.n_spans, X, "blocks without any of it are not read");
    }
    {
        _plan_ struct plan p = {0};

        load(&bed, &column, 2 * 2 * Y, 2, &p);
        is_int((int)p.n_spans, X / 2, "two rows a block: a span for both");
        is_int((int)p.spans[0].n, 2, "with a piece of each");
    }
    index_destroy(bed.index);
    save(&bed, &whole, 1, 1);
    {
        _plan_ struct plan p = {0};

        is_int((int)load(&bed, &column, 4, 4, &p), 0, "a column of one piece");
        is_int((int)p.n_spans, X, "what lies between is not read");
        ok(p.n_pieces == X && p.pieces[0].to == PLAN_APART, "cut by blocks");
    }
    {
        _plan_ struct plan p = {0};

        is_int((int)load(&bed, &whole, 50, 7, &p), 0, "all of one piece");
        ok(is_cut_in_three(&p), "cut by blocks, lies together");
    }
    {
        _plan_ struct plan p = {0};

        is_int((int)load(&bed, &whole, 50, 8, &p), 0, "without a word that it is whole");
        ok(is_cut_in_three(&p), "likewise");
    }
    index_destroy(bed.index);
}

static void test_refuses(void)
{
    struct box whole = {2, {0}, {X, Y}}, out = {2, {1, 0}, {X, 1}};
    struct box half = {1, {0}, {2}};
    static const uint64_t four[] = {4}, zero[] = {0};
    struct index_piece nibbles = {"q", DTYPE_F4, 1, four, zero, four, 0, 10};
    _cleanup_(index) struct index *x = NULL;
    _plan_ struct plan p = {0};
    struct error e = {0};
    struct bed bed;
    struct plan_want want = {0, out.at, out.len, false};

    save(&bed, &whole, 1, 1);
    is_int(plan_make(bed.index, &want, 1, 64, &p, &e), -EINVAL, "outside");
    like(e.text, "tensor 'w' has no [1:7, 0:1]", "and why");
    index_destroy(bed.index);
    index_bed_create(&nibbles, 1, files, 1, &x, NULL);
    want = (struct plan_want){0, half.at, half.len, false};
    is_int(plan_make(x, &want, 1, 64, &p, &e), -EINVAL, "half of nibbles");
    like(e.text, "elements of 4 bits", "and why");
    half.len[0] = 4;
    want.is_whole = true;
    is_int(plan_make(x, &want, 1, 64, &p, &e), 0, "all of them");
    ok(p.n_pieces == 1 && p.pieces[0].begin == 10 && p.pieces[0].end == 12,
       "two bytes");
}

/* Of several pieces none need begin with a byte of what they make together. */
static void test_nibbles_in_pieces(void)
{
    static const uint64_t eight[] = {8}, four[] = {4}, zero[] = {0};
    const struct index_piece halves[] = {{"q", DTYPE_F4, 1, eight, zero, four, 0, 10},
                                         {"q", DTYPE_F4, 1, eight, four, four, 0, 20}};
    _cleanup_(index) struct index *x = NULL;

    index_bed_create(halves, 2, files, 1, &x, NULL);
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        const struct plan_want want = {0, zero, eight, is_whole};
        _plan_ struct plan p = {0};
        struct error e = {0};

        is_int(plan_make(x, &want, 1, 64, &p, &e), -EINVAL, "all nibbles of two pieces");
        like(e.text, "tensor 'q': elements of 4 bits can only be read all together, from one "
             "piece", "and why");
    }
}

int main(void)
{
    test_all_boxes();
    test_spans();
    test_refuses();
    test_nibbles_in_pieces();
    return tap_done();
}
