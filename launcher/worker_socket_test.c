/* SPDX-License-Identifier: Apache-2.0 */
/* What workers that use libmuster say to their agent, and hear from it. */
#include <config.h>

#include "launcher/worker_socket_bed.h"

#include "base/clock.h"
#include "base/str.h"
#include "comm/client.h"
#include "muster.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int check_identity(struct muster *m)
{
    if (muster_rank(m) != 1 || muster_world(m) != 2 ||
        muster_local_rank(m) != 1 || muster_local_world(m) != 2 ||
        muster_node(m) != 0 || muster_n_nodes(m) != 1 ||
        muster_generation(m) != 7) {
        return 2;
    }
    if (strcmp(muster_run_dir(m), "/runs/x") != 0 || muster_resume_path(m)) {
        return 3;
    }
    return 0;
}

static int worker_report(struct agent *a, int i)
{
    struct muster_metric metrics[] = {{"loss", 0.5}, {"throughput", 9}};
    struct muster *m = NULL;
    int rc;

    if (i == 0) {
        return 0; /* one that never connects */
    }
    if (muster_init(&m) < 0) {
        return 1;
    }
    rc = check_identity(m);
    if (rc == 0 && (muster_report(m, 41, metrics, 2) < 0 ||
                    chdir(a->dir) < 0 ||
                    muster_checkpoint_saved(m, "ck//42/", 42) < 0)) {
        rc = 4;
    }
    muster_finalize(m);
    return rc;
}

static void test_report(void)
{
    struct agent a;
    char want[128];
    struct stat st;

    bed_open(&a, 2);
    is_int(stat(worker_socket_path(a.sockets[0]), &st), 0, "a socket");
    is_int(st.st_mode & 0777, 0600, "private");
    bed_run(&a, worker_report, "report");
    is_int(a.n_hellos, 1, "one hello");
    is_int(a.hello_pid, a.pids[1], "of that process");
    is_int(a.n_reports, 1, "one report");
    ok(a.loss == 0.5, "its value");
    is_int(a.n_saved, 1, "one checkpoint");
    is_int(a.step, 42, "its step");
    snprintf(want, sizeof(want), "%s/ck/42", a.dir);
    is_str(a.path, want, "an absolute path");
    is_int(a.n_disconnects, 1, "one goodbye");
    is_int(a.n_joined_gone, 0, "not in collectives");
    is_str(a.why, "", "a plain one");
    bed_close(&a);
}

static int worker_collectives(struct agent *a, int i)
{
    enum { COUNT = 200003 };
    int32_t *x = malloc(COUNT * sizeof(*x));
    struct muster *m = NULL;
    char text[16] = "";
    int rc = 0;

    (void)a;
    if (muster_init(&m) < 0) {
        return 1;
    }
    for (int k = 0; k < COUNT; k++) {
        x[k] = k + i;
    }
    if (muster_allreduce(m, x, x, COUNT, MUSTER_INT32, MUSTER_SUM) < 0) {
        rc = 2;
    }
    for (int k = 0; rc == 0 && k < COUNT; k++) {
        rc = x[k] == 3 * k + 3 ? 0 : 3;
    }
    str_copy(text, sizeof(text), i == 2 ? "hello" : "");
    if (rc == 0 && muster_broadcast(m, text, sizeof(text), 2) < 0) {
        rc = 4;
    }
    if (rc == 0 && (strcmp(text, "hello") != 0 || muster_barrier(m) < 0)) {
        rc = 5;
    }
    muster_finalize(m);
    free(x);
    return rc;
}

/* Hands out the segment only when all are there: joins wait for it. */
static void give_segment(struct agent *a)
{
    struct segment_spec spec = {
        .generation = 7, .n_nodes = 1, .world = (uint32_t)a->n,
        .n_local = (uint32_t)a->n, .max_local = (uint32_t)a->n,
    };

    if (a->n_hellos < a->n) {
        return;
    }
    if (segment_create(&spec, &a->segment, NULL) < 0) {
        bail_out("segment");
    }
    for (int i = 0; i < a->n; i++) {
        worker_socket_set_segment(a->sockets[i], a->segment);
    }
}

static void test_collectives(void)
{
    struct agent a;

    bed_open(&a, 3);
    a.on_hello = give_segment;
    bed_run(&a, worker_collectives, "collectives");
    is_int(a.n_joined_gone, 3, "three goodbyes of members");
    bed_close(&a);
}

