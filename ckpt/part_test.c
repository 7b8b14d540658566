/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say of their files; `part_test DIRECTORY` writes what the fuzz target
 * begins with. */
#include <config.h>

#include "ckpt/part.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/arrays.h"
#include "ckpt/digest.h"
#include "ckpt/gather.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS(...) ((const uint64_t[]){__VA_ARGS__})

static struct part_piece pieces[] = {
    {"layer.w", DTYPE_F32, 2, NUMBERS(4, 3), NUMBERS(2, 0), NUMBERS(2, 3), 4096},
    {"step", DTYPE_I64, 0, NULL, NULL, NULL, 4120},
    {".blob/rng/1", DTYPE_U8, 1, NUMBERS(5), NUMBERS(0), NUMBERS(5), 4128},
};

static struct part_blob blobs[] = {{(char[]){"rng"}, true}};
static uint64_t blocks_of_it[] = {77};
static char state[] = "{\"a\":1}";

static struct part example(void)
{
    return (struct part){
        .step = 12, .uuid = "0123456789abcdef0123456789abcdef", .rank = 1,
        .n_ranks = 2, .node = 1, .file_bytes = 4133,
        .n_pieces = ARRAY_SIZE(pieces), .pieces = pieces, .n_blobs = 1,
        .blobs = blobs, .n_blocks = 1, .blocks = blocks_of_it,
        .state = state,
    };
}

static void encode(const struct part *p, struct buf *b)
{
    struct error e = {0};

    if (part_encode(p, b, &e) < 0) {
        bail_out("no part: %s", e.text);
    }
}

static void test_round(void)
{
    struct part p = example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    encode(&p, &b);
    is_int(part_decode(b.data, b.len, &back, &e), 0, "read back: %s", e.text);
    is_str(back.uuid, p.uuid, "its save");
    is_int((int)back.step, 12, "step");
    is_int((int)back.rank, 1, "rank");
    is_int((int)back.node, 1, "node");
    is_int((int)back.file_bytes, 4133, "length of the file");
    is_int((int)back.n_pieces, 3, "pieces");
    is_str(back.pieces[0].name, "layer.w", "a name");
    ok(back.pieces[0].at[0] == 2 && back.pieces[0].len[1] == 3 &&
           back.pieces[0].shape[0] == 4, "a box");
    is_str(back.pieces[2].name, ".blob/rng/1", "the last name");
    is_int((int)back.pieces[2].len[0], 5, "its length");
    is_str(back.blobs[0].name, "rng", "a blob");
    ok(back.blobs[0].is_per_rank, "its kind");
    is_int((int)back.blocks[0], 77, "a digest");
    is_str(back.state, "{\"a\":1}", "the state");
}

/* The part of the next save, out of that of the last one. */
static void test_again(void)
{
    static char state_2[] = "{\"a\":2}", state_long[100] = "{\"a\":[]}";
    struct part p = example();
    _buf_ struct buf b = {0}, want = {0}, before = {0}, junk = {0};
    struct part back = {0};

    encode(&p, &b);
    p.step = 13;
    str_copy(p.uuid, sizeof(p.uuid), "fedcba9876543210fedcba9876543210");
    p.state = state_2;
    encode(&p, &want);
    ok(part_encode_again(&p, &b), "another step");
    is_int(part_decode(b.data, b.len, &back, NULL), -ERR_FORMAT, "which is not sealed yet");
    part_seal(&b);
    ok(b.len == want.len && memcmp(b.data, want.data, b.len) == 0, "as made anew");
    buf_append(&before, b.data, b.len);
    memset(state_long + 6, ' ', sizeof(state_long) - 7);
    memcpy(state_long + sizeof(state_long) - 3, "]}", 3);
    p.state = state_long;
    ok(!part_encode_again(&p, &b), "a longer header");
    ok(b.len == before.len && memcmp(b.data, before.data, b.len) == 0, "nothing is done");
    ok(!part_encode_again(&p, &junk), "nor to nothing");
    buf_append(&junk, "0123456789abcdefghi", 19);
    ok(!part_encode_again(&p, &junk), "nor to what is no part");
}

