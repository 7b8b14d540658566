/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/safetensors.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#define ONE "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"

static void test_prefix(void)
{
    static const struct {
        uint8_t bytes[ST_PREFIX_BYTES];
        uint64_t file_bytes;
        const char *why; /* NULL: it is one */
    } cases[] = {
        {{2}, 10, NULL},
        {{0xf8, 0x03}, 1024, NULL},
        {{2}, 7, "at least 8"},
        {{2}, 9, "cut in its header: expected at least 10 bytes, found 9"},
        {{0xf9, 0x03}, 1024, "expected at least 1025 bytes"},
        {{0x01, 0xe1, 0xf5, 0x05}, UINT64_MAX, "at most 100000000"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, UINT64_MAX,
         "a header of 18446744073709551615 bytes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        uint64_t n;
        int rc = st_header_bytes(cases[i].bytes, cases[i].file_bytes, &n, &e);

        if (cases[i].why) {
            ok(rc == -ERR_FORMAT, "prefix %zu is refused", i);
            like(e.text, cases[i].why, "and why");
        } else {
            is_int(rc, 0, "prefix %zu", i);
        }
    }
}

#define TEN(text) text text text text text text text text text text
#define DEEP(more) "{\"a\":{" ONE ",\"x\":" TEN(TEN("[")) TEN("[") TEN("[") more \
                   "}}"
#define CLOSE_120 TEN(TEN("]")) TEN("]") TEN("]")

/* A header, and how many bytes follow it. */
static const struct {
    const char *header;
    uint64_t bytes;
    const char *why;
} headers[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{\"a\":{" ONE "}}", 1, NULL},
    {"{\"a\":{" ONE ",\"extra\":{}}}", 1, NULL},
    {"{\"__metadata__\":{\"k\":\"v\"},\"a\":{" ONE "}}", 1, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, NULL},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"b\":{" ONE "}}", 1, NULL},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
     "\"a\":{" ONE "}}", 3, NULL},
    {"{\"a\":{" ONE "}}\t\n", 1, NULL},
    {"{\"\":{" ONE "}}", 1, NULL},
    {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3,
     NULL},
    {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
     "\"b\":{" ONE "}}", 1, NULL},
    {DEEP("[[[[[]]]]]" CLOSE_120), 1, NULL},
    {DEEP("[[[[[[]]]]]]" CLOSE_120), 1, "more than 127 levels"},
    {DEEP("[[[[[[]]]]]],{},[]" CLOSE_120), 1, "more than 127 levels"},
    {"{\"[[\":{" ONE ",\"\\\"[\":{}}}", 1, NULL},

    {"{\"__metadata__\":null}", 0, "is no object"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate"},
    {"{\"__metadata__\":{\"k\":null}}", 0, "'k' is no string"},
    {"{\"a\":null}", 0, "unknown dtype"},
    {"{\"a\":[\"U8\",[1],[0,1]]}", 1, "unknown dtype ''"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "unknown dtype"},
    {"{\"a\":{" ONE "},}", 1, "no JSON object"},
    {"{\"a\":{" ONE ",\"x\":99999999999999999999}}", 1, "too big integer"},
    {"{\"a\":{" ONE ",\"x\":1e999}}", 1, "real number overflow"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}", 1,
     "no JSON object"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[true],\"data_offsets\":[0,1]}}", 1,
     "length 0 of its shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1,
     "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
     "[0,18446744073709551616]}}", 1, "too big integer"},
    {"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "no JSON object"},
    {"{}x", 0, "no JSON object"},
    {"{\"a\":{" ONE "},\"a\":{" ONE "}}", 1, "duplicate"},
    {"{\"a\":{" ONE ",\"dtype\":\"I8\"}}", 1, "duplicate"},
    {"{\"\\ud800\":{" ONE "}}", 1, "no JSON object"},
    {"{\"\xff\":{" ONE "}}", 1, "no JSON object"},
    {"{\"a\\u0000b\":{" ONE "}}", 1, "NUL byte in object key"},
    {"{\"__metadata__\":{\"k\":\"v\\u0000w\"},\"a\":{" ONE "}}", 1, "u0000 is not allowed"},
    {"{\"a\":[]}", 0, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
     "unknown dtype 'f32'"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1,
     "no list"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1,
     "length 0 of its shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
     "length 0 of its shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
     "\"data_offsets\":[0,1]}}", 1, "at most 16 lengths"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-0,1]}}", 1,
     "a number of the header is -0"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[ -0 ],\"data_offsets\":[0,0]}}", 0,
     "a number of the header is -0"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-0.0],\"data_offsets\":[0,0]}}", 0,
     "length 0 of its shape"},
    {"{\"-0\":{" ONE "},\"__metadata__\":{\"\\\"-0\":\"-0\"}}", 1, NULL},
    {"{\"a\":{" ONE ",\"x\":1e-0,\"y\":-0.5}}", 1, NULL},
    {"{\"a\":{" ONE ",\"x\":1E-0,\"y\":[-0e1,-0E1]}}", 1, NULL},
    {"-0", 0, "does not begin with '{'"},
    {"{-0", 0, "a number of the header is -0"},
    {"{]]]{", 0, "no JSON object"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
     "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1,
     "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.5]}}", 1,
     "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1,
     "has 2 bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,2]}}", 2,
     "lies at 0 to 2, and has 1 bytes"},
    {"{\"b\":{" ONE "},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 1,
     NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1,
     "lies at 1 to 0"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
     "no size"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
     "\"data_offsets\":[0,0]}}", 0, "no size"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],"
     "\"data_offsets\":[0,0]}}", 0, "no size"},
    {"{\"a\":{" ONE "},\"b\":{" ONE "}}", 1, "begins at 0, where the one before "
     "ends at 1"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     "begins at 1"},
    {"{\"a\":{" ONE "},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[2,3]}}", 3, "'b' begins at 2"},
    {"{\"a\":{" ONE "}}", 0, "the file is cut: expected 62 bytes, found 61"},
    {"{\"a\":{" ONE "}}", 2, "too long a file: expected 62 bytes, found 63"},
    {"{}", 1, "too long"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is no string"},
    {"{\"__metadata__\":[]}", 0, "no object"},
    {"{\"\\u001b[31mred\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":"
     "[0,1]}}", 1, "tensor '\\x1b[31mred'"},
};

