/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of torch.distributed.checkpoint, made here byte by byte: what .metadata
 * names has to be there, and each piece has to be whole within its file.
 */
#include <config.h>

#include "ckpt/found.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/found_bed.h"
#include "ckpt/last_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char name[] = "step-5";
static const char data_file[] = "__0_0.distcp";

struct bed {
    char path[FOUND_BED_PATH_BYTES];
    int top, dir; /* dir: the checkpoint, in top */
    struct buf metadata;
    char *piece; /* a file of torch.save, */
    size_t len;  /* and how long it is */
};

static void setup(struct bed *b)
{
    *b = (struct bed){0};
    b->top = found_bed_open(b->path);
    if (mkdirat(b->top, name, 0700) < 0) {
        bail_out("no directory %s/%s", b->path, name);
    }
    b->dir = openat(b->top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    last_bed_put(b->top, "piece", 7, 0, false);
    if (io_read_file(io_system(), b->top, "piece", 1 << 20, &b->piece, &b->len) < 0) {
        bail_out("no piece");
    }
}

static void teardown(struct bed *b)
{
    close(b->dir);
    found_bed_close(b->top, b->path);
    free(b->piece);
    buf_release(&b->metadata);
}

static void put(const struct bed *b, const char *file, const void *data, size_t len)
{
    found_bed_put(b->dir, file, data, len);
}

/* --- metadata --- */

static const char nothing[] = "\x80\x02}(X\x0c\0\0\0storage_data}X\x07\0\0\0versionNu.";

static void put_text(struct buf *to, const char *text, size_t len)
{
    buf_puts(to, "X");
    for (int i = 0; i < 4; i++) {
        buf_putc(to, (char)(len >> 8 * i));
    }
    buf_append(to, text, len);
}

static void put_number(struct buf *to, const char *key, size_t n)
{
    put_text(to, key, strlen(key));
    buf_putc(to, 'M');
    buf_putc(to, (char)n);
    buf_putc(to, (char)(n >> 8));
}

static void begin(struct bed *b)
{
    buf_clear(&b->metadata);
    buf_puts(&b->metadata, "\x80\x02}(");
    put_text(&b->metadata, "storage_data", strlen("storage_data"));
    buf_puts(&b->metadata, "}(");
}

static void add_place(struct bed *b, const char *file, size_t len, size_t at, size_t n)
{
    buf_puts(&b->metadata, "cmetadata\nMetadataIndex\n)\x81");
    buf_puts(&b->metadata, "cfilesystem\n_StorageInfo\n)\x81}(");
    put_text(&b->metadata, "relative_path", strlen("relative_path"));
    put_text(&b->metadata, file, len);
    put_number(&b->metadata, "offset", at);
    put_number(&b->metadata, "length", n);
    buf_puts(&b->metadata, "ub");
}

static void end(struct bed *b, const char *file)
{
    buf_puts(&b->metadata, "uu.");
    put(b, file, b->metadata.data, b->metadata.len);
}

/* Of two pieces one after the other, in one file. */
static void put_two(struct bed *b)
{
    _buf_ struct buf two = {0};

    buf_append(&two, b->piece, b->len);
    buf_append(&two, b->piece, b->len);
    put(b, data_file, two.data, two.len);
    begin(b);
    add_place(b, data_file, strlen(data_file), b->len, b->len);
    add_place(b, data_file, strlen(data_file), 0, b->len);
    end(b, ".metadata");
}

/* Another bit at that byte of a file. */
static void flip(const struct bed *b, const char *file, size_t at)
{
    _close_ int fd = openat(b->dir, file, O_RDWR | O_CLOEXEC);
    char byte;

    if (fd < 0 || pread(fd, &byte, 1, (off_t)at) != 1) {
        bail_out("read %s", file);
    }
    byte ^= 1;
    if (pwrite(fd, &byte, 1, (off_t)at) != 1) {
        bail_out("write %s", file);
    }
}

static void cut(const struct bed *b, const char *file, size_t len)
{
    _close_ int fd = openat(b->dir, file, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)len) < 0) {
        bail_out("cut %s", file);
    }
}

