/* SPDX-License-Identifier: Apache-2.0 */
/* What is read out of pickles without running them. */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/bytes_io.h"
#include "ckpt/dcp_places.h"
#include "ckpt/pickle.h"
#include "ckpt/torch_old.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values --- */

static int show_value(void *arg, const struct pickle_value *v)
{
    if (v->text) {
        buf_append(arg, v->text, v->len);
    } else if (v->is_number) {
        buf_printf(arg, "%llu", (unsigned long long)v->number);
    } else {
        buf_puts(arg, "-");
    }
    buf_puts(arg, " ");
    return 0;
}

static void test_values(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *want; /* NULL: refused */
        int rc;
    } cases[] = {
        {"\x80\x02}q\x00X\x01\x00\x00\x00" "aq\x01K\x03s.", 17, "- a 3 - ", 0},
        {"\x80\x04\x8c\x02" "ab\x94h\x00M\x01\x02.", 13, "ab ab 513 ", 0},
        {"\x80\x04\x8c\x01m\x94\x8c\x01n\x94\x93\x94h\x02h\x01.", 17, "m n n n n ", 0},
        {"ctorch\nFloatStorage\nq\x05h\x05.", 25, "FloatStorage FloatStorage ", 0},
        {"\x8d\x02\0\0\0\0\0\0\0okr\x01\0\0\0j\x01\0\0\0.", 22, "ok ok ", 0},
        {"\x8a\x02\xff\x7f\x8a\x01\xff\x8a\x00\x8a\x09\1\0\0\0\0\0\0\0\0.", 21, "32767 - 0 1 ", 0},
        {"\x8a\x09\1\0\0\0\0\0\0\0\1.", 12, "- ", 0},
        {"J\xff\xff\xff\xffJ\xff\xff\xff\x7f.", 11, "- 2147483647 ", 0},
        {"Vtext\nU\x01x.", 10, "text x ", 0},
        {"(dp0\nVa\np1\nI17\nsg1\nI01\nI-3\nL9L\ng7\ng\n.", 37, "- - a 17 - a 1 - 9 - - ", 0},
        {"(dp0\nS'step'\nS'\nS\nL1234567890123456789L\n.", 41, "- - step - - - ", 0},
        {"P('storage', 7)\np99999999999999999999\n.", 39, NULL, -EFBIG},
        {"h\x07j\xff\xff\xff\xff.", 8, "- - ", 0}, /* never kept */
        {"q\x00h\x00.", 5, "- ", 0}, /* of nothing: it refers to itself */
        {"\x94\x94h\x01.", 5, "- ", 0},
        {"\x93.", 2, "- ", 0},
        {"Nr\xff\xff\xff\x7f.", 7, NULL, -EFBIG},
        {"X\x05\0\0\0ab.", 8, NULL, -ERR_FORMAT},
        {"K\x01", 2, NULL, -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *exact = malloc(cases[i].len);
        _buf_ struct buf b = {0};
        struct error e = {0};

        memcpy(exact, cases[i].bytes, cases[i].len);
        is_int(pickle_values(exact, cases[i].len, show_value, &b, &e), cases[i].rc,
               "pickle %zu %s", i, e.text);
        if (cases[i].want) {
            is_str(buf_str(&b), cases[i].want, "its values");
        }
    }
}

/* --- places --- */

/* (relative_path, offset, length) of a record, as the second of two has them. */
static void put_text(struct buf *b, const char *text)
{
    buf_putc(b, '\x8c');
    buf_putc(b, (char)strlen(text));
    buf_puts(b, text);
    buf_putc(b, '\x94');
}

static void put_number(struct buf *b, unsigned n)
{
    buf_putc(b, 'M');
    buf_putc(b, (char)n);
    buf_putc(b, (char)(n >> 8));
}

/* Of a class, and with the start of its dictionary. */
static void put_object(struct buf *b, const char *class)
{
    put_text(b, "m");
    put_text(b, class);
    buf_puts(b, "\x93)\x81}\x94(");
}

static void put_key(struct buf *b, const char *name)
{
    put_object(b, "MetadataIndex");
    put_text(b, "fqn");
    put_text(b, name);
    put_text(b, "offset");
    buf_puts(b, "Nub");
}

static void put_record(struct buf *b, const char *file, unsigned at, unsigned len)
{
    put_object(b, "_StorageInfo");
    put_text(b, "relative_path");
    put_text(b, file);
    put_text(b, "offset");
    put_number(b, at);
    put_text(b, "length");
    put_number(b, len);
    buf_puts(b, "ub");
}