static void test_headers(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        size_t len = strlen(headers[i].header);
        _free_ char *exact = malloc(len + 1);
        _st_file_ struct st_file f = {0};
        struct error e = {0};
        int rc;

        memcpy(exact, headers[i].header, len);
        rc = st_read(exact, len, ST_PREFIX_BYTES + len + headers[i].bytes, &f,
                     &e);
        if (headers[i].why) {
            bool is_ours = strstr(headers[i].why, "at most 16"); /* the limit */

            ok(rc == (is_ours ? -EFBIG : -ERR_FORMAT), "refused: %s", headers[i].header);
            like(e.text, headers[i].why, "and why");
        } else {
            ok(rc == 0, "taken: %s (%s)", headers[i].header, e.text);
        }
    }
}

/* Whatever comes behind its first bytes, and where there are not as many. */
static void test_cut(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {"", 0, "0 bytes are no safetensors file"},
        {"\2\0\0\0\0", 5, "5 bytes are no safetensors file"},
        {"\2\0\0\0\0\0\0\0{", 9, "the file is cut in its header: expected at least 10 bytes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _close_ int fd = memfd_create("safetensors_test", MFD_CLOEXEC);
        _st_file_ struct st_file f = {0};
        struct error e = {0};

        if (fd < 0 || write(fd, cases[i].bytes, cases[i].len) != (ssize_t)cases[i].len) {
            bail_out("no memory");
        }
        is_int(st_load(io_system(), fd, &f, &e), -ERR_FORMAT, "a file of %zu bytes", cases[i].len);
        like(e.text, cases[i].why, "is none");
    }
}

