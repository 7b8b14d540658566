/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent says to a worker's end of its socket, or that it is not there to. */
#include <config.h>

#include "comm/client_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SAVE "000000000000000000000000000000aa"

enum { N_KNOWN = 64 }; /* snapshots of which it is known how far they are */

struct client_bed_world client_bed_world;

/* --- no agent --- */

static void refuse(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_REFUSED};

    client_bed_accept(a);
    str_copy(m.refused.why, sizeof(m.refused.why), "too old");
    client_bed_say(a, &m);
}

static void hang_up(struct client_bed *a)
{
    close_fd(&a->fd);
}

static void take_and_hang_up(struct client_bed *a)
{
    client_bed_accept(a);
    hang_up(a);
}

static void test_no_welcome(void)
{
    struct client *c = NULL;
    struct error e = {0};
    struct client_bed a;

    client_bed_open(&a);
    {
        plan_turns(&a, {.rc = 1, .act = refuse});
        is_int(client_connect(a.place.path, &c, &e), -EPROTO, "refused");
        like(e.text, "too old", "with the reason");
        close_fd(&a.fd);
    }
    {
        plan_turns(&a, {.rc = 1, .act = take_and_hang_up});
        is_int(client_connect(a.place.path, &c, &e), -ECONNREFUSED,
               "one that hangs up was not there");
        like(e.text, "before a welcome", "%s", e.text);
    }
    close_fd(&a.listener);
    is_int(client_connect(a.place.path, &c, &e), -ECONNREFUSED, "nobody listens");
    unlink(a.place.path);
    is_int(client_connect(a.place.path, &c, &e), -ECONNREFUSED, "nor is there a socket");
    like(e.text, a.place.path, "which is told");
    client_bed_close(&a, c);
}

static void test_path(void)
{
    char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
    struct client *c = NULL;
    struct error e = {0};
    int own = fcntl(0, F_GETFD);

    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    is_int(client_connect(path, &c, &e), -ENAMETOOLONG, "a path that does not fit");
    path[sizeof(path) - 2] = '\0';
    is_int(client_connect(path, &c, &e), -ECONNREFUSED, "the longest that does");
    is_int(client_connect("/dev/null/socket", &c, &e), -ENOTDIR, "one that cannot be");
    ok(fcntl(0, F_GETFD) == own, "and no descriptor of others is closed");
}

/* The program has as many files open as it may. */
static void test_no_descriptor(void)
{
    struct rlimit before, none;
    struct client *c = NULL;
    struct error e = {0};
    struct client_bed a;

    client_bed_open(&a);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    is_int(client_connect(a.place.path, &c, &e), -EMFILE, "no descriptor: %s", e.text);
    setrlimit(RLIMIT_NOFILE, &before);
    client_bed_close(&a, c);
}

static void test_hello(void)
{
    struct client_bed a;
    struct client *c = client_bed_connect(&a);

    is_int(a.hello.version, WORKER_PROTO_VERSION, "it says which version it speaks");
    is_int(a.hello.pid, getpid(), "and who it is");
    client_bed_close(&a, c);
}

static void test_gone(void)
{
    struct worker_report r = {.step = 1};
    struct worker_snap_status snap;
    struct worker_state s;
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int fds[2];

    {
        plan_turns(&a, {.rc = 1, .act = hang_up});
        is_int(client_join(c, &fds[0], &fds[1], &e), -ECONNABORTED, "it goes");
    }
    is_int(client_state(c, &s, &e), -ECONNABORTED, "and is gone for all calls");
    is_int(client_report(c, &r, &e), -ECONNABORTED, "a report");
    is_int(client_checkpoint_saved(c, "out", 1, &e), -ECONNABORTED, "and a save");
    is_int(client_has_store(c, &e), -ECONNABORTED, "and a question");
    is_int(client_snap_status(c, SAVE, &snap, &e), -ECONNABORTED, "and another one");
    like(e.text, "the agent of this node is gone", "%s", e.text);
    client_bed_close(&a, c);
}

/* --- snapshots --- */

static void say_snap(struct client_bed *a, int i, enum worker_snap_level level)
{
    struct worker_msg m = {.type = WORKER_SNAP_STATUS};

    m.snap_status.level = (uint8_t)level;
    snprintf(m.snap_status.uuid, sizeof(m.snap_status.uuid), "%032d", i);
    client_bed_say(a, &m);
}

/* What is said of snapshot i, or -1. */
static int level_of(struct client *c, int i)
{
    struct worker_snap_status s;
    struct error e = {0};
    char uuid[WORKER_UUID_SIZE];
    int rc;

    snprintf(uuid, sizeof(uuid), "%032d", i);
    rc = client_snap_status(c, uuid, &s, &e);
    return rc == 0 ? s.level : rc == -ENOENT ? -1 : -2;
}