static struct found_facts check(const struct bed *b, bool is_deep, int rc, const char *why,
                                const char *what)
{
    struct found_facts facts;
    struct error e = {0};
    struct found f;

    ok(found_one(io_system(), b->top, name, &f) && f.kind == FOUND_DCP, "%s: a DCP", what);
    is_int(found_check(io_system(), b->top, &f, is_deep, &facts, &e), rc, "%s, %s: %s",
           what, is_deep ? "all bytes" : "looked at", e.text);
    like(e.text, why, "and why");
    return facts;
}

/* --- tests --- */

static void test_whole(void)
{
    struct found_facts facts;
    struct bed b;

    setup(&b);
    put_two(&b);
    check(&b, false, 0, "", "two pieces");
    facts = check(&b, true, 0, "", "two pieces");
    ok(facts.is_structure_only, "each has its checksums, and the metadata has none");
    is_int((intmax_t)facts.bytes, (intmax_t)(2 * b.len + b.metadata.len), "its bytes");
    is_int((intmax_t)facts.n_files, 2, "in two files");
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, b.len);
    end(&b, ".metadata");
    check(&b, true, 0, "", "what nobody names is nobody's");
    buf_puts(&b.metadata, "x");
    put(&b, ".metadata", b.metadata.data, b.metadata.len);
    check(&b, true, -ERR_FORMAT, "it ends at its byte", "more behind the metadata");
    teardown(&b);
}

/* Where pieces lie in each other one of them is wrong. */
static void test_apart(void)
{
    struct bed b;

    setup(&b);
    put_two(&b);
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, b.len + 1);
    add_place(&b, data_file, strlen(data_file), b.len, b.len);
    end(&b, ".metadata");
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: its pieces at 0 and", "a byte is in two");
    for (int i = 0; i < 2; i++) {
        begin(&b);
        add_place(&b, data_file, strlen(data_file), 0, b.len);
        add_place(&b, data_file, strlen(data_file), (size_t)i, b.len - (size_t)!i);
        end(&b, ".metadata");
        check(&b, false, -ERR_FORMAT, "__0_0.distcp: its pieces at 0 and",
              i ? "as long, a byte later" : "or a byte shorter");
    }
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, b.len);
    add_place(&b, data_file, strlen(data_file), 0, b.len);
    end(&b, ".metadata");
    check(&b, true, 0, "", "one that is named twice");
    teardown(&b);
}

/* Its data cannot be read: nobody knows what is in it. */
static int read_code;

static ssize_t bad_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    char path[64], real[4096];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, real, sizeof(real) - 1);
    real[n < 0 ? 0 : n] = '\0';
    return strstr(real, ".distcp") ? read_code
                                   : io_system_ops.read(io, fd, to, len, at);
}

static void test_unread(void)
{
    struct found f = {.name = "step-5", .kind = FOUND_DCP};
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct found_facts facts;
    struct error e = {0};
    struct bed b;

    setup(&b);
    ops.read = bad_read;
    read_code = -EIO;
    put_two(&b);
    is_int(found_check(&io, b.top, &f, false, &facts, &e), -EIO, "a bad disk: %s", e.text);
    read_code = -ECANCELED;
    is_int(found_check(&io, b.top, &f, true, &facts, &e), -ECANCELED, "a signal: %s", e.text);
    teardown(&b);
}