/* The longest name, and a longer one. */
static void test_long_name(void)
{
    static const char begin[] = "{\"", end[] = "\":{" ONE "}}";

    for (size_t more = 0; more < 2; more++) {
        size_t n = ST_MAX_NAME_BYTES + more;
        _buf_ struct buf b = {0};
        _st_file_ struct st_file f = {0};
        struct error e = {0};
        char *name;

        buf_puts(&b, begin);
        name = buf_reserve(&b, n);
        memset(name, 'n', n);
        b.len += n;
        buf_puts(&b, end);
        is_int(st_read(b.data, b.len, ST_PREFIX_BYTES + b.len + 1, &f, &e), more ? -ERR_FORMAT : 0,
               "a name of %zu bytes%s", n, e.text);
    }
}

/* What follows a header in memory is none of it. */
static void test_behind(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {"{-0", 2, "no JSON object"},
        {"{-0.5", 3, "a number of the header is -0"},
        {"{-0e5", 3, "a number of the header is -0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _st_file_ struct st_file f = {0};
        struct error e = {0};

        is_int(st_read(cases[i].bytes, cases[i].len, 100, &f, &e), -ERR_FORMAT,
               "%zu bytes of %s", cases[i].len, cases[i].bytes);
        like(e.text, cases[i].why, "and why");
    }
}

static void add(struct st_file *f, const char *name, enum dtype t,
                uint32_t n_dims, uint64_t a, uint64_t b)
{
    uint64_t *shape = f->dims + 2 * f->n_tensors;

    shape[0] = a;
    shape[1] = b;
    f->tensors[f->n_tensors++] = (struct st_tensor){.name = strdup(name), .dtype = t,
                                                    .n_dims = n_dims, .shape = shape};
}

static void start(struct st_file *f)
{
    f->tensors = calloc(8, sizeof(*f->tensors));
    f->dims = calloc(16, sizeof(*f->dims));
    f->meta = calloc(2, sizeof(*f->meta));
}

/* A name of every character comes back through a reader of JSON. */
static void test_strings(void)
{
    unsigned n_wrong = 0;

    for (int c = 1; c < 0xc0; c++) { /* from 0x80 on of two bytes */
        char name[] = {'a', c < 0x80 ? (char)c : (char)0xc3, c < 0x80 ? 'b' : (char)c,
                       '\0'};
        _st_file_ struct st_file f = {0}, back = {0};
        _buf_ struct buf b = {0};
        struct error e = {0};

        start(&f);
        add(&f, name, DTYPE_U8, 1, 1, 0);
        n_wrong += st_layout(&f, &e) < 0 || st_write(&f, 8, &b, &e) < 0 ||
                   st_read(b.data + ST_PREFIX_BYTES, b.len - ST_PREFIX_BYTES, b.len + 1,
                           &back, &e) < 0 ||
                   strcmp(back.tensors[0].name, name) != 0;
    }
    is_int((int)n_wrong, 0, "names of all characters");
}

static void test_write(void)
{
    _st_file_ struct st_file f = {0}, back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};
    const char *want[] = {"w", "x", "half", "b\n\"\xc3\xa4", "none"};
    uint64_t n;

    start(&f);
    add(&f, "none", DTYPE_U8, 2, 0, 7);
    add(&f, "half", DTYPE_BF16, 1, 3, 0);
    add(&f, "b\n\"\xc3\xa4", DTYPE_U8, 1, 5, 0);
    add(&f, "x", DTYPE_F32, 0, 0, 0);
    add(&f, "w", DTYPE_F32, 2, 2, 3);
    f.meta[f.n_meta++] = (struct st_meta){strdup("format"), strdup("pt")};
    is_int(st_layout(&f, &e), 0, "laid out");
    buf_puts(&b, "before");
    is_int(st_write(&f, 4096, &b, &e), 0, "written");
    is_int((int)f.data_at, 4096, "tensors begin at a page");
    is_int((int)b.len, 6 + 4096, "and so does what was written");
    is_int((int)st_file_bytes(&f), 4096 + 24 + 4 + 6 + 5, "with its tensors");
    is_int(st_header_bytes((const uint8_t *)b.data + 6, st_file_bytes(&f), &n,
                           &e), 0, "read back");
    is_int(st_read(b.data + 6 + 8, n, st_file_bytes(&f), &back, &e), 0,
           "all of it (%s)", e.text);
    is_int((int)back.n_tensors, 5, "five tensors");
    is_str(st_meta(&back, "format"), "pt", "metadata");
    ok(!st_meta(&back, "other"), "and no other");
    for (size_t i = 0; i < 5; i++) {
        const struct st_tensor *t = &back.tensors[i];

        is_str(f.tensors[i].name, want[i], "place %zu", i);
        ok(t->begin == f.tensors[i].begin && t->end == f.tensors[i].end &&
               t->dtype == f.tensors[i].dtype && t->n_dims == f.tensors[i].n_dims &&
               memcmp(t->shape, f.tensors[i].shape, t->n_dims * sizeof(*t->shape)) == 0,
           "read the same");
    }
}