static int worker_state(struct agent *a, int i)
{
    struct muster *m = NULL;
    int n_requests = 0, rc;

    (void)a;
    (void)i;
    if (muster_init(&m) < 0) {
        return 1;
    }
    while ((rc = muster_should_stop(m)) == 0) {
        n_requests += muster_checkpoint_requested(m);
        poll(NULL, 0, 1);
    }
    n_requests += muster_checkpoint_requested(m);
    n_requests += muster_checkpoint_requested(m);
    muster_finalize(m);
    return rc == 1 && n_requests == 2 ? 0 : 10 + n_requests;
}

static void push_states(struct agent *a)
{
    worker_socket_set_state(a->sockets[0], false, 1);
    worker_socket_set_state(a->sockets[0], false, 2);
    worker_socket_set_state(a->sockets[0], true, 2);
}

static void test_state(void)
{
    struct agent a;

    bed_open(&a, 1);
    a.on_hello = push_states;
    bed_run(&a, worker_state, "state");
    bed_close(&a);
    bed_open(&a, 1);
    worker_socket_set_state(a.sockets[0], true, 2);
    bed_run(&a, worker_state, "state before the connection");
    bed_close(&a);
}

static void leave_worker(struct agent *a)
{
    worker_socket_destroy(a->sockets[0]);
    a->n_disconnects = a->n_hellos; /* no callback comes any more */
    a->sockets[0] = NULL;
}

static void on_term(int sig)
{
    (void)sig;
}

static bool has_handler(void (*want)(int))
{
    struct sigaction now;

    return sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == want;
}

/* SIGTERM is the program's own until it asks whether it should stop. */
static int worker_signals(struct agent *a, int i)
{
    struct muster *m = NULL;

    (void)a;
    signal(SIGTERM, i == 0 ? SIG_DFL : on_term);
    if (muster_init(&m) < 0 || muster_report(m, 1, NULL, 0) < 0 ||
        muster_checkpoint_requested(m) < 0) {
        return 1;
    }
    if (!has_handler(i == 0 ? SIG_DFL : on_term)) {
        return 2;
    }
    if (muster_should_stop(m) != 0 || raise(SIGTERM) != 0) {
        return 3;
    }
    if (has_handler(on_term) != (i != 0)) {
        return 4;
    }
    muster_finalize(m);
    return has_handler(i == 0 ? SIG_DFL : on_term) ? 0 : 5;
}

static void test_signals(void)
{
    struct agent a;

    bed_open(&a, 2);
    bed_run(&a, worker_signals, "SIGTERM");
    bed_close(&a);
}

static int worker_left(struct agent *a, int i)
{
    struct muster *m = NULL, *again = NULL;
    struct muster_metric one = {"loss", 1};
    int rc = muster_init(&m);

    (void)a;
    (void)i;
    if (rc == -ECONNREFUSED) {
        return 0; /* destroyed before the welcome went out */
    }
    if (rc < 0) {
        return 1;
    }
    while ((rc = muster_should_stop(m)) == 0) {
        poll(NULL, 0, 1);
    }
    if (rc != -ECONNABORTED || muster_report(m, 1, &one, 1) == 0 ||
        muster_checkpoint_saved(m, "/x", 1) != -ECONNABORTED) {
        return 2;
    }
    muster_finalize(m);
    return muster_init(&again) == -ECONNREFUSED ? 0 : 3;
}

static void test_agent_gone(void)
{
    struct agent a;

    bed_open(&a, 1);
    a.on_hello = leave_worker;
    bed_run(&a, worker_left, "destroyed in a callback");
    bed_close(&a);
}

/* Finishes `m` while a child keeps its connection open: the agent hears of no
 * goodbye. Then the next one joins. */
static int join_after(struct muster *m)
{
    struct muster *next = NULL;
    pid_t holder = fork();
    int rc;

    if (holder == 0) {
        alarm(60);
        for (;;) {
            pause();
        }
    }
    muster_finalize(m);
    rc = muster_init(&next);
    rc = rc < 0 ? rc : muster_barrier(next);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    muster_finalize(next);
    return rc;
}

