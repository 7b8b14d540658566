/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/link_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

const uint8_t world_key[CHANNEL_KEY_BYTES] = {9};
const uint8_t world_other_key[CHANNEL_KEY_BYTES] = {8};

static void on_up(struct link *l, void *ctx)
{
    (void)l;
    ((struct world *)ctx)->n_up++;
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct world *w = ctx;

    w->bytes += f->len;
    w->last_type = f->type;
    w->n_frames++;
    if (w->close_on_frame) {
        link_close(l);
        if (l == w->accepted) {
            w->accepted = NULL;
        }
    }
    if (w->n_frames == w->stop_after) {
        uv_stop(&w->loop);
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    struct world *w = ctx;

    (void)l;
    (void)closed;
    if (w->n_down++ == 0) {
        str_copy(w->why, sizeof(w->why), why->text);
    }
    uv_stop(&w->loop);
}

const struct link_ops world_ops = {
    .on_up = on_up, .on_frame = on_frame, .on_down = on_down,
};

void world_on_peer(struct link *l, const struct channel_frame *first,
                   void *ctx)
{
    struct world *w = ctx;

    w->n_peers++;
    w->accepted = l;
    link_adopt(l, &world_ops, w);
    on_frame(l, first, w);
}

static void on_give_up(uv_timer_t *t)
{
    diag("test deadline");
    uv_stop(t->loop);
}

void world_run(struct world *w)
{
    uv_timer_t deadline;

    uv_timer_init(&w->loop, &deadline);
    uv_timer_start(&deadline, on_give_up, 60000, 0);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

void world_open(struct world *w)
{
    struct error e = {0};

    memset(w, 0, sizeof(*w));
    uv_loop_init(&w->loop);
    if (link_listen(&w->loop, true, &w->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void world_dial(struct world *w, const uint8_t *with_key, uint16_t port)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .port = port,
                                 .timeout_ms = 30000};

    link_connect(&w->loop, &target, with_key, &world_ops, w, &w->connector,
                 NULL);
}

void world_dial_local(struct world *w, const uint8_t *with_key,
                      const char *name, uint16_t port)
{
    char *addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target target = {.addrs = addrs, .local_name = name,
                                 .port = port, .timeout_ms = 60000};

    link_connect(&w->loop, &target, with_key, &world_ops, w, &w->connector,
                 NULL);
}

void world_meet(struct world *w)
{
    link_listener_open(w->listener, world_key, world_on_peer, w);
    world_dial(w, world_key, link_listener_port(w->listener));
    link_send(w->connector, 1, "x", 1);
    w->stop_after = 1;
    world_run(w);
}

void world_close(struct world *w)
{
    link_close(w->accepted);
    link_close(w->connector);
    link_listener_close(w->listener);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&w->loop), 0, "nothing is left on the loop");
}

int world_stranger(const struct world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    _close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(link_listener_port(w->listener));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        return -1;
    }
    return take_fd(&fd);
}