/* What needs most room: each character of the name is written as six, each length with
 * as many digits as there are. */
static void test_write_long(void)
{
    static char name[3001];
    uint64_t shape[BOX_MAX_DIMS];
    struct st_tensor t = {.name = name, .dtype = DTYPE_U8, .n_dims = BOX_MAX_DIMS,
                          .shape = shape};
    struct st_file f = {.n_tensors = 1, .tensors = &t};
    _st_file_ struct st_file back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    memset(name, 1, sizeof(name) - 1);
    for (int d = 0; d < BOX_MAX_DIMS; d++) {
        shape[d] = d == 0 ? 0 : INT64_MAX;
    }
    is_int(st_write(&f, 8, &b, &e), 0, "written: %s", e.text);
    is_int((int)strlen(b.data + ST_PREFIX_BYTES), (int)b.len - ST_PREFIX_BYTES,
           "to just its end");
    is_int(st_read(b.data + ST_PREFIX_BYTES, b.len - ST_PREFIX_BYTES, b.len, &back, &e), 0,
           "and read back: %s", e.text);
    ok(back.n_tensors == 1 && strcmp(back.tensors[0].name, name) == 0 &&
           memcmp(back.tensors[0].shape, shape, sizeof(shape)) == 0,
       "all of it");
}

/* Two of each tensor. */
static const uint64_t *numbers_of(const void *arg, size_t i)
{
    const uint64_t (*all)[2] = arg;

    return all[i];
}

static const uint64_t *shape_of(const void *arg, size_t i)
{
    (void)i;
    return arg;
}

/* Room is made for each tensor, however much of the buffer is left before. */
static void test_write_many(void)
{
    uint64_t shape[BOX_MAX_DIMS];
    unsigned n_wrong = 0;

    for (int d = 0; d < BOX_MAX_DIMS; d++) {
        shape[d] = d == 0 ? 0 : UINT64_MAX;
    }
    for (size_t len = 0; len < 700; len++) {
        char name[701] = "";
        struct st_tensor t[2] = {
            {.name = name, .dtype = DTYPE_U8},
            {.name = (char *)"\1\2\3", .dtype = DTYPE_F8_E4M3FNUZ, .n_dims = BOX_MAX_DIMS,
             .shape = shape, .begin = UINT64_MAX, .end = UINT64_MAX}};
        const struct st_made made = {"made", "of each", shape_of, shape};
        struct st_file f = {.n_tensors = 2, .tensors = t, .made = &made};
        _buf_ struct buf b = {0};

        memset(name, 'x', len);
        n_wrong += st_write(&f, 8, &b, NULL) < 0 || b.len >= b.cap ||
                   strlen(b.data + ST_PREFIX_BYTES) != b.len - ST_PREFIX_BYTES;
    }
    is_int((int)n_wrong, 0, "behind names of any length");
}