static void test_finish(void)
{
    const uint64_t blocks[2] = {5, 6};
    struct part p = example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0}, done = {0}, again = {0};

    p.n_blocks = 0;
    encode(&p, &b);
    is_int(part_finish(b.data, b.len, blocks, 2, &done, NULL), -ERR_FORMAT,
           "too many digests");
    is_int(part_finish(b.data, b.len, blocks, 1, &done, NULL), 0, "as many");
    is_int(part_decode(done.data, done.len, &back, NULL), 0, "read back");
    is_int((int)back.blocks[0], 5, "the digest");
    is_str(back.state, "{\"a\":1}", "all else as it was");
    is_str(back.pieces[2].name, ".blob/rng/1", "to the last piece");
    is_int(part_finish(done.data, done.len, blocks + 1, 1, &again, NULL), 0,
           "in the place of others");
    part_release(&back);
    is_int(part_decode(again.data, again.len, &back, NULL), 0, "read back");
    is_int((int)back.blocks[0], 6, "the new one");
    done.data[done.len / 2] ^= 1;
    buf_clear(&again);
    is_int(part_finish(done.data, done.len, blocks, 1, &again, NULL), -ERR_FORMAT,
           "one that is damaged");
    is_int(part_finish(done.data, 7, blocks, 1, &again, NULL), -ERR_FORMAT, "or cut");
    is_int((int)again.len, 0, "comes to nothing");
    done.data[done.len / 2] ^= 1;
    done.data[done.len - 9] ^= 1;
    is_int(part_finish(done.data, done.len, blocks, 1, &again, NULL), -ERR_FORMAT,
           "so is its last byte");
}

/* In shared memory it lies where its writer wants. */
static void test_finish_anywhere(void)
{
    const uint64_t blocks[1] = {5};
    struct part p = example();
    _buf_ struct buf b = {0}, want = {0};
    unsigned n_wrong = 0;

    encode(&p, &b);
    part_finish(b.data, b.len, blocks, 1, &want, NULL);
    for (size_t off = 0; off < 9; off++) {
        _free_ char *at = malloc(b.len + off);
        _buf_ struct buf done = {0};

        memcpy(at + off, b.data, b.len);
        n_wrong += part_finish(at + off, b.len, blocks, 1, &done, NULL) < 0 ||
                   done.len != want.len || memcmp(done.data, want.data, want.len) != 0;
    }
    is_int((int)n_wrong, 0, "wherever it lies");
}

/* One of another format is left to those who know it. */
static void test_finish_newer(void)
{
    const uint64_t blocks[1] = {5};
    struct part p = example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0}, done = {0};
    struct error e = {0};
    char *version;
    uint64_t digest;

    encode(&p, &b);
    version = memmem(b.data, b.len, "\"part\":\"1\"", 10);
    ok(version != NULL, "it says which format it has");
    version[8] = '2';
    digest = digest_short_of(b.data, b.len - sizeof(digest));
    memcpy(b.data + b.len - sizeof(digest), &digest, sizeof(digest));
    is_int(part_finish(b.data, b.len, blocks, 1, &done, &e), -ERR_VERSION, "a newer one");
    like(e.text, "newer muster", "is told of");
    e = (struct error){0};
    is_int(part_decode(b.data, b.len, &back, &e), -ERR_VERSION, "nor is it read");
    like(e.text, "newer muster", "which is told, too");
}

/* Any bit and any length. */
static void test_damage(void)
{
    struct part p = example(), none;
    _buf_ struct buf b = {0};
    struct error e = {0};
    unsigned n_taken = 0;

    encode(&p, &b);
    for (size_t bit = 0; bit < 8 * b.len; bit += tap_valgrind() ? 97 : 1) {
        _part_ struct part back = {0};

        b.data[bit / 8] ^= (char)(1 << bit % 8);
        n_taken += part_decode(b.data, b.len, &back, NULL) == 0;
        b.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t len = 0; len < b.len; len++) {
        _part_ struct part back = {0};

        n_taken += part_decode(b.data, len, &back, NULL) == 0;
    }
    is_int((int)n_taken, 0, "no damage is taken");
    is_int(part_decode(b.data, 7, &none, &e), -ERR_FORMAT, "seven bytes are none");
    is_str(e.text, "the part is cut", "which is said");
}

