/* SPDX-License-Identifier: Apache-2.0 */
/* For which hosts an MPI world was late, or failed. */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS = 4 };

struct bed {
    struct front front;
    struct front_config config;
    struct run_config run;
    struct rundir rundir;
    struct job *job;
    struct host_list hosts;
    char dir[64];
};

static void expect(bool fact, const char *what)
{
    if (!fact) {
        bail_out("%s", what);
    }
}

/* The newest world is of the first `n` hosts. */
static void make_world(struct bed *b, unsigned n)
{
    struct front_reach *r = b->front.reach;

    host_list_release(&r->world);
    r->world.items = calloc(n + 1, sizeof(*r->world.items));
    expect(r->world.items != NULL, "memory");
    memcpy(r->world.items, b->hosts.items, n * sizeof(*r->world.items));
    r->world.n = r->n_agents = n;
    for (size_t i = 0; i < HOSTS; i++) {
        r->hosts[i].is_out = i >= n;
    }
}

static void make(struct bed *b)
{
    struct front *f = &b->front;
    struct error e = {0};

    snprintf(b->dir, sizeof(b->dir), "/tmp/muster-hung.XXXXXX");
    expect(mkdtemp(b->dir) != NULL, "a directory");
    expect(hosts_parse("a,b,c,d", &b->hosts, &e) == 0, e.text);
    b->run.job = b->job = job_create();
    b->config = (struct front_config){
        .run = &b->run, .dir = &b->rundir,
        .plan = {.hosts = &b->hosts, .n_agents = HOSTS, .agents_per_host = 1}};
    f->config = &b->config;
    fs_path(f->log_path, sizeof(f->log_path), NULL, "%s/mpirun.log", b->dir);
    expect(uv_loop_init(&f->loop) == 0 &&
               writer_create(&f->loop, front_on_room, f, &f->writer, &e) == 0 &&
               screen_create(&b->config, f->writer, &f->screen, &e) == 0 &&
               front_know_hosts(f, NULL) == 0, e.text);
    make_world(b, HOSTS);
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
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    host_list_release(&b->hosts);
    job_destroy(b->job);
    fs_remove_tree(b->dir, NULL);
}

/* Of these ranks muster-mpi was heard of, as "023"; then the world is late. */
static void be_late(struct bed *b, const char *ranks)
{
    struct front *f = &b->front;
    _buf_ struct buf log = {0};

    for (; *ranks; ranks++) {
        buf_printf(&log, "muster-mpi: rank %c is here\n", *ranks);
    }
    expect(fs_write_replace(f->log_path, buf_str(&log), log.len, NULL) == 0, "a log");
    front_blame_late(f);
}

/* How often each was blamed in a row, as "0010". */
static const char *blamed(const struct bed *b)
{
    static char text[HOSTS + 1];

    for (size_t i = 0; i < HOSTS; i++) {
        text[i] = (char)('0' + b->front.reach->hosts[i].n_hung);
    }
    return text;
}

static uint64_t pause_s(const struct bed *b, size_t host)
{
    uint64_t again = b->front.reach->hosts[host].again_ms;

    return again ? (again - front_now_ms(&b->front)) / 1000 : 0;
}

static void test_heard(struct bed *b)
{
    be_late(b, "023");
    is_str(blamed(b), "0100", "who was not heard of when others were is blamed");
    ok(!front_choose_suspects(&b->front), "and nobody is asked");
    be_late(b, "02");
    is_str(blamed(b), "0201", "so are two of them");
    is_int((intmax_t)pause_s(b, 1), 0, "which has no effect yet");
    be_late(b, "023");
    is_str(blamed(b), "0301", "but three times in a row");
    is_int((intmax_t)pause_s(b, 1), 600, "it is left alone for ten minutes");
    be_late(b, "023");
    is_int((intmax_t)pause_s(b, 1), 1200, "then for twenty");
    be_late(b, "0123");
    is_str(blamed(b), "0401", "where all were heard of nobody is");
    front_clear_hung(&b->front);
    is_str(blamed(b), "0000", "a world that comes clears all");
    front_ask_at_once(&b->front);
    is_int((intmax_t)pause_s(b, 1), 0, "a command ends pauses");
}

/* One that was in no world: it may be what this one was made for. */
static void test_newcomer(struct bed *b)
{
    struct reach_host *h = &b->front.reach->hosts[3];

    h->came_later = true;
    be_late(b, "023");
    is_str(blamed(b), "0000", "a world with a newcomer is tried without it first");
    is_int((intmax_t)pause_s(b, 3), 600, "in ten minutes it is asked again");
    be_late(b, "023");
    is_int((intmax_t)pause_s(b, 3), 1200, "or later, when it was so again");
    h->came_later = false;
    front_clear_hung(&b->front);
    front_ask_at_once(&b->front);
}

/* Of those that are tried these do not answer, as "2". */
static void answer_but(struct bed *b, const char *silent)
{
    struct front_reach *r = b->front.reach;

    for (size_t i = 0; i < HOSTS; i++) {
        r->hosts[i].is_asked = r->hosts[i].is_tried && strchr(silent, '0' + (char)i);
    }
    front_judge_trial(&b->front);
}

