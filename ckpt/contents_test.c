/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read of files that others have written: any range of a tensor, from whichever file
 * it is in; and what cannot be read, or cannot be known, is told. Nothing stays open.
 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "base/cleanup.h"
#include "ckpt/found_bed.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[FOUND_BED_PATH_BYTES];
static int dir = -1;

static int open_contents(const char *name, struct contents *ret, struct error *e)
{
    struct found f;

    *e = (struct error){0};
    return found_one(io_system(), dir, name, &f)
               ? contents_open(io_system(), dir, &f, ret, e) : -ENOENT;
}

/* A safetensors file; `data` is what is behind the header. */
static void put_st(const char *name, const char *header, const void *data, size_t len)
{
    char bytes[512] = {(char)strlen(header)};
    size_t n = ST_PREFIX_BYTES + strlen(header);

    memcpy(bytes + ST_PREFIX_BYTES, header, strlen(header));
    if (len) {
        memcpy(bytes + n, data, len);
    }
    found_bed_put(dir, name, bytes, n + len);
}

static void put_pickle(const char *name)
{
    found_bed_put(dir, name, "\x80\x02}.", 4);
}

/* Of two tensors, of four bytes and of two an element. */
static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                             "\"b\":{\"dtype\":\"U16\",\"shape\":[6],\"data_offsets\":[16,28]}}";

struct bytes {
    float a[4];
    uint16_t b[6];
};
static const struct bytes bytes = {{0, 1, 2, 3}, {10, 11, 12, 13, 14, 15}};

static void test_ranges(void)
{
    int before = fds_n_open();
    struct contents c = {0};
    struct error e;
    float a[3] = {-1, -1, -1};
    uint16_t b[5] = {0};

    put_st("m.safetensors", header, &bytes, sizeof(bytes));
    is_int(open_contents("m.safetensors", &c, &e), 0, "a file: %s", e.text);
    ok(c.facts.n_files == 1 && c.facts.bytes > sizeof(bytes), "of so many bytes");
    is_int(contents_read(&c, &c.tensors[0], 1, 3, a, &e), 0, "two numbers of four");
    ok(a[0] == 1 && a[1] == 2 && a[2] == -1, "those, and no more");
    is_int(contents_read(&c, &c.tensors[1], 2, 6, b, &e), 0, "the last ones of six");
    ok(b[0] == 12 && b[3] == 15 && b[4] == 0, "of the other tensor");
    is_int(contents_read(&c, &c.tensors[0], 2, 2, a, &e), 0, "none");
    is_int(contents_read(&c, &c.tensors[0], 3, 1, a, &e), 0, "less than none");
    ok(a[0] == 1, "is nothing");
    contents_release(&c);
    contents_release(&c);
    is_int(fds_n_open(), before, "nothing stays open");
}

/* After it was opened. */
static void test_cut_later(void)
{
    _contents_ struct contents c = {0};
    struct error e;
    char path[128];
    float a[4];

    snprintf(path, sizeof(path), "%s/m.safetensors", top);
    is_int(open_contents("m.safetensors", &c, &e), 0, "a file: %s", e.text);
    ok(truncate(path, ST_PREFIX_BYTES + sizeof(header)) == 0, "is cut now");
    is_int(contents_read(&c, &c.tensors[0], 0, 4, a, &e), -ENODATA, "what it has no more");
    like(e.text, "read m.safetensors", "is told, and of which file");
}

/* What the whole file would have, before anything is read of it. */
static void test_cut(void)
{
    int before = fds_n_open();
    struct contents c = {0};
    struct error e;

    put_st("cut.safetensors", header, &bytes, sizeof(bytes) - 1);
    is_int(open_contents("cut.safetensors", &c, &e), -ERR_FORMAT, "one byte less: %s", e.text);
    is_int(fds_n_open(), before, "nothing stays open");
}

