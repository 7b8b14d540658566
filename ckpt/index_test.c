/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/arrays.h"
#include "ckpt/box.h"
#include "ckpt/index_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

/* A tensor in two pieces, a point, one without elements; names that are the
 * beginning of others. */
static const struct index_piece some[] = {
    {"w", DTYPE_F32, 2, NUMBERS(4, 6), NUMBERS(0, 3), NUMBERS(4, 3), 1, 4096},
    {"step", DTYPE_I64, 0, NULL, NULL, NULL, 0, 4192},
    {"w", DTYPE_F32, 2, NUMBERS(4, 6), NUMBERS(0, 0), NUMBERS(4, 3), 0, 4096},
    {"w.b", DTYPE_BF16, 1, NUMBERS(6), NUMBERS(0), NUMBERS(6), 1, 4144},
    {"none", DTYPE_U8, 2, NUMBERS(0, 3), NUMBERS(0, 0), NUMBERS(0, 3), 1, 0},
};

static const struct index_file files[] = {{NUMBERS(11), 1},
                                          {NUMBERS(21, 22), 2}};

static void check_some(const struct index *x)
{
    struct index_tensor t;
    struct index_chunk c;
    const uint64_t *blocks;
    size_t n;

    is_int((int)index_n_tensors(x), 4, "four tensors");
    is_int((int)index_n_chunks(x), 5, "five chunks");
    is_int((int)index_find(x, "none"), 0, "by name: first");
    is_int((int)index_find(x, "step"), 1, "second");
    is_int((int)index_find(x, "w"), 2, "third");
    is_int((int)index_find(x, "w.b"), 3, "fourth");
    for (size_t near = 0; near < 6; near++) {
        ok(index_find_near(x, "none", near) == 0 && index_find_near(x, "step", near) == 1 &&
               index_find_near(x, "w", near) == 2 && index_find_near(x, "w.b", near) == 3 &&
               index_find_near(x, "", near) == SIZE_MAX &&
               index_find_near(x, "w.", near) == SIZE_MAX &&
               index_find_near(x, "z", near) == SIZE_MAX,
           "from %zu on", near);
    }
    ok(index_find(x, "") == SIZE_MAX && index_find(x, "w.") == SIZE_MAX &&
           index_find(x, "w.bc") == SIZE_MAX && index_find(x, "z") == SIZE_MAX,
       "and no other");
    t = index_tensor(x, 2);
    ok(t.dtype == DTYPE_F32 && t.n_dims == 2 && t.shape[0] == 4 &&
           t.shape[1] == 6 && t.n_chunks == 2, "type, shape, chunks");
    c = index_chunk(x, &t, 2, 1);
    ok(c.file == 1 && c.begin == 4096 && c.at[0] == 0 && c.at[1] == 3 &&
           c.len[0] == 4 && c.len[1] == 3, "the second chunk");
    t = index_tensor(x, 3);
    c = index_chunk(x, &t, 3, 0);
    ok(t.n_dims == 1 && c.begin == 4144 && c.len[0] == 6, "one behind it");
    is_int((int)index_n_files(x), 2, "two files");
    blocks = index_blocks(x, 1, &n);
    ok(n == 2 && blocks[0] == 21 && blocks[1] == 22, "the blocks of one");
}

static void test_round_trip(void)
{
    _cleanup_(index) struct index *x = NULL;
    _cleanup_(index) struct index *again = NULL;
    const char *b, *c;
    size_t b_len, c_len;
    struct error e = {0};

    is_int(index_bed_create(some, ARRAY_SIZE(some), files, 2, &x, &e), 0, "created (%s)",
           e.text);
    check_some(x);
    b = index_bytes(x, &b_len);
    ok((uintptr_t)b % 4096 == 0, "encoded, from the beginning of a page on");
    is_int(index_decode(b, b_len, &again, &e), 0, "decoded (%s)", e.text);
    check_some(again);
    c = index_bytes(again, &c_len);
    ok(b_len == c_len && memcmp(b, c, b_len) == 0, "as it was");
}

