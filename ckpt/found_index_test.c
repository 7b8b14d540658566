/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/found_bed.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A file of safetensors with tensors of no bytes, named by a letter each. */
static void put_shard(int dir, const char *name, const char *tensors)
{
    _buf_ struct buf header = {0}, file = {0};

    buf_putc(&header, '{');
    for (const char *at = tensors; *at; at++) {
        buf_printf(&header, "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[0],"
                   "\"data_offsets\":[0,0]}", at > tensors ? "," : "", *at);
    }
    buf_putc(&header, '}');
    for (int i = 0; i < 8; i++) {
        buf_putc(&file, (char)(header.len >> 8 * i));
    }
    buf_append(&file, header.data, header.len);
    found_bed_put(dir, name, file.data, file.len);
}

/* What an index says of two files, of which the first has the tensors a and b, the second
 * c, or what is said here. */
static void test_index(void)
{
#define MODEL(n) "model-0000" #n "-of-00002.safetensors"
    static const struct {
        const char *index, *second;
        int rc;
        const char *why;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"" MODEL(1) "\",\"b\":\"" MODEL(1) "\",\"c\":\"" MODEL(2)
         "\"}}", "c", 0, ""},
        {"{\"metadata\":{},\"weight_map\":{\"a\":\"" MODEL(1) "\"}}", "c", 0, ""},
        {"{\"weight_map\":{\"a\":\"" MODEL(2) "\"}}", "c", -ERR_FORMAT,
         "says that 'a' is in " MODEL(2) ", and it is not"},
        {"{\"weight_map\":{\"a\":\"" MODEL(1) "\",\"b\":\"" MODEL(1) "\",\"c\":\"" MODEL(2)
         "\"}}", "cb", -ERR_FORMAT, "says that 'b' is in " MODEL(1) ", and it is in " MODEL(2)
         ", too"},
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\"}}", "c", -ERR_FORMAT,
         "names model-00003-of-00003.safetensors, which is missing"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "c", -ERR_FORMAT, "no name of a file"},
        {"{\"weight_map\":{\"a\":1}}", "c", -ERR_FORMAT, "no name of a file"},
        {"{\"weight_map\":[]}", "c", -ERR_FORMAT, "it has no weight_map"},
        {"{\"weight_map\":null}", "c", -ERR_FORMAT, "it has no weight_map"},
        {"{}", "c", -ERR_FORMAT, "it has no weight_map"},
        {"[]", "c", -ERR_FORMAT, "it has no weight_map"},
        {"null", "c", -ERR_FORMAT, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[FOUND_BED_PATH_BYTES];
        int dir = found_bed_open(path);
        struct found_facts facts;
        struct error e = {0};
        struct found f;

        mkdirat(dir, "step-5", 0700);
        put_shard(dir, "step-5/" MODEL(1), "ab");
        put_shard(dir, "step-5/" MODEL(2), cases[i].second);
        found_bed_put(dir, "step-5/model.safetensors.index.json", cases[i].index,
                      strlen(cases[i].index));
        found_one(io_system(), dir, "step-5", &f);
        is_int(found_check(io_system(), dir, &f, true, &facts, &e), cases[i].rc, "%s (%s)",
               cases[i].index, e.text);
        like(e.text, cases[i].why, "and why");
        found_bed_close(dir, path);
    }
#undef MODEL
}

/* A file of a rank, with a piece of w, as it says where that begins, and of which shape it
 * is. Bytes, of which `header` says where they lie. */
static void put_piece_so(int dir, unsigned rank, const char *at, const char *shape,
                         unsigned bytes)
{
    _buf_ struct buf header = {0}, file = {0};
    char name[64];

    buf_printf(&header, "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{"
               "\\\"saved_offsets\\\":%s}}\"},\"w\":{\"dtype\":\"U8\",\"shape\":%s,"
               "\"data_offsets\":[0,%u]}}", at, shape, bytes);
    for (int i = 0; i < 8; i++) {
        buf_putc(&file, (char)(header.len >> 8 * i));
    }
    buf_append(&file, header.data, header.len);
    for (unsigned i = 0; i < bytes; i++) {
        buf_putc(&file, 'x');
    }
    snprintf(name, sizeof(name), "step-5/shard-%05u-model-00001-of-00001.safetensors", rank);
    found_bed_put(dir, name, file.data, file.len);
}

