/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tidy.h"
#include "tests/lib/tap.h"

enum { SILENT_MS = 30000 };

static const struct tidy_look running = {
    .is_read = true, .state = STATUS_RUNNING, .updated_ns = 7};
static const struct tidy_look gone = {.is_gone = true}, unread = {0};

static void test_over(void)
{
    static const struct {
        enum status_run_state state;
        enum tidy_step step;
    } rows[] = {
        {STATUS_CREATED, TIDY_WAIT},     {STATUS_JOINING, TIDY_WAIT},
        {STATUS_RUNNING, TIDY_WAIT},     {STATUS_RESTARTING, TIDY_WAIT},
        {STATUS_STOPPING, TIDY_WAIT},    {STATUS_SUCCEEDED, TIDY_TAKE},
        {STATUS_FAILED, TIDY_TAKE},       {STATUS_STOPPED, TIDY_LEAVE},
        {STATUS_SUSPENDED, TIDY_LEAVE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tidy_look look = {.is_read = true, .state = rows[i].state,
                                 .updated_ns = 7};
        struct tidy t = {.silent_ms = SILENT_MS};

        is_int(tidy_decide(&t, &look, 1000), rows[i].step, "%s",
               status_run_name(rows[i].state));
    }
}

static void test_gone(void)
{
    struct tidy t = {.silent_ms = SILENT_MS};

    is_int(tidy_decide(&t, &gone, 1), TIDY_LEAVE, "a run whose directory is not here");
    t = (struct tidy){.silent_ms = SILENT_MS};
    tidy_decide(&t, &running, 1000);
    is_int(tidy_decide(&t, &gone, 2000), TIDY_WAIT, "one that was here may come back");
    is_int(tidy_decide(&t, &gone, 31000), TIDY_WAIT, "for a while");
    is_int(tidy_decide(&t, &gone, 31001), TIDY_TAKE, "and is no more after that");
}

static void test_silent(void)
{
    struct tidy_look look = running;
    struct tidy t = {.silent_ms = SILENT_MS};

    is_int(tidy_decide(&t, &look, 5000), TIDY_WAIT, "a run that goes on");
    is_int(tidy_decide(&t, &look, 35000), TIDY_WAIT, "without a word for a while");
    is_int(tidy_decide(&t, &look, 35001), TIDY_LEAVE, "and longer");
    look.updated_ns--; /* by a clock that was set back */
    is_int(tidy_decide(&t, &look, 35002), TIDY_WAIT, "but for a word");
    is_int(tidy_decide(&t, &unread, 65002), TIDY_WAIT, "one that cannot be read");
    is_int(tidy_decide(&t, &unread, 65003), TIDY_LEAVE, "is not waited for without an end");
    t = (struct tidy){.silent_ms = SILENT_MS};
    is_int(tidy_decide(&t, &unread, 1000), TIDY_WAIT, "nor one that never could be");
    is_int(tidy_decide(&t, &unread, 31001), TIDY_LEAVE, "be read");
}

static void test_span(void)
{
    is_int((int64_t)tidy_silent_ms(10000), 70000, "of a lease of 10 s");
    ok(tidy_silent_ms(UINT64_MAX) == UINT64_MAX, "of one without an end");
}

int main(void)
{
    test_over();
    test_gone();
    test_silent();
    test_span();
    return tap_done();
}