/* A bit anywhere in what is read; and how each piece is cut. */
static void test_damaged(void)
{
    char what[64];
    struct bed b;

    setup(&b);
    for (size_t k = 0; k < 2; k++) {
        const char *weights = memmem(b.piece, b.len, "weights", 7);
        const size_t at[] = {0, (size_t)(weights - b.piece), b.len - 22};

        for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
            put_two(&b);
            flip(&b, data_file, k * b.len + at[i]);
            snprintf(what, sizeof(what), "__0_0.distcp: its %zu bytes at %zu", b.len,
                     k * b.len);
            check(&b, true, -ERR_FORMAT, what, "a bit");
            check(&b, false, 0, "", "a bit");
        }
    }
    put_two(&b);
    flip(&b, data_file, 0);
    flip(&b, data_file, b.len - 22);
    ok(check(&b, true, 0, "", "a piece of another format").is_structure_only,
       "of which nobody knows more");
    put_two(&b);
    cut(&b, data_file, 2 * b.len - 1);
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: it is cut: expected", "by a byte");
    cut(&b, data_file, b.len - 1);
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: it is cut: expected", "by a piece");
    cut(&b, data_file, 0);
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: it is empty", "all of it");
    unlinkat(b.dir, data_file, 0);
    check(&b, false, -ERR_FORMAT, "__0_0.distcp is missing", "the file");
    put_two(&b);
    cut(&b, data_file, 2 * b.len + 1);
    check(&b, true, 0, "", "a byte more than is named");
    teardown(&b);
}

/* Places that lie behind the end of the file, or reach so far. */
static void test_behind(void)
{
    struct bed b;
    const size_t cases[][2] = {{1, 0}, {1, 1}, {0, 1}, {1000, 60000}};

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put_two(&b);
        begin(&b);
        add_place(&b, data_file, strlen(data_file), 2 * b.len + cases[i][0], cases[i][1]);
        end(&b, ".metadata");
        check(&b, false, -ERR_FORMAT, "__0_0.distcp: it is cut: expected", "behind its end");
    }
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 2 * b.len, 0);
    end(&b, ".metadata");
    check(&b, true, 0, "", "nothing, at its end");
    teardown(&b);
}

/* Nothing outside of the directory is read. */
static void test_names(void)
{
    static const struct {
        const char *name;
        size_t len;
    } cases[] = {
        {"../piece", 8}, {".piece", 6}, {"a/b", 3}, {"/piece", 6}, {"", 0}, {"a\0b", 3},
    };
    char long_name[FOUND_NAME_BYTES];
    struct bed b;

    setup(&b);
    memset(long_name, 'x', sizeof(long_name));
    for (size_t i = 0; i <= ARRAY_SIZE(cases); i++) {
        bool is_long = i == ARRAY_SIZE(cases);

        begin(&b);
        add_place(&b, is_long ? long_name : cases[i].name,
                  is_long ? sizeof(long_name) : cases[i].len, 0, 1);
        end(&b, ".metadata");
        check(&b, true, -ERR_FORMAT, "names a file that can be none of it",
              is_long ? "a long name" : cases[i].name);
    }
    begin(&b);
    add_place(&b, long_name, sizeof(long_name) - 1, 0, 1);
    end(&b, ".metadata");
    check(&b, true, -ERR_FORMAT, "step-5: xxx", "the longest name is looked for");
    teardown(&b);
}

/* Other versions of PyTorch may say otherwise where things are. */
static void test_unnamed(void)
{
    struct found_facts facts;
    struct bed b;

    setup(&b);
    put(&b, ".metadata", "\x80\x02}.", 4);
    check(&b, true, -ERR_FORMAT, "it has .metadata, and no .distcp file", "no data");
    put(&b, data_file, "data", 4);
    check(&b, true, -ENOTSUP, "where its data lies is not known here", "data that is not named");
    put(&b, "__1_0.distcp", "", 0);
    check(&b, true, -ERR_FORMAT, "__1_0.distcp: it is empty", "empty data");
    put(&b, ".metadata", nothing, sizeof(nothing) - 1);
    ok(check(&b, true, 0, "", "data, where there is to be none").is_structure_only,
       "of which nobody knows what it is");
    unlinkat(b.dir, data_file, 0);
    check(&b, true, 0, "", "empty, where there is to be none");
    unlinkat(b.dir, "__1_0.distcp", 0);
    facts = check(&b, true, 0, "", "a checkpoint of nothing");
    ok(facts.is_structure_only, "of which nothing but its metadata could be verified");
    teardown(&b);
}