/* Some files of a directory are of another form, and what is wrong with one is told. */
static void test_directory(void)
{
    static const char one[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    static const char two[] = "{\"v\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    int before = fds_n_open();
    struct contents c = {0};
    char v[3] = "", w[2] = "";
    struct error e;

    mkdirat(dir, "epoch_1", 0700);
    found_bed_put(dir, "epoch_1/config.json", "{}", 2);
    put_st("epoch_1/a.safetensors", one, "ab", 2);
    put_st("epoch_1/b.safetensors", two, "cde", 3);
    put_st("epoch_1/shard-00000-model-00001-of-00001.safetensors", one, "xy", 2);
    is_int(open_contents("epoch_1", &c, &e), 0, "two files, and one of a rank: %s", e.text);
    ok(c.n_tensors == 2 && !c.why_no_tensors, "tensors of the two");
    ok(c.n_tensors == 2 && contents_read(&c, &c.tensors[0], 0, 3, v, &e) == 0 &&
           contents_read(&c, &c.tensors[1], 0, 2, w, &e) == 0 && memcmp(v, "cde", 3) == 0 &&
           memcmp(w, "ab", 2) == 0,
       "each with its bytes");
    contents_release(&c);
    put_st("epoch_1/c.safetensors", one, "ab", 2);
    is_int(open_contents("epoch_1", &c, &e), -EINVAL, "a tensor twice");
    is_int(fds_n_open(), before, "nothing stays open");
    mkdirat(dir, "epoch_1/0.safetensors", 0700);
    unlinkat(dir, "epoch_1/c.safetensors", 0);
    is_int(open_contents("epoch_1", &c, &e), -EINVAL, "the first is no file");
    like(e.text, "epoch_1: 0.safetensors is no file", "is told");
    is_int(fds_n_open(), before, "nothing stays open");
}

/* What all agree on but one, wherever that one is. */
static void test_odd_one(void)
{
    static const char *const headers[] = {
        "{\"__metadata__\":{\"k\":\"1\",\"l\":\"2\",\"m\":\"1\"}}",
        "{\"__metadata__\":{\"k\":\"2\",\"l\":\"1\",\"m\":\"1\"}}",
        "{\"__metadata__\":{\"k\":\"1\",\"l\":\"1\",\"m\":\"1\"}}",
    };
    _contents_ struct contents c = {0};
    struct error e;
    char name[64];

    mkdirat(dir, "epoch_2", 0700);
    found_bed_put(dir, "epoch_2/config.json", "{}", 2);
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        snprintf(name, sizeof(name), "epoch_2/model-%zu.safetensors", i);
        put_st(name, headers[i], NULL, 0);
    }
    is_int(open_contents("epoch_2", &c, &e), 0, "three files: %s", e.text);
    ok(c.n_meta == 1 && strcmp(c.meta[0].key, "m") == 0 && c.n_meta_left_out == 2,
       "what one says otherwise is left out, once");
}

/* Of a plain pickle nobody knows what is in it, in any kind of directory. */
static void test_unknown(void)
{
    static const struct {
        const char *name, *weights, *last;
        enum found_kind kind;
        const char *why;
    } cases[] = {
        {"checkpoint-3", "pytorch_model.bin", "trainer_state.json", FOUND_TRAINER,
         "pytorch_model.bin: it is a pickle, and none of torch.save"},
        {"checkpoint-4", "pytorch_model.bin", "random_states_0.pkl", FOUND_ACCELERATE,
         "pytorch_model.bin: it is a pickle, and none of torch.save"},
        {"epoch_3", "pytorch_model.bin", "config.json", FOUND_MODEL,
         "pytorch_model.bin: it is a pickle, and none of torch.save"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _contents_ struct contents c = {0};
        char path[128];
        struct error e;

        mkdirat(dir, cases[i].name, 0700);
        snprintf(path, sizeof(path), "%s/%s", cases[i].name, cases[i].weights);
        put_pickle(path);
        snprintf(path, sizeof(path), "%s/%s", cases[i].name, cases[i].last);
        if (cases[i].kind == FOUND_ACCELERATE) {
            put_pickle(path);
        } else {
            found_bed_put(dir, path, "{\"global_step\": 3}", 18);
        }
        is_int(open_contents(cases[i].name, &c, &e), 0, "%s: %s", cases[i].name, e.text);
        is_int(c.found.kind, cases[i].kind, "of that kind");
        like(c.why_no_tensors ? c.why_no_tensors : "", cases[i].why, "says why it has none");
    }
}

/* There may be a file of each of thousands of ranks: few of them are open at a time, and one that
 * was closed is opened again. */
static void test_many_files(void)
{
    enum { N = 200, FEW = 70 };
    int before = fds_n_open();
    struct contents c = {.io = io_system()};
    struct error e = {0};
    char name[32], byte = 0;
    int n_right = 0;

    c.dir = dup(dir);
    c.has_dir = true;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "part-%d", i);
        found_bed_put(dir, name, &(char){(char)i}, 1);
        contents_file_add(&c, name, -1);
    }
    for (int i = 0; i < 2 * N; i++) {
        int fd = contents_file_open(&c, (size_t)(i % N), &e);

        n_right += fd >= 0 && pread(fd, &byte, 1, 0) == 1 && byte == (char)(i % N);
    }
    is_int(n_right, 2 * N, "each is read, twice: %s", e.text);
    ok(fds_n_open() - before <= FEW, "few are open");
    ok(contents_file_open(&c, N - 1, &e) == contents_file_open(&c, N - 1, &e),
       "one that is open is not opened again");
    unlinkat(dir, "part-0", 0);
    is_int(contents_file_open(&c, 0, &e), -ENOENT, "one that has gone meanwhile");
    like(e.text, "part-0", "is told");
    contents_release(&c);
    is_int(fds_n_open(), before, "nothing stays open");
}

int main(void)
{
    dir = found_bed_open(top);
    test_ranges();
    test_cut_later();
    test_cut();
    test_directory();
    test_odd_one();
    test_unknown();
    test_many_files();
    found_bed_close(dir, top);
    return tap_done();
}
