/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tidy.h"
#include "tests/lib/tap.h"

static const struct tidy_look running = {
    .is_read = true, .state = STATUS_RUNNING, .updated_ns = 7};

static struct tidy_look in_state(enum status_run_state state, bool is_locked)
{
    return (struct tidy_look){.is_read = true, .state = state,
                              .is_locked = is_locked, .updated_ns = 7};
}

static enum tidy_step decide(const struct tidy_look *look)
{
    struct tidy t = {0};

    return tidy_decide(&t, look, 1000);
}

static void test_over(void)
{
    static const struct {
        enum status_run_state state;
        enum tidy_step step;
    } rows[] = {
        {STATUS_CREATED, TIDY_WAIT},     {STATUS_JOINING, TIDY_WAIT},
        {STATUS_RUNNING, TIDY_WAIT},     {STATUS_RESTARTING, TIDY_WAIT},
        {STATUS_STOPPING, TIDY_WAIT},    {STATUS_SUCCEEDED, TIDY_ALL},
        {STATUS_FAILED, TIDY_ALL},       {STATUS_STOPPED, TIDY_FILES},
        {STATUS_SUSPENDED, TIDY_FILES},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tidy_look free_one = in_state(rows[i].state, false);
        struct tidy_look locked = in_state(rows[i].state, true);

        is_int(decide(&free_one), rows[i].step, "%s",
               status_run_name(rows[i].state));
        is_int(decide(&locked), TIDY_WAIT, "%s, and somebody has it",
               status_run_name(rows[i].state));
    }
}

static void test_gone(void)
{
    const struct tidy_look gone = {.is_gone = true}, hung = {0};
    struct tidy t = {0};

    is_int(decide(&gone), TIDY_FILES, "a run whose directory is not here");
    is_int(decide(&hung), TIDY_WAIT, "one that cannot be read");
    tidy_decide(&t, &running, 0);
    is_int(tidy_decide(&t, &gone, 1), TIDY_ALL, "one that was here, and is no more");
}

static void test_silent(void)
{
    struct tidy_look look = running;
    const struct tidy_look hung = {0};
    struct tidy t = {0};

    is_int(tidy_decide(&t, &look, 5000), TIDY_WAIT, "a run that goes on");
    is_int(tidy_decide(&t, &look, 35000), TIDY_WAIT, "without a word for a while");
    is_int(tidy_decide(&t, &look, 35001), TIDY_FILES, "and longer");
    look.updated_ns--; /* by a clock that was set back */
    is_int(tidy_decide(&t, &look, 35002), TIDY_WAIT, "but for a word");
    is_int(tidy_decide(&t, &hung, 500000), TIDY_WAIT, "as it cannot be read");
    look.is_locked = true;
    is_int(tidy_decide(&t, &look, 500001), TIDY_WAIT, "somebody has it");
    look.is_locked = false;
    is_int(tidy_decide(&t, &look, 530001), TIDY_WAIT, "until then");
    is_int(tidy_decide(&t, &look, 530002), TIDY_FILES, "or longer");
}

int main(void)
{
    test_over();
    test_gone();
    test_silent();
    return tap_done();
}
