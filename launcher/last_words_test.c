/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/last_words.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "Traceback (most recent call last):\n"
#define CHAINED "\nThe above exception was the direct cause of the following exception:\n\n"
#define FRAME "  File \"x.py\", line 3, in f\n    f()\n    ^^^\n"

static const struct {
    const char *name;
    const char *text;
    const char *start;   /* what is shown begins with this */
    const char *summary;
} cases[] = {
    {"nothing", "", "", ""},
    {"plain lines", "a\nb\nc\nd\n", "b\nc\nd\n", ""},
    {"no newline at the end", "a\nb\nc\nd", "b\nc\nd", ""},
    {"a traceback behind noise",
     "1\n2\n3\n4\n" HEADER FRAME "ValueError: bad\n", HEADER FRAME,
     "ValueError: bad"},
    {"lines behind it", HEADER FRAME "KeyError: 'k'\nabort\nx\ny\nz\n", HEADER,
     "KeyError: 'k'"},
    {"a prefix on each line",
     "x\n[rank1]: " HEADER "[rank1]:   File \"x\"\nother: words\n"
     "[rank1]: E: two\n", "[rank1]: Trace", "E: two"},
    {"the last of two", HEADER FRAME "A: 1\nlog\n" HEADER FRAME "B: 2\n",
     HEADER FRAME "B: 2", "B: 2"},
    {"a chain is shown whole",
     "n\n" HEADER FRAME "A: 1\n\nDuring handling of the above exception, "
     "another exception occurred:\n\n" HEADER FRAME "B: 2\n",
     HEADER FRAME "A: 1", "B: 2"},
    {"and no more than that",
     HEADER FRAME "A: 1\nlog\n" HEADER FRAME "B: 2\n" CHAINED HEADER FRAME "C: 3\n"
     CHAINED HEADER FRAME "D: 4\n", HEADER FRAME "B: 2", "D: 4"},
    {"one that was cut at its end", HEADER "  File \"x\"\n", HEADER, ""},
    {"one that was cut at its beginning", "    f()\n" FRAME "B: 2\n", "    ",
     "B: 2"},
    {"one that the program outlived",
     HEADER FRAME "A: 1\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "10\n",
     ""},
    {"a fatal error",
     "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call "
     "first):\n  File \"x\", line 1 in f\n\nExtension modules: y\n", NULL,
     "Fatal Python error: Segmentation fault"},
    {"a traceback, then an abort",
     HEADER FRAME "A: 1\nterminate called\nFatal Python error: Aborted\n",
     HEADER, "A: 1"},
    {"a C++ exception", "terminate called after throwing an instance of 'X'\n"
     "  what():  no memory\n", NULL, "no memory"},
    {"control characters", HEADER "  File\nE: \x1b[31mred\x07\n", HEADER,
     "E: ?[31mred?"},
    {"a header without an end", "Traceback (most recent call last):", "Tr",
     ""},
};

static void test_texts(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *name = cases[i].name;
        const char *start = last_words_start(cases[i].text, 3);
        char summary[64];

        ok(!cases[i].start || !strncmp(start, cases[i].start,
                                       strlen(cases[i].start)),
           "%s: start", name);
        last_words_summary(cases[i].text, summary, sizeof(summary));
        is_str(summary, cases[i].summary, "%s: summary", name);
    }
}

/* It is looked for from the end: each begin of a search may cost a look at all that is
 * behind it, as it does with the address sanitizer. */
static void test_long(void)
{
    enum { N = 25000 };
    _buf_ struct buf b = {0};
    char summary[64];

    for (unsigned i = 0; i < N; i++) {
        buf_puts(&b, HEADER);
    }
    buf_puts(&b, FRAME "E: x\n");
    is_str(last_words_start(buf_str(&b), 3), HEADER FRAME "E: x\n", "the last of very many");
    last_words_summary(buf_str(&b), summary, sizeof(summary));
    is_str(summary, "E: x", "and its summary");
}

static void test_echoes(void)
{
    char summary[256];

    ok(last_words_is_echo("RuntimeError: [./gloo/transport/tcp/pair.cc:598] "
                          "Connection closed by peer [10.0.0.1]:26320"),
       "gloo lost a peer");
    ok(last_words_is_echo("ConnectionResetError: [Errno 104] Connection reset "
                          "by peer"), "so did a socket");
    ok(last_words_is_echo("BrokenPipeError: [Errno 32] Broken pipe"),
       "when writing, too");
    ok(last_words_is_echo("mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process "
                          "Failure"), "MPI lost a rank");
    last_words_summary("step 7\nprogram: allreduce: worker 0 has ended, and others wait "
                       "for it in a collective\n", summary, sizeof(summary));
    is_str(summary, "program: allreduce: worker 0 has ended, and others wait for it in a "
                    "collective", "who waits in a collective of muster's");
    ok(last_words_is_echo("allreduce: worker 0 has ended, and others wait for it in a "
                          "collective"), "has lost who is named");
    ok(!last_words_is_echo("mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message "
                           "truncated"), "a mistake in MPI is its own");
    ok(!last_words_is_echo("ValueError: x"), "other words are no echo");
    ok(!last_words_is_echo(""), "nor is silence");
}

static void test_cut(void)
{
    char small[12];

    last_words_summary(HEADER "E: gr\xc3\xbc\xc3\x9f\xc3\xbc\xc3\xbc\n", small,
                       sizeof(small));
    is_str(small, "E: gr\xc3\xbc\xc3\x9f\xc3\xbc", "cut between characters");
    last_words_line("\n \n\xc2\x9b" "1\xe2\x80\xaem\xff\tx\r\n", small,
                    sizeof(small));
    is_str(small, "?1?m??x", "only what a terminal may show");
    last_words_summary(HEADER "Exception: long\n", small, 1);
    is_str(small, "", "no room at all");
}

