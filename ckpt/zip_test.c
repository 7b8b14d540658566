/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of which single numbers are wrong, or just right. */
#include <config.h>

#include "ckpt/zip.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/bytes_io.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL = 30, CENTRAL = 46, MAX_ENTRIES = 4 };

struct entry {
    const char *name;
    size_t name_len; /* 0: of the text */
    const char *bytes;
    size_t len; /* 0: of the text */
    const char *extra; /* in the directory */
    size_t extra_len;
};

/* Entries without anything between them, and where their headers are. */
struct archive {
    struct buf b;
    size_t local[MAX_ENTRIES], central[MAX_ENTRIES], directory, end;
};

static void archive_release(struct archive *a)
{
    buf_release(&a->b);
}

#define _archive_ __attribute__((cleanup(archive_release)))

static void put(struct buf *b, uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        buf_putc(b, i < 8 ? (char)(n >> 8 * i) : 0);
    }
}

/* Over what is there. */
static void set(struct archive *a, size_t at, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        a->b.data[at + i] = (char)(n >> 8 * i);
    }
}

static size_t name_len(const struct entry *e)
{
    return e->name_len ? e->name_len : strlen(e->name);
}

static size_t bytes_len(const struct entry *e)
{
    return e->len ? e->len : strlen(e->bytes);
}

static void put_end(struct archive *a, size_t n)
{
    a->end = a->b.len;
    put(&a->b, 0x06054b50, 4);
    put(&a->b, 0, 4);
    put(&a->b, n, 2);
    put(&a->b, n, 2);
    put(&a->b, a->end - a->directory, 4);
    put(&a->b, a->directory, 4);
    put(&a->b, 0, 2);
}

static void make(struct archive *a, const struct entry *entries, size_t n)
{
    struct buf *b = &a->b;

    for (size_t i = 0; i < n; i++) {
        a->local[i] = b->len;
        put(b, 0x04034b50, 4);
        put(b, 0, 22);
        put(b, name_len(&entries[i]), 2);
        put(b, 0, 2);
        buf_append(b, entries[i].name, name_len(&entries[i]));
        buf_append(b, entries[i].bytes, bytes_len(&entries[i]));
    }
    a->directory = b->len;
    for (size_t i = 0; i < n; i++) {
        const struct entry *e = &entries[i];

        a->central[i] = b->len;
        put(b, 0x02014b50, 4);
        put(b, 0, 12);
        put(b, crc32_gzip_refl(0, (const uint8_t *)e->bytes, bytes_len(e)), 4);
        put(b, bytes_len(e), 4);
        put(b, bytes_len(e), 4);
        put(b, name_len(e), 2);
        put(b, e->extra_len, 2);
        put(b, 0, 10);
        put(b, a->local[i], 4);
        buf_append(b, e->name, name_len(e));
        buf_append(b, e->extra, e->extra_len);
    }
    put_end(a, n);
}

/* The end in 64 bits, at that place. */
static void put_wide(struct buf *b, uint64_t n, uint64_t bytes, uint64_t directory, uint64_t at)
{
    put(b, 0x06064b50, 4);
    put(b, 44, 8);
    put(b, 0, 12);
    put(b, n, 8);
    put(b, n, 8);
    put(b, bytes, 8);
    put(b, directory, 8);
    put(b, 0x07064b50, 4);
    put(b, 0, 4);
    put(b, at, 8);
    put(b, 1, 4);
}

/* As well; the one of 32 keeps its numbers. */
static void put_wide_end(struct archive *a, size_t n)
{
    size_t bytes = a->end - a->directory;

    a->b.len = a->end;
    put_wide(&a->b, n, bytes, a->directory, a->end);
    put_end(a, n);
    set(a, a->end + 12, bytes, 4);
}

static int read_all(const struct archive *a, struct zip *ret, struct error *e)
{
    _free_ char *exact = malloc(a->b.len + 1);
    struct bytes_io io;

    *e = (struct error){0};
    memcpy(exact, a->b.data, a->b.len);
    io = bytes_io(exact, a->b.len);
    return zip_read(&io.io, 0, ret, e);
}

static void good(const struct archive *a, const char *what)
{
    _zip_ struct zip z = {0};
    struct error e;

    is_int(read_all(a, &z, &e), 0, "%s: %s", what, e.text);
}