static void put_place(struct buf *b, const char *file, unsigned at, unsigned len)
{
    put_key(b, "name");
    put_record(b, file, at, len);
}

static void begin_places(struct buf *b)
{
    buf_clear(b);
    buf_puts(b, "\x80\x04}(");
    put_text(b, "storage_data");
    buf_puts(b, "}(");
}

static void test_places(void)
{
    _dcp_places_ struct dcp_places p = {0};
    _buf_ struct buf b = {0}, text = {0};
    unsigned n_taken = 0;

    begin_places(&b);
    put_place(&b, "__1_0.distcp", 7, 3);
    put_key(&b, "_StorageInfo"); /* tensors of such names */
    put_record(&b, "__0_0.distcp", 500, 20);
    put_key(&b, "MetadataIndex");
    put_record(&b, "__0_0.distcp", 0, 500);
    put_key(&b, "relative_path");
    put_record(&b, "x", 1, 1);
    buf_puts(&b, "uu.");
    is_int(dcp_places_read(b.data, b.len, &p, NULL), 0, "places");
    for (size_t i = 0; i < p.n; i++) {
        buf_printf(&text, "%.*s %llu %llu; ", (int)p.items[i].file_len,
                   p.items[i].file, (unsigned long long)p.items[i].offset,
                   (unsigned long long)p.items[i].length);
    }
    is_str(buf_str(&text), "__0_0.distcp 0 500; __0_0.distcp 500 20; "
           "__1_0.distcp 7 3; x 1 1; ", "in their order");
    for (size_t len = 0; len < b.len; len++) {
        struct dcp_places none = {0};

        n_taken += dcp_places_read(b.data, len, &none, NULL) == 0;
        dcp_places_release(&none);
    }
    is_int((int)n_taken, 0, "cut to each of %zu lengths", b.len);
}

/* Each change of a bit in the names of a record, of its class and of its key's class. */
static void test_wrong_places(void)
{
    static const char *const words[] = {"_StorageInfo", "MetadataIndex", "relative_path",
                                        "offset", "length", "storage_data"};
    _buf_ struct buf b = {0};
    unsigned n_taken = 0, n = 0;

    begin_places(&b);
    put_place(&b, "x", 0, 1);
    put_place(&b, "x", 1, 1);
    buf_puts(&b, "uu.");
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        char *at = b.data;

        while ((at = memmem(at, b.len - (size_t)(at - b.data), words[i], strlen(words[i])))) {
            for (size_t bit = 0; bit < 8 * strlen(words[i]); bit++) {
                struct dcp_places p = {0};

                at[bit / 8] = (char)(at[bit / 8] ^ 1 << bit % 8);
                n_taken += dcp_places_read(b.data, b.len, &p, NULL) == 0 && p.n > 0;
                at[bit / 8] = (char)(at[bit / 8] ^ 1 << bit % 8);
                dcp_places_release(&p);
                n++;
            }
            at += strlen(words[i]);
        }
    }
    /* That of a key's "offset", twice, is nobody's. */
    is_int((int)n_taken, 2 * 8 * (int)strlen("offset"), "of %u bits in names of records", n);
}

static void test_uneven_places(void)
{
    for (int is_key = 0; is_key < 2; is_key++) {
        for (int is_last = 0; is_last < 2; is_last++) {
            _dcp_places_ struct dcp_places p = {0};
            _buf_ struct buf b = {0};
            struct error e = {0};

            begin_places(&b);
            for (int i = 0; i < 2; i++) {
                if (i == is_last && is_key) {
                    put_key(&b, "name");
                } else if (i == is_last) {
                    put_record(&b, "x", 0, 1);
                } else {
                    put_place(&b, "x", 1, 1);
                }
            }
            buf_puts(&b, "uu.");
            is_int(dcp_places_read(b.data, b.len, &p, &e), -ERR_FORMAT, "%s alone, %s: %s",
                   is_key ? "a key" : "a record", is_last ? "the last" : "the first", e.text);
            like(e.text, is_key ? "only what lies there" : "only where it is", "and why");
        }
    }
}