static const char *const files[][4] = {
    {"what @record writes",
     "{\"message\": {\"message\": \"E: x\", \"extraInfo\": {\"py_callstack\":"
     " \"Traceback\\nE: x\\n\", \"timestamp\": \"1795206357\"}}}",
     "E: x", "Traceback\nE: x\n"},
    {"without a traceback", "{\"message\": {\"message\": \"E: x\"}}", "E: x",
     NULL},
    {"an empty one", "{\"message\": {\"message\": \"E: x\", \"extraInfo\": "
     "{\"py_callstack\": \"\"}}}", "E: x", NULL},
    {"nothing but one", "{\"message\": {\"extraInfo\": "
     "{\"py_callstack\": \"T\"}}}", "T", "T"},
    {"a plain message", "{\"message\": \"plain\", \"timestamp\": 3}", "plain",
     NULL},
    {"no message", "{\"timestamp\": 3}", NULL, NULL},
    {"an empty message", "{\"message\": \"\"}", NULL, NULL},
    {"another type", "{\"message\": [1]}", NULL, NULL},
    {"a message of another type", "{\"message\": {\"message\": 3}}", NULL, NULL},
    {"a list", "[]", NULL, NULL},
    {"no JSON", "oops", NULL, NULL},
    {"half of it", "{\"message\": \"pl", NULL, NULL},
    {"bytes that are no UTF-8", "{\"message\": \"\xff\"}", NULL, NULL},
    {"nothing", "", NULL, NULL},
};

/* What is no character in JSON, as Python writes it. */
static void test_no_characters(void)
{
    static const char *const texts[][2] = {
        {"a\\u0000b", "a\xef\xbf\xbd" "b"},
        {"\\udcff", "\xef\xbf\xbd"},
        {"\\uD83D\\uDE00 \\ud83d", "\xf0\x9f\x98\x80 \xef\xbf\xbd"},
        {"\\ude00\\ud83d\\ude00", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\\\\udcff \\\\u0000", "\\udcff \\u0000"},
        {"\\ud8", NULL},
        {"\\ud83d\\", NULL},
        {"\\u00", NULL},
    };
    char dir[] = "/tmp/last-words.XXXXXX";
    char path[64];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/e.json", dir);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _buf_ struct buf text = {0};
        struct error_file file = {0};
        bool is_cut = !texts[i][1];

        buf_printf(&text, "{\"message\": \"%s%s", texts[i][0],
                   is_cut ? "" : "\"}");
        fs_write_replace(path, text.data, text.len, NULL);
        is_int(error_file_read(path, &file, NULL), is_cut ? -ERR_FORMAT : 0, "%s",
               texts[i][0]);
        is_str(file.message, texts[i][1], "is told with marks");
        error_file_release(&file);
    }
    fs_remove_tree(dir, NULL);
}

static void test_files(void)
{
    char dir[] = "/tmp/last-words.XXXXXX";
    char path[64];
    struct error_file file = {0};
    struct error e = {0};
    uint64_t from_ns = clock_wall_ns();

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/e.json", dir);
    is_int(error_file_read(path, &file, &e), -ENOENT, "no file");
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const char *const *f = files[i];

        fs_write_replace(path, f[1], strlen(f[1]), NULL);
        if (!f[2]) {
            is_int(error_file_read(path, &file, &e), -ERR_FORMAT,
                   "%s: refused", f[0]);
            continue;
        }
        is_int(error_file_read(path, &file, &e), 0, "%s: read", f[0]);
        is_str(file.message, f[2], "%s: its message", f[0]);
        is_str(file.stack, f[3], "%s: its traceback", f[0]);
        is_str(file.json, f[1], "%s: all of it", f[0]);
        ok(file.written_ns > from_ns - 1000000000 &&
               file.written_ns < from_ns + 3600000000000,
           "%s: when it was written", f[0]);
        error_file_release(&file);
    }
    is_int(truncate(path, (1 << 20) + 1), 0, "a file that is too large");
    is_int(error_file_read(path, &file, &e), -EINVAL, "is refused");
    unlink(path);
    is_int(mkfifo(path, 0600), 0, "a FIFO");
    is_int(error_file_read(path, &file, &e), -EINVAL, "is refused");
    unlink(path);
    is_int(symlink("/etc/hostname", path), 0, "a link");
    is_int(error_file_read(path, &file, &e), -ELOOP, "is not followed");
    fs_remove_tree(dir, NULL);
}

/* Time and memory are bounded whatever a worker writes. */
static void test_hostile(void)
{
    size_t n = 1 << 20;
    _free_ char *text = malloc(n + 1);
    char summary[64];

    if (!text) {
        bail_out("out of memory");
    }
    for (size_t at = 0; at + sizeof(HEADER) <= n; at += sizeof(HEADER) - 1) {
        memcpy(text + at, HEADER, sizeof(HEADER));
    }
    is_str(last_words_start(text, 3) + strlen(HEADER), "",
           "a megabyte of headers");
    last_words_summary(text, summary, sizeof(summary));
    is_str(summary, "", "without an exception");
    memset(text, '[', n);
    text[n] = '\0';
    is_str(last_words_start(text, 3), text, "a megabyte in one line");
    last_words_line(text, summary, sizeof(summary));
    is_int((long long)strlen(summary), 63, "is cut");
}

int main(void)
{
    test_texts();
    test_long();
    test_echoes();
    test_cut();
    test_files();
    test_no_characters();
    test_hostile();
    return tap_done();
}
