/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/bytes_io.h"
#include "ckpt/pickle.h"
#include "ckpt/torch_file.h"
#include "ckpt/zip.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

/* --- pickles --- */

static void test_pickles(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        int rc;
        const char *why;
    } cases[] = {
        {"\x80\x02}q\x00.", 6, 0, NULL},
        {"\x80\x02}q\x00X\x01\x00\x00\x00" "aq\x01K\x03s.", 17, 0, NULL},
        {"cos\nsystem\n(S'x'\ntR.", 20, 0, NULL}, /* looked at, not run */
        {"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00}\x94.", 14, 0, NULL},
        {"", 0, -ERR_FORMAT, "0 bytes without an end"},
        {"\x80\x02}q\x00", 5, -ERR_FORMAT, "without an end"},
        {"\x80", 1, -ERR_FORMAT, "cut in the instruction at its byte 0"},
        {"X\xff\xff\xff\xff" "a.", 7, -ERR_FORMAT, "cut in the instruction"},
        {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff" "a.", 11, -ERR_FORMAT, "cut in"},
        {"cos\nsystem", 10, -ERR_FORMAT, "cut in the instruction"},
        {"N\xff.", 3, -ERR_FORMAT, "its byte 1, 0xff, is no instruction"},
        /* how it begins and ends */
        {"\x80\5N.", 4, 0, NULL},
        {"\x80\6N.", 4, -ERR_FORMAT, "a later protocol"},
        {"\x80\2\x80\2N.", 6, -ERR_FORMAT, "begins again, at its byte 2"},
        {".", 1, -ERR_FORMAT, "takes more than there is"},
        {"NN.", 3, -ERR_FORMAT, "ends with more than one value"},
        {"(N.", 3, -ERR_FORMAT, "ends with more than one value"},
        {"N(.", 3, -ERR_FORMAT, "takes more than there is"},
        /* the stack */
        {"N0N.", 4, 0, NULL},
        {"N(0.", 4, 0, NULL}, /* a mark is taken as a value is */
        {"N(N1.", 5, 0, NULL},
        {"N2\x86.", 4, 0, NULL},
        {"(0(0N.", 6, 0, NULL},
        {"0N.", 3, -ERR_FORMAT, "a mark that was never set"},
        {"N(R.", 4, -ERR_FORMAT, "takes more"},
        {"N(\x85.", 4, -ERR_FORMAT, "takes more"},
        {"NR.", 3, -ERR_FORMAT, "takes more"},
        {"Nt.", 3, -ERR_FORMAT, "a mark that was never set"},
        {"(e.", 3, -ERR_FORMAT, "takes more"},
        {"](Ne.", 5, 0, NULL},
        {"}(NNu.", 6, 0, NULL},
        {"}(NNNu.", 7, -ERR_FORMAT, "a key is without a value"},
        {"(o.", 3, -ERR_FORMAT, "an object without a class"},
        /* what is kept */
        {"]\x94h\0\x86.", 6, 0, NULL},
        {"]q\1h\1\x86.", 7, 0, NULL},
        {"]p3\ng3\n\x86.", 9, 0, NULL},
        {"]q\1h\0\x86.", 7, -ERR_FORMAT, "never kept, at its byte 3"},
        {"h\0.", 3, -ERR_FORMAT, "never kept"},
        {"gx\n.", 4, -ERR_FORMAT, "never kept"},
        {"j\xff\xff\xff\xff.", 6, -ERR_FORMAT, "never kept"},
        {"]q\1q\1.", 6, -ERR_FORMAT, "a place that is taken"},
        {"]r\xff\xff\xff\xff.", 7, -ERR_FORMAT, "far away"},
        {"]p99999999999999999999\n.", 24, -ERR_FORMAT, "far away"},
        {"\x94.", 2, -ERR_FORMAT, "takes more"},
        {"(\x94.", 3, -ERR_FORMAT, "takes more"},
        {"\x82\1.", 3, -ERR_FORMAT, "a number of its program's"},
        /* frames */
        {"\x80\4\x95\5\0\0\0\0\0\0\0N0N..", 16, -ERR_FORMAT, "a frame ends elsewhere"},
        {"\x95\3\0\0\0\0\0\0\0N.", 11, -ERR_FORMAT, "the pickle is cut: a frame of 3 bytes"},
        {"\x95\2\0\0\0\0\0\0\0K\1.", 12, 0, NULL},
        {"\x95\1\0\0\0\0\0\0\0K\1.", 12, -ERR_FORMAT, "a frame ends elsewhere"},
        {"\x95\x0c\0\0\0\0\0\0\0N\x95\2\0\0\0\0\0\0\0N.", 21, -ERR_FORMAT,
         "in another one"},
        /* texts and numbers */
        {"\x8c\2\xc3\xa9.", 5, 0, NULL},
        {"\x8c\3\xed\xa0\x80.", 6, 0, NULL}, /* half of a pair, as Python has it */
        {"\x8c\2\xc3\x29.", 5, -ERR_FORMAT, "no UTF-8"},
        {"\x8c\1\xc3.", 4, -ERR_FORMAT, "no UTF-8"},
        {"X\1\0\0\0\xff.", 7, -ERR_FORMAT, "no UTF-8"},
        {"\x8d\1\0\0\0\0\0\0\0\xff.", 11, -ERR_FORMAT, "no UTF-8"},
        {"ca\n\xff\n.", 6, -ERR_FORMAT, "no UTF-8"},
        {"S\"x'\n.", 6, -ERR_FORMAT, "not in quotes"},
        {"S'\n.", 4, -ERR_FORMAT, "not in quotes"},
        {"I-12\n.", 6, 0, NULL},
        {"L12L\n.", 6, 0, NULL},
        {"I1p\n.", 5, -ERR_FORMAT, "a number is none"},
        {"I\n.", 3, -ERR_FORMAT, "a number is none"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *exact = malloc(cases[i].len + 1);
        struct error e = {0};
        size_t len = 0;

        memcpy(exact, cases[i].bytes, cases[i].len);
        is_int(pickle_check(exact, cases[i].len, &len, &e), cases[i].rc,
               "pickle %zu", i);
        if (cases[i].why) {
            like(e.text, cases[i].why, "and why");
        } else {
            is_int((int)len, (int)cases[i].len, "all of it");
        }
    }
}

/* --- archives --- */

struct part {
    const char *name, *bytes;
    bool has_crc;
};

static void put(struct buf *b, uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        buf_putc(b, i < 8 ? (char)(n >> 8 * i) : 0);
    }
}