static void bad(const struct archive *a, const char *why, const char *what)
{
    _zip_ struct zip z = {0};
    struct error e;

    is_int(read_all(a, &z, &e), -ERR_FORMAT, "%s", what);
    like(e.text, why, "and why");
}

static const struct entry two[] = {{.name = "a", .bytes = "some bytes"},
                                   {.name = "b", .bytes = "and others"}};

/* --- the end --- */

static void test_end(void)
{
    _archive_ struct archive a = {0}, none = {0}, room = {0};

    make(&a, two, 2);
    good(&a, "two entries that touch each other");
    set(&a, a.end + 12, a.end - a.directory - 1, 4);
    bad(&a, "does not end where it should", "a directory that is said to be shorter");
    set(&a, a.end + 12, a.end - a.directory, 4);
    set(&a, a.end + 16, a.directory + 1, 4);
    bad(&a, "does not end where it should", "or to begin later");
    set(&a, a.end + 16, a.directory, 4);
    set(&a, a.end + 8, 1, 2);
    bad(&a, "one of several parts", "of which more is somewhere else");
    set(&a, a.end + 10, 1, 2);
    bad(&a, "something else is in its directory", "with an entry more than is said");
    set(&a, a.end + 8, 3, 2);
    set(&a, a.end + 10, 3, 2);
    bad(&a, "more entries than its directory can hold", "or one less");
    set(&a, a.end + 8, 2, 2);
    set(&a, a.end + 10, 2, 2);
    good(&a, "as it was");

    put_end(&none, 0);
    good(&none, "nothing in it");
    put(&room.b, 0x07064b50, 4);
    put(&room.b, 0, 16);
    room.directory = room.b.len;
    put_end(&room, 0);
    bad(&room, "no room for its 64-bit numbers", "a sign of 64-bit numbers, and none of them");
}

static void test_comment(void)
{
    _archive_ struct archive a = {0};
    size_t n;

    make(&a, two, 2);
    n = a.b.len;
    set(&a, a.end + 20, UINT16_MAX, 2);
    put(&a.b, 0, UINT16_MAX);
    good(&a, "the longest comment");
    set(&a, n + 100, 0x06054b50, 4);
    good(&a, "with something like an end in it");
    put(&a.b, 0, 1);
    bad(&a, "cut, or none: no directory", "a byte more");
    a.b.len = n - 1;
    bad(&a, "cut, or none", "a byte less than an end");
}

static void test_wide_end(void)
{
    _archive_ struct archive a = {0};
    size_t wide;

    make(&a, two, 2);
    wide = a.end;
    put_wide_end(&a, 2);
    good(&a, "64-bit numbers that say the same");
    set(&a, wide + 56 + 8, wide - 1, 8);
    bad(&a, "somewhere else", "which are not just there");
    set(&a, wide + 56 + 8, wide, 8);
    set(&a, a.end + 8, 1, 2);
    set(&a, a.end + 10, 1, 2);
    bad(&a, "contradict those of 64 bits", "another number of entries");
    set(&a, a.end + 8, UINT16_MAX, 2);
    set(&a, a.end + 10, UINT16_MAX, 2);
    good(&a, "or none");
    set(&a, wide + 40, wide - a.directory - 1, 8);
    set(&a, a.end + 12, UINT32_MAX, 4);
    bad(&a, "does not end where it should", "a directory that is shorter");
    set(&a, wide + 40, UINT64_MAX, 8);
    set(&a, wide + 48, wide + 1, 8);
    set(&a, a.end + 16, UINT32_MAX, 4);
    bad(&a, "does not end where it should", "or begins behind its end");
}

/* A file of zeros but for its end: as large as it says. */
struct hollow {
    struct io io;
    uint64_t size;
    const struct archive *end;
    int size_error;
    uint64_t read_error_from;
};

static int hollow_size(struct io *io, int fd, uint64_t *ret)
{
    const struct hollow *h = (const struct hollow *)io;

    (void)fd;
    *ret = h->size;
    return -h->size_error;
}

