/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/dollar.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Shows what was found. */
static void put(struct buf *to, const struct dollar *d, const void *ctx)
{
    static const char *const kinds[] = {
        [DOLLAR_NAME] = "name", [DOLLAR_TWICE] = "twice",
        [DOLLAR_ALONE] = "alone",
    };

    (void)ctx;
    buf_printf(to, "<%s %.*s|%.*s>", kinds[d->kind], (int)d->len, d->at,
               (int)d->name_len, d->name);
}

static const char *const cases[][2] = {
    {"", ""},
    {"plain", "plain"},
    {"a$(B)c", "a<name $(B)|B>c"},
    {"$(A)$(B)", "<name $(A)|A><name $(B)|B>"},
    {"$()", "<name $()|>"},
    {"$$", "<twice $$|>"},
    {"$$(A)", "<twice $$|>(A)"},
    {"$$$(A)", "<twice $$|><name $(A)|A>"},
    {"$A ${B} $", "<alone $|>A <alone $|>{B} <alone $|>"},
    {"$(A", "<alone $|>(A"},
    {"$(A$(B)", "<name $(A$(B)|A$(B>"},
    {"$(A) $(B", "<name $(A)|A> <alone $|>(B"},
    {"$( A )", "<name $( A )| A >"},
};

static void put_itself(struct buf *to, const struct dollar *d, const void *ctx)
{
    (void)ctx;
    buf_append(to, d->at, d->len);
}

/* Bounded in time, too: looked at afresh for each of them, this text would take
 * minutes. */
static void test_long(void)
{
    size_t n = 4 << 20;
    _free_ char *text = malloc(n + 1);
    _buf_ struct buf b = {0};

    if (!text) {
        bail_out("out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        text[i] = "$("[i & 1];
    }
    text[n] = '\0';
    is_int(dollar_expand(&b, text, n, put_itself, NULL), 0,
           "many that are never closed");
    ok(b.len == n && memcmp(b.data, text, n) == 0, "stay as they are");
    is_int(dollar_expand(&b, text, n - 1, put_itself, NULL), -E2BIG,
           "a limit");
}

int main(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};

        is_int(dollar_expand(&b, cases[i][0], 100, put, NULL), 0, "'%s'",
               cases[i][0]);
        is_str(buf_str(&b), cases[i][1], "'%s' is read", cases[i][0]);
    }
    test_long();
    return tap_done();
}