/* Of the newest ones it is known; the one of which nothing was heard for longest goes. */
static void test_known(void)
{
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int n_known = 0;

    for (int i = 0; i < N_KNOWN; i++) {
        say_snap(&a, i, WORKER_SNAP_HELD);
    }
    for (int i = 0; i < N_KNOWN; i++) {
        n_known += level_of(c, i) == WORKER_SNAP_HELD;
    }
    is_int(n_known, N_KNOWN, "of 64 it is known");
    say_snap(&a, N_KNOWN - 1, WORKER_SNAP_HELD);
    is_int(level_of(c, 0), WORKER_SNAP_HELD, "the newest one, once more, is not one more");
    say_snap(&a, 0, WORKER_SNAP_DURABLE);
    say_snap(&a, 5, WORKER_SNAP_PARTNER);
    is_int(level_of(c, 0), WORKER_SNAP_DURABLE, "the newest word counts");
    is_int(level_of(c, 1), WORKER_SNAP_HELD, "others stay");
    say_snap(&a, N_KNOWN, WORKER_SNAP_HELD);
    is_int(level_of(c, N_KNOWN), WORKER_SNAP_HELD, "one more");
    is_int(level_of(c, 1), -1, "is for the oldest");
    n_known = 0;
    for (int i = 2; i <= N_KNOWN; i++) {
        n_known += level_of(c, i) > 0;
    }
    is_int(n_known + (level_of(c, 0) > 0), N_KNOWN, "no other one goes");
    is_int(level_of(c, 5), WORKER_SNAP_PARTNER, "nor what was said of it");
    client_bed_close(&a, c);
}

static void test_store(void)
{
    struct worker_msg m = {.type = WORKER_STORE};
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);

    is_int(client_has_store(c, &e), 0, "no store was spoken of");
    client_bed_say(&a, &m);
    is_int(client_has_store(c, &e), 1, "now one was");
    client_bed_close(&a, c);
}

static int hand_over(struct client *c, const struct worker_snap_done *done, struct error *e)
{
    int rc = client_snap_send(c, done, NULL, e);

    return rc < 0 ? rc : client_snap_taken(c, done->uuid, e);
}

/* Answers that have errors: what the agent says, if that can be one. */
static void test_told(void)
{
    static const struct {
        uint32_t error;
        int rc;
    } cases[] = {{4095, -4095}, {4096, -EPROTO}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker_msg m = {.type = WORKER_SNAP_STATUS};
        struct worker_snap_done done = {.image_bytes = 1};
        struct error e = {0};
        struct client_bed a;
        struct client *c = client_bed_connect(&a);

        m.snap_status.error = cases[i].error;
        snprintf(done.uuid, sizeof(done.uuid), "%032d", 1);
        str_copy(m.snap_status.uuid, sizeof(m.snap_status.uuid), done.uuid);
        str_copy(m.snap_status.why, sizeof(m.snap_status.why), "no way");
        client_bed_say(&a, &m);
        plan_turns(&a, {.rc = 1});
        is_int(hand_over(c, &done, &e), cases[i].rc, "error %u", cases[i].error);
        is_str(e.text, "no way", "with the reason");
        client_bed_close(&a, c);
    }
}

/* An answer that nobody waits for any more is none to the next question. */
static void test_late_answer(void)
{
    struct worker_msg m = {.type = WORKER_SNAP};
    struct worker_snap got;
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int fd = -1;

    {
        plan_turns(&a, {.rc = 0});
        is_int(client_snap_find(c, 0, "", &got, &fd, &e), -ETIMEDOUT, "no answer");
    }
    m.snap.error = ENOENT;
    client_bed_say(&a, &m);
    {
        plan_turns(&a, {.rc = 1}, {.rc = 0});
        is_int(client_snap_find(c, 0, "", &got, &fd, &e), -ETIMEDOUT,
               "and it is not one to the next question when it comes");
    }
    client_bed_close(&a, c);
}

/* --- descriptors --- */

static const int *to_say;

static void say_comm(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_COMM};

    m.comm.segment_bytes = 4096;
    client_bed_say_with(a, &m, to_say, 2);
}

static bool is_same(int fd, int other)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && fstat(other, &b) == 0 && a.st_ino == b.st_ino;
}

/* Memory that nobody waits for any more comes before what is asked for. */
static void test_late_memory(void)
{
    struct worker_msg m = {.type = WORKER_SNAP};
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int memory[2], p[2], fds[2] = {-1, -1};

    if (pipe2(memory, O_CLOEXEC) < 0 || pipe2(p, O_CLOEXEC) < 0) {
        bail_out("no pipes");
    }
    p[1] = dup2(a.listener, p[1]); /* two that are told apart */
    to_say = p;
    client_bed_say_with(&a, &m, memory, 1);
    plan_turns(&a, {.rc = 1, .act = say_comm}, {.rc = 1}, {.rc = 1});
    is_int(client_join(c, &fds[0], &fds[1], &e), 0, "joined: %s", e.text);
    ok(is_same(fds[0], p[0]) && is_same(fds[1], p[1]), "with what was meant for that");
    client_bed_close(&a, c);
    ok(is_same(fds[0], p[0]) && is_same(fds[1], p[1]), "which are the caller's");
    for (int i = 0; i < 2; i++) {
        close(memory[i]);
        close(p[i]);
        close_fd(&fds[i]);
    }
}

