/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/fanout.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { MANY = 200, LONG_MS = 60000 };

static void set_script(struct fanout_task *t, const char *script)
{
    strlist_add(&t->argv, "sh");
    strlist_add(&t->argv, "-c");
    strlist_add(&t->argv, script);
}

static void run(struct fanout_task *tasks, size_t n, unsigned timeout_ms)
{
    _buf_ struct buf input = {0};
    struct fanout f = {.tasks = tasks, .n = n, .input = &input, .env = environ,
                       .timeout_ms = timeout_ms};
    struct error e = {0};

    buf_puts(&input, "question\n");
    if (fanout_run(&f, &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* More than run at once; each gets its own input from the start. */
static void test_many(void)
{
    static struct fanout_task tasks[MANY];
    size_t n_right = 0;

    for (size_t i = 0; i < MANY; i++) {
        char script[64];

        snprintf(script, sizeof(script), "read q; echo $q %zu; exit %zu", i,
                 i % 100);
        set_script(&tasks[i], script);
    }
    run(tasks, MANY, LONG_MS);
    for (size_t i = 0; i < MANY; i++) {
        char want[64];

        snprintf(want, sizeof(want), "question %zu\n", i);
        n_right += !tasks[i].problem[0] &&
                   tasks[i].status == (int)(i % 100) &&
                   strcmp(buf_str(&tasks[i].answer), want) == 0;
        fanout_task_release(&tasks[i]);
    }
    is_int((int)n_right, MANY, "each answers for itself");
}

/* Those that hang are killed with what they started, and take the time of those
 * that wait for their turn. */
static void test_deadline(void)
{
    static struct fanout_task tasks[MANY];
    size_t n_late = 0, n_untried = 0;

    for (size_t i = 0; i < MANY; i++) {
        set_script(&tasks[i], "sleep 600 & sleep 600");
    }
    run(tasks, MANY, 2000);
    for (size_t i = 0; i < MANY; i++) {
        n_late += strcmp(tasks[i].problem, "no answer within 2 s") == 0;
        n_untried += strstr(tasks[i].problem, "not tried") != NULL;
    }
    is_int((int)n_late, 64, "as many as run at once are late");
    is_int((int)n_untried, MANY - 64, "the others are not tried");
    for (size_t i = 0; i < MANY; i++) {
        fanout_task_release(&tasks[i]);
    }
}

static void test_answers(void)
{
    struct fanout_task t = {0}, none = {0};
    char line[64];
    json_t *o;
    size_t at = 0;

    set_script(&t, "echo '{chatty}'; echo '{\"a\":1}'; echo noise; "
                   "echo '{\"a\":2}'; echo bye >&2");
    strlist_add(&none.argv, "no-such-program-of-muster");
    run(&t, 1, LONG_MS);
    run(&none, 1, LONG_MS);
    o = fanout_answer(&t);
    is_int((int)json_integer_value(json_object_get(o, "a")), 2, "the last");
    json_decref(o);
    o = fanout_next(&t, &at);
    is_int((int)json_integer_value(json_object_get(o, "a")), 1, "the first");
    json_decref(o);
    o = fanout_next(&t, &at);
    is_int((int)json_integer_value(json_object_get(o, "a")), 2, "the next");
    json_decref(o);
    ok(!fanout_next(&t, &at), "and no more");
    fanout_last_line(&t, line, sizeof(line));
    is_str(line, "bye", "the last line, of standard error too");
    like(none.problem, "no-such-program-of-muster", "what is not there is told");
    fanout_task_release(&t);
    fanout_task_release(&none);
}

int main(void)
{
    test_many();
    test_deadline();
    test_answers();
    return tap_done();
}
