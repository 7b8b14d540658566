/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say of their files; `part_test DIRECTORY` writes what the fuzz target
 * begins with. */
#include <config.h>

#include "ckpt/part_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/digest.h"
#include "ckpt/gather.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_round(void)
{
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    part_bed_encode(&p, &b);
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
    struct part p = part_bed_example();
    _buf_ struct buf b = {0}, want = {0}, before = {0}, junk = {0};
    struct part back = {0};

    part_bed_encode(&p, &b);
    p.step = 13;
    str_copy(p.uuid, sizeof(p.uuid), "fedcba9876543210fedcba9876543210");
    p.state = state_2;
    part_bed_encode(&p, &want);
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
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0}, done = {0}, again = {0};

    p.n_blocks = 0;
    part_bed_encode(&p, &b);
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
    struct part p = part_bed_example();
    _buf_ struct buf b = {0}, want = {0};
    unsigned n_wrong = 0;

    part_bed_encode(&p, &b);
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
    struct part p = part_bed_example();
    _part_ struct part back = {0};
    _buf_ struct buf b = {0}, done = {0};
    struct error e = {0};
    char *version;
    uint64_t digest;

    part_bed_encode(&p, &b);
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
    struct part p = part_bed_example(), none;
    _buf_ struct buf b = {0};
    struct error e = {0};
    unsigned n_taken = 0;

    part_bed_encode(&p, &b);
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

/* What no part may be made of. */
static void test_encode_refuses(void)
{
    static const uint64_t many[BOX_MAX_DIMS + 1];
    struct part_piece deep = {"w", DTYPE_U8, BOX_MAX_DIMS + 1, many, many, many, 0};
    struct part_piece named = part_bed_pieces[0];
    struct part p = part_bed_example();
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
    struct part_piece first_piece = part_bed_pieces[0];
    struct part first = part_bed_example();
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
    part_bed_encode(&first, &a);
    part_bed_encode(second, &b);
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
    struct part p = part_bed_example();
    struct part_piece twice = part_bed_pieces[0];
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
    p = part_bed_example();
    p.n_pieces = 1;
    p.step = 13;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another step");
    p.step = 12;
    p.uuid[3] ^= 1;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another save");
    p = part_bed_example();
    p.rank = 0;
    p.n_pieces = 1;
    is_int(gather_two(&p, true, 0, &e), -ERR_FORMAT, "of another rank");
    p = part_bed_example();
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
    struct part p = part_bed_example();
    char path[4096];

    for (int i = 0; i < 3; i++) {
        _buf_ struct buf b = {0};
        _fclose_ FILE *f = NULL;

        p.n_pieces = (size_t)i * 3 / 2;
        p.n_blobs = (size_t)(i > 0);
        part_bed_encode(&p, &b);
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
    test_encode_refuses();
    test_names();
    test_gather();
    return tap_done();
}