static void say_memory(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_SNAP};

    str_copy(m.snap.uuid, sizeof(m.snap.uuid), SAVE);
    client_bed_say_with(a, &m, to_say, 1);
}

static struct worker_msg heard(struct client_bed *a, enum worker_msg_type type)
{
    struct worker_msg m = {0};
    size_t len = 0;

    client_bed_hear(a);
    ok(worker_frame_next(a->in.data, a->in.len, &len, NULL) == 1 &&
           worker_msg_decode(a->in.data, len, &m, NULL) == 0 && m.type == type,
       "the agent hears of it");
    buf_consume(&a->in, len);
    return m;
}

/* An earlier answer has come meanwhile, and is of nobody. */
static void test_memory(void)
{
    struct worker_msg late = {.type = WORKER_SNAP};
    struct worker_snap got = {0};
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    struct worker_snap_find asked;
    int memory[2], fd = -1;

    if (pipe2(memory, O_CLOEXEC) < 0) {
        bail_out("no pipe");
    }
    client_bed_say_with(&a, &late, &a.listener, 1);
    to_say = memory;
    plan_turns(&a, {.rc = 1, .act = say_memory});
    is_int(client_snap_find(c, 7, SAVE, &got, &fd, &e), 0, "found: %s", e.text);
    is_str(got.uuid, SAVE, "what was asked for");
    asked = heard(&a, WORKER_SNAP_FIND).snap_find;
    is_str(asked.uuid, SAVE, "by its name");
    is_int(asked.rank, 7, "and whose it is");
    client_bed_close(&a, c);
    ok(is_same(fd, memory[0]), "its memory is the caller's");
    close_fd(&fd);
    close(memory[0]);
    close(memory[1]);
}

/* --- what it is told --- */

static void test_words(void)
{
    struct worker_report r = {.step = 5, .n_metrics = 1,
                              .metrics = {{.name = "loss", .value = 0.5}}};
    struct worker_save_plan plan = {.every_s = 2, .cost_s = 1, .n_failures = 3};
    struct worker_snap_fill fill = {.image_bytes = 9000, .may_stay = 1, .uuid = SAVE};
    struct worker_msg m;
    struct error e = {0};
    struct client_bed a;
    struct client *c = client_bed_connect(&a);

    is_int(client_report(c, &r, &e), 0, "a report: %s", e.text);
    m = heard(&a, WORKER_REPORT);
    ok(m.report.step == 5 && m.report.n_metrics == 1 && m.report.metrics[0].value == 0.5,
       "with all that is in it");
    is_int(client_save_plan(c, &plan, &e), 0, "a plan");
    m = heard(&a, WORKER_SAVE_PLAN);
    ok(m.save_plan.every_s == 2 && m.save_plan.n_failures == 3, "as it was made");
    is_int(client_checkpoint_saved(c, "out", 7, &e), 0, "a save");
    m = heard(&a, WORKER_CHECKPOINT_SAVED);
    is_int(m.checkpoint.step, 7, "of which step");
    is_str(m.checkpoint.path, "out", "and where");
    is_int(client_snap_fill(c, &fill, &e), 0, "what is being saved");
    m = heard(&a, WORKER_SNAP_FILL);
    ok(m.snap_fill.image_bytes == 9000 && m.snap_fill.may_stay == 1 && m.snap_fill.is_chosen == 0,
       "how much, and where it goes to");
    is_str(m.snap_fill.uuid, SAVE, "and which it is");
    is_int(client_checkpoint_heard(c, 3, "0123456789abcdef0123456789abcdef", 8, &e), 0,
           "that it was asked for");
    m = heard(&a, WORKER_CHECKPOINT_HEARD);
    ok(m.heard.requests == 3 && m.heard.step == 8, "how often, and before which step");
    is_str(m.heard.uuid, "0123456789abcdef0123456789abcdef", "and which save");
    client_bed_close(&a, c);
}

/* --- the end --- */

static void count_gone(void *data)
{
    ++*(int *)data;
}

static void test_place(void)
{
    struct client_bed a;
    struct client *c = client_bed_connect(&a);
    int n = 0;

    ok(!client_place(c)->gone && !client_place(c)->data, "the place is empty at first");
    *client_place(c) = (struct client_place){.data = &n, .gone = count_gone};
    client_bed_close(&a, c);
    is_int(n, 1, "who is there hears of the end");
    client_destroy(NULL);
}

int main(void)
{
    test_no_welcome();
    test_path();
    test_no_descriptor();
    test_hello();
    test_gone();
    test_known();
    test_store();
    test_told();
    test_late_answer();
    test_late_memory();
    test_memory();
    test_words();
    test_place();
    return tap_done();
}
