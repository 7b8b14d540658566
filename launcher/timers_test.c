/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/timers.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

/* The wall clock is an hour behind what the one of boot is at. */
static const struct timers_now now = {.wall_ms = 1000000, .mono_ms = 4600000};

static pid_t ended;  /* that is gone, of all processes */
static pid_t reused; /* the pid of another one by now */

static bool start_of(pid_t pid, uint64_t *ret)
{
    *ret = 7000 + (uint64_t)pid + (pid == reused);
    return pid != ended;
}

static unsigned feed(struct timers *t, const char *text, struct error *e)
{
    return timers_feed(t, text, strlen(text), now, start_of, e);
}

/* As the client of PyTorch writes one. */
static void ask(struct timers *t, int pid, const char *scope, double expires,
                int sig)
{
    struct error e = {0};
    char line[512];

    snprintf(line, sizeof(line), "{\"version\": 1, \"pid\": %d, \"scope_id\": "
             "\"%s\", \"expiration_time\": %g, \"signal\": %d}\n", pid, scope,
             expires, sig);
    is_int((int64_t)feed(t, line, &e), 0, "%d asks for %s: %s", pid, scope,
           e.text);
}

static void test_life(void)
{
    struct timers *t = timers_create();
    uint64_t due = 0;

    ended = -1;
    is_int(timers_next(t, &due), 0, "none runs at first");
    ask(t, 10, "epoch", 1003.5, 9);
    ask(t, 11, "epoch", 1002, 15);
    is_int((int64_t)timers_count(t), 2, "one a process");
    ok(timers_next(t, &due) && due >= 4602000 && due <= 4602001,
       "the next is over in 2 s: %llu", (unsigned long long)due);
    ask(t, 11, "epoch", 1009, 15);
    ok(timers_next(t, &due) && due >= 4603500 && due <= 4603501,
       "asked for again it is set anew: %llu", (unsigned long long)due);
    ask(t, 10, "epoch", -1, 0);
    is_int((int64_t)timers_count(t), 1, "and released it is gone");
    ask(t, 10, "epoch", -1, 0);
    is_int((int64_t)timers_count(t), 1, "also when it is not there");
    timers_destroy(t);
}

static void test_expire(void)
{
    struct timers *t = timers_create();
    struct timer over = {0};

    ended = -1;
    ask(t, 10, "mute", 1001, 0);
    ask(t, 10, "outer", 1003, 15);
    ask(t, 10, "inner", 1002, 9);
    ask(t, 11, "other", 1003, 9);
    is_int(timers_expire(t, 4600999, &over), 0, "none before its time");
    is_int(timers_expire(t, 4602500, &over), 1, "two of a process are over");
    is_str(over.scope, "inner", "what ends it is the first with a signal");
    is_int(over.pid, 10, "of that process");
    is_int((int64_t)over.start, 7010, "which is known by its start");
    is_int(over.signal, 9, "with its signal");
    timer_release(&over);
    is_int((int64_t)timers_count(t), 1, "it has no others any more");
    is_int(timers_expire(t, 4602500, &over), 0, "and the next has time");
    ask(t, 12, "mute", 0, 0);
    is_int(timers_expire(t, 4600000, &over), 1, "one that was over before");
    is_str(over.scope, "mute", "counts at once");
    is_int(over.signal, 0, "also without a signal");
    timer_release(&over);
    timers_destroy(t);
}

/* A process that has ended asks for nothing, and makes room. */
static void test_ended(void)
{
    struct timers *t = timers_create();
    struct error e = {0};
    uint64_t due = 0;
    char line[128];

    ended = 10;
    ask(t, 10, "late", 1001, 9);
    is_int(timers_next(t, &due), 0, "of one that has ended none is set");
    ended = -1;
    for (int i = 0; i < TIMERS_MAX; i++) {
        snprintf(line, sizeof(line), "{\"pid\":%d,\"scope_id\":\"%d\","
                 "\"expiration_time\":1001,\"signal\":9}\n", 20 + i % 2, i);
        if (feed(t, line, &e)) {
            bail_out("timer %d: %s", i, e.text);
        }
    }
    is_int((int64_t)timers_count(t), TIMERS_MAX, "as many as there may be");
    is_int((int64_t)feed(t, "{\"pid\":20,\"scope_id\":\"more\","
                            "\"expiration_time\":1001,\"signal\":9}\n", &e), 1,
           "and no more");
    like(e.text, "no room for more than 4096 timers", "which is said");
    ended = 21;
    ask(t, 20, "more", 1001, 9);
    is_int((int64_t)timers_count(t), TIMERS_MAX / 2 + 1,
           "but those of a process that has ended since");
    for (int i = 0; i < TIMERS_MAX / 2 - 1; i++) {
        snprintf(line, sizeof(line), "%d", i);
        ask(t, 22, line, 1001, 9);
    }
    is_int((int64_t)timers_count(t), TIMERS_MAX, "again as many as there may be");
    reused = 22;
    ask(t, 20, "yet more", 1001, 9);
    is_int((int64_t)timers_count(t), TIMERS_MAX / 2 + 2,
           "nor do those of one whose pid is another's now");
    reused = 0;
    timers_destroy(t);
}