/* Rows and columns of it, and where these begin. */
static void put_piece(int dir, unsigned rank, const unsigned piece[4])
{
    char at[32], shape[32];

    snprintf(at, sizeof(at), "[%u,%u]", piece[2], piece[3]);
    snprintf(shape, sizeof(shape), "[%u,%u]", piece[0], piece[1]);
    put_piece_so(dir, rank, at, shape, piece[0] * piece[1]);
}

/* A rank that has no piece has no file; whose file is missing leaves a hole. */
static void test_pieces(void)
{
    static const struct {
        unsigned pieces[3][4]; /* of ranks 1, 2 and 3: none without rows */
        int rc;
        const char *what;
    } cases[] = {
        {{{2, 4, 0, 0}, {2, 4, 2, 0}, {1, 4, 4, 0}}, 0, "all are there"},
        {{{0}, {2, 4, 2, 0}, {1, 4, 4, 0}}, -ENOENT, "the first is missing"},
        {{{2, 4, 0, 0}, {0}, {1, 4, 4, 0}}, -ENOENT, "one in the middle is"},
        {{{2, 4, 0, 0}, {0}, {2, 4, 2, 0}}, 0, "the second had none"},
        {{{2, 2, 0, 0}, {2, 2, 2, 2}, {2, 2, 0, 2}}, -ENOENT, "a corner is missing"},
        {{{2, 4, 0, 0}, {2, 4, 0, 0}, {0}}, 0, "two have the same"},
        {{{1, 4, 0, 0}, {1, 3, 1, 0}, {0}}, -ENOENT, "one element is missing"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[FOUND_BED_PATH_BYTES];
        int dir = found_bed_open(path);
        struct found_facts facts;
        struct error e = {0};
        struct found f;

        mkdirat(dir, "step-5", 0700);
        for (unsigned k = 0; k < 3; k++) {
            if (cases[i].pieces[k][0]) {
                put_piece(dir, k + 1, cases[i].pieces[k]);
            }
        }
        found_one(io_system(), dir, "step-5", &f);
        is_int(found_check(io_system(), dir, &f, true, &facts, &e), cases[i].rc, "%s (%s)",
               cases[i].what, e.text);
        like(e.text, cases[i].rc ? "of 'w' not all pieces are in files" : "", "and why");
        found_bed_close(dir, path);
    }
}

/* What fits no tensor says nothing of what is missing. */
static void test_odd_pieces(void)
{
    static const struct {
        const char *at, *shape, *other_at, *other_shape; /* each of eight bytes */
        int rc;
    } cases[] = {
        {"[2,0]", "[2,4]", NULL, NULL, -ENOENT},
        {"[2,0,9]", "[2,4]", NULL, NULL, 0},
        {"[2]", "[2,4]", NULL, NULL, 0},
        {"[-2,0]", "[2,4]", NULL, NULL, 0},
        {"[9223372036854775806,0]", "[2,4]", NULL, NULL, 0},
        {"{}", "[2,4]", NULL, NULL, 0},
        {"[2,0]", "[2,4]", "[0]", "[8]", 0},
        {"[2,0]", "[2,4]", "[0,0,0]", "[2,2,2]", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[FOUND_BED_PATH_BYTES];
        int dir = found_bed_open(path), n_open = fds_n_open();
        struct found_facts facts;
        struct error e = {0};
        struct found f;

        mkdirat(dir, "step-5", 0700);
        put_piece_so(dir, 1, cases[i].at, cases[i].shape, 8);
        if (cases[i].other_at) {
            put_piece_so(dir, 2, cases[i].other_at, cases[i].other_shape, 8);
        }
        found_one(io_system(), dir, "step-5", &f);
        is_int(found_check(io_system(), dir, &f, true, &facts, &e), cases[i].rc,
               "%s of %s, and %s (%s)", cases[i].shape, cases[i].at,
               cases[i].other_at ? cases[i].other_at : "no other", e.text);
        is_int(fds_n_open(), n_open, "nothing stays open");
        found_bed_close(dir, path);
    }
}

int main(void)
{
    test_odd_pieces();
    test_index();
    test_pieces();
    return tap_done();
}
