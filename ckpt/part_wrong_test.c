/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that have their digest, and say what cannot be, or what just can. */
#include <config.h>

#include "ckpt/part_bed.h"

#include "base/cleanup.h"
#include "ckpt/box.h"
#include "ckpt/safetensors.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What has its digest, and cannot be. */
static void test_wrong(void)
{
    struct part cases[6];
    struct part_piece outside = part_bed_pieces[0], behind = part_bed_pieces[0];

    outside.at = NUMBERS(3, 0);
    behind.begin = 4120;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cases[i] = part_bed_example();
    }
    cases[0].rank = 2;
    cases[1].pieces = &outside;
    cases[1].n_pieces = 1;
    cases[2].pieces = &behind;
    cases[2].n_pieces = 1;
    cases[3].state = (char[]){"[1]"};
    cases[4].state = (char[]){"{"};
    cases[5].file_bytes = 4000;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _part_ struct part back = {0};
        _buf_ struct buf b = {0};
        struct error e = {0};

        part_bed_encode(&cases[i], &b);
        is_int(part_decode(b.data, b.len, &back, &e), -ERR_FORMAT, "case %zu: %s",
               i, e.text);
    }
}

static int decode_again(const struct part *p)
{
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};

    part_bed_encode(p, &b);
    return part_decode(b.data, b.len, &back, NULL);
}

/* Numbers at the ends of what they may be. */
static void test_ends(void)
{
    struct part p = part_bed_example();
    struct part_piece last = part_bed_pieces[0];

    p.step = INT64_MAX;
    is_int(decode_again(&p), 0, "the last step");
    p.step++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = part_bed_example();
    p.n_ranks = INT32_MAX;
    is_int(decode_again(&p), 0, "as many ranks as there may be");
    p.rank = INT32_MAX - 1;
    is_int(decode_again(&p), 0, "the last of them");
    p.n_ranks++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = part_bed_example();
    p.node = INT32_MAX;
    is_int(decode_again(&p), 0, "the last node");
    p.node++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = part_bed_example();
    p.file_bytes = (uint64_t)INT64_MAX + 1;
    is_int(decode_again(&p), -ERR_FORMAT, "a file of more bytes than there are");
    p = part_bed_example();
    last.at = NUMBERS(4, 0);
    last.len = NUMBERS(0, 3);
    p.pieces = &last;
    p.n_pieces = 1;
    is_int(decode_again(&p), 0, "nothing of a tensor, at its end");
}

/* What its metadata say, of `key` another text; NULL: nothing. */
static int decode_meta(const char *key, const char *text, struct error *e)
{
    void *data[PART_BED_N_FIELDS] = {0};
    struct array fields[PART_BED_N_FIELDS];
    struct st_meta meta[16];
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _st_file_ struct st_file f = {0};
    _buf_ struct buf b = {0}, changed = {0};
    size_t n = 0;
    int rc;

    part_bed_encode(&p, &b);
    part_bed_list(data, fields);
    if (arrays_find(b.data, b.len - 8, "part", fields, PART_BED_N_FIELDS, &f, e) < 0) {
        bail_out("no arrays");
    }
    for (size_t i = 0; i < f.n_meta; i++) {
        bool is_it = strcmp(f.meta[i].key, key) == 0;

        if (!is_it || text) {
            meta[n] = f.meta[i];
            meta[n].value = is_it ? (char *)(uintptr_t)text : meta[n].value;
            n++;
        }
    }
    if (arrays_encode(fields, PART_BED_N_FIELDS, meta, n, &changed, e) < 0) {
        bail_out("no part");
    }
    arrays_free(b.data, b.len, fields, PART_BED_N_FIELDS);
    buf_append(&changed, "digest!!", 8);
    part_seal(&changed);
    rc = part_decode(changed.data, changed.len, &back, e);
    if (rc == 0 && back.n_blobs == 2) {
        is_str(back.blobs[1].name, "b", "with both blobs");
    }
    return rc;
}

static void test_wrong_meta(void)
{
    static const char *const needed[] = {"part", "step", "rank", "ranks", "node", "bytes",
                                         "blobs", "uuid"};
    static const struct {
        const char *key, *text;
        int rc;
    } cases[] = {
        {"step", "12", 0},
        {"step", "-1", -ERR_FORMAT},
        {"step", "twelve", -ERR_FORMAT},
        {"part", "2", -ERR_VERSION},
        {"part", "18446744073709551615", -ERR_VERSION},
        {"uuid", "0123456789abcdef0123456789abcdef0", -ERR_FORMAT},
        {"blobs", "[]", 0},
        {"blobs", "[[\"a\",true],[\"b\",false]]", 0},
        {"blobs", "{\"a\":true}", -ERR_FORMAT},
        {"blobs", "\"a\"", -ERR_FORMAT},
        {"blobs", "[", -ERR_FORMAT},
        {"blobs", "[[\"a\"]]", -ERR_FORMAT},
        {"blobs", "[[\"a\",1]]", -ERR_FORMAT},
        {"blobs", "[[\"a\",true,1]]", -ERR_FORMAT},
        {"blobs", "[[\"a\",true],[1,true]]", -ERR_FORMAT},
        {"blobs", "[[1,true],[\"a\",true]]", -ERR_FORMAT},
        {"state", NULL, 0},
        {"state", "", 0},
    };
    struct error e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        is_int(decode_meta(needed[i], NULL, &e), -ERR_FORMAT, "without '%s'", needed[i]);
        like(e.text, needed[i], "which is named");
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(decode_meta(cases[i].key, cases[i].text, &e), cases[i].rc, "'%s' is %s",
               cases[i].key, cases[i].text ? cases[i].text : "missing");
        is_int(cases[i].rc < 0 ? -e.code : 0, cases[i].rc, "by its code");
    }
}