static void check_made(const char *name, size_t n, bool has_more, const char *want)
{
    static const uint64_t places[][2] = {{0, UINT64_MAX}, {7, 10}};
    const struct st_made made = {"a \"long\" one", "at", numbers_of, places};
    _st_file_ struct st_file f = {.made = &made}, back = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    start(&f);
    for (size_t i = 0; i < n; i++) {
        add(&f, i > 0 ? "~" : name, DTYPE_U8, i > 0 ? 1 : 2, 3 - i, 3);
    }
    if (has_more) {
        f.meta[f.n_meta++] = (struct st_meta){strdup("format"), strdup("pt")};
    }
    st_layout(&f, &e);
    is_int(st_write(&f, 8, &b, &e), 0, "an entry made of %zu", n);
    is_int(st_read(b.data + ST_PREFIX_BYTES, b.len - ST_PREFIX_BYTES, st_file_bytes(&f), &back,
                   &e), 0, "read: %s", e.text);
    is_str(st_meta(&back, made.key), want, "its value");
    is_int((int)back.n_meta, has_more ? 2 : 1, "and what is beside it");
}

/* An entry of metadata that is made while it is written. */
static void test_made(void)
{
#define AT "\":{\"at\":[0,18446744073709551615]}"
    check_made("", 0, false, "{}");
    check_made("plain", 1, false, "{\"plain" AT "}");
    check_made("layers.10.weight", 2, true, "{\"layers.10.weight" AT ",\"~\":{\"at\":[7]}}");
    check_made("", 1, true, "{\"" AT "}");
    check_made("\"\\\n\xc3\xa4\1", 1, true, "{\"\\\"\\\\\\n\xc3\xa4\\u0001" AT "}");
    check_made("layers.1\"0.weight", 2, false,
               "{\"layers.1\\\"0.weight" AT ",\"~\":{\"at\":[7]}}");
}

static void test_write_refuses(void)
{
    static const struct {
        const char *a, *b, *why;
        uint64_t n;
    } cases[] = {
        {"a", "a", "two tensors of the name 'a'", 1},
        {"a", "__metadata__", "cannot be a tensor's name", 1},
        {"a", "b", "no size", UINT64_MAX},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _st_file_ struct st_file f = {0};
        struct error e = {0};

        start(&f);
        add(&f, cases[i].a, DTYPE_U8, 1, 1, 0);
        add(&f, cases[i].b, DTYPE_U16, 1, cases[i].n, 0);
        is_int(st_layout(&f, &e), -EINVAL, "layout %zu", i);
        like(e.text, cases[i].why, "and why");
    }
}

static void test_write_text(void)
{
    _st_file_ struct st_file f = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    start(&f);
    add(&f, "a\xff", DTYPE_U8, 1, 1, 0);
    is_int(st_layout(&f, &e), 0, "laid out");
    is_int(st_write(&f, 8, &b, &e), -EINVAL, "a name that is not UTF-8");
}

/* --- for another reader --- */

/* Every header of the table as a file, and in `list` a line for each: its name, whether
 * it is taken here, and why not. tests/t4022 has the library of others read
 * them. */
static int dump(const char *directory)
{
    static const char zeros[64];
    char path[4096];
    FILE *list;

    snprintf(path, sizeof(path), "%s/list", directory);
    list = fopen(path, "we");
    for (size_t i = 0; i < ARRAY_SIZE(headers) && list; i++) {
        uint64_t len = strlen(headers[i].header);
        FILE *f;

        snprintf(path, sizeof(path), "%s/%03zu.safetensors", directory, i);
        f = fopen(path, "we");
        if (!f || headers[i].bytes > sizeof(zeros) ||
            fwrite(&len, sizeof(len), 1, f) != 1 ||
            fwrite(headers[i].header, 1, len, f) != len ||
            fwrite(zeros, 1, headers[i].bytes, f) != headers[i].bytes ||
            fclose(f) != 0) {
            return 1;
        }
        fprintf(list, "%03zu.safetensors\t%s\t%s\n", i,
                headers[i].why ? "refused" : "taken",
                headers[i].why ? headers[i].why : "");
    }
    return !list || fclose(list) != 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--dump") == 0) {
        return dump(argv[2]);
    }
    test_prefix();
    test_headers();
    test_cut();
    test_long_name();
    test_behind();
    test_strings();
    test_write();
    test_write_long();
    test_write_many();
    test_made();
    test_write_refuses();
    test_write_text();
    return tap_done();
}
