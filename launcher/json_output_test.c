/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/json_output.h"
#include "launcher/output.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

#define T UINT64_C(1500000000)
#define HEAD(generation, rank, node, stream)                                  \
    "{\"v\":1,\"t\":1.500000,\"generation\":" #generation ",\"rank\":" #rank  \
    ",\"node\":" #node ",\"stream\":\"std" stream "\",\"line\":"

static struct tree_output piece(uint32_t rank, bool is_err,
                                enum output_piece kind, const char *data)
{
    return (struct tree_output){.node = 1, .generation = 2, .rank = rank,
                                .which = is_err, .piece = kind, .data = data,
                                .len = strlen(data)};
}

static void put(struct json_output *j, struct tree_output o, const char *want,
                const char *what)
{
    _buf_ struct buf got = {0};

    json_output_put(j, &o, T, &got);
    is_str(buf_str(&got), want, "%s", what);
}

static void test_lines(void)
{
    struct json_output *j = json_output_create();
    struct tree_output o = piece(3, true, OUTPUT_LINES, "");

    put(j, piece(3, false, OUTPUT_LINES, "one\n\n"),
        HEAD(2, 3, 1, "out") "\"one\"}\n" HEAD(2, 3, 1, "out") "\"\"}\n",
        "an object a line, also for an empty one");
    o.data = "a\0\xff\"\n";
    o.len = 5;
    put(j, o, HEAD(2, 3, 1, "err") "\"a\\u0000\xef\xbf\xbd\\\"\"}\n",
        "any bytes");
    json_output_destroy(j);
}

static void test_parts(void)
{
    struct json_output *j = json_output_create();
    struct tree_output o = piece(0, false, OUTPUT_LINES, "next\n");
    _buf_ struct buf got = {0};

    put(j, piece(0, false, OUTPUT_CUT, "a"), "", "a part is held");
    put(j, piece(0, true, OUTPUT_LINES, "e\n"),
        HEAD(2, 0, 1, "err") "\"e\"}\n", "not for other streams");
    put(j, piece(0, false, OUTPUT_CUT, "b"), "", "more of it");
    put(j, piece(0, false, OUTPUT_LINES, "c\nd\n"),
        HEAD(2, 0, 1, "out") "\"abc\"}\n" HEAD(2, 0, 1, "out") "\"d\"}\n",
        "until its rest comes");
    put(j, piece(0, false, OUTPUT_END, "end"),
        HEAD(2, 0, 1, "out") "\"end\"}\n", "a last line without a newline");
    put(j, piece(0, false, OUTPUT_CUT, "torn"), "", "a part");
    o.generation = 3;
    put(j, o, HEAD(2, 0, 1, "out") "\"torn\",\"part\":true}\n"
        HEAD(3, 0, 1, "out") "\"next\"}\n",
        "whose rest never came stays apart from another life");
    put(j, piece(1, false, OUTPUT_CUT, "x"), "", "what is left");
    json_output_flush(j, T, &got);
    is_str(buf_str(&got), HEAD(2, 1, 1, "out") "\"x\",\"part\":true}\n",
           "comes at the end");
    json_output_destroy(j);
}

/* Memory is bounded however long a line is. */
static void test_long_line(void)
{
    enum { PIECE = 65536 };
    struct json_output *j = json_output_create();
    _free_ char *data = calloc(1, PIECE + 1);
    _buf_ struct buf got = {0};
    struct tree_output o;
    size_t n = 0, n_parts = 0;

    if (!j || !data) {
        bail_out("no memory");
    }
    memset(data, 'x', PIECE);
    o = piece(0, false, OUTPUT_CUT, data);
    for (int i = 0; i < 16; i++) {
        json_output_put(j, &o, T, &got);
    }
    o = piece(0, false, OUTPUT_LINES, "\n");
    json_output_put(j, &o, T, &got);
    for (const char *at = buf_str(&got); (at = strchr(at, 'x')); n_parts++) {
        n += strspn(at, "x");
        at += strcspn(at, "\n");
    }
    is_int((intmax_t)n, 16 * PIECE, "all of a long line");
    ok(n_parts >= 8, "in parts (%zu)", n_parts);
    json_output_destroy(j);
}

int main(void)
{
    test_lines();
    test_parts();
    test_long_line();
    json_output_destroy(NULL);
    return tap_done();
}
