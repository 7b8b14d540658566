/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/log_store.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define S UINT64_C(1000000000)

static char base[] = "/tmp/log-store-XXXXXX";

static void test_fit(void)
{
    static const struct {
        const char *what;
        uint64_t max, size;
        const char *data;
        size_t want;
        bool is_full;
    } cases[] = {
        {"no limit", 0, 1000000, "abc", 3, false},
        {"far from it", 100, 0, "abc\ndef", 7, false},
        {"a line that ends in the last quarter", 100, 73, "a\nb", 2, true},
        {"the last of several", 100, 73, "a\nb\nc\nd", 6, true},
        {"one that ends before it", 100, 70, "a\nbcde", 6, false},
        {"one without end, that fits", 100, 80, "abc", 3, false},
        {"one that fills it", 100, 98, "ab", 2, true},
        {"one that is too long", 100, 98, "abc\n", 2, true},
        {"one whose newline just fits", 100, 97, "ab\nc", 3, true},
        {"a line that ends where the last quarter begins", 100, 73, "a\n", 2,
         true},
        {"one before that", 100, 72, "a\n", 2, false},
        {"the last 128 KiB of a large one", 1 << 30, (1 << 30) - (128 << 10) - 2,
         "a\nb", 2, true},
        {"but no more", 1 << 30, (1 << 30) - (128 << 10) - 3, "a\nb", 3, false},
        {"a file that is full", 100, 100, "a\n", 0, true},
        {"one that is larger", 100, 500, "a\n", 0, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool is_full;

        is_int((intmax_t)log_store_fit(cases[i].max, cases[i].size,
                                       cases[i].data, strlen(cases[i].data),
                                       &is_full),
               (intmax_t)cases[i].want, "%s: so many bytes", cases[i].what);
        ok(is_full == cases[i].is_full, "%s: full or not", cases[i].what);
    }
}

static void test_number(void)
{
    is_int((intmax_t)log_store_number("stdout", "stdout.12"), 12, "a full one");
    is_int((intmax_t)log_store_number("stdout", "stdout"), 0, "the log");
    is_int((intmax_t)log_store_number("stdout", "stdout.times"), 0, "times");
    is_int((intmax_t)log_store_number("stdout", "stdout.1.times"), 0,
           "of a full one");
    is_int((intmax_t)log_store_number("stdout", "stdout.01"), 0, "no number");
    is_int((intmax_t)log_store_number("node-1", "node-12"), 0, "another log");
    is_int((intmax_t)log_store_number("a", "a.1234567890123456789"), 0,
           "one that is too long");
}

static void make_path(char *to, size_t size, const char *dir, const char *file)
{
    snprintf(to, size, "%s/%s/%s", base, dir, file);
}

static void append(struct log_store *s, const char *data, uint64_t wall_ns)
{
    int code;

    if (log_store_append(s, data, strlen(data), wall_ns, &code) || code) {
        bail_out("append: %s", strerror(-code));
    }
}

/* Adds what is in a file, if it is there; its size, or -1. */
static long add_file(const char *path, struct buf *to)
{
    _free_ char *text = NULL;
    size_t len = 0;

    if (fs_read(path, 1 << 20, &text, &len, NULL) < 0) {
        return -1;
    }
    buf_append(to, text, len);
    return (long)len;
}

static void test_plain(void)
{
    char path[200], times[200];
    struct log_store s;
    _buf_ struct buf got = {0};

    make_path(path, sizeof(path), "plain/deep", "stdout");
    make_path(times, sizeof(times), "plain/deep", "stdout.times");
    s = log_store(path, &(struct log_limits){0}, NULL);
    append(&s, "one\ntw", 10 * S);
    append(&s, "o\n", 10 * S + S / 2);
    append(&s, "three\n", 11 * S);
    log_store_close(&s);
    add_file(path, &got);
    is_str(buf_str(&got), "one\ntwo\nthree\n", "what was appended");
    buf_clear(&got);
    add_file(times, &got);
    is_str(buf_str(&got), "v 1\n10.000 0 1\n11.000 8 1\n", "and when");
    s = log_store(path, &(struct log_limits){0}, NULL);
    append(&s, "four", 20 * S);
    append(&s, "\nfive\n", 22 * S);
    log_store_close(&s);
    buf_clear(&got);
    add_file(times, &got);
    is_str(buf_str(&got), "v 1\n10.000 0 1\n11.000 8 1\n\nv 1\n20.000 14 1\n"
           "22.000 14 1\n", "also when it is opened again: by lines");
}

/* A line counts from its start, one of more than 4 KiB from where it goes on. */
static void test_long_begun(void)
{
    char path[200], times[200], begun[4098];
    struct log_store s;
    _buf_ struct buf got = {0};

    make_path(path, sizeof(path), "begun", "stdout");
    make_path(times, sizeof(times), "begun", "stdout.times");
    memset(begun, 'x', sizeof(begun));
    begun[4096] = '\0';
    s = log_store(path, &(struct log_limits){0}, NULL);
    append(&s, begun, 10 * S);
    append(&s, "x", 20 * S);
    append(&s, "x\n", 30 * S);
    append(&s, "y\n", 40 * S);
    log_store_close(&s);
    add_file(times, &got);
    is_str(buf_str(&got), "v 1\n10.000 0 1\n20.000 0 1\n30.000 4097 1\n"
           "40.000 4099 1\n", "the time of a long line");
}

/* All lines of all files, in order; the largest size. */
static long read_all(const char *dir, unsigned from, unsigned to,
                     struct buf *got)
{
    long largest = 0;

    for (unsigned i = from; i <= to + 1; i++) {
        char name[40], path[200];
        long size;

        snprintf(name, sizeof(name), i <= to ? "log.%u" : "log", i);
        make_path(path, sizeof(path), dir, name);
        size = add_file(path, got);
        ok(size >= 0, "%s is there", name);
        ok(!got->len || got->data[got->len - 1] == '\n', "and has whole lines");
        largest = size > largest ? size : largest;
    }
    return largest;
}

static bool is_there(const char *dir, const char *name)
{
    char path[200];

    make_path(path, sizeof(path), dir, name);
    return access(path, F_OK) == 0;
}

static void test_rotation(void)
{
    static const struct log_limits limits = {.max_bytes = 4096, .keep = 3};
    char path[200];
    _buf_ struct buf got = {0}, want = {0}, all = {0};
    struct log_store s;

    make_path(path, sizeof(path), "turns", "log");
    s = log_store(path, &limits, NULL);
    /* In pieces that end anywhere. */
    for (int i = 0; i < 1000; i++) {
        buf_printf(&want, "line %d\n", i);
    }
    for (size_t at = 0; at < want.len; at += 37) {
        char piece[38] = "";

        memcpy(piece, want.data + at, want.len - at < 37 ? want.len - at : 37);
        append(&s, piece, at * S);
    }
    log_store_close(&s);
    ok(read_all("turns", 1, 2, &got) <= 4096, "no file is too large");
    is_str(buf_str(&got), buf_str(&want), "all is there, in order");
    ok(is_there("turns", "log.1.times") && is_there("turns", "log.times"),
       "each with its times");
    s = log_store(path, &limits, NULL); /* as in another life */
    append(&s, buf_str(&want), 10000 * S);
    append(&s, buf_str(&want), 10001 * S);
    log_store_close(&s);
    ok(!is_there("turns", "log.1") && !is_there("turns", "log.4") &&
           !is_there("turns", "log.4.times"), "the oldest are gone");
    buf_clear(&got);
    ok(read_all("turns", 5, 7, &got) <= 4096, "and the size of each is bounded");
    for (int i = 0; i < 3; i++) {
        buf_append(&all, want.data, want.len);
    }
    ok(got.len > 9000 && str_ends(buf_str(&all), buf_str(&got)),
       "what is kept is the end");
}

/* A line that is longer than what a file may have. */
static void test_long_line(void)
{
    static const struct log_limits limits = {.max_bytes = 4096, .keep = 100};
    char path[200];
    _buf_ struct buf got = {0}, want = {0};
    struct log_store s;

    make_path(path, sizeof(path), "long", "log");
    s = log_store(path, &limits, NULL);
    buf_puts(&want, "a\n");
    for (int i = 0; i < 10000; i++) {
        buf_putc(&want, 'x');
    }
    buf_puts(&want, "\nb\n");
    append(&s, buf_str(&want), S);
    log_store_close(&s);
    for (unsigned i = 1; i <= 3; i++) {
        char name[40];

        snprintf(name, sizeof(name), i < 3 ? "log.%u" : "log", i);
        make_path(path, sizeof(path), "long", name);
        ok(add_file(path, &got) <= 4096, "a part of a long line");
    }
    is_str(buf_str(&got), buf_str(&want), "and all of it");
}

/* What is no file is not put aside when it has had its size. */
static void test_pipe(void)
{
    struct log_limits limits = {.max_bytes = 8, .keep = 2};
    char path[200], aside[200], got[64] = "";
    struct log_store s;
    struct stat st;
    int fd;

    make_path(path, sizeof(path), "plain", "pipe");
    make_path(aside, sizeof(aside), "plain", "pipe.1");
    fd = mkfifo(path, 0600) < 0 ? -1 : open(path, O_RDONLY | O_NONBLOCK |
                                            O_CLOEXEC);
    if (fd < 0) {
        bail_out("a pipe");
    }
    s = log_store(path, &limits, NULL);
    append(&s, "one line\n", S);
    append(&s, "another\n", S);
    log_store_close(&s);
    ok(stat(path, &st) == 0 && S_ISFIFO(st.st_mode), "a pipe stays");
    ok(access(aside, F_OK) < 0, "where it is");
    ok(read(fd, got, sizeof(got) - 1) > 0 &&
       strcmp(got, "one line\nanother\n") == 0, "and has all");
    close(fd);
}

/* What cannot be put aside does not grow, either. */
static void test_errors(void)
{
    static const struct log_limits limits = {.max_bytes = 4096, .keep = 1};
    _buf_ struct buf data = {0};
    char path[200], aside[200];
    struct log_store s;
    int code;

    for (int i = 0; i < 4096; i++) {
        buf_putc(&data, '\n');
    }
    make_path(path, sizeof(path), "bad", "log");
    make_path(aside, sizeof(aside), "bad/log.1", "x");
    if (fs_mkdirs(aside, NULL) < 0) {
        bail_out("%s", aside);
    }
    /* A directory of that name, in the way of the second file. */
    s = log_store(path, &limits, NULL);
    s.n_full = 0;
    append(&s, buf_str(&data), S);
    s.n_full = 0;
    is_int((intmax_t)log_store_append(&s, "lost\n", 5, S, &code), 5,
           "so much is lost");
    is_int(code, -EISDIR, "and why");
    log_store_close(&s);
    s = log_store("/dev/full", &limits, NULL);
    is_int((intmax_t)log_store_append(&s, "lost\n", 5, S, &code), 5,
           "all, on a full disk");
    is_int(code, -ENOSPC, "because of that");
    ok(access("/dev/full.times", F_OK) < 0, "a device has no times");
    log_store_close(&s);
}

int main(void)
{
    if (!mkdtemp(base)) {
        bail_out("a directory");
    }
    test_fit();
    test_number();
    test_plain();
    test_long_begun();
    test_rotation();
    test_long_line();
    test_pipe();
    test_errors();
    fs_remove_tree(base, NULL);
    return tap_done();
}