/* A part with its digest, whose arrays say what no writer does: one of them has so many
 * elements more, or another value; and there are lengths and boxes of so many dimensions
 * more. */
static int decode_changed(size_t array, int more, size_t at, uint64_t value, int more_dims,
                          struct error *e)
{
    void *data[PART_BED_N_FIELDS] = {0};
    struct array fields[PART_BED_N_FIELDS];
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _st_file_ struct st_file f = {0};
    _buf_ struct buf b = {0}, changed = {0};
    int rc;

    part_bed_encode(&p, &b);
    part_bed_list(data, fields);
    if (arrays_find(b.data, b.len - 8, "part", fields, PART_BED_N_FIELDS, &f, e) < 0) {
        bail_out("no arrays");
    }
    for (size_t i = 0; i < PART_BED_N_FIELDS; i++) {
        const void *there = data[i];
        size_t size = fields[i].dtype == DTYPE_U8 ? 1 : sizeof(uint64_t);

        data[i] = calloc(fields[i].n + 1, size);
        memcpy(data[i], there, fields[i].n * size);
    }
    for (size_t i = 4; i <= 5; i++) { /* the lengths, and the boxes */
        size_t n = fields[i].n, room = n + (i - 3) * (size_t)more_dims;

        data[i] = reallocarray(data[i], room + 1, sizeof(uint64_t));
        memset((uint64_t *)data[i] + n, 0, (room + 1 - n) * sizeof(uint64_t));
        fields[i].n = room;
    }
    fields[array].n = (size_t)((int)fields[array].n + more);
    if (more == 0 && fields[array].dtype == DTYPE_U8) {
        ((uint8_t *)data[array])[at] = (uint8_t)value;
    } else if (more == 0) {
        ((uint64_t *)data[array])[at] = value;
    }
    if (arrays_encode(fields, PART_BED_N_FIELDS, f.meta, f.n_meta, &changed, e) < 0) {
        bail_out("no part");
    }
    buf_append(&changed, "digest!!", 8);
    part_seal(&changed);
    rc = part_decode(changed.data, changed.len, &back, e);
    for (size_t i = 0; i < PART_BED_N_FIELDS; i++) {
        free(data[i]);
    }
    return rc;
}

static void test_wrong_arrays(void)
{
    enum { NAMES, NAME_ENDS, DTYPES, N_DIMS, SHAPES, BOXES, BEGINS };
    static const struct {
        size_t array;
        int more;
        size_t at;
        uint64_t value;
        const char *what;
    } cases[] = {
        {NAME_ENDS, 0, 0, 20, "the end of a name before that of the one before"},
        {NAME_ENDS, 0, 1, 23, "or behind all names"},
        {NAME_ENDS, 0, 2, 21, "names that are nobody's"},
        {DTYPES, 0, 1, N_DTYPES, "an unknown dtype"},
        {DTYPES, 0, 2, N_DTYPES, "also of the last piece"},
        {N_DIMS, 0, 0, BOX_MAX_DIMS + 1, "too many dimensions"},
        {N_DIMS, 0, 1, 1, "one more than there are lengths"},
        {N_DIMS, 0, 0, 1, "or one less"},
        {NAME_ENDS, -1, 0, 0, "a name too few"},
        {DTYPES, -1, 0, 0, "a dtype too few"}, {DTYPES, 1, 0, 0, "or too many"},
        {N_DIMS, -1, 0, 0, "a number of dimensions too few"},
        {N_DIMS, 1, 0, 0, "or too many"},
        {SHAPES, -1, 0, 0, "a length too few"}, {SHAPES, 1, 0, 0, "or too many"},
        {BOXES, -1, 0, 0, "a number of a box too few"}, {BOXES, 1, 0, 0, "or too many"},
        {BEGINS, -1, 0, 0, "a place too few"}, {BEGINS, 1, 0, 0, "or too many"},
    };
    struct error e = {0};

    is_int(decode_changed(NAME_ENDS, 0, 0, 7, 0, &e), 0, "as it is: %s", e.text);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        e = (struct error){0};
        is_int(decode_changed(cases[i].array, cases[i].more, cases[i].at, cases[i].value, 0,
                              &e),
               -ERR_FORMAT, "%s", cases[i].what);
        like(e.text, "do not belong together", "said so");
    }
}

/* Lengths and boxes for more dimensions than there may be. */
static void test_many_dimensions(void)
{
    uint64_t shape[BOX_MAX_DIMS], at[BOX_MAX_DIMS] = {0};
    struct part_piece piece = {"w", DTYPE_U8, BOX_MAX_DIMS, shape, at, shape, 100};
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(shape); i++) {
        shape[i] = 1;
    }
    p.pieces = &piece;
    p.n_pieces = 1;
    part_bed_encode(&p, &b);
    is_int(part_decode(b.data, b.len, &back, NULL), 0, "as many dimensions as there may be");
    is_int(decode_changed(3, 0, 0, BOX_MAX_DIMS + 1, BOX_MAX_DIMS - 1, &e), -ERR_FORMAT,
           "one more, with a length and a box");
    like(e.text, "do not belong together", "said so");
}

int main(void)
{
    test_wrong();
    test_ends();
    test_wrong_meta();
    test_wrong_arrays();
    test_many_dimensions();
    return tap_done();
}