/* Arrays that do not lie where their numbers may: a header that is one byte longer. */
static void test_unaligned(void)
{
    _cleanup_(index) struct index *x = NULL;
    _cleanup_(index) struct index *again = NULL;
    struct error e = {0};
    const char *b;
    uint64_t header;
    size_t len;
    char *data;

    index_bed_create(some, ARRAY_SIZE(some), files, 2, &x, NULL);
    b = index_bytes(x, &len);
    memcpy(&header, b, sizeof(header));
    data = malloc(len + 1);
    memcpy(data, b, sizeof(header) + header);
    data[sizeof(header) + header] = ' ';
    memcpy(data + sizeof(header) + header + 1, b + sizeof(header) + header,
           len - sizeof(header) - header);
    header++;
    memcpy(data, &header, sizeof(header));
    is_int(index_take(data, len + 1, &again, &e), 0, "taken (%s)", e.text);
    check_some(again);
}

/* What rows lie in: found in a tensor that is cut by them, and all else in others. */
static void test_rows(void)
{
    const struct index_piece pieces[] = {
        {"r", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(0, 0), NUMBERS(3, 2), 0, 0},
        {"r", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(3, 0), NUMBERS(0, 2), 0, 6},
        {"r", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(3, 0), NUMBERS(1, 2), 0, 7},
        {"r", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(4, 0), NUMBERS(5, 2), 0, 9},
        {"t", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(0, 0), NUMBERS(9, 1), 0, 30},
        {"t", DTYPE_U8, 2, NUMBERS(9, 2), NUMBERS(0, 1), NUMBERS(9, 1), 0, 40},
    };
    _cleanup_(index) struct index *x = NULL;
    unsigned n_wrong = 0;
    size_t first, end;
    struct index_tensor t;

    is_int(index_bed_create(pieces, ARRAY_SIZE(pieces), files, 2, &x, NULL), 0, "created");
    t = index_tensor(x, 0);
    for (uint64_t a = 0; a < 9; a++) {
        for (uint64_t b = a + 1; b <= 9; b++) {
            struct box want = {2, {a, 0}, {b - a, 2}}, part;

            index_chunks_of_rows(x, &t, 0, a, b, &first, &end);
            for (size_t k = 0; k < t.n_chunks; k++) {
                struct index_chunk c = index_chunk(x, &t, 0, k);
                struct box chunk = index_chunk_box(&t, &c);

                n_wrong += box_meet(&chunk, &want, &part) != (k >= first && k < end) &&
                           c.len[0] > 0;
            }
        }
    }
    is_int((int)n_wrong, 0, "just those that have some of the rows");
    index_chunks_of_rows(x, &t, 0, 4, 4, &first, &end);
    ok(first == end, "none for no rows");
    t = index_tensor(x, 1);
    index_chunks_of_rows(x, &t, 1, 8, 9, &first, &end);
    ok(first == 0 && end == 2, "all where it is cut by columns");
}

/* Rows, each of them cut in both other dimensions. */
static void test_rows_of_blocks(void)
{
    static const uint64_t shape[] = {4, 2, 3}, len[] = {2, 1, 1};
    uint64_t at[12][3];
    struct index_piece pieces[12];
    _cleanup_(index) struct index *x = NULL;
    struct index_tensor t;
    size_t first, end;

    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        at[i][0] = i / 6 * 2;
        at[i][1] = i / 3 % 2;
        at[i][2] = i % 3;
        pieces[i] = (struct index_piece){"b", DTYPE_U8, 3, shape, at[i], len, 0, 2 * i};
    }
    is_int(index_bed_create(pieces, ARRAY_SIZE(pieces), files, 2, &x, NULL), 0, "created");
    t = index_tensor(x, 0);
    index_chunks_of_rows(x, &t, 0, 0, 1, &first, &end);
    ok(first == 0 && end == 6, "the first rows are in the first half of the blocks");
    index_chunks_of_rows(x, &t, 0, 3, 4, &first, &end);
    ok(first == 6 && end == 12, "and the last ones in the other");
}

