/* SPDX-License-Identifier: Apache-2.0 */
/* How long a worker's end of its socket waits, and for what. */
#include <config.h>

#include "comm/client_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ANSWER_MS = 60000, /* for an answer */
    SEND_MS = 30000,   /* for room in the socket */
};

struct client_bed_world client_bed_world;

/* --- answers --- */

static void say_state(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_STATE};

    m.state.checkpoint_requests = 3;
    client_bed_say(a, &m);
}

static void say_nonsense(struct client_bed *a)
{
    static const char frame[] = "\xff\xff\xff\xff nonsense";

    if (send(a->fd, frame, sizeof(frame), MSG_NOSIGNAL) < 0) {
        bail_out("the agent cannot answer");
    }
}

/* An answer to client_join(). */
static void no_comm(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_COMM};

    str_copy(m.comm.why, sizeof(m.comm.why), "one alone");
    client_bed_say(a, &m);
}

static void say_first_part(struct client_bed *a)
{
    client_bed_say_part(a, true);
}

static void say_second_part(struct client_bed *a)
{
    client_bed_say_part(a, false);
}

static void test_silent(void)
{
    struct client *c = NULL;
    struct error e = {0};
    struct client_bed a;

    client_bed_open(&a);
    plan_turns(&a, {.ms = 20000, .rc = -1}, {.ms = 10000, .rc = -1}, {.rc = 0});
    is_int(client_connect(a.place.path, &c, &e), -ETIMEDOUT, "an agent that is silent");
    like(e.text, "in 60 s", "is given a minute: %s", e.text);
    check_waited(&a, POLLIN, ANSWER_MS, ANSWER_MS - 20000, ANSWER_MS - 30000);
    ok(!c, "there is no client");
    client_bed_close(&a, c);
}

/* Interrupted until after it. */
static void test_interrupted(void)
{
    struct client *c = NULL;
    struct error e = {0};
    struct client_bed a;

    client_bed_open(&a);
    plan_turns(&a, {.ms = ANSWER_MS, .rc = -1});
    is_int(client_connect(a.place.path, &c, &e), -ETIMEDOUT, "interrupted for a minute");
    check_waited(&a, POLLIN, ANSWER_MS);
    client_bed_close(&a, c);
}

/* What it says meanwhile gives it no more time. */
static void test_talks(void)
{
    struct worker_state s = {0};
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int fds[2];

    is_int((intmax_t)client_welcome(c)->generation, 7, "the welcome is kept");
    {
        plan_turns(&a, {.ms = 40000, .rc = 1, .act = say_state}, {.rc = 0});
        is_int(client_join(c, &fds[0], &fds[1], &e), -ETIMEDOUT,
               "one that talks of other things");
        check_waited(&a, POLLIN, ANSWER_MS, ANSWER_MS - 40000);
    }
    is_int(client_state(c, &s, &e), 0, "which are known");
    is_int((intmax_t)s.checkpoint_requests, 3, "afterwards");
    {
        plan_turns(&a, {.ms = 10, .rc = 1, .act = no_comm});
        is_int(client_join(c, &fds[0], &fds[1], &e), -EOPNOTSUPP, "it answers");
        like(e.text, "one alone", "why not");
    }
    {
        plan_turns(&a, {.ms = 10, .rc = 1, .act = say_first_part},
                   {.ms = 10, .rc = 1, .act = say_second_part});
        is_int(client_join(c, &fds[0], &fds[1], &e), -EOPNOTSUPP, "in two parts");
        like(e.text, "in parts", "which make one");
        check_waited(&a, POLLIN, ANSWER_MS, ANSWER_MS - 10);
    }
    {
        plan_turns(&a, {.rc = 1, .act = say_nonsense});
        is_int(client_join(c, &fds[0], &fds[1], &e), -EPROTO, "it talks nonsense");
        is_int(e.code, EPROTO, "which is the code of the error, too");
        is_int(client_state(c, &s, NULL), -EPROTO, "also of who does not ask for one");
    }
    client_bed_close(&a, c);
}

/* --- a socket that is full --- */

/* How many whole messages of that type came, of reports those from a step on; nothing may be
 * behind them. */
static int count_from(struct client_bed *a, enum worker_msg_type type, int64_t step)
{
    struct error e = {0};
    int n = 0;

    client_bed_hear(a);
    while (a->in.len > 0) {
        struct worker_msg m;
        size_t len;

        if (worker_frame_next(a->in.data, a->in.len, &len, &e) != 1 ||
            worker_msg_decode(a->in.data, len, &m, &e) < 0) {
            ok(false, "%zu bytes are no message", a->in.len);
            break;
        }
        n += m.type == type && (type != WORKER_REPORT || m.report.step >= step);
        buf_consume(&a->in, len);
    }
    return n;
}

static int count_heard(struct client_bed *a, enum worker_msg_type type)
{
    return count_from(a, type, 0);
}