static void test_trial(struct bed *b)
{
    struct front *f = &b->front;

    b->hosts.items[0].is_local = true;
    make_world(b, 3);
    be_late(b, "");
    is_str(blamed(b), "0000", "where nobody was heard of nobody is blamed");
    ok(front_choose_suspects(f) && f->reach->is_trial, "but they are tried");
    ok(!f->reach->hosts[0].is_tried && f->reach->hosts[1].is_tried &&
           f->reach->hosts[2].is_tried && !f->reach->hosts[3].is_tried,
       "all others of that world");
    answer_but(b, "2");
    is_str(blamed(b), "0010", "who does not answer is");
    ok(f->repeat_at_ms && !f->reach->is_trial && !f->reach->hosts[2].is_tried,
       "and another world is made");
    ok(!front_choose_suspects(f), "without another trial");
    be_late(b, "");
    (void)front_choose_suspects(f);
    answer_but(b, "12");
    is_str(blamed(b), "0010", "where most do not it is not they");
    make_world(b, 2);
    be_late(b, "");
    ok(front_choose_suspects(f) && f->reach->hosts[0].is_tried && f->reach->hosts[1].is_tried &&
           !f->reach->hosts[2].is_tried, "beside one alone this machine is tried");
    answer_but(b, "01");
    is_str(blamed(b), "0010", "where both do not answer it is not the other one");
    be_late(b, "");
    (void)front_choose_suspects(f);
    answer_but(b, "0");
    is_str(blamed(b), "0010", "nor where this machine alone does not");
    be_late(b, "");
    (void)front_choose_suspects(f);
    answer_but(b, "1");
    is_str(blamed(b), "0110", "where the other one alone does not it is that");
    b->hosts.items[0].is_local = false;
    make_world(b, 1);
    be_late(b, "");
    ok(!front_choose_suspects(f), "of one without this machine nothing can be said");
    b->hosts.items[0].is_local = true;
}

/* --- mpirun fails --- */

static void fail(struct bed *b)
{
    b->front.epoch++;
    front_see_failed(&b->front);
}

/* A lease goes by. */
static void wait_lease(struct bed *b)
{
    b->front.failed_ms -= b->job->heartbeat_timeout_ms;
}

static void test_failed(struct bed *b)
{
    struct front *f = &b->front;

    make_world(b, 3);
    front_clear_hung(f);
    fail(b);
    ok(!f->reach->is_suspect, "without a lead nobody could say anything");
    f->lead = (struct link *)b; /* that there is one is enough */
    fail(b);
    ok(!front_choose_suspects(f), "an mpirun that fails once");
    f->end_mpirun_at_ms = 1;
    fail(b);
    ok(!front_choose_suspects(f), "one that is ended has not failed");
    f->end_mpirun_at_ms = 0;
    fail(b);
    ok(front_choose_suspects(f) && f->reach->is_trial, "after two hosts are tried");
    ok(!f->reach->hosts[0].is_tried && f->reach->hosts[1].is_tried, "but for this one");
    answer_but(b, "2");
    is_str(blamed(b), "0010", "who does not answer is blamed");
    ok(f->reach->hosts[2].fails, "mpirun fails there");
    fail(b);
    ok(!front_choose_suspects(f), "one that fails at once again says nothing new");
    wait_lease(b);
    fail(b);
    ok(front_choose_suspects(f), "after a lease it does");
    answer_but(b, "2");
    wait_lease(b);
    fail(b);
    (void)front_choose_suspects(f);
    answer_but(b, "2");
    is_str(blamed(b), "0030", "three times in a row");
    is_int((intmax_t)pause_s(b, 2), 600, "it is left alone for ten minutes");
    front_see_joined(f, f->epoch);
    is_str(blamed(b), "0000", "a world that comes clears all");
    fail(b);
    ok(!front_choose_suspects(f), "and the next failure is the first one");
    front_clear_hung(f);
    f->lead = NULL;
}

/* One for which the world was made, and which ssh had found well. */
static void test_failed_newcomer(struct bed *b)
{
    struct front *f = &b->front;
    struct reach_host *h = &f->reach->hosts[3];

    make_world(b, HOSTS);
    h->came_later = true;
    h->again_ms = 0;
    f->lead = (struct link *)b;
    fail(b);
    is_int((intmax_t)pause_s(b, 3), 0, "a world with a newcomer that fails once");
    fail(b);
    is_int((intmax_t)pause_s(b, 3), 600, "twice: it is left alone for ten minutes");
    ok(!front_choose_suspects(f), "and no other one is suspected");
    h->came_later = false;
    f->lead = NULL;
}

/* A step of its own tries each. */
static void test_slurm(struct bed *b)
{
    struct front *f = &b->front;
    struct reach_host *lost = &f->reach->hosts[3];

    b->hosts.source = HOSTS_SLURM;
    f->lead = (struct link *)b;
    make_world(b, 3);
    front_clear_hung(f);
    fail(b);
    fail(b);
    ok(front_choose_suspects(f) && f->reach->hosts[1].is_tried &&
           f->reach->hosts[2].is_tried && !f->reach->hosts[0].is_tried,
       "in Slurm hosts are tried as well");
    answer_but(b, "12");
    is_str(blamed(b), "0000", "where none answers its controller may not");
    wait_lease(b);
    fail(b);
    ok(front_choose_suspects(f), "a lease later once more");
    answer_but(b, "2");
    is_str(blamed(b), "0010", "who alone does not answer is blamed");
    be_late(b, "");
    ok(front_choose_suspects(f), "it is so with a world that is late");
    answer_but(b, "");
    make_world(b, 2);
    front_clear_hung(f);
    fail(b);
    fail(b);
    ok(!front_choose_suspects(f) && !f->reach->hosts[1].is_tried,
       "with one beside this machine it would be the controller, too");
    lost->came_later = true;
    lost->again_ms = 0;
    ok(!front_look_for_hosts(f) && lost->is_out && !lost->is_asked,
       "one that is lost is Slurm's to give");
    lost->came_later = false;
    b->hosts.source = HOSTS_GIVEN;
    f->lead = NULL;
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    expect(b != NULL, "memory");
    make(b);
    test_heard(b);
    test_newcomer(b);
    test_trial(b);
    test_failed(b);
    test_failed_newcomer(b);
    test_slurm(b);
    release(b);
    free(b);
    return tap_done();
}