/* --- cuts that are checked as they come, and any others: to the same end --- */

enum { MAX_PIECES = 64, EDGE = 4 };

struct cutting {
    uint64_t state; /* of chance */
    uint64_t at[MAX_PIECES][3], len[MAX_PIECES][3];
    size_t n;
};

static uint64_t chance(struct cutting *c, uint64_t n)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (c->state >> 33) % n;
}

/* Slabs of one dimension, and each of them into those of the next. */
static void cut(struct cutting *c, const uint64_t shape[3], uint32_t d,
                uint64_t at[3], uint64_t len[3])
{
    if (d == 3) {
        memcpy(c->at[c->n], at, 3 * sizeof(*at));
        memcpy(c->len[c->n++], len, 3 * sizeof(*len));
        return;
    }
    for (at[d] = 0; at[d] < shape[d]; at[d] += len[d]) {
        len[d] = 1 + chance(c, shape[d] - at[d]);
        cut(c, shape, d + 1, at, len);
    }
}

static void spoil(struct cutting *c)
{
    size_t i = chance(c, c->n);
    uint64_t *number = chance(c, 2) ? &c->at[i][chance(c, 3)] : &c->len[i][chance(c, 3)];

    *number += chance(c, 2) ? 1 : -1;
}

/* Each place in just one piece. */
static bool is_tiled(const struct cutting *c, const uint64_t shape[3])
{
    unsigned count[EDGE][EDGE][EDGE] = {0};
    uint64_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        const uint64_t *at = c->at[i], *len = c->len[i];

        for (uint32_t d = 0; d < 3; d++) {
            if (at[d] > shape[d] || len[d] > shape[d] - at[d]) {
                return false;
            }
        }
        for (uint64_t x = at[0]; x < at[0] + len[0]; x++) {
            for (uint64_t y = at[1]; y < at[1] + len[1]; y++) {
                for (uint64_t z = at[2]; z < at[2] + len[2]; z++, n++) {
                    if (count[x][y][z]++) {
                        return false;
                    }
                }
            }
        }
    }
    return n == shape[0] * shape[1] * shape[2];
}

/* Backwards they are in no order that is known. Of all rows just what has some is
 * found. */
static bool is_as_it_is(const struct cutting *c, const uint64_t shape[3], bool backwards)
{
    const struct index_file file = {NUMBERS(1), 1};
    struct index_piece pieces[MAX_PIECES];
    _cleanup_(index) struct index *x = NULL;
    struct index_tensor t;
    bool is_right = true;

    for (size_t i = 0; i < c->n; i++) {
        pieces[i] = (struct index_piece){"t", DTYPE_U8, 3, shape, c->at[i], c->len[i], 0,
                                         100 * (backwards ? c->n - i : i)};
    }
    if (index_bed_create(pieces, c->n, &file, 1, &x, NULL) < 0) {
        return !is_tiled(c, shape);
    }
    t = index_tensor(x, 0);
    for (uint64_t row = 0; row < shape[0]; row++) {
        size_t first, end;

        index_chunks_of_rows(x, &t, 0, row, row + 1, &first, &end);
        for (size_t k = 0; k < c->n; k++) {
            struct index_chunk chunk = index_chunk(x, &t, 0, k);

            if (chunk.at[0] <= row && row < chunk.at[0] + chunk.len[0] &&
                (k < first || k >= end)) {
                is_right = false;
            }
        }
    }
    return is_right && is_tiled(c, shape);
}

