/* SPDX-License-Identifier: Apache-2.0 */
/* Which mpirun is started when: one at a time, and how long it has for a world. It is
 * a script here. */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "rendezvous/tree_msg.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct bed {
    struct front front;
    struct front_config config;
    struct rundir dir;
    struct run_config run;
    struct job *job;
    struct mpirun mpirun;
    struct host_list hosts;
    struct link *lead; /* its end; ours is the front end's */
    char heard[512];   /* the last that it was asked */
};

static void expect(bool fact, const char *what)
{
    if (!fact) {
        bail_out("%s", what);
    }
}

static void write_mpirun(struct bed *b)
{
    static const char text[] = "#!/bin/sh\nexec sleep 60\n";

    expect(fs_path(b->mpirun.path, sizeof(b->mpirun.path), NULL, "%s/mpirun",
                   b->dir.path) == 0 &&
               fs_write_replace(b->mpirun.path, text, strlen(text), NULL) == 0 &&
               chmod(b->mpirun.path, 0700) == 0, "a script");
}

static void make(struct bed *b)
{
    struct front *f = &b->front;
    struct error e = {0};

    snprintf(b->dir.path, sizeof(b->dir.path), "%s/muster-front.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    expect(mkdtemp(b->dir.path) != NULL, "a directory");
    write_mpirun(b);
    expect(hosts_parse("localhost", &b->hosts, &e) == 0, e.text);
    b->hosts.items[0].is_local = true;
    b->run.job = b->job = job_create();
    b->config = (struct front_config){
        .dir = &b->dir, .run = &b->run, .loopback = true,
        .mpirun = &b->mpirun, .cwd = "/",
        .plan = {.hosts = &b->hosts, .n_agents = 2, .agents_per_host = 2,
                 .helper = "muster-mpi", .run_id = "x",
                 .run_dir = b->dir.path}};
    f->config = &b->config;
    f->phase = FRONT_RUNNING;
    f->mpirun_pid = -1;
    fs_path(f->log_path, sizeof(f->log_path), NULL, "%s/mpirun.log",
            b->dir.path);
    expect(uv_loop_init(&f->loop) == 0 &&
               child_table_create(&f->loop, &f->children, &e) == 0 &&
               link_listen(&f->loop, true, &f->listener, &e) == 0 &&
               writer_create(&f->loop, front_on_room, f, &f->writer, &e) == 0 &&
               screen_create(&b->config, f->writer, &f->screen, &e) == 0 &&
           front_know_hosts(f, NULL) == 0,
           e.text);
}

static void release(struct bed *b)
{
    struct front *f = &b->front;

    front_forget_reach(f);
    screen_destroy(f->screen);
    while (writer_pending(f->writer)) { /* in a write its thread would be left alone */
        uv_sleep(1);
    }
    writer_destroy(f->writer);
    link_listener_close(f->listener);
    child_table_destroy(f->children);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    host_list_release(&b->hosts);
    job_destroy(b->job);
    fs_remove_tree(b->dir.path, NULL);
}

/* Time goes on, and what was due happens. */
static void tick(struct bed *b)
{
    uv_run(&b->front.loop, UV_RUN_NOWAIT);
    uv_update_time(&b->front.loop);
    front_tick_mpirun(&b->front);
}

static void end_mpirun(struct bed *b)
{
    struct front *f = &b->front;

    child_kill(f->children, f->mpirun_pid, SIGKILL);
    while (f->mpirun_pid > 0) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
}

/* Somebody wants another world while the answer that it hangs on comes in. */
static void test_asked_meanwhile(struct bed *b)
{
    struct front *f = &b->front;
    struct error e = {0};
    pid_t first;

    f->repeat_at_ms = 1;
    is_int(front_start_mpirun(f, &e), 0, "an mpirun is started %s", e.text);
    first = f->mpirun_pid;
    ok(first > 0 && kill(first, 0) == 0, "and lives");
    is_int((intmax_t)f->repeat_at_ms, 0, "what was asked for before is this");
    tick(b);
    ok(f->mpirun_pid == first && f->epoch == 1, "no other one follows");
}

static void test_asked_beside(struct bed *b)
{
    struct front *f = &b->front;
    pid_t first = f->mpirun_pid;

    f->repeat_at_ms = 1;
    tick(b);
    ok(f->mpirun_pid == first && f->epoch == 1,
       "none is started beside one that lives");
    end_mpirun(b);
    ok(f->mpirun_pid == -1, "it ends");
    f->repeat_at_ms = 1;
    tick(b);
    ok(f->mpirun_pid > 0 && f->mpirun_pid != first && f->epoch == 2,
       "then the next one comes");
    is_int((intmax_t)f->repeat_at_ms, 0, "once");
    end_mpirun(b);
}

static pid_t start_deaf(void)
{
    pid_t pid;

    signal(SIGTERM, SIG_IGN); /* inherited */
    pid = fork();
    if (pid == 0) {
        sleep(60);
        _exit(0);
    }
    signal(SIGTERM, SIG_DFL);
    return pid;
}

/* The mpirun of the front end before hangs, and this one has stood still since its
 * time was over. */
static void test_old(struct bed *b)
{
    struct front *f = &b->front;
    siginfo_t how;

    expect(proc_read(start_deaf(), &f->old_mpirun) == 0, "a process");
    f->end_old_at_ms = f->repeat_at_ms = 1;
    tick(b);
    ok(f->mpirun_pid <= 0 && f->repeat_at_ms == 1,
       "none is started beside an old one that was not killed yet");
    front_old_tick(f);
    is_int(waitid(P_PID, (id_t)f->old_mpirun.pid, &how, WEXITED | WNOWAIT), 0,
           "it is killed");
    ok(how.si_status == SIGKILL && !front_old_is_ending(f), "and gone");
    tick(b);
    ok(f->mpirun_pid > 0, "then one is started");
    end_mpirun(b);
}

/* The state tells of a lost world where the event came to nobody. */
static void test_told_late(struct bed *b)
{
    struct front *f = &b->front;
    struct run_status s = {.mpi_epoch = 1};
    struct error e = {0};

    is_int(front_start_mpirun(f, &e), 0, "a world %s", e.text);
    s.mpi_lost = (uint32_t)f->epoch - 1;
    front_see_world(f, &s);
    ok(!f->end_mpirun_at_ms, "one before it was lost");
    s.mpi_lost = (uint32_t)f->epoch;
    front_see_world(f, &s);
    ok(f->end_mpirun_at_ms, "it is: its mpirun has to end");
    end_mpirun(b);
}

static void test_often(struct bed *b)
{
    struct front *f = &b->front;
    uint64_t now = front_now_ms(f);

    f->n_repeats = 0;
    for (int i = 0; i < 5; i++) {
        f->repeat_at_ms = 0;
        front_remake_world(f, 1000, "a test");
        is_int((intmax_t)(f->repeat_at_ms - now), 1000, "a world is made soon");
    }
    for (int i = 0; i < 2; i++) {
        f->repeat_at_ms = 0;
        front_remake_world(f, 1000, "a test");
        is_int((intmax_t)(f->repeat_at_ms - now), 60000,
               "after five that did not last, later: not never");
    }
    f->repeat_at_ms = 0;
}

/* --- a world that does not come --- */

static const uint8_t key[CHANNEL_KEY_BYTES] = {7};

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    static const struct link_ops none = {0};
    struct bed *b = ctx;

    (void)first;
    link_adopt(l, &none, b);
    b->front.lead = l;
}