static uint32_t crc_of(const struct part *p)
{
    return p->has_crc ? crc32_gzip_refl(0, (const uint8_t *)p->bytes,
                                        strlen(p->bytes)) : 0;
}

/* As torch.save does: sizes and checksums behind the bytes, and the directory with
 * 64-bit numbers if `is_wide`. */
static void make(struct buf *b, const struct part *parts, size_t n, bool is_wide)
{
    _buf_ struct buf directory = {0};
    uint64_t at;

    for (size_t i = 0; i < n; i++) {
        const struct part *p = &parts[i];
        size_t len = strlen(p->bytes), name = strlen(p->name);

        put(&directory, 0x02014b50, 4);
        put(&directory, 0, 4);
        put(&directory, 0x808, 2);
        put(&directory, 0, 6);
        put(&directory, crc_of(p), 4);
        put(&directory, is_wide ? UINT32_MAX : len, 4);
        put(&directory, is_wide ? UINT32_MAX : len, 4);
        put(&directory, name, 2);
        put(&directory, is_wide ? 28 : 0, 2);
        put(&directory, 0, 10);
        put(&directory, is_wide ? UINT32_MAX : b->len, 4);
        buf_puts(&directory, p->name);
        if (is_wide) {
            put(&directory, 1, 2);
            put(&directory, 24, 2);
            put(&directory, len, 8);
            put(&directory, len, 8);
            put(&directory, b->len, 8);
        }
        put(b, 0x04034b50, 4);
        put(b, 0, 2);
        put(b, 0x808, 2);
        put(b, 0, 18);
        put(b, name, 2);
        put(b, 4, 2);
        buf_puts(b, p->name);
        buf_puts(b, "FB??");
        buf_puts(b, p->bytes);
        put(b, 0x08074b50, 4);
        put(b, crc_of(p), 4);
        put(b, len, 4);
        put(b, len, 4);
    }
    at = b->len;
    buf_append(b, directory.data, directory.len);
    if (is_wide) {
        uint64_t wide = b->len;

        put(b, 0x06064b50, 4);
        put(b, 44, 8);
        put(b, 0, 12);
        put(b, n, 8);
        put(b, n, 8);
        put(b, directory.len, 8);
        put(b, at, 8);
        put(b, 0x07064b50, 4);
        put(b, 0, 4);
        put(b, wide, 8);
        put(b, 1, 4);
    }
    put(b, 0x06054b50, 4);
    put(b, 0, 4);
    put(b, n, 2);
    put(b, n, 2);
    put(b, directory.len, 4);
    put(b, is_wide ? UINT32_MAX : at, 4);
    put(b, 0, 2);
}

