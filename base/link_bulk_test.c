/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk that lies open on its way. */
#include <config.h>

#include "base/link_bed.h"
#include "base/link_priv.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BULK_BYTES = 3 << 20,
    N_BULK = 12,
    LESS = 20000,    /* each frame begins so much later */
    MUCH = 16 << 10, /* that come before it pays to be woken, and the kernel has room for */
};

static char bulk[BULK_BYTES], got[BULK_BYTES];
static bool is_wanted; /* where it comes it goes to `got` */
static int n_right;
static int wake_bytes, most_wake_bytes, n_wakes, n_too_many;
static const struct link *reader; /* of whom more than comes is waited for so often: */
static int n_beyond;
static bool has_no_memory; /* for what the kernel does not take */

void __real_buf_append(struct buf *b, const void *data, size_t len);
void __wrap_buf_append(struct buf *b, const void *data, size_t len);

void __wrap_buf_append(struct buf *b, const void *data, size_t len)
{
    if (has_no_memory && len > LESS) {
        b->failed = true;
        return;
    }
    __real_buf_append(b, data, len);
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
        int room = 0;
        socklen_t room_len = sizeof(room);

        memcpy(&wake_bytes, value, sizeof(wake_bytes));
        n_too_many += getsockopt(fd, level, SO_RCVBUF, &room, &room_len) < 0 ||
                      wake_bytes > room / 4;
        most_wake_bytes = wake_bytes > most_wake_bytes ? wake_bytes : most_wake_bytes;
        n_wakes++;
        if (reader && wake_bytes > 1 && (size_t)wake_bytes > channel_coming(reader->channel)) {
            n_beyond++;
            return 0; /* or this test would not end */
        }
    }
    return __real_setsockopt(fd, level, name, value, len);
}

static void *place(struct link *l, size_t len, void *ctx)
{
    (void)l, (void)ctx;
    return is_wanted && len <= sizeof(got) ? got : NULL;
}

static void on_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    if (f->len > LESS) {
        n_right += memcmp(f->data, bulk + (BULK_BYTES - f->len), f->len) == 0 &&
                   ((const char *)f->data == got) == is_wanted;
    }
    world_ops.on_frame(l, f, ctx);
}

static void on_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    world_ops.on_down(l, closed, why, ctx);
}

static const struct link_ops ops = {.on_frame = on_frame, .on_down = on_down,
                                    .place = place};

static void open_world(struct world *w)
{
    for (size_t i = 0; i < BULK_BYTES; i++) {
        bulk[i] = (char)(i * 3 + i / 259);
    }
    world_open(w);
    world_dial(w, world_key, link_listener_port(w->listener));
    is_int(link_send_open(w->connector, 1, "early", 5), 0, "before it is up: sealed");
    link_listener_open(w->listener, world_key, world_on_peer, w);
    w->stop_after = 1;
    world_run(w);
    link_adopt(w->accepted, &ops, w);
    n_right = n_wakes = most_wake_bytes = n_too_many = 0;
    wake_bytes = 1;
}

/* Each ends where it ends. */
static int send_bulk(struct world *w, size_t i)
{
    return link_send_open(w->connector, 4, bulk + i * LESS, BULK_BYTES - i * LESS);
}

/* Much at once, more than the kernel takes, between others: all of it comes, in order, or
 * the link would be down, for it would not be what was signed. */
static void test_open(bool wanted)
{
    struct world w;

    is_wanted = wanted;
    open_world(&w);
    for (size_t i = 0; i < N_BULK; i++) {
        is_int(send_bulk(&w, i), 0, "bulk");
        link_send(w.connector, 3, "between", 7);
    }
    ok(link_queued(w.connector) > 0, "more than the kernel takes");
    link_send_open(w.connector, 5, bulk, 1);
    is_int(link_send_open(w.connector, 6, bulk, 0), 0, "nothing");
    w.stop_after = 3 + 2 * N_BULK;
    world_run(&w);
    is_int((intmax_t)w.bytes,
           5 + N_BULK * (7 + BULK_BYTES) - N_BULK * (N_BULK - 1) / 2 * LESS + 1,
           "every byte");
    is_int(n_right, N_BULK, "what was sent, %s", wanted ? "where it is wanted" : "as frames");
    is_int(w.last_type, 6, "in order");
    is_int(link_send_open(w.connector, 1, bulk, CHANNEL_MAX_OPEN + 1), -EMSGSIZE,
           "over the limit");
    world_close(&w);
}