/* What has its digest, and cannot be. */
static void test_wrong(void)
{
    struct part cases[6];
    struct part_piece outside = pieces[0], behind = pieces[0];

    outside.at = NUMBERS(3, 0);
    behind.begin = 4120;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cases[i] = example();
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

        encode(&cases[i], &b);
        is_int(part_decode(b.data, b.len, &back, &e), -ERR_FORMAT, "case %zu: %s",
               i, e.text);
    }
}

static int decode_again(const struct part *p)
{
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};

    encode(p, &b);
    return part_decode(b.data, b.len, &back, NULL);
}

/* Numbers at the ends of what they may be. */
static void test_ends(void)
{
    struct part p = example();
    struct part_piece last = pieces[0];

    p.step = INT64_MAX;
    is_int(decode_again(&p), 0, "the last step");
    p.step++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = example();
    p.n_ranks = INT32_MAX;
    is_int(decode_again(&p), 0, "as many ranks as there may be");
    p.rank = INT32_MAX - 1;
    is_int(decode_again(&p), 0, "the last of them");
    p.n_ranks++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = example();
    p.node = INT32_MAX;
    is_int(decode_again(&p), 0, "the last node");
    p.node++;
    is_int(decode_again(&p), -ERR_FORMAT, "and one more");
    p = example();
    p.file_bytes = (uint64_t)INT64_MAX + 1;
    is_int(decode_again(&p), -ERR_FORMAT, "a file of more bytes than there are");
    p = example();
    last.at = NUMBERS(4, 0);
    last.len = NUMBERS(0, 3);
    p.pieces = &last;
    p.n_pieces = 1;
    is_int(decode_again(&p), 0, "nothing of a tensor, at its end");
}