static void test_pieces(void)
{
    static const char text[] =
        "{\"pid\": 10, \"scope_id\": \"a\\n\\u00e9\", \"expiration_time\": 1001.0, "
        "\"signal\": 9}\n{\"pid\": 10, \"scope_id\": \"b\", "
        "\"expiration_time\": 1001, \"signal\": 9}\n";

    ended = -1;
    for (size_t cut = 0; cut <= sizeof(text) - 1; cut += 7) {
        struct timers *t = timers_create();
        struct error e = {0};
        unsigned n = timers_feed(t, text, cut, now, start_of, &e) +
                     timers_feed(t, text + cut, sizeof(text) - 1 - cut, now,
                                 start_of, &e);

        ok(n == 0 && timers_count(t) == 2, "two, cut at %zu: %s", cut, e.text);
        timers_destroy(t);
    }
}

#define REST ", \"expiration_time\": 1001, \"signal\": 9}"

/* What anybody of this user may write; a good one comes behind each. */
static void test_hostile(void)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "no JSON object"},
        {"hello", "no JSON object"},
        {"[]", "no JSON object"},
        {"7", "no JSON object"},
        {"{\"pid\": 10", "no JSON object"},
        {"{\"pid\": 10, \"scope_id\": \"a\"" REST " x", "no JSON object"},
        {"{\"pid\": 10, \"pid\": 11, \"scope_id\": \"a\"" REST,
         "no JSON object"},
        {"{\"pid\": 10, \"scope_id\": \"a\\u0000b\"" REST, "no JSON object"},
        {"{\"pid\": 10, \"scope_id\": \"\xff\"" REST, "no JSON object"},
        {"{}", "scope_id"},
        {"{\"pid\": 10, \"scope_id\": 7" REST, "scope_id"},
        {"{\"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": 0, \"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": -1, \"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": 4294967306, \"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": \"10\", \"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": 10.0, \"scope_id\": \"a\"" REST, "without a pid"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": 1001}",
         "without a signal"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": 1001, "
         "\"signal\": 65}", "without a signal"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": 1001, "
         "\"signal\": \"KILL\"}", "without a signal"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"signal\": 9}",
         "without an expiration_time"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": \"1\", "
         "\"signal\": 9}", "without an expiration_time"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": NaN, "
         "\"signal\": 9}", "no JSON object"},
        {"{\"pid\": 10, \"scope_id\": \"a\", \"expiration_time\": 1e999, "
         "\"signal\": 9}", "no JSON object"},
    };
    char longest[TIMERS_LINE_BYTES + 2];
    struct error e = {0};
    struct timers *t = timers_create();
    uint64_t due = 0;

    ended = -1;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        e.text[0] = '\0';
        is_int((int64_t)(feed(t, cases[i].line, &e) + feed(t, "\n", &e)), 1,
               "refused: %s", cases[i].line);
        like(e.text, cases[i].why, "with the reason");
        is_int((int64_t)timers_count(t), 0, "and nothing is set");
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    is_int((int64_t)(feed(t, longest, &e) + feed(t, longest, &e) +
                     feed(t, "\n", &e)), 1, "a line without an end, once");
    like(e.text, "more than 4096 bytes", "with the reason");
    ask(t, 10, "a", 1e300, 9);
    is_int((int64_t)timers_count(t), 1, "what comes behind is taken");
    ok(timers_next(t, &due) && due > now.mono_ms, "and a far time is far");
    timers_destroy(t);
}

int main(void)
{
    test_life();
    test_expire();
    test_ended();
    test_pieces();
    test_hostile();
    return tap_done();
}