static void test_wakes(void)
{
    struct world w;

    is_wanted = true;
    open_world(&w);
    w.stop_after = 2;
    send_bulk(&w, 0);
    world_run(&w);
    ok(most_wake_bytes >= MUCH, "it is read where much has come (%d bytes)", most_wake_bytes);
    is_int(n_too_many, 0, "never more than the kernel has room for");
    is_int(wake_bytes, 1, "what follows is read at once");
    is_wanted = false;
    n_wakes = 0;
    w.stop_after = 3;
    send_bulk(&w, 0);
    world_run(&w);
    is_int(w.n_frames, 3, "what is wanted nowhere comes as well");
    is_int(n_wakes, 0, "and is read as it comes");
    world_close(&w);
}

/* Who is woken by as much as is still to come, and no more, misses nothing. */
static void test_last_part(void)
{
    enum { SOME = 40000 };
    struct world w;

    is_wanted = true;
    open_world(&w);
    reader = w.accepted;
    n_beyond = 0;
    for (int i = 0; i < 2; i++) {
        w.stop_after = 2 + i;
        link_send_open(w.connector, 4, bulk + BULK_BYTES - SOME, SOME);
        world_run(&w);
    }
    ok(n_right == 2 && n_wakes > 0, "some that come one after the other");
    is_int(n_beyond, 0, "are not waited for as if there were more of them");
    reader = NULL;
    world_close(&w);
}

/* The kernel has little room for what comes. */
static void test_narrow(void)
{
    int room = 200 * 1024; /* twice that, by the kernel */
    uv_os_fd_t fd;
    struct world w;

    is_wanted = true;
    open_world(&w);
    if (uv_fileno(&w.accepted->conn->handle, &fd) < 0 ||
        __real_setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) < 0) {
        bail_out("a socket");
    }
    w.stop_after = 2;
    send_bulk(&w, 0);
    world_run(&w);
    ok(n_right == 1 && n_wakes > 0, "bulk comes through little room");
    is_int(n_too_many, 0, "and is waited for in parts of that");
    world_close(&w);
}

/* What has gone in part cannot be followed by anything. */
static void test_no_memory(void)
{
    struct world w;
    int rc = 0;

    is_wanted = true;
    open_world(&w);
    has_no_memory = true;
    for (size_t i = 0; i < N_BULK && rc == 0; i++) {
        rc = send_bulk(&w, i);
    }
    has_no_memory = false;
    is_int(rc, -ENOMEM, "what the kernel does not take has no place");
    w.stop_after = 0;
    w.n_down = 0;
    world_run(&w);
    ok(w.n_down > 0, "the link is down: %s", w.why);
    is_int(send_bulk(&w, 0), -EPIPE, "and takes no more");
    world_close(&w);
}

static void test_unread(void)
{
    struct world w;
    int rc = 0, n = 0;

    is_wanted = true;
    open_world(&w);
    while (rc == 0 && n < 100) {
        rc = send_bulk(&w, 0); /* the loop does not run: nobody reads */
        n += rc == 0;
    }
    ok(rc == -ENOBUFS && n <= LINK_MAX_QUEUED / BULK_BYTES + 4,
       "who reads nothing has so much and no more kept for it: %d times", n);
    world_close(&w);
}

int main(void)
{
    test_open(false);
    test_open(true);
    test_wakes();
    test_last_part();
    test_narrow();
    test_no_memory();
    test_unread();
    return tap_done();
}