/* What its metadata say, of `key` another text; NULL: nothing. */
static int decode_meta(const char *key, const char *text, struct error *e)
{
    enum { N = 8 };
    void *data[N] = {0};
    struct array fields[N] = {
        {"names", DTYPE_U8, &data[0], 0}, {"name_ends", DTYPE_U64, &data[1], 0},
        {"dtypes", DTYPE_U8, &data[2], 0}, {"n_dims", DTYPE_U8, &data[3], 0},
        {"shapes", DTYPE_U64, &data[4], 0}, {"boxes", DTYPE_U64, &data[5], 0},
        {"begins", DTYPE_U64, &data[6], 0}, {"blocks", DTYPE_U64, &data[7], 0},
    };
    struct st_meta meta[16];
    struct part p = example();
    _part_ struct part back = {0};
    _st_file_ struct st_file f = {0};
    _buf_ struct buf b = {0}, changed = {0};
    size_t n = 0;
    int rc;

    encode(&p, &b);
    if (arrays_find(b.data, b.len - 8, "part", fields, N, &f, e) < 0) {
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
    if (arrays_encode(fields, N, meta, n, &changed, e) < 0) {
        bail_out("no part");
    }
    arrays_free(b.data, b.len, fields, N);
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

/* What no part may be made of. */
static void test_encode_refuses(void)
{
    static const uint64_t many[BOX_MAX_DIMS + 1];
    struct part_piece deep = {"w", DTYPE_U8, BOX_MAX_DIMS + 1, many, many, many, 0};
    struct part_piece named = pieces[0];
    struct part p = example();
    _buf_ struct buf b = {0};
    struct error e = {0};

    p.pieces = &deep;
    p.n_pieces = 1;
    is_int(part_encode(&p, &b, &e), -EINVAL, "too many dimensions");
    like(e.text, "a tensor with 17 dimensions, and at most 16", "how many");
    named.name = "w\xff";
    p.pieces = &named;
    is_int(part_encode(&p, &b, &e), -EINVAL, "a name that is not UTF-8");
    like(e.text, "the name of a tensor is not UTF-8", "said so");
    is_int((int)b.len, 0, "and nothing is written");
}

static void test_names(void)
{
    static const struct {
        const char *name;
        bool is_data;
        uint32_t rank;
    } cases[] = {
        {"r00000.safetensors", true, 0},
        {"r00017.safetensors", true, 17},
        {"r99999.safetensors", true, 99999},
        {"r123456.safetensors", true, 123456},
        {"r999999999.safetensors", true, 999999999},
        {"r1000000000.safetensors", false, 0},
        {"r4294967297.safetensors", false, 0},
        {"r1.safetensors", false, 0},
        {"r000017.safetensors", false, 0},
        {"s00017.safetensors", false, 0},
        {"00017.safetensors", false, 0},
        {"r00017.part", false, 0},
        {"r.safetensors", false, 0},
        {"r00017", false, 0},
        {"", false, 0},
    };
    _buf_ struct buf same = {0}, each = {0};
    char name[PART_NAME_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t rank = 0;

        is_int(part_data_rank(cases[i].name, &rank), cases[i].is_data, "'%s'", cases[i].name);
        is_int(cases[i].is_data ? rank : 0, cases[i].rank, "of whom");
    }
    part_file_name(3, name);
    is_str(name, "r00003.part", "the name of a part");
    part_data_name(3, name);
    is_str(name, "r00003.safetensors", "of a file");
    part_blob_name("rng", true, 12, &each);
    is_str(buf_str(&each), ".blob/rng/12", "of a blob of each rank");
    part_blob_name("model", false, 12, &same);
    is_str(buf_str(&same), ".blob/model", "and of one of all");
}

/* A part with its digest, whose arrays say what no writer does: one of them has so many
 * elements more, or another value; and there are lengths and boxes of so many dimensions
 * more. */
static int decode_changed(size_t array, int more, size_t at, uint64_t value, int more_dims,
                          struct error *e)
{
    enum { N = 8 };
    void *data[N] = {0};
    struct array fields[N] = {
        {"names", DTYPE_U8, &data[0], 0}, {"name_ends", DTYPE_U64, &data[1], 0},
        {"dtypes", DTYPE_U8, &data[2], 0}, {"n_dims", DTYPE_U8, &data[3], 0},
        {"shapes", DTYPE_U64, &data[4], 0}, {"boxes", DTYPE_U64, &data[5], 0},
        {"begins", DTYPE_U64, &data[6], 0}, {"blocks", DTYPE_U64, &data[7], 0},
    };
    struct part p = example();
    _part_ struct part back = {0};
    _st_file_ struct st_file f = {0};
    _buf_ struct buf b = {0}, changed = {0};
    int rc;

    encode(&p, &b);
    if (arrays_find(b.data, b.len - 8, "part", fields, N, &f, e) < 0) {
        bail_out("no arrays");
    }
    for (size_t i = 0; i < N; i++) {
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
    if (arrays_encode(fields, N, f.meta, f.n_meta, &changed, e) < 0) {
        bail_out("no part");
    }
    buf_append(&changed, "digest!!", 8);
    part_seal(&changed);
    rc = part_decode(changed.data, changed.len, &back, e);
    for (size_t i = 0; i < N; i++) {
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
    struct part p = example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(shape); i++) {
        shape[i] = 1;
    }
    p.pieces = &piece;
    p.n_pieces = 1;
    encode(&p, &b);
    is_int(part_decode(b.data, b.len, &back, NULL), 0, "as many dimensions as there may be");
    is_int(decode_changed(3, 0, 0, BOX_MAX_DIMS + 1, BOX_MAX_DIMS - 1, &e), -ERR_FORMAT,
           "one more, with a length and a box");
    like(e.text, "do not belong together", "said so");
}

/* --- gathering --- */

static char root[] = "/tmp/part-XXXXXX";

/* What a part tells of: so many bytes, whatever they are. */
static int put_data(struct step_save *s, uint32_t rank, uint64_t len, struct error *e)
{
    _free_ char *data = calloc(1, len + 1);
    char name[PART_NAME_BYTES];

    part_data_name(rank, name);
    return step_save_note(s, name, data, len, e);
}

/* The parts of two ranks of one tensor, and their files; of the second one so many bytes
 * more or less. */
static int gather_two(const struct part *second, bool has_second, int more, struct error *e)
{
    struct part_piece first_piece = pieces[0];
    struct part first = example();
    struct gather g = {.step = 12, .uuid = first.uuid, .generation = 1,
                       .n_ranks = 2};
    _cleanup_(step_save) struct step_save *s = NULL;
    _close_ int dir = open(root, O_RDONLY | O_DIRECTORY);
    _buf_ struct buf a = {0}, b = {0};
    int rc = step_save_begin(io_system(), dir, 12, first.uuid, &s, e);

    first_piece.at = NUMBERS(0, 0);
    first.rank = 0;
    first.pieces = &first_piece;
    first.n_pieces = 1;
    first.n_blobs = 0;
    encode(&first, &a);
    encode(second, &b);
    rc = rc < 0 ? rc : step_save_note(s, "r00000.part", a.data, a.len, e);
    rc = rc < 0 ? rc : put_data(s, 0, first.file_bytes, e);
    if (has_second && rc == 0) {
        rc = step_save_note(s, "r00001.part", b.data, b.len, e);
    }
    if (rc == 0 && more > -(int)second->file_bytes) {
        rc = put_data(s, 1, second->file_bytes + (uint64_t)more, e);
    }
    rc = rc < 0 ? rc : gather_commit(s, &g, e);
    if (s) {
        step_save_abort(s);
    }
    return rc;
}

static void test_gather(void)
{
    struct part p = example();
    struct part_piece twice = pieces[0];
    struct error e = {0};

    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
    p.n_blobs = 0;
    p.n_pieces = 1;
    is_int(gather_two(&p, true, 0, &e), 0, "two halves: %s", e.text);
    is_int(gather_two(&p, false, 0, &e), -ENODATA, "one half");
    like(e.text, "rank 1 has saved nothing here; expected a directory that all", "who has not");
    is_int(gather_two(&p, true, -1, &e), -ENODATA, "a file that is cut");
    like(e.text, "r00001.safetensors has 4132 bytes: expected 4133", "named");
    is_int(gather_two(&p, true, -(int)p.file_bytes, &e), -ENODATA, "one that is not there");
    like(e.text, "r00001.safetensors has 0 bytes", "named as well");
    p.n_blocks = 0;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "without digests");
    p = example();
    p.n_pieces = 1;
    p.step = 13;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another step");
    p.step = 12;
    p.uuid[3] ^= 1;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another save");
    p = example();
    p.rank = 0;
    p.n_pieces = 1;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another rank");
    p = example();
    twice.at = NUMBERS(1, 0);
    p.pieces = &twice;
    p.n_pieces = 1;
    is_int(gather_two(&p, true, 0, &e), -EINVAL, "an overlap");
    like(e.text, "tensor 'layer.w': pieces [0:2, 0:3] and [1:3, 0:3] overlap",
         "named");
    rmdir(root);
}

static void write_seeds(const char *dir)
{
    struct part p = example();
    char path[4096];

    for (int i = 0; i < 3; i++) {
        _buf_ struct buf b = {0};
        _fclose_ FILE *f = NULL;

        p.n_pieces = (size_t)i * 3 / 2;
        p.n_blobs = (size_t)(i > 0);
        encode(&p, &b);
        snprintf(path, sizeof(path), "%s/part-%d", dir, i);
        f = fopen(path, "w");
        if (!f || fwrite(b.data, 1, b.len, f) != b.len) {
            bail_out("write %s", path);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        write_seeds(argv[1]);
        return 0;
    }
    test_round();
    test_again();
    test_finish();
    test_finish_anywhere();
    test_finish_newer();
    test_damage();
    test_wrong();
    test_ends();
    test_wrong_meta();
    test_encode_refuses();
    test_names();
    test_wrong_arrays();
    test_many_dimensions();
    test_gather();
    return tap_done();
}