static void on_up(struct link *l, void *ctx)
{
    (void)ctx;
    link_send(l, TREE_HELLO, "x", 1);
}

static void on_asked(struct link *l, const struct channel_frame *frame, void *ctx)
{
    struct bed *b = ctx;

    (void)l;
    if (frame->type == TREE_REQUEST) {
        snprintf(b->heard, sizeof(b->heard), "%.*s", (int)frame->len,
                 (const char *)frame->data);
    }
}

static void meet_lead(struct bed *b)
{
    static const struct link_ops ops = {.on_up = on_up, .on_frame = on_asked};
    struct front *f = &b->front;
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .timeout_ms = 30000,
                                 .port = link_listener_port(f->listener)};
    struct error e = {0};

    link_listener_open(f->listener, key, on_peer, b);
    expect(link_connect(&f->loop, &target, key, &ops, b, &b->lead, &e) == 0,
           e.text);
    while (!f->lead) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
}

/* So many seconds go by, as the ticks see them. */
static void pass(struct bed *b, unsigned seconds)
{
    while (seconds--) {
        b->front.late_seen_ms -= 1000;
        b->front.mpirun_at_ms -= 1000;
        tick(b);
    }
}

static void start(struct bed *b)
{
    struct front *f = &b->front;
    struct error e = {0};

    f->end_mpirun_at_ms = f->repeat_at_ms = 0;
    expect(front_start_mpirun(f, &e) == 0, e.text);
    f->late_seen_ms = front_now_ms(f);
}

