/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/fold.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 100 };

static void show(void *arg, const struct fold_line *l)
{
    struct buf *to = arg;

    buf_printf(to, "%u%s", l->generation, l->is_err ? "e" : "o");
    fold_write_ranks(l, to);
    buf_puts(to, l->has_many_nodes ? "*:" : ":");
    buf_append(to, l->data, l->len);
    buf_putc(to, ' ');
}

static struct fold *make(struct buf *to, size_t max_lines, size_t max_bytes)
{
    struct fold *f = fold_create(&(struct fold_config){
        .show = show, .arg = to, .window_ms = WINDOW, .max_lines = max_lines,
        .max_bytes = max_bytes});

    if (!f) {
        bail_out("no memory");
    }
    return f;
}

static void put(struct fold *f, uint32_t rank, const char *text, uint64_t now)
{
    fold_put(f, &(struct fold_line){.generation = 1, .rank = rank,
                                    .node = rank / 4, .data = text,
                                    .len = strlen(text)}, now);
}

static void check(struct buf *got, const char *want, const char *what)
{
    is_str(buf_str(got), want, "%s", what);
    buf_clear(got);
}

static void test_window(void)
{
    _buf_ struct buf got = {0};
    struct fold *f = make(&got, 100, 1 << 20);

    put(f, 0, "a", 0);
    put(f, 1, "a", WINDOW - 1);
    check(&got, "", "a line waits for others");
    put(f, 2, "b", WINDOW - 1);
    fold_tick(f, WINDOW);
    check(&got, "1o0-1:a ", "then it is shown once, with its ranks");
    put(f, 3, "a", WINDOW);
    fold_tick(f, 2 * WINDOW - 1);
    check(&got, "1o2:b ", "a later one does not hold it up");
    fold_flush(f);
    check(&got, "1o3:a ", "and one that came too late is shown again");
    fold_destroy(f);
}

static void test_all_ranks(void)
{
    _buf_ struct buf got = {0};
    struct fold *f = make(&got, 100, 1 << 20);

    fold_set_ranks(f, 3);
    put(f, 2, "a", 0);
    put(f, 0, "b", 0);
    put(f, 2, "b", 0);
    put(f, 1, "b", 0);
    check(&got, "", "what is complete waits for what came before it");
    put(f, 0, "a", 0);
    put(f, 1, "a", 0);
    check(&got, "", "and a rank's lines are not turned round");
    fold_flush(f);
    check(&got, "1o2:a 1o0-2:b 1o0-1:a ", "whatever else printed them");
    put(f, 0, "c", 0);
    put(f, 2, "c", 0);
    put(f, 1, "c", 0);
    check(&got, "1o0-2:c ", "with all ranks nothing more is waited for");
    fold_destroy(f);
}

static void test_apart(void)
{
    _buf_ struct buf got = {0};
    struct fold *f = make(&got, 100, 1 << 20);
    struct fold_line l = {.generation = 1, .data = "a", .len = 1};

    fold_put(f, &l, 0);
    fold_put(f, &l, 0);
    fold_flush(f);
    check(&got, "1o0:a 1o0:a ", "a rank's own repetition stays");
    fold_put(f, &l, 0);
    l.rank = 1;
    l.is_err = true;
    fold_put(f, &l, 0);
    l.is_err = false;
    l.generation = 2;
    fold_put(f, &l, 0);
    l.generation = 1;
    l.rank = 5;
    l.node = 1;
    fold_put(f, &l, 0);
    l.data = "a\0b";
    l.len = 3;
    fold_put(f, &l, 0);
    fold_flush(f);
    is_int((intmax_t)got.len, 29, "other bytes are another line");
    ok(memcmp(got.data, "1o0,5*:a 1e1:a 2o1:a 1o5:a\0b ", 29) == 0,
       "so are other streams and generations");
    fold_destroy(f);
}

/* Each rank tells who it is, then does what all do. */
static void test_own_lines(void)
{
    static const char *const own[] = {"p", "q", "r"};
    _buf_ struct buf got = {0};
    struct fold *f = make(&got, 100, 1 << 20);

    for (uint32_t r = 0; r < 3; r++) {
        put(f, r, own[r], r);
        put(f, r, "a", r);
        put(f, r, own[r], r);
        put(f, r, "b", r);
    }
    fold_tick(f, WINDOW);
    check(&got, "1o0:p 1o1:q 1o2:r 1o0-2:a 1o0:p 1o1:q 1o2:r 1o0-2:b ",
          "and all that they have in common is folded");
    fold_destroy(f);
}

