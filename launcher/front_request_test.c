/* SPDX-License-Identifier: Apache-2.0 */
/* What signals do to a front end whose run is over already. */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "launcher/commands.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    TICK_MS = 20,
    READ_AT_TICK = 3, /* long before it goes without */
};

struct bed {
    struct front front;
    struct front_config config;
    struct run_config run;
    struct job *job;
    uv_signal_t signal;
    uv_timer_t tick;
    unsigned n_ticks;
    int far, was;   /* of a pipe in the place of stderr; what that was */
    unsigned n_last; /* last words that came out of it */
};

static void expect(bool fact, const char *what)
{
    if (!fact) {
        bail_out("%s", what);
    }
}

static void make(struct bed *b)
{
    struct front *f = &b->front;
    struct error e = {0};

    b->run.job = b->job = job_create();
    b->config = (struct front_config){.run = &b->run};
    f->config = &b->config;
    expect(uv_loop_init(&f->loop) == 0 &&
               writer_create(&f->loop, front_on_room, f, &f->writer, &e) == 0 &&
               screen_create(&b->config, f->writer, &f->screen, &e) == 0, e.text);
    b->signal.data = f;
    front_settle(f, EXIT_RESUMABLE, "asked for by Slurm");
}

static void release(struct bed *b)
{
    struct front *f = &b->front;

    screen_destroy(f->screen);
    writer_destroy(f->writer);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    job_destroy(b->job);
}

/* Whether it has lost patience after each of the signals, as " no yes". */
static void expect_after(const char *slurm_job, const int *sigs, size_t n,
                         const char *want, const char *name)
{
    _buf_ struct buf text = {0};
    struct bed b = {0};

    if (slurm_job) {
        setenv("SLURM_JOB_ID", slurm_job, 1);
    } else {
        unsetenv("SLURM_JOB_ID");
    }
    make(&b);
    for (size_t i = 0; i < n; i++) {
        front_on_signal(&b.signal, sigs[i]);
        buf_printf(&text, " %s", b.front.leaves_ms ? "yes" : "no");
    }
    release(&b);
    unsetenv("SLURM_JOB_ID");
    is_str(buf_str(&text), want, "%s", name);
}

static void test_impatient(void)
{
    const int term[] = {SIGTERM, SIGTERM}, cut[] = {SIGINT},
              notice[] = {SIGUSR1, SIGUSR2, SIGTERM};

    expect_after(NULL, term, 2, " yes yes", "SIGTERM ends a wait at its end");
    expect_after("815", term, 2, " no no",
                 "those of Slurm say what the agents have acted on");
    expect_after("815", cut, 1, " yes", "SIGINT is a person's");
    expect_after("815", notice, 3, " no no no", "notices say nothing new");
}

/* --- its last words --- */

static void fill(struct bed *b)
{
    static const char some[4096];
    int ends[2];

    expect(pipe2(ends, O_CLOEXEC) == 0 && (b->was = dup(2)) >= 0 &&
               dup2(ends[1], 2) == 2 &&
               fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0, "a pipe");
    while (write(ends[1], some, sizeof(some)) > 0) {
    }
    expect(fcntl(ends[1], F_SETFL, 0) == 0 &&
               fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0, "a full pipe");
    close(ends[1]);
    b->far = ends[0];
}

static void read_all(struct bed *b)
{
    static char some[1 << 16];
    ssize_t n;

    while ((n = read(b->far, some, sizeof(some))) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            b->n_last += some[i] == '!';
        }
    }
}

static void on_tick(uv_timer_t *t)
{
    struct bed *b = t->data;

    if (++b->n_ticks == READ_AT_TICK) {
        read_all(b);
    }
}

/* Whether the wait for the last words had an end with nothing written. */
static bool say_and_drain(struct bed *b, unsigned ticks_before)
{
    struct front *f = &b->front;
    bool ret;

    make(b);
    fill(b);
    uv_timer_init(&f->loop, &b->tick);
    b->tick.data = b;
    b->n_ticks = ticks_before;
    uv_timer_start(&b->tick, on_tick, TICK_MS, TICK_MS);
    front_on_signal(&b->signal, SIGTERM);
    screen_note(f->screen, "farewell!");
    front_drain_output(f);
    ret = writer_pending(f->writer) > 0;
    do { /* in a write the writer's thread would be left alone */
        read_all(b);
        uv_run(&f->loop, UV_RUN_ONCE);
    } while (writer_pending(f->writer));
    read_all(b);
    uv_close((uv_handle_t *)&b->tick, NULL);
    dup2(b->was, 2);
    close(b->was);
    close(b->far);
    release(b);
    return ret;
}

static void test_last_words(void)
{
    struct bed late = {0}, never = {0};

    ok(!say_and_drain(&late, 0), "told to end, it waits for who reads late");
    is_int(late.n_last, 1, "who has its last words");
    ok(say_and_drain(&never, READ_AT_TICK), "not for long, if nobody reads");
}

int main(void)
{
    test_impatient();
    test_last_words();
    return tap_done();
}