static int worker_twice(struct agent *a, int i)
{
    struct muster *m = NULL, *second = NULL;

    (void)a;
    if (muster_init(&m) < 0 || muster_init(&second) < 0) {
        return 1;
    }
    if (muster_barrier(m) < 0) {
        return 2;
    }
    if (i == 0 && muster_barrier(second) != -EOPNOTSUPP) {
        return 3;
    }
    if (i == 0 && !strstr(muster_error_text(second), "already")) {
        return 4;
    }
    muster_finalize(second);
    return join_after(m) < 0 ? 5 : 0;
}

static void test_join_twice(void)
{
    struct agent a;

    bed_open(&a, 2);
    a.on_hello = NULL;
    a.n_hellos = a.n;
    give_segment(&a);
    a.n_hellos = 0;
    bed_run(&a, worker_twice, "joining twice");
    bed_close(&a);
}

#define UUID "0123456789abcdef0123456789abcdef"

static int begin_snap(struct client *c, const struct worker_snap_begin *begin,
                      struct worker_snap *ret, int *ret_fd, struct error *e)
{
    int rc = client_snap_begin(c, begin, e);

    return rc < 0 ? rc : client_snap_answer(c, ret, ret_fd, e);
}

/* Asks, fills, and hears what becomes of it; a refusal, and none that is found. */
static int worker_snap(struct agent *a, int i)
{
    struct worker_snap_begin begin = {.step = 99, .bytes = 8192, .uuid = UUID,
                                      .root = "/scratch"};
    struct worker_snap_fill fill = {.image_bytes = 5000, .may_stay = 1, .uuid = UUID};
    struct worker_snap_done done = {.image_bytes = 5000, .part_bytes = 7,
                                    .uuid = UUID};
    struct worker_snap_status status;
    struct worker_snap snap;
    struct client *c = NULL;
    struct error e = {0};
    struct stat st;
    uint64_t deadline_ms = clock_mono_ms() + 60000;
    int fd = -1, rc;

    if (client_connect(worker_socket_path(a->sockets[i]), &c, &e) < 0) {
        return 1;
    }
    if (begin_snap(c, &begin, &snap, &fd, &e) != -EBUSY ||
        !strstr(e.text, "two are on their way")) {
        return 2;
    }
    if (client_snap_status(c, UUID, &status, &e) != -ENOENT) {
        return 3;
    }
    begin.step = 7;
    if (begin_snap(c, &begin, &snap, &fd, &e) < 0 || snap.bytes != 8192 ||
        fstat(fd, &st) < 0 || st.st_size != 8192) {
        return 4;
    }
    if (client_snap_fill(c, &fill, &e) < 0) {
        return 8;
    }
    if (client_snap_send(c, &done,
                         &(struct worker_snap_want){.level = WORKER_SNAP_HELD,
                                                    .is_chosen = 1, .uuid = UUID},
                         &e) < 0 ||
        client_snap_taken(c, UUID, &e) < 0) {
        return 5;
    }
    do {
        rc = client_snap_status(c, UUID, &status, &e);
    } while (rc == 0 && status.level != WORKER_SNAP_DURABLE &&
             clock_mono_ms() < deadline_ms && poll(NULL, 0, 1) == 0);
    if (rc < 0 || status.level != WORKER_SNAP_DURABLE) {
        return 6;
    }
    close(fd);
    if (client_snap_find(c, 0, "", &snap, &fd, &e) != -ENOTSUP) {
        return 7; /* this agent does not know how */
    }
    client_destroy(c);
    return 0;
}

static void test_snap(void)
{
    struct agent a;

    bed_open(&a, 2);
    bed_run(&a, worker_snap, "snapshots");
    is_int(a.n_snaps, 4, "each of two was asked twice");
    is_int((int)a.snap_bytes, 8192, "for so much");
    ok(a.fill.image_bytes == 5000 && a.fill.may_stay == 1 && a.fill.is_chosen == 0 &&
           strcmp(a.fill.uuid, UUID) == 0, "and told that it is being filled");
    ok(a.done.image_bytes == 5000 && a.done.part_bytes == 7 &&
           strcmp(a.done.uuid, UUID) == 0, "and told what is there");
    ok(a.wanted.level == WORKER_SNAP_HELD && a.wanted.is_chosen == 1 &&
           strcmp(a.wanted.uuid, UUID) == 0, "and where it is to get to");
    bed_close(&a);
}

int main(void)
{
    alarm(120); /* so that a hang is a failure */
    test_report();
    test_collectives();
    test_state();
    test_signals();
    test_agent_gone();
    test_join_twice();
    test_snap();
    return tap_done();
}