static void test_ranks(void)
{
    static const struct {
        uint32_t step, n;
        const char *want;
    } cases[] = {
        {1, 1, "0"},
        {1, 200, "0-199"},
        {2, 8, "0,2,4,6,8,10,12,14"},
        {2, 1000, "0,2,4,6,8,10,12,14,...(x1000)"},
        {63, 3, "0,63,126"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf got = {0}, want = {0};
        struct fold *f = make(&got, 100, 1 << 20);

        for (uint32_t r = cases[i].n; r-- > 0;) {
            put(f, r * cases[i].step, "x", 0);
        }
        fold_flush(f);
        buf_printf(&want, "1o%s%s:x ", cases[i].want,
                   cases[i].n > 2 ? "*" : "");
        check(&got, buf_str(&want), "a set of ranks");
        fold_destroy(f);
    }
}

static void test_bounds(void)
{
    _buf_ struct buf got = {0};
    struct fold *f = make(&got, 2, 1 << 20);
    struct fold_line far = {.generation = 1, .rank = UINT32_MAX, .data = "z",
                            .len = 1};

    put(f, 0, "a", 0);
    put(f, 0, "b", 0);
    check(&got, "", "two may wait");
    put(f, 0, "c", 0);
    check(&got, "1o0:a ", "a third sends the first on");
    fold_put(f, &far, 0);
    check(&got, "1o0:b 1o0:c 1o4294967295:z ", "no rank is too great");
    fold_destroy(f);
    f = make(&got, 1000, 4096);
    for (int i = 0; i < 100; i++) {
        char text[101];

        snprintf(text, sizeof(text), "%0100d", i);
        put(f, 0, text, 0);
    }
    ok(got.len > 50 * 100, "memory for lines is bounded (%zu shown)", got.len);
    fold_destroy(f);
}

/* Each rank prints its own sequence of a few lines; whatever is folded, taking the
 * shown lines apart again gives each rank's sequence back. */
enum { N_RANKS = 7, N_PUT = 4000 };

struct replay {
    struct buf want[N_RANKS], got[N_RANKS];
    size_t n_shown;
};

static void take_apart(void *arg, const struct fold_line *l)
{
    struct replay *r = arg;

    r->n_shown++;
    for (size_t i = 0; i < N_RANKS; i++) {
        if (l->n_words ? l->ranks[0] >> i & 1 : l->rank == i) {
            buf_append(&r->got[i], l->data, l->len);
        }
    }
}

static void replay(unsigned seed)
{
    struct replay r = {0};
    struct fold *f = fold_create(&(struct fold_config){
        .show = take_apart, .arg = &r, .window_ms = WINDOW,
        .max_lines = 20 + seed, .max_bytes = 1 << 20});
    bool same = f;

    fold_set_ranks(f, seed % 2 ? N_RANKS : 0);
    for (unsigned i = 0; i < N_PUT; i++) {
        uint32_t rank = (uint32_t)rand_r(&seed) % N_RANKS;
        char text[2] = {(char)('a' + rand_r(&seed) % 4), '\0'};

        buf_puts(&r.want[rank], text);
        put(f, rank, text, i);
    }
    fold_flush(f);
    fold_destroy(f);
    for (size_t i = 0; i < N_RANKS; i++) {
        same &= strcmp(buf_str(&r.want[i]), buf_str(&r.got[i])) == 0;
        buf_release(&r.want[i]);
        buf_release(&r.got[i]);
    }
    ok(same, "nothing is lost, added or turned round");
    ok(r.n_shown < N_PUT, "and %zu of %d are shown", r.n_shown, N_PUT);
}

int main(void)
{
    test_window();
    test_all_ranks();
    test_apart();
    test_own_lines();
    test_ranks();
    test_bounds();
    for (unsigned seed = 1; seed <= 8; seed++) {
        replay(seed);
    }
    fold_destroy(NULL);
    return tap_done();
}