static void test_cuts(void)
{
    unsigned n_wrong = 0, n_tiled = 0, n_rounds = 20000;

    for (unsigned i = 0; i < n_rounds; i++) {
        struct cutting c = {.state = i + 1};
        uint64_t shape[3], at[3], len[3];

        for (uint32_t d = 0; d < 3; d++) {
            shape[d] = 1 + chance(&c, EDGE);
        }
        cut(&c, shape, 0, at, len);
        for (uint64_t k = chance(&c, 3); k > 0; k--) {
            spoil(&c);
        }
        n_tiled += is_tiled(&c, shape);
        n_wrong += !is_as_it_is(&c, shape, false) || !is_as_it_is(&c, shape, true);
    }
    ok(n_tiled > n_rounds / 4 && n_tiled < n_rounds / 2, "%u of %u cuts are whole",
       n_tiled, n_rounds);
    is_int((int)n_wrong, 0, "and told apart");
}

static void test_create_refuses(void)
{
    const struct {
        struct index_piece a, b;
        const char *why;
    } cases[] = {
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0, 0},
         {"w", DTYPE_F64, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0, 0},
         "tensor 'w': ranks differ in its type or shape (F32"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(2), 0, 0},
         {"w", DTYPE_F32, 1, NUMBERS(5), NUMBERS(2), NUMBERS(2), 0, 8},
         "ranks differ"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(2), 0, 0},
         {"v", DTYPE_F32, 1, NUMBERS(2), NUMBERS(0), NUMBERS(2), 0, 8},
         "tensor 'w': nobody has [2:4]"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(3), 0, 0},
         {"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(2), NUMBERS(2), 0, 12},
         "pieces [0:3] and [2:4] overlap"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(5), 0, 0},
         {"v", DTYPE_F32, 1, NUMBERS(2), NUMBERS(0), NUMBERS(2), 0, 8},
         "a piece [0:5] lies outside"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0,
          UINT64_MAX - 3},
         {"v", DTYPE_F32, 1, NUMBERS(2), NUMBERS(0), NUMBERS(2), 0, 8},
         "has no size"},
        {{"w", DTYPE_F32, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0, 4 << 20},
         {"v", DTYPE_F32, 1, NUMBERS(2), NUMBERS(0), NUMBERS(2), 0, 8},
         "its file has 1 blocks"},
        {{"w", DTYPE_F32, 17, NULL, NULL, NULL, 0, 0},
         {"v", DTYPE_F32, 1, NUMBERS(2), NUMBERS(0), NUMBERS(2), 0, 8},
         "17 dimensions"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct index_piece both[] = {cases[i].a, cases[i].b};
        struct index *x = NULL;
        struct error e = {0};

        is_int(index_bed_create(both, 2, files, 2, &x, &e), -EINVAL, "case %zu", i);
        like(e.text, cases[i].why, "and why");
        is_int(e.code, EINVAL, "and its code");
        index_destroy(x);
    }
}

