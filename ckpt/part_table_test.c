/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of which the pieces are known: by a digest that is another one wherever any of them
 * is, and the same whatever else is new. */
#include <config.h>

#include "ckpt/part_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct digest table_of(const struct part *p)
{
    _part_ struct part brief = {0};
    _buf_ struct buf b = {0};
    struct digest table = {0};
    struct error e = {0};

    part_bed_encode(p, &b);
    if (part_decode_brief(b.data, b.len, &brief, &table, &e) < 0) {
        bail_out("no part: %s", e.text);
    }
    return table;
}

static void test_rest(void)
{
    const uint64_t blocks[3] = {77, 78, 79};
    struct part p = part_bed_example();
    _part_ struct part brief = {0};
    _buf_ struct buf b = {0};
    struct digest table;
    struct error e = {0};

    p.blocks = (uint64_t *)(uintptr_t)blocks;
    p.n_blocks = 3;
    part_bed_encode(&p, &b);
    is_int(part_decode_brief(b.data, b.len, &brief, &table, &e), 0, "in brief: %s", e.text);
    ok(brief.n_pieces == 0 && !brief.pieces, "it has no pieces");
    is_str(brief.uuid, p.uuid, "its save");
    ok(brief.step == 12 && brief.rank == 1 && brief.n_ranks == 2 && brief.node == 1 &&
           brief.file_bytes == 4133,
       "step, ranks, node, length of the file");
    ok(brief.n_blocks == 3 && brief.blocks[0] == 77 && brief.blocks[2] == 79,
       "digests of its blocks");
    ok(brief.n_blobs == 1 && brief.blobs[0].is_per_rank, "blobs");
    is_str(brief.blobs[0].name, "rng", "by their names");
    is_str(brief.state, "{\"a\":1}", "and the state");
}

/* What each save has anew. */
static void test_same(void)
{
    const uint64_t others[2] = {78, 79};
    struct part p = part_bed_example();
    struct digest table = table_of(&p);

    p.step = 13;
    str_copy(p.uuid, sizeof(p.uuid), "fedcba9876543210fedcba9876543210");
    p.state = (char *)"{\"much longer\": [1, 2, 3]}";
    ok(digest_equal(table_of(&p), table), "another save has the same pieces");
    p.blocks = (uint64_t *)(uintptr_t)others;
    ok(digest_equal(table_of(&p), table), "with other bytes");
    p.n_blocks = 2;
    p.node = 0;
    ok(digest_equal(table_of(&p), table), "and on another node");
}

/* Any number, of any piece. */
static void test_other(void)
{
    const struct {
        const char *what;
        size_t nth;
        struct part_piece piece;
    } cases[] = {
        {"a name", 0,
         {"layer.v", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096}},
        {"a longer name", 0,
         {"layer.ww", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096}},
        {"a type", 0,
         {"layer.w", DTYPE_I32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096}},
        {"a shape", 0,
         {"layer.w", DTYPE_F32, 2, NUMBERS(5, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096}},
        {"a corner", 0,
         {"layer.w", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(1, 0), NUMBERS(2, 3), 4096}},
        {"a length", 0,
         {"layer.w", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(1, 3), 4096}},
        {"a place", 0,
         {"layer.w", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4092}},
        {"dimensions", 1, {"step", DTYPE_I64, 1, NUMBERS(1), NUMBERS(0), NUMBERS(1), 4120}},
        {"the last place", 2,
         {".blob/rng/1", DTYPE_U8, 1, NUMBERS(5), NUMBERS(0), NUMBERS(5), 4127}},
    };
    struct part p = part_bed_example();
    struct digest table = table_of(&p);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct part_piece pieces[PART_BED_N_PIECES];

        memcpy(pieces, part_bed_pieces, sizeof(pieces));
        pieces[cases[i].nth] = cases[i].piece;
        p.pieces = pieces;
        ok(!digest_equal(table_of(&p), table), "another one: %s", cases[i].what);
    }
    p = part_bed_example();
    p.n_pieces--;
    ok(!digest_equal(table_of(&p), table), "or fewer");
    p = part_bed_example();
    p.file_bytes++;
    ok(!digest_equal(table_of(&p), table), "or a file of another length, in which they lie");
}

/* Names that are cut elsewhere are others, where all the bytes are the same. */
static void test_cut(void)
{
    struct part_piece pieces[2] = {{"ab", DTYPE_U8, 0, NULL, NULL, NULL, 0},
                                   {"c", DTYPE_U8, 0, NULL, NULL, NULL, 1}};
    struct part p = part_bed_example();
    struct digest table;

    p.n_pieces = 2;
    p.pieces = pieces;
    table = table_of(&p);
    pieces[0].name = "a";
    pieces[1].name = "bc";
    ok(!digest_equal(table_of(&p), table), "names that are cut elsewhere");
    p.n_pieces = 0;
    table = table_of(&p);
    ok(digest_equal(table_of(&p), table), "of none it is one, too");
}

static void test_wrong(void)
{
    const struct digest before = {1, 2};
    struct part p = part_bed_example();
    _part_ struct part brief = {0};
    _buf_ struct buf b = {0};
    struct digest table = before;
    struct error e = {0};

    part_bed_encode(&p, &b);
    for (size_t i = 0; i < b.len; i += 7) {
        b.data[i] ^= 1;
        if (part_decode_brief(b.data, b.len, &brief, &table, &e) != -ERR_FORMAT) {
            ok(false, "damaged at byte %zu", i);
            part_release(&brief);
        }
        b.data[i] ^= 1;
    }
    like(e.text, "do not have their digest", "what is damaged is told");
    is_int(part_decode_brief(b.data, 5, &brief, &table, &e), -ERR_FORMAT, "what is cut, too");
    ok(digest_equal(table, before) && !brief.blocks && !brief.state, "and nothing comes of it");
    p.rank = 2;
    buf_clear(&b);
    part_bed_encode(&p, &b);
    is_int(part_decode_brief(b.data, b.len, &brief, &table, &e), -ERR_FORMAT,
           "nor of rank 2 of two: %s", e.text);
}

/* As a file is read: at the beginning of a page, but who knows? */
static void test_anywhere(void)
{
    struct part p = part_bed_example();
    struct digest want = table_of(&p);
    _buf_ struct buf b = {0};
    unsigned n_wrong = 0;

    part_bed_encode(&p, &b);
    for (size_t off = 0; off < 9; off++) {
        _free_ char *at = malloc(b.len + off);
        _part_ struct part brief = {0};
        struct digest table = {0};

        memcpy(at + off, b.data, b.len);
        n_wrong += part_decode_brief(at + off, b.len, &brief, &table, NULL) < 0 ||
                   !digest_equal(table, want) || brief.blocks[0] != 77;
    }
    is_int((int)n_wrong, 0, "it may lie anywhere");
}

int main(void)
{
    test_rest();
    test_same();
    test_other();
    test_cut();
    test_wrong();
    test_anywhere();
    return tap_done();
}