/* One that holds nothing says so: that is another thing than to say nothing. */
static void test_no_places(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool is_empty;
    } cases[] = {
#define FIELD "\x8c\x0cstorage_data\x94"
#define NEXT "\x8c\x0cstorage_meta\x94N"
#define CASE(text) text, sizeof(text) - 1
        {CASE("\x80\x04}\x94(" FIELD "}\x94" NEXT "u."), true},
        {CASE("\x80\x04}\x94(" FIELD "}\x94u."), true},
        {CASE("\x80\x02}q\0(X\x0c\0\0\0storage_dataq\1}q\2X\x07\0\0\0versionq\3Nu."), true},
        {CASE("\x80\x04}\x94(" FIELD "}\x94(K\1K\2u" NEXT "u."), false},
        {CASE("\x80\x04}\x94(" FIELD "}\x94K\1K\2s" NEXT "u."), false},
        {CASE("\x80\x04}\x94(" FIELD "N" NEXT "u."), false},
        {CASE("\x80\x04}\x94(" NEXT "u."), false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _dcp_places_ struct dcp_places p = {0};

        is_int(dcp_places_read(cases[i].bytes, cases[i].len, &p, NULL), 0, "of %zu", i);
        ok(p.n == 0 && p.is_empty == cases[i].is_empty, "it is %sempty",
           cases[i].is_empty ? "" : "not known to be ");
    }
}

/* --- old files --- */

static int check_old(const void *data, size_t len, struct error *e)
{
    _free_ char *exact = malloc(len + 1);
    struct bytes_io io;

    memcpy(exact, data, len);
    io = bytes_io(exact, len);
    return torch_old_check(&io.io, 0, len, e);
}

#define MAGIC "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."
#define PROTOCOL "\x80\x02M\xe9\x03."
#define SYSTEM "\x80\x02}q\x00."
/* ('storage', torch.<class>, '<key>', 'cpu', 2) */
#define STORAGE(class, key) "(X\x07\0\0\0storageq\x01" "ctorch\n" class "\nq\x02" \
                            "X\x01\0\0\0" key "q\x03X\x03\0\0\0cpuK\x02tQ"
#define ANOTHER(class, key) "(h\1" "ctorch\n" class "\nX\x01\0\0\0" key \
                            "X\x03\0\0\0cpuK\x02tQ"
#define AGAIN "(h\1h\2h\3X\x03\0\0\0cpuK\x02tQ"
#define OBJECT(text) "\x80\x02" text "."
#define KEYS(text) "\x80\x02]q\x00(" text "e."
#define KEY(key) "X\x01\0\0\0" key

/* The same by a text protocol. */
#define MAGIC_0 "L119547037146038801333356L\n."
#define FRONT_0 MAGIC_0 "I1001\n." "(dp0\n."
#define STORAGE_0(class, key) "P('storage', <class 'torch." class "'>, '" key "', 'cpu', 2, None)\n"
#define KEYS_0(text) "(lp0\n" text "."
#define KEY_0(key) "V" key "\na"
/* And by one with frames. */
#define STORAGE_4(class, key) "(\x8c\x07storage\x94\x8c\x05torch\x94\x8c\x0c" class \
                              "\x94\x93\x94\x8c\x01" key "\x94K\x02tQ"
#define MAGIC_4 "\x80\x04\x95\x0d\0\0\0\0\0\0\0\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."

#define BYTES(text) text, sizeof(text) - 1