/* Whether it is ended after more than `seconds`, and not before. */
static void is_ended_after(struct bed *b, unsigned seconds, const char *what)
{
    struct front *f = &b->front;

    start(b);
    pass(b, seconds - 1);
    ok(!f->end_mpirun_at_ms, "%s: it has %u s", what, seconds);
    pass(b, 2);
    ok(f->end_mpirun_at_ms, "%s: and no more", what);
    while (f->mpirun_pid > 0) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    ok(f->repeat_at_ms, "another one is made");
}

static void test_late(struct bed *b)
{
    struct front *f = &b->front;
    char epoch[32];

    b->job->heartbeat_timeout_ms = 10000;
    b->job->gang_timeout_ms = 300000;
    f->n_repeats = 0;
    is_ended_after(b, 60, "no world");
    while (!b->heard[0]) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    snprintf(epoch, sizeof(epoch), "\"epoch\":%u,", (unsigned)f->epoch);
    ok(strstr(b->heard, "\"fact\":\"mpi_late\"") && strstr(b->heard, epoch) &&
           strstr(b->heard, "nothing was heard of muster-mpi on localhost"),
       "the lead is told: %s", b->heard);
    is_int((intmax_t)f->n_repeats, 1, "in the pace of worlds that do not last");
    is_ended_after(b, 120, "again");
    is_ended_after(b, 240, "a third time");
    is_int((intmax_t)f->n_repeats, 3, "although it took more than a minute each time");
    is_ended_after(b, 300, "never longer than gang.timeout");
    start(b);
    pass(b, 100);
    front_see_joined(f, f->epoch);
    pass(b, 1000);
    ok(!f->end_mpirun_at_ms && f->n_late == 0, "one that has come stays");
    end_mpirun(b);
    is_ended_after(b, 60, "the next one");
    b->job->gang_timeout_ms = 5000;
    f->n_late = 0;
    is_ended_after(b, 5, "a short gang.timeout");
}

/* Time in which nobody could have said that it is there. */
static void test_late_unheard(struct bed *b)
{
    struct front *f = &b->front;
    struct link *lead = f->lead;

    f->n_late = 0;
    b->job->gang_timeout_ms = 300000;
    start(b);
    f->lead = NULL;
    pass(b, 1000);
    ok(!f->end_mpirun_at_ms, "without a lead no time goes by");
    f->lead = lead;
    f->late_seen_ms -= 1000000;
    tick(b);
    ok(!f->end_mpirun_at_ms && f->late_ms <= 1000,
       "nor while this process stood still");
    end_mpirun(b);
    link_close(f->lead);
    link_close(b->lead);
    f->lead = NULL;
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    expect(b != NULL, "memory");
    make(b);
    test_asked_meanwhile(b);
    test_asked_beside(b);
    test_old(b);
    test_told_late(b);
    test_often(b);
    meet_lead(b);
    test_late(b);
    test_late_unheard(b);
    release(b);
    free(b);
    return tap_done();
}