/* What of a tensor, or of its file, there cannot be; of what is cut into slices, too. */
static void test_create_sizes(void)
{
    enum { BLOCK = 4 << 20 };
    const struct index_file file = {NUMBERS(1), 1};
    const struct {
        struct index_piece pieces[2];
        size_t n;
        const char *why; /* NULL: it can be */
    } cases[] = {
        {{{"w", DTYPE_U8, 2, NUMBERS(UINT64_C(1) << 63, 4), NUMBERS(0, 0),
           NUMBERS(UINT64_C(1) << 63, 4), 0, 0}}, 1, "its shape has no size in bytes"},
        {{{"w", DTYPE_F32, 1, NUMBERS(UINT64_C(1) << 63), NUMBERS(0),
           NUMBERS(UINT64_C(1) << 63), 0, 0}}, 1, "its shape has no size in bytes"},
        {{{"w", DTYPE_U8, 3, NUMBERS(UINT64_C(1) << 63, 4, 0), NUMBERS(0, 0, 0),
           NUMBERS(UINT64_C(1) << 63, 4, 0), 0, 0}}, 1, NULL},
        {{{"w", DTYPE_F4, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0, BLOCK - 2}}, 1, NULL},
        {{{"w", DTYPE_F4, 1, NUMBERS(4), NUMBERS(0), NUMBERS(4), 0, BLOCK - 1}}, 1,
         "and its file has 1 blocks"},
        {{{"w", DTYPE_F4, 1, NUMBERS(8), NUMBERS(0), NUMBERS(4), 0, 0},
          {"w", DTYPE_F4, 1, NUMBERS(8), NUMBERS(4), NUMBERS(4), 0, BLOCK - 1}}, 2,
         "chunk 1 ends at 4194305, and its file has 1 blocks"},
        {{{"w", DTYPE_U8, 1, NUMBERS(4), NUMBERS(0), NUMBERS(2), 0, 0},
          {"w", DTYPE_U8, 1, NUMBERS(4), NUMBERS(2), NUMBERS(2), 0, BLOCK - 2}}, 2, NULL},
        {{{"w", DTYPE_U8, 1, NUMBERS(4), NUMBERS(0), NUMBERS(2), 0, 0},
          {"w", DTYPE_U8, 1, NUMBERS(4), NUMBERS(2), NUMBERS(2), 0, BLOCK - 1}}, 2,
         "chunk 1 ends at 4194305, and its file has 1 blocks"},
        {{{"w", DTYPE_U8, 0, NULL, NULL, NULL, 0, BLOCK}}, 1, "and its file has 1 blocks"},
        {{{"w", DTYPE_U8, 2, NUMBERS(0, 3), NUMBERS(0, 0), NUMBERS(0, 4), 0, 0}}, 1,
         "a piece [0:0, 0:4] lies outside"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(index) struct index *x = NULL;
        struct error e = {0};

        is_int(index_bed_create(cases[i].pieces, cases[i].n, &file, 1, &x, &e),
               cases[i].why ? -EINVAL : 0, "case %zu of sizes: %s", i, e.text);
        ok(!cases[i].why || strstr(e.text, cases[i].why), "and why");
    }
}

/* For whoever reads all of a tensor its chunks come as they lie in files. */
static void test_order(void)
{
    const struct index_piece pieces[] = {
        {"w", DTYPE_U8, 1, NUMBERS(6), NUMBERS(0), NUMBERS(2), 1, 100},
        {"w", DTYPE_U8, 1, NUMBERS(6), NUMBERS(2), NUMBERS(2), 0, 200},
        {"w", DTYPE_U8, 1, NUMBERS(6), NUMBERS(4), NUMBERS(2), 0, 50},
    };
    static const uint64_t should[][2] = {{0, 50}, {0, 200}, {1, 100}};
    _cleanup_(index) struct index *x = NULL;
    struct index_tensor t;
    struct error e = {0};

    is_int(index_bed_create(pieces, ARRAY_SIZE(pieces), files, 2, &x, &e), 0, "created (%s)",
           e.text);
    t = index_tensor(x, 0);
    for (size_t k = 0; k < ARRAY_SIZE(should); k++) {
        struct index_chunk c = index_chunk(x, &t, 0, k);

        ok(c.file == should[k][0] && c.begin == should[k][1], "chunk %zu: file %u at %llu", k,
           c.file, (unsigned long long)c.begin);
    }
}

/* Where an array of numbers lies in an encoded index. */
static uint64_t *find_array(struct buf *b, const char *name)
{
    char key[64], *at;
    uint64_t header = 0;

    snprintf(key, sizeof(key), "\"%s\"", name);
    memcpy(&header, b->data, 8);
    at = strstr(strstr(b->data + 8, key), "data_offsets\":[");
    return (uint64_t *)(b->data + 8 + header + strtoull(at + 15, NULL, 10));
}

/* Indexes that fit together in their lengths, with one number changed. */
static void test_decode_refuses(void)
{
    static const struct {
        const char *array;
        size_t i;
        uint64_t value;
        const char *why;
    } cases[] = {
        {"shapes", 0, UINT64_MAX, "nobody has"},
        {"shapes", 2, 5, "nobody has [4:5"},
        {"chunk_boxes", 5, 4, "outside"},
        {"chunk_boxes", 7, 4, "overlap"},
        {"chunk_ends", 0, 2, "not as many"},
        {"chunk_ends", 3, 6, "not as many"},
        {"name_ends", 1, 4, "comes after"},
        {"name_ends", 3, 11, "not what it has"},
        {"block_ends", 1, 2, "not what it has"},
        {"block_ends", 0, 4, "file 0 ends at 4"},
        {"block_ends", 0, 0, "its file has 0 blocks"},
        {"name_ends", 0, 100, "name 0 ends at 100"},
        {"chunk_begins", 1, UINT64_MAX, "no size"},
        {"chunk_files", 0, 2, "in file 2 of 2"}, /* and the next one in file 0 */
    };
    static const struct {
        const char *array;
        size_t i;
        uint8_t value;
        const char *why;
    } bytes[] = {
        {"dtypes", 2, N_DTYPES, "tensor 2: type "},
        {"n_dims", 1, BOX_MAX_DIMS + 1, "not as many"},
        {"names", 6, '\0', "tensor 1 has a zero byte in its name"},
        {"names", 4, 'm', "tensor 'mtep' comes after 'none'"},
    };
    _cleanup_(index) struct index *x = NULL;
    _buf_ struct buf b = {0};
    struct error e = {0};
    const char *encoded;
    size_t len;

    index_bed_create(some, ARRAY_SIZE(some), files, 2, &x, NULL);
    encoded = index_bytes(x, &len);
    buf_append(&b, encoded, len);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t *number = find_array(&b, cases[i].array) + cases[i].i;
        uint64_t before = *number;
        struct index *read = NULL;

        *number = cases[i].value;
        is_int(index_decode(b.data, b.len, &read, &e), -ERR_FORMAT,
               "%s[%zu] = %llu", cases[i].array, cases[i].i,
               (unsigned long long)cases[i].value);
        like(e.text, cases[i].why, "and why");
        index_destroy(read);
        *number = before;
    }
    for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
        uint8_t *byte = (uint8_t *)find_array(&b, bytes[i].array) + bytes[i].i, before = *byte;
        struct index *read = NULL;

        *byte = bytes[i].value;
        is_int(index_decode(b.data, b.len, &read, &e), -ERR_FORMAT, "%s[%zu] = %u",
               bytes[i].array, bytes[i].i, bytes[i].value);
        like(e.text, bytes[i].why, "and why");
        index_destroy(read);
        *byte = before;
    }
    is_int(index_decode(b.data, b.len - 1, &x, &e), -ERR_FORMAT, "cut");
    is_int(index_decode(b.data, 3, &x, &e), -ERR_FORMAT, "cut to 3 bytes");
}

