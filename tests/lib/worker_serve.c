/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of one worker socket, for tests of clients in other
 * languages: listens at the path that is its argument and prints what it is
 * told, a line each. SIGUSR1: the run is being stopped. SIGUSR2: one more
 * request for a checkpoint. SIGTERM: ends.
 */
#include <config.h>

#include "launcher/worker_socket.h"

#include <signal.h>
#include <stdio.h>

struct server {
    struct worker_socket *socket;
    bool should_stop;
    uint32_t checkpoint_requests;
};

static void on_hello(void *arg, uint32_t local_rank, int pid)
{
    (void)arg;
    printf("hello %u %d\n", local_rank, pid);
    fflush(stdout);
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    (void)arg;
    printf("report %u %lld", local_rank, (long long)report->step);
    for (size_t i = 0; i < report->n_metrics; i++) {
        printf(" %s=%g", report->metrics[i].name, report->metrics[i].value);
    }
    printf("\n");
    fflush(stdout);
}

static void on_checkpoint_saved(void *arg, uint32_t local_rank,
                                const char *path, int64_t step)
{
    (void)arg;
    printf("saved %u %s %lld\n", local_rank, path, (long long)step);
    fflush(stdout);
}

static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    (void)arg;
    printf("bye %u%s %s\n", local_rank, had_joined ? " joined" : "", why);
    fflush(stdout);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct server *s = handle->data;

    if (signum == SIGTERM) {
        uv_stop(handle->loop);
        return;
    }
    s->should_stop = s->should_stop || signum == SIGUSR1;
    s->checkpoint_requests += signum == SIGUSR2 ? 1 : 0;
    worker_socket_set_state(s->socket, s->should_stop, s->checkpoint_requests);
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGTERM, SIGUSR1, SIGUSR2};
    static const struct worker_socket_ops ops = {
        .on_hello = on_hello,
        .on_report = on_report,
        .on_checkpoint_saved = on_checkpoint_saved,
        .on_disconnect = on_disconnect,
    };
    const struct worker_welcome welcome = {
        .rank = 5, .world = 8, .local_rank = 1, .local_world = 4, .node = 1,
        .n_nodes = 2, .generation = 3, .run_dir = "/run/dir",
        .resume_path = "/ckpt/7",
    };
    struct server server = {0};
    uv_signal_t handles[3];
    struct error e = {0};
    uv_loop_t loop;

    uv_loop_init(&loop);
    if (argc != 2 ||
        worker_socket_create(&loop, argv[1], &welcome, &ops, &server,
                             &server.socket, &e) < 0) {
        fprintf(stderr, "worker_serve PATH: %s\n", e.text);
        return 2;
    }
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&loop, &handles[i]);
        handles[i].data = &server;
        uv_signal_start(&handles[i], on_signal, signals[i]);
    }
    printf("ready\n");
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    worker_socket_destroy(server.socket);
    for (int i = 0; i < 3; i++) {
        uv_close((uv_handle_t *)&handles[i], NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