static ssize_t hollow_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    const struct hollow *h = (const struct hollow *)io;
    uint64_t begin = h->size - h->end->b.len;

    (void)fd;
    if (h->read_error_from && at >= h->read_error_from) {
        return -EIO;
    }
    memset(to, 0, len);
    for (size_t i = 0; i < len && at + len > begin; i++) {
        if (at + i >= begin && at + i < h->size) {
            ((char *)to)[i] = h->end->b.data[at + i - begin];
        }
    }
    return (ssize_t)len;
}

static const struct io_ops hollow_ops = {.size = hollow_size, .read = hollow_read};

static void is_too_large(uint64_t n, uint64_t bytes, const char *what)
{
    _archive_ struct archive a = {0};
    _zip_ struct zip z = {0};
    struct hollow h = {.io = {.ops = &hollow_ops}, .end = &a};
    struct error e = {0};

    put_wide(&a.b, n, bytes, 0, bytes);
    put_end(&a, 0);
    set(&a, a.end + 8, UINT32_MAX, 4);
    set(&a, a.end + 12, UINT64_MAX, 8);
    h.size = bytes + a.b.len;
    is_int(zip_read(&h.io, 0, &z, &e), -ERR_FORMAT, "%s", what);
    like(e.text, "more entries than its directory can hold", "that is refused before it is read");
}

static void test_too_large(void)
{
    is_too_large(ZIP_MAX_ENTRIES + 1, UINT64_C(46) * (ZIP_MAX_ENTRIES + 1), "too many entries");
    is_too_large(1, ZIP_MAX_DIRECTORY_BYTES + 1, "a directory that is too long");
}

static void test_read_errors(void)
{
    _archive_ struct archive a = {0};
    _zip_ struct zip z = {0};
    char block[4];
    struct hollow h = {.io = {.ops = &hollow_ops}, .end = &a};
    struct zip_entry entry = {.name = (char[]){"x"}, .begin = 1, .end = 9};
    struct error e = {0};

    make(&a, two, 2);
    h.size = a.b.len;
    is_int(zip_read(&h.io, 0, &z, &e), 0, "whole");
    is_int(zip_verify(&h.io, 0, &z.entries[0], block, sizeof(block), &e), 0, "with its sum");
    zip_release(&z);
    h.size_error = EIO;
    is_int(zip_read(&h.io, 0, &z, &e), -EIO, "its size cannot be asked for");
    h.size_error = 0;
    h.read_error_from = 1;
    is_int(zip_read(&h.io, 0, &z, &e), -EIO, "it cannot be read");
    is_int(zip_verify(&h.io, 0, &entry, block, sizeof(block), &e), -EIO, "nor an entry of it");
    ok(!zip_mentions(&h.io, 0, "a"), "nor does it mention anything");
}

/* --- entries --- */

static void test_wide_entries(void)
{
    static const char twice[] = "\1\0\x10\0\x0a\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0"
                                "\1\0\x10\0\x0b\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0";
    static const char cut[] = "\1\0\x11\0\x0a\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0";
    struct entry wide[] = {{.name = "a", .bytes = "some bytes", .extra = twice,
                            .extra_len = sizeof(twice) - 1}};
    struct entry one_of_two[] = {{.name = "a", .bytes = "some bytes", .extra = cut,
                                  .extra_len = sizeof(cut) - 1}};
    _archive_ struct archive a = {0}, b = {0};

    make(&a, wide, 1);
    set(&a, a.central[0] + 20, UINT64_MAX, 8);
    good(&a, "64-bit numbers: the first are taken");
    make(&b, one_of_two, 1);
    bad(&b, "the size of an entry is wrong", "a field that goes on behind the others");
    set(&b, b.central[0] + 46 + 1 + 2, 0x10, 2);
    good(&b, "and just so far");
    set(&b, b.central[0] + 20, UINT64_MAX, 8);
    set(&b, b.central[0] + 42, UINT32_MAX, 4);
    bad(&b, "the size of an entry is wrong", "with two numbers, where three are wanted");
}

