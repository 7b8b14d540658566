/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/log_reader.h"
#include "launcher/log_store.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define S UINT64_C(1000000000)

static char base[] = "/tmp/log-reader-XXXXXX";
static const struct log_limits limits = {.max_bytes = 4096, .keep = 3};

static void take(void *arg, const char *data, size_t len)
{
    buf_append(arg, data, len);
}

/* Lines from..to - 1, one a second. */
static void write_lines(struct log_store *s, unsigned from, unsigned to,
                        struct buf *also)
{
    for (unsigned i = from; i < to; i++) {
        char line[40];
        int code;

        snprintf(line, sizeof(line), "this is line %u\n", i);
        if (log_store_append(s, line, strlen(line), i * S, &code)) {
            bail_out("append: %s", strerror(-code));
        }
        if (also) {
            buf_puts(also, line);
        }
    }
}

static const char *make_path(char *to, size_t size, const char *name)
{
    snprintf(to, size, "%s/%s/stdout", base, name);
    return to;
}

/* A log that turns while it is followed. */
static void test_follow(void)
{
    struct log_reader r = {0};
    _buf_ struct buf got = {0}, want = {0};
    char path[100];
    struct log_store s = log_store(make_path(path, sizeof(path), "follow"),
                                   &limits, NULL);
    bool same = true;

    ok(!log_reader_read(&r, path, 0, take, &got), "nothing is there yet");
    /* Less than three files between two looks. */
    for (unsigned i = 0; i < 20; i++) {
        write_lines(&s, 97 * i, 97 * (i + 1), &want);
        log_reader_read(&r, path, 0, take, &got);
        same &= strcmp(buf_str(&got), buf_str(&want)) == 0;
    }
    ok(same, "what was written is there at each look");
    ok(s.n_full > 5, "over many files (%d)", (int)s.n_full);
    ok(!log_reader_read(&r, path, 0, take, &got), "and comes once");
    ok(!r.has_gap, "without a gap");
    log_store_close(&s);
}

static void test_gap(void)
{
    struct log_reader r = {0};
    _buf_ struct buf got = {0}, want = {0};
    char path[100];
    struct log_store s = log_store(make_path(path, sizeof(path), "gap"),
                                   &limits, NULL);

    write_lines(&s, 0, 10, &want);
    log_reader_read(&r, path, 0, take, &got);
    write_lines(&s, 10, 5000, &want);
    buf_clear(&got);
    ok(log_reader_read(&r, path, 0, take, &got), "after much more");
    ok(r.has_gap, "a gap is told");
    ok(got.len > 9000 && got.len <= 4 * 4096 &&
           str_ends(buf_str(&want), buf_str(&got)),
       "and what is left comes in order");
    write_lines(&s, 5000, 5010, &want);
    log_reader_read(&r, path, 0, take, &got);
    ok(str_ends(buf_str(&want), buf_str(&got)), "and what follows");
    log_store_close(&s);
}

static const char *first_line(const struct buf *b)
{
    return b->len ? buf_str(b) : "none";
}

static void since(const char *path, uint64_t t, const char *want,
                  bool has_no_times, const char *what)
{
    struct log_reader r = {0};
    _buf_ struct buf got = {0};
    char line[40];

    log_reader_read(&r, path, t * S, take, &got);
    str_copy(line, sizeof(line), first_line(&got));
    line[strcspn(line, "\n")] = '\0';
    is_str(line, want, "%s", what);
    ok(r.has_no_times == has_no_times, "%s times", has_no_times ? "without"
                                                               : "with");
}

/* As the clock of the lines has it. */
static void set_written(const char *path, unsigned number, time_t t)
{
    const struct timespec at[2] = {{.tv_sec = t}, {.tv_sec = t}};
    char name[120];

    snprintf(name, sizeof(name), number ? "%s.%u" : "%s", path, number);
    if (utimensat(AT_FDCWD, name, at, 0) < 0) {
        bail_out("%s", name);
    }
}

static void test_since(void)
{
    char path[100], times[120];
    struct log_store s = log_store(make_path(path, sizeof(path), "since"),
                                   &limits, NULL);

    write_lines(&s, 100, 700, NULL);
    log_store_close(&s);
    is_int((intmax_t)s.n_full, 3, "three full files");
    set_written(path, 1, 280);
    set_written(path, 2, 480);
    set_written(path, 3, 680);
    set_written(path, 0, 699);
    since(path, 50, "this is line 100", false, "before all");
    since(path, 150, "this is line 149", false, "within the first file");
    since(path, 400, "this is line 399", false, "within a later one");
    since(path, 698, "this is line 697", false, "near the end");
    snprintf(times, sizeof(times), "%s.2.times", path);
    unlink(times);
    since(path, 150, "this is line 149", false, "times are not needed");
    snprintf(times, sizeof(times), "%s.1.times", path);
    unlink(times);
    since(path, 150, "this is line 100", true, "where there are none");
}

static void test_unwritten(void)
{
    char path[100], times[120];
    struct log_store s = log_store(make_path(path, sizeof(path), "old"),
                                   &(struct log_limits){0}, NULL);

    write_lines(&s, 100, 200, NULL);
    log_store_close(&s);
    set_written(path, 0, 200);
    since(path, 199, "this is line 198", false, "what was written then");
    since(path, 300, "none", false, "nothing since");
    snprintf(times, sizeof(times), "%s.times", path);
    unlink(times);
    since(path, 300, "none", false, "nor without times: the file is older");
}

int main(void)
{
    if (!mkdtemp(base)) {
        bail_out("a directory");
    }
    test_follow();
    test_gap();
    test_since();
    test_unwritten();
    fs_remove_tree(base, NULL);
    return tap_done();
}