/* Arrays of which one has another length than those beside it. */
static void test_decode_lengths(void)
{
    enum { N = 11 };
    static const char *const alike[] = {"dtypes", "n_dims", "chunk_ends", "chunk_begins"};

    for (size_t i = 0; i < 2 * ARRAY_SIZE(alike); i++) {
        void *data[N] = {0};
        struct array fields[N] = {
            {"names", DTYPE_U8, &data[0], 0}, {"name_ends", DTYPE_U64, &data[1], 0},
            {"dtypes", DTYPE_U8, &data[2], 0}, {"n_dims", DTYPE_U8, &data[3], 0},
            {"shapes", DTYPE_U64, &data[4], 0}, {"chunk_ends", DTYPE_U64, &data[5], 0},
            {"chunk_files", DTYPE_U32, &data[6], 0}, {"chunk_begins", DTYPE_U64, &data[7], 0},
            {"chunk_boxes", DTYPE_U64, &data[8], 0}, {"block_ends", DTYPE_U64, &data[9], 0},
            {"blocks", DTYPE_U64, &data[10], 0},
        };
        _cleanup_(index) struct index *x = NULL, *read = NULL;
        _st_file_ struct st_file f = {0};
        _buf_ struct buf b = {0}, changed = {0};
        struct error e = {0};
        const char *encoded;
        char why[64];
        size_t len;

        index_bed_create(some, ARRAY_SIZE(some), files, 2, &x, NULL);
        encoded = index_bytes(x, &len);
        buf_append(&b, encoded, len);
        buf_append(&b, "12345678", 8); /* behind the last array there is some more */
        if (arrays_find(b.data, len, "index", fields, N, &f, &e) < 0) {
            bail_out("no arrays: %s", e.text);
        }
        for (size_t k = 0; k < N; k++) {
            if (strcmp(fields[k].name, alike[i / 2]) == 0) {
                fields[k].n += i % 2 ? 1 : (size_t)-1;
            }
        }
        arrays_encode(fields, N, NULL, 0, &changed, NULL);
        arrays_free(b.data, len, fields, N);
        is_int(index_decode(changed.data, changed.len, &read, &e), -ERR_FORMAT, "%s of '%s'",
               i % 2 ? "one more" : "one less", alike[i / 2]);
        snprintf(why, sizeof(why), "of '%s', expected ", alike[i / 2]);
        like(e.text, why, "said so");
    }
}

