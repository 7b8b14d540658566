/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves a c10d store for tests: prints its port, and on a second line one for the
 * trunks of others; serves until SIGTERM, on SIGUSR1 prints how much it was asked
 * and starts over (a new generation). Every refused connection is a line on stderr.
 *
 *   store_serve [--port N] [--address A] [--allow A]... [--upstream PORT]
 *
 * Without --address it listens on 127.0.0.1; without --allow everybody may
 * connect. With --upstream it passes requests on to the one with that port for
 * trunks.
 */
#include <config.h>

#include "rendezvous/store_line.h"
#include "rendezvous/store_server.h"

#include "base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint8_t key[CHANNEL_KEY_BYTES] = {7};

static void on_peer(struct link *l, const struct channel_frame *first,
                    void *ctx)
{
    struct store_hello h;

    if (store_hello_decode(first, &h)) {
        store_server_add_trunk(ctx, l, h.rank);
    } else {
        link_close(l);
    }
}

static void on_refused(void *ctx, const char *peer, const char *why)
{
    (void)ctx;
    fprintf(stderr, "refused %s: %s\n", peer, why);
}

static void print_stats(const struct store_server *srv)
{
    struct store_stats stats;

    store_server_stats(srv, &stats);
    printf("requests %llu frames-in %llu frames-out %llu\n",
           (unsigned long long)stats.n_requests,
           (unsigned long long)stats.n_frames_in,
           (unsigned long long)stats.n_frames_out);
    fflush(stdout);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    if (signum == SIGUSR1) {
        print_stats(handle->data);
        store_server_reset(handle->data);
    } else {
        uv_stop(handle->loop);
    }
}

static void watch(uv_loop_t *loop, uv_signal_t *handle, int signum,
                  struct store_server *srv)
{
    uv_signal_init(loop, handle);
    handle->data = srv;
    uv_signal_start(handle, on_signal, signum);
}

static int parse(int argc, char **argv, struct store_config *config,
                 struct store_upstream *upstream, struct strlist *addresses,
                 struct strlist *allowed)
{
    for (int i = 1; i < argc; i += 2) {
        uint64_t port;

        if (i + 1 == argc) {
            return -EINVAL;
        }
        if (strcmp(argv[i], "--port") == 0 &&
            str_to_u64(argv[i + 1], &port) == 0 && port < 65536) {
            config->port = (uint16_t)port;
        } else if (strcmp(argv[i], "--upstream") == 0 &&
                   str_to_u64(argv[i + 1], &port) == 0 && port < 65536) {
            upstream->port = (uint16_t)port;
            config->upstream = upstream;
        } else if (strcmp(argv[i], "--address") == 0) {
            strlist_add(addresses, argv[i + 1]);
        } else if (strcmp(argv[i], "--allow") == 0) {
            strlist_add(allowed, argv[i + 1]);
        } else {
            return -EINVAL;
        }
    }
    return 0;
}

static int serve(uv_loop_t *loop, const struct store_config *config,
                 const struct strlist *allowed, struct error *e)
{
    struct store_server *srv;
    struct link_listener *trunks;
    uv_signal_t term;
    uv_signal_t usr1;
    int rc = store_server_create(loop, config, &srv, e);

    if (rc == 0) {
        rc = store_server_set_allowed(
            srv, (const char *const *)allowed->items, allowed->n, e);
    }
    rc = rc < 0 ? rc : link_listen(loop, true, &trunks, e);
    if (rc < 0) {
        return rc;
    }
    link_listener_open(trunks, key, on_peer, srv);
    watch(loop, &term, SIGTERM, srv);
    watch(loop, &usr1, SIGUSR1, srv);
    printf("%u\n%u\n", store_server_port(srv), link_listener_port(trunks));
    fflush(stdout);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&term, NULL);
    uv_close((uv_handle_t *)&usr1, NULL);
    link_listener_close(trunks);
    store_server_destroy(srv, NULL, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0
               ? 0
               : error_text(e, EBUSY, "the server left handles behind");
}

int main(int argc, char **argv)
{
    _strlist_ struct strlist addresses = {0};
    _strlist_ struct strlist allowed = {0};
    char *const loopback[] = {(char *)"127.0.0.1", NULL};
    struct store_upstream upstream = {.addrs = loopback, .key = key,
                                      .rank = (uint32_t)getpid()};
    struct store_config config = {.on_refused = on_refused};
    struct error e = {0};
    uv_loop_t loop;

    if (parse(argc, argv, &config, &upstream, &addresses, &allowed) < 0) {
        fprintf(stderr, "usage: store_serve [--port N] [--address A] "
                        "[--allow A]... [--upstream PORT]\n");
        return 2;
    }
    if (!addresses.n) {
        strlist_add(&addresses, "127.0.0.1");
    }
    if (!allowed.n) {
        strlist_add(&allowed, "*");
    }
    config.addresses = (const char *const *)addresses.items;
    uv_loop_init(&loop);
    if (serve(&loop, &config, &allowed, &e) < 0) {
        fprintf(stderr, "store_serve: %s\n", e.text);
        return 1;
    }
    return 0;
}