static void test_full(void)
{
    struct worker_report r = {.step = 1};
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int n;

    client_bed_fill(c);
    plan_turns(&a, {.ms = 10000, .rc = -1}, {.rc = 0});
    is_int(client_checkpoint_saved(c, "out", 1, &e), -ETIMEDOUT, "a save waits");
    like(e.text, "took nothing in 30 s", "for so long: %s", e.text);
    check_waited(&a, POLLOUT, SEND_MS, SEND_MS - 10000);
    client_bed_hear(&a);
    is_int(client_report(c, &r, &e), 0, "it has room again");
    is_int(client_report(c, &r, &e), 0, "for more");
    n = count_heard(&a, WORKER_REPORT);
    ok(n > 2 && n < CLIENT_BED_REPORTS,
       "reports for which there was no room were left out (%d of %d came)", n,
       CLIENT_BED_REPORTS);
    client_bed_close(&a, c);
}

/* The agent takes it while the client waits. */
static void test_full_for_a_while(void)
{
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);

    client_bed_fill(c);
    plan_turns(&a, {.ms = 29999, .rc = 1, .act = client_bed_hear});
    is_int(client_checkpoint_saved(c, "out", 1, &e), 0, "a save that has to wait");
    check_waited(&a, POLLOUT, SEND_MS);
    is_int(count_heard(&a, WORKER_CHECKPOINT_SAVED), 1, "comes");
    client_bed_close(&a, c);
}

static struct client *reporter;

/* The agent has room again, while who waits for that has not gone on yet. */
static void report_meanwhile(struct client_bed *a)
{
    struct worker_report r = {.step = 2};
    struct error e = {0};

    client_bed_hear(a);
    is_int(client_report(reporter, &r, &e), 0, "a report while another thread sends");
}

/* It does not come in between, nor wait for that thread. */
static void test_report_meanwhile(void)
{
    struct worker_report r = {.step = 3};
    struct error e = {0};
    struct client_bed a;

    reporter = client_bed_connect(&a);
    client_bed_fill(reporter);
    plan_turns(&a, {.ms = 1, .rc = 1, .act = report_meanwhile});
    is_int(client_checkpoint_saved(reporter, "out", 1, &e), 0, "a save that has to wait");
    is_int(client_report(reporter, &r, &e), 0, "a report behind it");
    is_int(count_from(&a, WORKER_REPORT, 2), 1, "is the only one of the two that comes");
    client_bed_close(&a, reporter);
}

/* --- while another thread waits --- */

#define SAVE "000000000000000000000000000000aa"

static const struct worker_snap_fill filling = {.image_bytes = 9, .is_chosen = 1, .uuid = SAVE};

/* The answer is there by then: it is that thread's. */
static void fill_meanwhile(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_SNAP};
    struct error e = {0};

    m.snap.error = ENOENT;
    client_bed_say(a, &m);
    is_int(client_snap_fill(reporter, &filling, &e), 0, "a save is filled while another thread "
           "waits for an answer");
}

static void test_fill_meanwhile(void)
{
    struct worker_snap got;
    struct error e = {0};
    struct client_bed a;
    int fd = -1;

    reporter = client_bed_connect(&a);
    plan_turns(&a, {.ms = 1, .rc = 1, .act = fill_meanwhile});
    is_int(client_snap_find(reporter, 0, SAVE, &got, &fd, &e), -ENOENT, "which it gets");
    is_int(count_heard(&a, WORKER_SNAP_FILL), 1, "the agent hears of it, behind the question");
    client_bed_close(&a, reporter);
}

/* It is not left out, as a report is. */
static void test_fill_full(void)
{
    struct error e = {0};
    struct client_bed a;

    reporter = client_bed_connect(&a);
    client_bed_fill(reporter);
    {
        plan_turns(&a, {.ms = 1, .rc = 1, .act = client_bed_hear});
        is_int(client_snap_fill(reporter, &filling, &e), 0, "it waits until there is room");
        check_waited(&a, POLLOUT, SEND_MS);
    }
    is_int(count_heard(&a, WORKER_SNAP_FILL), 1, "and comes");
    client_bed_fill(reporter);
    {
        plan_turns(&a, {.ms = 1, .rc = 1, .act = report_meanwhile});
        is_int(client_snap_fill(reporter, &filling, &e), 0, "nobody else sends meanwhile");
    }
    is_int(count_from(&a, WORKER_REPORT, 2), 0, "what would be in between is left out");
    client_bed_fill(reporter);
    {
        plan_turns(&a, {.rc = 0});
        is_int(client_snap_fill(reporter, &filling, &e), -ETIMEDOUT, "but not for ever");
    }
    client_bed_close(&a, reporter);
}

/* A part of a message has come, and one is to be sent. */
static void live_once(void *arg)
{
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    struct worker_state s;
    struct error e;

    (void)arg;
    client_bed_say_part(&a, true);
    client_bed_fill(c);
    if (client_state(c, &s, &e) < 0) {
        bail_out("no state: %s", e.text);
    }
    client_bed_close(&a, c);
}

int main(void)
{
    test_silent();
    test_interrupted();
    test_talks();
    test_full();
    test_full_for_a_while();
    test_report_meanwhile();
    test_fill_meanwhile();
    test_fill_full();
    is_int(tap_leak(live_once, NULL), 0, "no memory is left behind");
    return tap_done();
}