/* More than one thread looks through: each of them finds what is wrong, also where the part
 * of one ends and that of the next one begins. */
static void test_many(void)
{
    enum { N = 50000, NAME = 6, FIRST = (1 << 14) + 1 }; /* FIRST: of the second part */
    static const size_t places[] = {0, 1, FIRST - 1, FIRST, FIRST + 1, 2 * FIRST, N - 1};
    static const uint64_t zero = 0, two = 2;
    static struct index_piece pieces[N];
    static char names[N][NAME + 1];
    const struct index_file file = {NUMBERS(1), 1};
    _cleanup_(index) struct index *x = NULL, *read = NULL;
    _buf_ struct buf b = {0};
    const char *encoded;
    size_t len;

    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "t%05zu", i);
        pieces[i] = (struct index_piece){names[i], DTYPE_U8, 1, &two, &zero, &two, 0, 2 * i};
    }
    is_int(index_bed_create(pieces, N, &file, 1, &x, NULL), 0, "%d tensors", N);
    encoded = index_bytes(x, &len);
    buf_append(&b, encoded, len);
    is_int(index_decode(b.data, b.len, &read, NULL), 0, "are read");
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        size_t at = places[i];
        uint64_t *box = find_array(&b, "chunk_boxes") + 2 * at;
        char *name = (char *)find_array(&b, "names") + NAME * at, why[64];
        struct error e = {0};
        struct index *bad = NULL;

        box[1] = 3;
        snprintf(why, sizeof(why), "tensor 't%05zu': a piece [0:3] lies outside", at);
        is_int(index_decode(b.data, b.len, &bad, &e), -ERR_FORMAT, "not if %zu is wrong", at);
        like(e.text, why, "which is told");
        box[1] = 2;
        if (at > 0) {
            memcpy(name, names[at - 1], NAME);
            snprintf(why, sizeof(why), "tensor '%s' comes after", names[at - 1]);
            is_int(index_decode(b.data, b.len, &bad, &e), -ERR_FORMAT, "nor if it is twice there");
            like(e.text, why, "which is told");
            memcpy(name, names[at], NAME);
        }
    }
}

int main(void)
{
    test_round_trip();
    test_unaligned();
    test_rows();
    test_rows_of_blocks();
    test_cuts();
    test_create_refuses();
    test_create_sizes();
    test_order();
    test_decode_refuses();
    test_decode_lengths();
    test_many();
    return tap_done();
}