static void test_old(void)
{
    static const struct {
        const char *what, *bytes;
        size_t len;
        const char *why; /* NULL: taken */
    } cases[] = {
        {"two storages", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7") ANOTHER("HalfStorage", "8") "\x86")
             KEYS(KEY("7") KEY("8")) "\2\0\0\0\0\0\0\0ABCDEFGH"
             "\2\0\0\0\0\0\0\0abcd"), NULL},
        {"one that is shared", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7") AGAIN "\x86")
             KEYS(KEY("7")) "\2\0\0\0\0\0\0\0ABCDEFGH"), NULL},
        {"none", BYTES(MAGIC PROTOCOL SYSTEM OBJECT("}") KEYS("")), NULL},
        {"none, and a byte", BYTES(MAGIC PROTOCOL SYSTEM OBJECT("}") KEYS("") "x"),
         "too long a file"},
        {"a class that is not known", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("OddStorage", "7")) KEYS(KEY("7")) "any"), NULL},
        {"a key that nothing names", BYTES(MAGIC PROTOCOL SYSTEM OBJECT("}")
             KEYS(KEY("7")) "any"), NULL},
        {"cut in its bytes", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7")) KEYS(KEY("7"))
             "\2\0\0\0\0\0\0\0ABCDEFG"), "has 2 elements of 4"},
        {"cut in its length", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7")) KEYS(KEY("7")) "\2\0\0\0"),
         "a storage begins at"},
        {"of more than all bytes", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7")) KEYS(KEY("7"))
             "\xff\xff\xff\xff\xff\xff\xff\xffx"), "it is cut"},
        {"of bytes that wrap", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("FloatStorage", "7")) KEYS(KEY("7"))
             "\0\0\0\0\0\0\0\x40"), "it is cut"},
        {"protocol 0", BYTES(FRONT_0 STORAGE_0("FloatStorage", "7")
             STORAGE_0("HalfStorage", "8") "\x86." KEYS_0(KEY_0("7") KEY_0("8"))
             "\2\0\0\0\0\0\0\0ABCDEFGH" "\2\0\0\0\0\0\0\0abcd"), NULL},
        {"protocol 0, cut", BYTES(FRONT_0 STORAGE_0("FloatStorage", "7") "."
             KEYS_0(KEY_0("7")) "\2\0\0\0\0\0\0\0ABCDEFG"), "has 2 elements of 4"},
        {"protocol 0, of a line that is none", BYTES(FRONT_0 "P('storage', <class 'torch.\n."
             KEYS_0(KEY_0("7")) "any"), NULL},
        {"protocol 4", BYTES(MAGIC_4 PROTOCOL SYSTEM OBJECT(STORAGE_4("FloatStorage", "7"))
             KEYS(KEY("7")) "\2\0\0\0\0\0\0\0ABCDEFGH"), NULL},
        {"protocol 4, cut", BYTES(MAGIC_4 PROTOCOL SYSTEM
             OBJECT(STORAGE_4("FloatStorage", "7")) KEYS(KEY("7"))
             "\2\0\0\0\0\0\0\0ABCDEFG"), "has 2 elements of 4"},
        {"too long", BYTES(MAGIC PROTOCOL SYSTEM
             OBJECT(STORAGE("ByteStorage", "7")) KEYS(KEY("7"))
             "\1\0\0\0\0\0\0\0ABC"), "too long a file"},
        {"without an object", BYTES(MAGIC PROTOCOL SYSTEM), "cut"},
        {"another pickle", BYTES("\x80\x02}q\x00."), NULL},
        {"and bytes behind it", BYTES("\x80\x02}q\x00.and more"), NULL},
        {"another one, cut", BYTES("\x80\x02}q\x00"), "the pickle is cut"},
        {"no pickle", BYTES("\x80\x02\xff"), "no instruction"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};

        is_int(check_old(cases[i].bytes, cases[i].len, &e),
               cases[i].why ? -ERR_FORMAT : 0, "%s (%s)", cases[i].what, e.text);
        like(e.text, cases[i].why ? cases[i].why : "", "and why");
    }
}

/* Each length but the whole one is refused. */
static void test_old_cut(void)
{
    static const char bytes[] = MAGIC PROTOCOL SYSTEM
        OBJECT(STORAGE("FloatStorage", "7")) KEYS(KEY("7"))
        "\2\0\0\0\0\0\0\0ABCDEFGH";
    unsigned n_taken = 0;

    /* Up to the first pickle alone it may be of another program. */
    for (size_t len = 15; len < sizeof(bytes) - 1; len++) {
        n_taken += check_old(bytes, len, NULL) == 0;
    }
    is_int((int)n_taken, 0, "cut to each of %zu lengths", sizeof(bytes) - 1);
}

/* A pickle that is longer than what is read at first. */
static void test_old_long(void)
{
    enum { N = 300000 };
    _buf_ struct buf b = {0};
    struct error e = {0};

    buf_append(&b, BYTES("\x80\x02" "B"));
    buf_append(&b, "\xe0\x93\x04\0", 4);
    for (unsigned i = 0; i < N; i++) {
        buf_putc(&b, '.');
    }
    is_int(check_old(b.data, b.len, &e), -ERR_FORMAT, "one that is long, cut");
    buf_putc(&b, '.');
    is_int(check_old(b.data, b.len, &e), 0, "and whole (%s)", e.text);
}

int main(void)
{
    test_values();
    test_places();
    test_wrong_places();
    test_uneven_places();
    test_no_places();
    test_old();
    test_old_cut();
    test_old_long();
    return tap_done();
}