/* No bit of a record or of its key lets files go unseen that are missing. */
static void test_missing(void)
{
    unsigned n_taken = 0, n = 0;
    struct bed b;

    setup(&b);
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, b.len);
    add_place(&b, "__1_0.distcp", 12, 0, b.len + 1);
    end(&b, ".metadata");
    put(&b, data_file, b.piece, b.len);
    check(&b, true, -ERR_FORMAT, "__1_0.distcp is missing", "a file");
    for (size_t bit = 0; bit < 8 * b.metadata.len; bit++) {
        char *at = &b.metadata.data[bit / 8];
        struct found f = {.name = "step-5", .kind = FOUND_DCP};
        struct found_facts facts;

        *at = (char)(*at ^ 1 << bit % 8);
        put(&b, ".metadata", b.metadata.data, b.metadata.len);
        if (found_check(io_system(), b.top, &f, true, &facts, NULL) == 0) {
            diag("bit %zu of byte %zu", bit % 8, bit / 8);
            n_taken++;
        }
        *at = (char)(*at ^ 1 << bit % 8);
        n++;
    }
    is_int((int)n_taken, 0, "nor with any of %u bits changed", n);
    teardown(&b);
}

/* Each rank by itself: __0.metadata names what that has written. */
static void test_ranks(void)
{
    struct bed b;

    setup(&b);
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, b.len);
    end(&b, "__0.metadata");
    put(&b, data_file, b.piece, b.len);
    is_int((int)check(&b, true, 0, "", "of one rank").n_ranks, 1, "is counted");
    put(&b, "__1.metadata", nothing, sizeof(nothing) - 1);
    is_int((int)check(&b, true, 0, "", "one has nothing").n_ranks, 2, "counts as well");
    put(&b, "x", "", 0);
    is_int((int)check(&b, true, 0, "", "a file of a short name").n_ranks, 2, "does not");
    put(&b, "__11_0.distcp", b.piece, b.len);
    check(&b, true, -ENOENT, "it was never finished: no __11.metadata", "data of another");
    unlinkat(b.dir, "__11_0.distcp", 0);
    put(&b, "__1.metadata", "\x80\x02}.", 4);
    check(&b, true, -ENOTSUP, "__1.metadata: what it says", "one says nothing");
    flip(&b, data_file, 0);
    check(&b, true, -ERR_FORMAT, "__0_0.distcp: its", "a bit");
    put(&b, data_file, b.piece, b.len);
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 1, b.len);
    end(&b, "__1.metadata");
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: it is cut", "the other names more");
    put_two(&b);
    put(&b, "__1.metadata", "\x80\x02", 2);
    check(&b, false, 0, "", "what is of all ranks counts alone");
    teardown(&b);
}

/* Pieces in one file of safetensors, which has no checksums. */
static void test_safetensors(void)
{
    static const char text[] =
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    uint8_t bytes[8 + sizeof(text) - 1 + 4] = {sizeof(text) - 1};
    struct bed b;

    setup(&b);
    memcpy(bytes + 8, text, sizeof(text) - 1);
    put(&b, data_file, bytes, sizeof(bytes));
    begin(&b);
    add_place(&b, data_file, strlen(data_file), 0, 4);
    end(&b, ".metadata");
    ok(check(&b, true, 0, "", "safetensors").is_structure_only, "has no checksums");
    cut(&b, data_file, sizeof(bytes) - 1);
    check(&b, false, -ERR_FORMAT, "__0_0.distcp: ", "cut by a byte");
    teardown(&b);
}

int main(void)
{
    test_whole();
    test_apart();
    test_unread();
    test_damaged();
    test_behind();
    test_names();
    test_unnamed();
    test_missing();
    test_ranks();
    test_safetensors();
    return tap_done();
}
