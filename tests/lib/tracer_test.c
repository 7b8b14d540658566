/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tracer lets fail fails as the kernel would have it: what is swept with it
 * (ckpt/sweep_bed.h) meets nothing that no kernel says.
 */
#include <config.h>

#include "base/cleanup.h"
#include "tests/lib/tap.h"
#include "tests/lib/tracer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GROWN = 1 << 16, PIECE = 100000, MAX_CALLS = 200 };

/* What the program has seen, in memory that is shared with it. */
struct seen {
    intptr_t before, got, after;
    int error;
};

/* What it has called. */
struct calls {
    struct tracer_call list[MAX_CALLS];
    uint64_t n;
};

static void note(void *arg, const struct tracer_call *call)
{
    struct calls *c = arg;

    if (!call->is_done && c->n < MAX_CALLS) {
        c->list[c->n++] = *call;
    }
}

static void read_calls(void (*body)(void *arg), void *arg, struct calls *ret)
{
    const struct tracer_harm none = {0};
    struct tracer_run run = {.look = note, .arg = ret};

    ret->n = 0;
    tracer_run(body, arg, &none, &run);
    is_int(run.status, 0, "it comes to its end, undisturbed");
}

/* The first that is to change something; 0: there is none. */
static uint64_t find_call(const struct calls *c, int64_t number)
{
    for (uint64_t i = 0; i < c->n; i++) {
        if (c->list[i].number == number && tracer_may_fail(&c->list[i], ENOMEM)) {
            return i + 1;
        }
    }
    return 0;
}

/* --- the end of the heap --- */

static void grow(void *arg)
{
    struct seen *s = arg;

    s->before = (intptr_t)sbrk(0);
    s->got = (intptr_t)sbrk(GROWN);
    s->error = errno;
    s->after = (intptr_t)sbrk(0);
}

static void test_heap_ends(struct seen *s, struct calls *c)
{
    struct tracer_harm harm = {.error = ENOMEM};
    struct tracer_run run = {0};

    if (tap_valgrind()) {
        skip("valgrind moves the end of the heap itself");
        return;
    }
    read_calls(grow, s, c);
    is_int(s->after - s->before, GROWN, "it has grown");
    harm.at = find_call(c, SYS_brk);
    ok(harm.at > 0, "by a call");
    *s = (struct seen){0};
    tracer_run(grow, s, &harm, &run);
    is_int(run.n_harmed, 1, "which fails");
    is_int(s->got, -1, "and says so");
    is_int(s->error, ENOMEM, "why");
    is_int(s->after, s->before, "the end is where it was");
}

static void test_question(void)
{
    const struct tracer_call asks = {.number = SYS_brk};
    struct tracer_call grows = {.number = SYS_brk, .args = {1 << 20}};

    ok(!tracer_may_fail(&asks, ENOMEM), "who asks where the end is gets an answer");
    ok(tracer_may_fail(&grows, ENOMEM) && !tracer_may_fail(&grows, EIO),
       "to move it needs memory, and no disk");
}

/* Below what malloc() maps for itself. */
static void take_memory(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++) {
        char *volatile p = malloc(PIECE);

        if (p) {
            memset(p, i, PIECE);
        }
    }
}

/* Whether it ended as if there had been no harm. */
static bool goes_on(uint64_t at, bool stays)
{
    const struct tracer_harm harm = {.at = at, .error = ENOMEM, .stays = stays};
    struct tracer_run run = {0};

    tracer_run(take_memory, NULL, &harm, &run);
    return run.status == 0 && run.n_harmed > 0;
}

static void test_malloc(struct calls *c)
{
    unsigned n_tried = 0, n_wrong = 0;

    if (getenv("MUSTER_INSTRUMENTED")) {
        skip("a sanitizer's malloc() ends the program where there is no memory");
        return;
    }
    read_calls(take_memory, NULL, c);
    for (uint64_t at = 1; at <= c->n; at++) {
        if (tracer_may_fail(&c->list[at - 1], ENOMEM)) {
            n_tried++;
            n_wrong += !goes_on(at, false) + !goes_on(at, true);
        }
    }
    ok(n_tried > 0, "malloc() asks for memory, %u times", n_tried);
    is_int(n_wrong, 0, "and what gets none finds no memory that is not there");
}

/* --- the disk --- */

static void write_down(void *arg)
{
    struct seen *s = arg;
    _close_ int fd = memfd_create("disk", MFD_CLOEXEC);

    s->got = write(fd, "12345678", 8);
    s->error = s->got < 0 ? errno : 0;
    s->after = lseek(fd, 0, SEEK_END);
}

static void test_write(struct seen *s, struct calls *c)
{
    static const struct {
        int error;
        intptr_t got, left;
        const char *name;
    } cases[] = {
        {ENOSPC, -1, 0, "a full disk"},
        {TRACER_SHORT, 4, 4, "half of it"},
    };

    read_calls(write_down, s, c);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tracer_harm harm = {.at = find_call(c, SYS_write), .error = cases[i].error};
        struct tracer_run run = {0};

        *s = (struct seen){0};
        tracer_run(write_down, s, &harm, &run);
        is_int(s->got, cases[i].got, "%s: told", cases[i].name);
        is_int(s->error, cases[i].error > 0 ? cases[i].error : 0, "%s: why", cases[i].name);
        is_int(s->after, cases[i].left, "%s: is what is there", cases[i].name);
    }
}

static void test_killed(struct seen *s, struct calls *c)
{
    struct tracer_harm harm = {.error = TRACER_KILL};
    struct tracer_run run = {0};

    read_calls(write_down, s, c);
    harm.at = find_call(c, SYS_write);
    *s = (struct seen){.got = 99};
    tracer_run(write_down, s, &harm, &run);
    ok(run.is_killed && s->got == 99, "killed before a call");
}

int main(void)
{
    struct seen *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    _free_ struct calls *c = calloc(1, sizeof(*c));
    const char *why;

    if (s == MAP_FAILED || !c) {
        bail_out("memory");
    }
    if (!tracer_works(&why)) {
        skip("%s", why);
        return tap_done();
    }
    test_heap_ends(s, c);
    test_question();
    test_malloc(c);
    test_write(s, c);
    test_killed(s, c);
    return tap_done();
}
