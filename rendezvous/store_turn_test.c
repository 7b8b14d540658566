/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_turn.h"

#include "base/clock.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 60 * 1000, CLIENTS = 2 * STORE_TURN_MANY };

struct fixture {
    uv_loop_t loop;
    uv_timer_t deadline; /* what the loop waits for, if for anything */
    struct store_turn turn;
    int n_answers;
};

static void on_answer(void *ctx)
{
    ((struct fixture *)ctx)->n_answers++;
}

static void on_deadline(uv_timer_t *timer)
{
    bail_out("the loop waited %d ms", WAIT_MS);
    (void)timer;
}

/* A turn of the loop that reads `n` requests. */
static int turn(struct fixture *f, int n)
{
    int before = f->n_answers;

    while (n-- > 0) {
        store_turn_read(&f->turn);
    }
    uv_run(&f->loop, UV_RUN_NOWAIT);
    return f->n_answers - before;
}

static void test_looks(void)
{
    struct fixture f = {0};

    uv_loop_init(&f.loop);
    uv_timer_init(&f.loop, &f.deadline);
    uv_timer_start(&f.deadline, on_deadline, WAIT_MS, 0);
    store_turn_init(&f.turn, &f.loop, on_answer, &f);
    is_int(turn(&f, 0), 1, "no request: what else there is to say is said");
    is_int(turn(&f, STORE_TURN_MANY - 1), 1, "a few are answered at once");
    is_int(turn(&f, STORE_TURN_MANY), 0, "many are not");
    is_int(turn(&f, 1), 1, "but once it has looked for more");
    is_int(turn(&f, STORE_TURN_MANY), 0, "many again");
    is_int(turn(&f, STORE_TURN_MANY), 1, "it looks once, also if that has many");
    is_int(turn(&f, 1), 1, "a few after many are a few");
    is_int(turn(&f, STORE_TURN_MANY), 0, "held back");
    uv_run(&f.loop, UV_RUN_ONCE);
    is_int(f.n_answers, 6, "and not waited for anything");
    store_turn_close(&f.turn, NULL);
    uv_close((uv_handle_t *)&f.deadline, NULL);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&f.loop), 0, "no handle is left");
}

/* Connected, with a request sent, and the end of requests behind it. */
static int ask_and_end(const struct store_server *srv)
{
    const uint32_t magic = STORE_MAGIC;
    char ping[10] = {STORE_VALIDATE, [5] = STORE_PING, 'a', 'b', 'c', 'd'};
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(store_server_port(srv))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(ping + 1, &magic, sizeof(magic));
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        send(fd, ping, sizeof(ping), MSG_NOSIGNAL) != sizeof(ping) ||
        shutdown(fd, SHUT_WR) < 0) {
        bail_out("a client: %s", strerror(errno));
    }
    return fd;
}

/* True if it was answered before the end of the connection. */
static bool is_answered(uv_loop_t *loop, int fd)
{
    uint64_t deadline = clock_mono_ms() + WAIT_MS;
    char back[5];
    size_t at = 0;
    ssize_t n = -1;

    while (n != 0 && at < sizeof(back) && clock_mono_ms() < deadline) {
        uv_run(loop, UV_RUN_NOWAIT);
        n = recv(fd, back + at, sizeof(back) - at, MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return n == 0 && at == 4 && memcmp(back, "abcd", 4) == 0;
}

/* The ends are read when it looks for more, with all answers still held back. */
static void test_end_behind_request(void)
{
    static const char *const loopback[] = {"127.0.0.1", NULL};
    struct store_config config = {.addresses = loopback};
    struct store_server *srv = NULL;
    struct error e = {0};
    uv_loop_t loop;
    int fds[CLIENTS], n_answered = 0;

    uv_loop_init(&loop);
    if (store_server_create(&loop, &config, &srv, &e) < 0 ||
        store_server_set_allowed(srv, loopback, 1, &e) < 0) {
        bail_out("%s", e.text);
    }
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = ask_and_end(srv);
    }
    for (int i = 0; i < CLIENTS; i++) {
        n_answered += is_answered(&loop, fds[i]);
    }
    is_int(n_answered, CLIENTS, "who ends its requests gets its answers");
    store_server_destroy(srv, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "no handle is left");
}

int main(void)
{
    test_looks();
    test_end_behind_request();
    return tap_done();
}
