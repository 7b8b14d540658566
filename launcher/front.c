/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "launcher/commands.h"
#include "rendezvous/tree_msg.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    BEAT_TICKS = 4,
};

/* The lead has to connect, and soon. */
static void check_start(struct front *f)
{
    uint64_t limit_ms = f->config->run->job->gang_timeout_ms;
    char why[1024];

    if (front_now_ms(f) - f->started_ms > limit_ms) {
        front_show_mpirun_log(f);
        front_word_late(f, why, sizeof(why));
        front_settle(f, EXIT_NOT_GATHERED, why);
    } else if (f->config->by_hand && getppid() != f->starter) {
        front_settle(f, EXIT_NOT_GATHERED, "mpirun ended before the run began");
    }
}

static void on_tick(uv_timer_t *t)
{
    struct front *f = t->data;

    if (f->is_ending) {
        return;
    }
    if (!writer_pending(f->writer) && !f->told_no_lead) {
        screen_progress(f->screen, front_now_ms(f) - f->started_ms,
                        front_now_ms(f));
    }
    screen_tick(f->screen);
    front_tell_unread(f);
    front_give_credit(f);
    if (f->lead && ++f->n_ticks % BEAT_TICKS == 0) {
        front_beat(f);
    }
    if (f->phase == FRONT_STARTING && !f->config->attach) {
        check_start(f);
    }
    front_attach_tick(f);
    front_check_lead(f);
    front_tick_mpirun(f);
    front_tick_grow(f);
    front_finish_if_done(f);
}

/* By nohup(1), say. */
static bool is_ignored(int sig)
{
    struct sigaction was;

    return sigaction(sig, NULL, &was) == 0 && was.sa_handler == SIG_IGN;
}

static void take_signals(struct front *f)
{
    static const int sigs[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1,
                               SIGUSR2};

    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        uv_signal_init(&f->loop, &f->signals[i]);
        f->signals[i].data = f;
        /* By hand they are mpirun's to act on. */
        if (f->config->by_hand) {
            signal(sigs[i], SIG_IGN);
        } else if (sigs[i] != SIGHUP || !is_ignored(SIGHUP)) {
            uv_signal_start(&f->signals[i], front_on_signal, sigs[i]);
        }
    }
}

static int begin(struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    uint16_t port = link_listener_port(f->listener);
    int rc;

    if (!c->by_hand) {
        return c->attach ? front_attach_start(f, e)
               : c->own_step ? front_start_step(f, e)
                             : front_start_mpirun(f, e);
    }
    rc = front_save(f, e);
    if (rc == 0 && write(c->port_fd, &port, sizeof(port)) != sizeof(port)) {
        rc = error_set(e, errno, "tell the port");
    }
    return rc;
}

static int open_front(struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    int rc;

    if (front_know_hosts(f, c->absent) < 0) {
        return error_set(e, ENOMEM, "know the hosts");
    }
    if ((rc = c->attach ? 0 : front_encode_run(f, e)) < 0 ||
        (rc = fs_path(f->log_path, sizeof(f->log_path), e, "%s/mpirun.log",
                      c->dir->path)) < 0 ||
        (rc = child_table_create(&f->loop, &f->children, e)) < 0 ||
        (rc = writer_create(&f->loop, front_on_room, f, &f->writer, e)) < 0 ||
        (rc = screen_create(c, f->writer, &f->screen, e)) < 0 ||
        (rc = link_listen(&f->loop, c->loopback, &f->listener, e)) < 0) {
        return rc;
    }
    link_listener_open(f->listener, c->key, front_on_peer, f);
    link_listener_open_local(f->listener, TREE_FRONT_LOCAL_NAME);
    if (!c->by_hand && !c->attach) {
        front_take_commands(f);
    }
    return begin(f, e);
}

static void close_front(struct front *f)
{
    front_forget_reach(f);
    front_attach_drop(f);
    screen_destroy(f->screen);
    writer_destroy(f->writer);
    link_close(f->lead);
    link_listener_close(f->listener);
    control_server_destroy(f->control);
    agent_step_destroy(f->step);
    child_table_destroy(f->children);
    uv_close((uv_handle_t *)&f->tick, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(f->signals); i++) {
        uv_close((uv_handle_t *)&f->signals[i], NULL);
    }
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    buf_release(&f->run_bytes);
}

int front_run(const struct front_config *config)
{
    struct front f = {.config = config, .mpirun_pid = -1, .old_ender = -1,
                      .starter = getppid()};
    struct error e = {0};
    int rc;

    uv_loop_init(&f.loop);
    f.started_ms = front_now_ms(&f);
    f.nth_start = (int)config->run->n_starts + 1;
    uv_timer_init(&f.loop, &f.tick);
    f.tick.data = &f;
    take_signals(&f);
    rc = open_front(&f, &e);
    if (rc == 0) {
        uv_timer_start(&f.tick, on_tick, TICK_MS, TICK_MS);
        uv_run(&f.loop, UV_RUN_DEFAULT);
    } else {
        front_settle(&f, EXIT_FAILED, e.text);
    }
    if (f.screen) {
        front_record_end(&f);
        front_say_end(&f);
        front_requeue(&f);
    } else {
        fprintf(stderr, "muster: %s\n", e.text);
    }
    close_front(&f);
    return f.status;
}