static const struct part whole[] = {
    {"x/data.pkl", "}q\x01.", true},
    {"x/byteorder", "little", true},
    {"x/data/0", "some bytes of a storage", true},
    {"x/data/1", "and others", true},
    {"x/version", "3\n", true},
};

static int check(const struct buf *b, size_t len, struct torch_file *ret,
                 struct error *e)
{
    _free_ char *exact = malloc(len + 1);
    struct bytes_io io;

    memcpy(exact, b->data, len);
    io = bytes_io(exact, len);
    return torch_file_check(&io.io, 0, true, ret, e);
}

/* Without holding checksums against bytes. */
static int check_shallow(const struct buf *b, struct torch_file *ret, struct error *e)
{
    struct bytes_io io = bytes_io(b->data, b->len);

    return torch_file_check(&io.io, 0, false, ret, e);
}

static void test_whole(void)
{
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        _buf_ struct buf b = {0};
        struct torch_file f = {0};
        struct error e = {0};
        unsigned n_taken = 0;

        make(&b, whole, ARRAY_SIZE(whole), is_wide);
        is_int(check(&b, b.len, &f, &e), 0, "whole (%s)", e.text);
        ok(f.n_storages == 2 && f.bytes == 33 && !f.has_no_checksums,
           "two storages");
        for (size_t len = 0; len < b.len; len++) {
            n_taken += check(&b, len, &f, NULL) == 0;
        }
        is_int((int)n_taken, 0, "cut to each of %zu lengths", b.len);
        buf_putc(&b, '\0');
        is_int(check(&b, b.len, &f, &e), -ERR_FORMAT, "a byte more");
    }
}

/* Headers that contradict each other, or say what torch.save never does, are damaged: also
 * in bits that torch.load does not look at. */