static void test_names(void)
{
    static char large[ZIP_MAX_NAME_BYTES + 1];
    struct entry odd[] = {{.name = "", .bytes = "x"}, {.name = large, .bytes = "x"},
                          {.name = "a\0b", .name_len = 3, .bytes = "x"}};
    _archive_ struct archive none = {0}, longest = {0}, longer = {0}, zero = {0}, a = {0};

    make(&none, &odd[0], 1);
    bad(&none, "no name that is one", "no name");
    memset(large, 'n', sizeof(large));
    odd[1].name_len = sizeof(large) - 1;
    make(&longest, &odd[1], 1);
    good(&longest, "the longest name");
    odd[1].name_len = sizeof(large);
    make(&longer, &odd[1], 1);
    bad(&longer, "no name that is one", "a longer one");
    make(&zero, &odd[2], 1);
    bad(&zero, "no name that is one", "a name with a zero byte");
    make(&a, two, 2);
    set(&a, a.central[1] + 32, 1, 2);
    bad(&a, "no name that is one", "a comment that goes on behind the directory");
}

static void test_directory(void)
{
    static const char field[46] = "\xff\xff\x2a";
    const struct entry long_one[] = {{.name = "a", .bytes = "x", .extra = field,
                                      .extra_len = sizeof(field)}};
    _archive_ struct archive a = {0}, cut = {0};

    make(&a, two, 2);
    set(&a, a.central[0] + 6, 63, 2);
    good(&a, "the last version of the format");
    set(&a, a.central[0] + 6, 64, 2);
    bad(&a, "a later version", "one that there is not");

    make(&cut, long_one, 1);
    cut.b.len = cut.end;
    put(&cut.b, 0x02014b50, 4);
    put(&cut.b, 0, 8);
    put_end(&cut, 2);
    bad(&cut, "an entry of its directory is none", "the beginning of one");
}

/* --- where they lie --- */

static void test_bounds(void)
{
    _archive_ struct archive a = {0}, cut = {0};

    make(&a, two, 2);
    set(&a, a.central[1] + 20, 11, 4);
    set(&a, a.central[1] + 24, 11, 4);
    bad(&a, "not what the directory says", "an entry that goes on into the directory");
    make(&cut, two, 2);
    set(&cut, cut.end + 20, LOCAL, 2);
    set(&cut, cut.central[1] + 42, cut.b.len, 4);
    put(&cut.b, 0x04034b50, 4);
    put(&cut.b, 0, 22);
    put(&cut.b, 1, 2);
    put(&cut.b, 0, 2);
    bad(&cut, "the archive is cut", "a name that is behind the end of the file");
}

static void test_apart(void)
{
    static const char inner[] = "xxPK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0bytes";
    struct entry around[] = {{.name = "a", .bytes = inner, .len = sizeof(inner) - 1},
                             {.name = "b", .bytes = "y"}};
    _archive_ struct archive a = {0}, swapped = {0};
    struct error e;
    _zip_ struct zip z = {0};

    make(&a, around, 2);
    good(&a, "what looks like an entry is none by itself");
    set(&a, a.central[1] + 42, a.local[0] + LOCAL + 1 + 2, 4);
    bad(&a, "entries overlap", "but it is where the directory names it");
    make(&swapped, two, 2);
    set(&swapped, swapped.central[0] + 42, swapped.local[1], 4);
    set(&swapped, swapped.central[1] + 42, swapped.local[0], 4);
    swapped.b.data[swapped.central[0] + CENTRAL] = 'b';
    swapped.b.data[swapped.central[1] + CENTRAL] = 'a';
    is_int(read_all(&swapped, &z, &e), 0, "a directory in another order: %s", e.text);
    ok(z.n == 2 && strcmp(z.entries[0].name, "a") == 0 && z.entries[1].end == swapped.directory,
       "entries are as they lie in the file");
}

static void test_twice(void)
{
    static const struct entry same[] = {{.name = "a", .bytes = "x"}, {.name = "a", .bytes = "y"}};
    static const struct entry apart[] = {{.name = "b", .bytes = "x"}, {.name = "a", .bytes = "y"},
                                         {.name = "c", .bytes = "y"}, {.name = "b", .bytes = "y"}};
    _archive_ struct archive a = {0}, b = {0};

    make(&a, same, 2);
    bad(&a, "two entries have one name", "two of one name");
    make(&b, apart, 4);
    bad(&b, "two entries have one name", "with others between them");
}

int main(void)
{
    test_end();
    test_comment();
    test_wide_end();
    test_too_large();
    test_read_errors();
    test_wide_entries();
    test_names();
    test_directory();
    test_bounds();
    test_apart();
    test_twice();
    return tap_done();
}