static void test_headers(void)
{
    static const struct {
        const char *sign; /* of the header */
        size_t at;
        unsigned bit;
        const char *why;
    } cases[] = {
        {"PK\1\2", 8, 0, "compressed or encrypted"},
        {"PK\1\2", 8, 5, "compressed or encrypted"},
        {"PK\1\2", 8, 6, "compressed or encrypted"},
        {"PK\1\2", 8, 13, "compressed or encrypted"},
        {"PK\1\2", 8, 3, "contradict each other: flags or method"},
        {"PK\1\2", 10, 3, "compressed or encrypted"},
        {"PK\1\2", 6, 6, "a later version"},
        {"PK\1\2", 38, 4, "called a directory"},
        {"PK\1\2", 34, 0, "another one of several parts"},
        {"PK\1\2", 34, 8, "another one of several parts"},
        {"PK\3\4", 0, 1, "not where the directory says"},
        {"PK\3\4", 6, 0, "contradict each other: flags or method"},
        {"PK\3\4", 6, 5, "contradict each other: flags or method"},
        {"PK\3\4", 6, 6, "contradict each other: flags or method"},
        {"PK\3\4", 6, 13, "contradict each other: flags or method"},
        {"PK\3\4", 6, 3, "contradict each other: flags or method"},
        {"PK\3\4", 8, 3, "contradict each other: flags or method"},
        {"PK\3\4", 26, 0, "not what the directory says"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct torch_file f = {0};
        struct error e = {0};
        char *header;

        make(&b, whole, ARRAY_SIZE(whole), false);
        header = memmem(b.data, b.len, cases[i].sign, 4);
        header[cases[i].at + cases[i].bit / 8] ^= (char)(1 << cases[i].bit % 8);
        is_int(check(&b, b.len, &f, &e), -ERR_FORMAT, "bit %u at byte %zu of header %zu: %s",
               cases[i].bit, cases[i].at, i, e.text);
        like(e.text, cases[i].why, "and why");
    }
}

/* Of the 64-bit numbers at its end. */
static void test_end64(void)
{
    static const struct {
        const char *sign;
        size_t at;
        unsigned bit;
        const char *why;
    } cases[] = {
        {"PK\6\6", 4, 0, "64-bit numbers are wrong"},
        {"PK\6\6", 11, 7, "64-bit numbers are wrong"},
        {"PK\6\7", 4, 0, "one of several parts"},
        {"PK\6\7", 16, 0, "one of several parts"},
        {"PK\6\7", 19, 7, "one of several parts"},
        {"PK\5\6", 12, 0, "contradict those of 64 bits"},
        {"PK\5\6", 19, 7, "contradict those of 64 bits"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct torch_file f = {0};
        struct error e = {0};
        char *at;

        make(&b, whole, ARRAY_SIZE(whole), true);
        at = (char *)memmem(b.data, b.len, cases[i].sign, 4) + cases[i].at;
        *at = (char)(*at ^ 1 << cases[i].bit);
        is_int(check(&b, b.len, &f, &e), -ERR_FORMAT, "bit %u at byte %zu of end %zu: %s",
               cases[i].bit, cases[i].at, i, e.text);
        like(e.text, cases[i].why, "and why");
    }
}

/* Entries that are called directories: of no bytes, where another program packed it anew. */
static void test_directories(void)
{
    static const struct part taken[] = {{"x/data.pkl", "N.", true}, {"x/data/", "", true},
                                        {"x/version", "3\n", true}};
    static const struct part refused[] = {{"x/data.pkl", "N.", true}, {"x/data/0/", "0", true},
                                          {"x/version", "3\n", true}};
    struct torch_file f;
    struct error e = {0};

    for (int is_bad = 0; is_bad < 2; is_bad++) {
        _buf_ struct buf b = {0};

        make(&b, is_bad ? refused : taken, 3, false);
        is_int(check(&b, b.len, &f, &e), is_bad ? -ERR_FORMAT : 0, "a directory: %s", e.text);
        like(e.text, is_bad ? "called a directory" : "", "and why");
    }
}

/* What data.pkl says of storages, and what there is. */
static void test_storages(void)
{
    static const char two[] = "(X\7\1\1\1storagectorch\nFloatStorage\nX\1\1\1\1" "0"
                              "X\3\1\1\1cpuK\2tQ.";
    static const char other[] = "](X\7\1\1\1storageX\5\1\1\1localX\4\1\1\1path"
                                "X\3\1\1\1cpuK\2e.";
    static const char list[] = "](X\7\1\1\1storagectorch\nFloatStorage\nX\1\1\1\1" "0"
                               "X\3\1\1\1cpuK\2e.";
    static const char before[] = "](X\7\1\1\1storagectorch\nFloatStorage\nX\1\1\1\1" "7"
                                 "X\3\1\1\1cpuK\2(X\7\1\1\1storagectorch\nFloatStorage\n"
                                 "X\1\1\1\1" "0X\3\1\1\1cpuK\2tQe.";
    static const struct {
        const char *pickle, *name, *bytes;
        int rc;
        const char *why;
    } cases[] = {
        {two, "x/data/0", "8 bytes.", 0, ""},
        {two, "x/data/0", "7 bytes", -ERR_FORMAT,
         "data.pkl: of data/0 it says 2 elements of 4, and that has 7 bytes"},
        {two, "x/data/0", "12 bytes....", -ERR_FORMAT, "and that has 12 bytes"},
        {two, "x/data/1", "8 bytes.", -ERR_FORMAT,
         "data.pkl: it names a storage, data/0, that is missing"},
        {other, "x/data/0", "others", 0, ""},
        {list, "x/data/1", "data that looks so", 0, ""},
        {before, "x/data/0", "8 bytes.", 0, ""},
        {before, "x/data/0", "7 bytes", -ERR_FORMAT, "data.pkl: of data/0 it says 2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct part parts[] = {{"x/data.pkl", cases[i].pickle, true},
                                     {cases[i].name, cases[i].bytes, true},
                                     {"x/version", "3\n", true}};
        _buf_ struct buf b = {0};
        struct torch_file f = {0};
        struct error e = {0};
        char *pickle;

        make(&b, parts, ARRAY_SIZE(parts), false);
        /* Parts are texts without zero bytes: lengths get theirs here. */
        pickle = memmem(b.data, b.len, cases[i].pickle, strlen(cases[i].pickle));
        for (size_t k = 0; k + 3 < strlen(cases[i].pickle); k++) {
            if (cases[i].pickle[k] == 'X') {
                memset(pickle + k + 2, 0, 3);
            }
        }
        is_int(check_shallow(&b, &f, &e), cases[i].rc, "storage %zu: %s", i, e.text);
        like(e.text, cases[i].why, "and why");
    }
}

/* What torch.jit.save() makes has such a name, and is no checkpoint. */
static void test_program(void)
{
    static const struct part script[] = {
        {"x/code/a.py", "pass", true},
        {"x/constants.pkl", ").", true},
    };
    unsigned n_taken = 0;

    for (int is_script = 0; is_script < 2; is_script++) {
        _buf_ struct buf b = {0};

        make(&b, is_script ? script : whole, is_script ? 2 : ARRAY_SIZE(whole), false);
        for (size_t len = 0; len <= b.len; len++) {
            _free_ char *exact = malloc(len + 1);
            struct bytes_io io;

            memcpy(exact, b.data, len);
            io = bytes_io(exact, len);
            n_taken += torch_file_is_program(&io.io, 0);
        }
    }
    is_int((int)n_taken, 1, "TorchScript, of all lengths, and no checkpoint");
}

/* An archive of another program is one as it ends; one of torch.save never is, whichever
 * bit of it changes. */
static void test_other(void)
{
    static const struct part other[] = {{"data", "{}", true}, {"policy.pth", "x", true}};
    unsigned n_other = 0, n_own = 0;
    _buf_ struct buf b = {0}, own = {0};

    make(&b, other, ARRAY_SIZE(other), false);
    for (size_t len = 0; len <= b.len; len++) {
        _free_ char *exact = malloc(len + 1);
        struct bytes_io io;

        memcpy(exact, b.data, len);
        io = bytes_io(exact, len);
        n_other += torch_file_is_other(&io.io, 0);
    }
    make(&own, whole, ARRAY_SIZE(whole), false);
    for (size_t bit = 0; bit < 8 * own.len; bit++) {
        struct bytes_io io;

        own.data[bit / 8] = (char)(own.data[bit / 8] ^ 1 << bit % 8);
        io = bytes_io(own.data, own.len);
        n_own += torch_file_is_other(&io.io, 0);
        own.data[bit / 8] = (char)(own.data[bit / 8] ^ 1 << bit % 8);
    }
    is_int((int)n_other, 1, "an archive of another program, of all lengths");
    is_int((int)n_own, 0, "one of torch.save, whichever bit of it changes");
}

/* Bytes that mean nothing to any reader: by header, and from where to where in it. */
static const struct {
    const char *sign;
    size_t from, to;
    uint8_t bits; /* of each byte */
    const char *why;
} free_bytes[] = {
    {"PK\3\4", 4, 6, 0xff, "the version needed: readers go by the directory's"},
    {"PK\3\4", 10, 14, 0xff, "the time"},
    {"PK\3\4", 14, 26, 0xff, "checksum and sizes: flag 3 says that they are elsewhere"},
    {"PK\1\2", 4, 6, 0xff, "the version made by"},
    {"PK\1\2", 6, 7, 0x3f, "the version needed: to 63 readers take any"},
    {"PK\1\2", 12, 16, 0xff, "the time"},
    {"PK\1\2", 36, 38, 0xff, "whether it is text"},
    {"PK\1\2", 38, 39, 0xef, "attributes, but for that of a directory"},
    {"PK\1\2", 39, 42, 0xff, "rights, which no reader of tensors gives to files"},
    {"PK\7\x08", 4, 16, 0xff, "checksum and sizes again, for who has no directory"},
    {"PK\6\6", 12, 16, 0xff, "the versions made by and needed"},
};

static bool is_free(const struct buf *b, size_t bit)
{
    const uint8_t *at = (const uint8_t *)b->data + bit / 8;

    for (size_t i = 0; i < ARRAY_SIZE(free_bytes); i++) {
        for (size_t k = free_bytes[i].from; k < free_bytes[i].to && k <= bit / 8; k++) {
            if (memcmp(at - k, free_bytes[i].sign, 4) == 0 &&
                free_bytes[i].bits & 1 << bit % 8) {
                return true;
            }
        }
    }
    return false;
}

/* Padding before the bytes, with which torch.save aligns them, and the sign behind them. */
static bool is_between(const struct buf *b, size_t bit)
{
    static const char padding[] = "FB??", sign[] = "PK\7\x08";
    const char *at = b->data + bit / 8;

    for (size_t k = 0; k < 4 && k <= bit / 8; k++) {
        if (memcmp(at - k, padding, 4) == 0 || memcmp(at - k, sign, 4) == 0) {
            return true;
        }
    }
    return false;
}

/* Every bit of all that is in an archive is seen, where it means something. */
static void test_flips(void)
{
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        _buf_ struct buf b = {0};
        unsigned n_missed = 0, n_free = 0, n_seen = 0;

        make(&b, whole, ARRAY_SIZE(whole), is_wide);
        for (size_t bit = 0; bit < 8 * b.len; bit++) {
            bool means_nothing = is_free(&b, bit) || is_between(&b, bit);
            struct torch_file f;
            bool is_taken;

            b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
            is_taken = check(&b, b.len, &f, NULL) == 0;
            b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
            n_free += means_nothing && is_taken;
            n_seen += !is_taken;
            if (is_taken && !means_nothing) {
                n_missed++;
                diag("bit %zu of byte %zu", bit % 8, bit / 8);
            }
        }
        is_int((int)n_missed, 0, "each of %zu bits: %u seen, %u that mean nothing", 8 * b.len,
               n_seen, n_free);
        ok(n_seen > n_free, "most are seen");
    }
}

static void test_refused(void)
{
    static const struct {
        struct part parts[3];
        size_t n;
        const char *why; /* NULL: taken */
    } cases[] = {
        {{{"x/data.pkl", "N.", true}, {"x/version", "3", true}}, 2, NULL},
        {{{"x/data.pkl", "N.", true}}, 1, "no 'version'"},
        {{{"x/version", "3", true}}, 1, "no 'data.pkl'"},
        {{{"data.pkl", "N.", true}, {"version", "3", true}}, 2,
         "no 'data.pkl'"},
        {{{"x/data.pkl", "N.", true}, {"y/version", "3", true}}, 2,
         "differ in their first part"},
        {{{"x/data.pkl", "N", true}, {"x/version", "3", true}}, 2,
         "data.pkl: the pickle is cut"},
        {{{"x/data.pkl", "N..", true}, {"x/version", "3", true}}, 2,
         "ends at its byte 2 of 3"},
        {{{"x/data.pkl", "N.", true}, {"x/version", "3", true},
          {"x/version", "3", true}}, 3, "two entries have one name"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct torch_file f;
        struct error e = {0};

        make(&b, cases[i].parts, cases[i].n, false);
        is_int(check(&b, b.len, &f, &e), cases[i].why ? -ERR_FORMAT : 0,
               "archive %zu (%s)", i, e.text);
        if (cases[i].why) {
            like(e.text, cases[i].why, "and why");
        }
    }
}

static void test_no_checksums(void)
{
    static const struct part parts[] = {{"x/data.pkl", "N.", false},
                                        {"x/data/0", "bytes", false},
                                        {"x/version", "3", false}};
    _buf_ struct buf b = {0};
    struct torch_file f = {0};

    make(&b, parts, ARRAY_SIZE(parts), false);
    is_int(check(&b, b.len, &f, NULL), 0, "without checksums");
    ok(f.has_no_checksums, "that is told");
}

/* As torch.serialization.skip_data() leaves it, whoever writes the bytes. */
static void test_left_out(void)
{
    struct part parts[] = {{"x/data.pkl", "N.", true},
                           {"x/data/0", "bytes", false},
                           {"x/data/1", "others", true},
                           {"x/version", "3", true}};
    _buf_ struct buf b = {0}, c = {0};
    struct torch_file f = {0};
    struct error e = {0};

    make(&b, parts, ARRAY_SIZE(parts), false);
    is_int(check(&b, b.len, &f, &e), 0, "one storage without a checksum%s", e.text);
    ok(f.lacks_checksums && !f.has_no_checksums, "that is told");
    for (size_t i = 0; i + 6 < b.len; i++) {
        if (memcmp(b.data + i, "others", 6) == 0) {
            b.data[i] ^= 1;
        }
    }
    is_int(check(&b, b.len, &f, &e), -ERR_FORMAT, "one that has its own is held against it");
    like(e.text, "'x/data/1'", "named");
    parts[3].has_crc = false;
    make(&c, parts, ARRAY_SIZE(parts), false);
    is_int(check(&c, c.len, &f, &e), -ERR_FORMAT, "what is no storage has one");
}

static void test_number(void)
{
    static const struct part parts[] = {
        {"x/data.pkl", "}(X\1???wK\2X\1???nK\7X\1???nK\1u.", true},
        {"x/version", "3", true}};
    _buf_ struct buf b = {0};
    struct bytes_io io;
    uint64_t n = 0;

    make(&b, parts, ARRAY_SIZE(parts), false);
    for (size_t i = 0; i < b.len; i++) { /* parts have no zero bytes */
        b.data[i] = b.data[i] == '?' && i > 40 ? '\0' : b.data[i];
    }
    io = bytes_io(b.data, b.len);
    ok(torch_file_number(&io.io, 0, "n", &n), "a number by its key");
    is_int((int)n, 7, "the first of it");
    ok(!torch_file_number(&io.io, 0, "m", &n), "one that is not there");
    io = bytes_io(b.data, b.len - 1);
    ok(!torch_file_number(&io.io, 0, "n", &n), "of a file that is cut");
}

/* A name that ends before the others' first part does (with a sanitizer, or valgrind). */
static void test_short_name(void)
{
    static const struct part parts[] = {
        {"x", "3", true},
        {"a-first-part-that-is-long/data.pkl", "}(X\1\1\1\1nK\7u.", true},
        {"a-first-part-that-is-long/version", "3", true}};
    _buf_ struct buf b = {0};
    struct bytes_io io;
    uint64_t n = 0;

    make(&b, parts, ARRAY_SIZE(parts), false);
    io = bytes_io(b.data, b.len);
    ok(!torch_file_number(&io.io, 0, "n", &n), "nothing is read behind a short name");
}

int main(void)
{
    test_storages();
    test_headers();
    test_end64();
    test_directories();
    test_number();
    test_short_name();
    test_pickles();
    test_whole();
    test_program();
    test_other();
    test_flips();
    test_refused();
    test_no_checksums();
    test_left_out();
    return tap_done();
}
