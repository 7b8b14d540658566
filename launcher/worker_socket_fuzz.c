/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes to the agent's end of a worker socket, over real sockets, in pieces: by
 * several connections at a time, which send descriptors along, stop half-way or do
 * not read, and with an agent that answers at once, later, or lets the socket go
 * meanwhile. The input is a flag byte, then a series of {who, n, n bytes}.
 *
 * Checked beyond memory errors: all that comes back is whole messages that only an
 * agent sends, with the descriptors that belong to them, after WELCOME or as the
 * last word; and no descriptor is left.
 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/worker_socket.h"
#include "tests/lib/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    N_PEERS = 3,
    MAX_FDS = 64,  /* at a time */
    LATE = 1,      /* flags: snapshots are answered when the input says so */
    GOES = 2,      /* the socket is destroyed by a report of step 99 */
    REFUSES = 4,   /* processes are another worker's */
};

struct peer {
    int fd; /* -1: not connected */
    struct buf in;
    size_t n_fds; /* that came and belong to no message yet */
    bool is_welcome, is_over;
};

static struct {
    uv_loop_t loop;
    struct worker_socket *socket; /* NULL once it was destroyed */
    struct segment *segment;
    struct peer peers[N_PEERS];
    uint64_t asked; /* the connection that waits for a snapshot */
    uint8_t flags;
    char path[108];
} w;

/* --- the agent --- */

static void let_go(void)
{
    worker_socket_destroy(w.socket);
    w.socket = NULL;
}

static int whose(void *arg, int pid)
{
    (void)arg;
    expect(pid == getpid());
    return w.flags & REFUSES ? 1 : 0;
}

static void answer(uint64_t connection, bool refuse)
{
    struct worker_snap a = {.bytes = 4096,
                            .uuid = "0123456789abcdef0123456789abcdef"};
    int fd = -1;

    if (!w.socket) {
        return;
    }
    if (refuse) {
        a = (struct worker_snap){.error = EBUSY, .why = "others are on their way"};
    } else {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        expect(fd >= 0);
    }
    worker_socket_answer_snap(w.socket, connection, &a, fd);
}

static void asked(uint64_t connection, bool refuse)
{
    w.asked = connection;
    if (!(w.flags & LATE)) {
        answer(connection, refuse);
    }
}

static void on_hello(void *arg, uint32_t local_rank, int pid)
{
    (void)arg;
    expect(local_rank == 0 && pid == getpid() && !(w.flags & REFUSES));
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    (void)arg;
    expect(local_rank == 0 && report->n_metrics <= WORKER_METRICS_MAX);
    for (size_t i = 0; i < report->n_metrics; i++) {
        expect(worker_name_is_valid(report->metrics[i].name));
    }
    if (w.flags & GOES && report->step == 99) {
        let_go();
    }
}

static void on_saved(void *arg, uint32_t local_rank, const char *path,
                     int64_t step)
{
    (void)arg;
    (void)step;
    expect(local_rank == 0 && strlen(path) < WORKER_PATH_SIZE);
}

static void on_plan(void *arg, uint32_t local_rank,
                    const struct worker_save_plan *plan)
{
    (void)arg;
    expect(local_rank == 0 && plan->every_s >= 0 && plan->is_assumed <= 1);
}

static void on_snap_begin(void *arg, uint32_t local_rank, uint64_t connection,
                          const struct worker_snap_begin *begin)
{
    (void)arg;
    (void)local_rank;
    asked(connection, begin->step % 2);
}

static void on_snap_find(void *arg, uint32_t local_rank, uint64_t connection,
                         const struct worker_snap_find *find)
{
    (void)arg;
    (void)local_rank;
    asked(connection, find->uuid[0] == '\0');
}

static void on_snap_fill(void *arg, uint32_t local_rank,
                         const struct worker_snap_fill *fill)
{
    (void)arg;
    expect(local_rank == 0 && strlen(fill->uuid) == WORKER_UUID_SIZE - 1);
}

static void on_snap_done(void *arg, uint32_t local_rank,
                         const struct worker_snap_done *done)
{
    struct worker_snap_status status = {.level = WORKER_SNAP_HELD};

    (void)arg;
    (void)local_rank;
    memcpy(status.uuid, done->uuid, sizeof(status.uuid));
    if (w.socket) {
        worker_socket_tell_snap(w.socket, &status);
    }
}

static void on_snap_want(void *arg, uint32_t local_rank,
                         const struct worker_snap_want *want)
{
    (void)arg;
    expect(local_rank == 0 && want->level >= WORKER_SNAP_HELD &&
           want->level <= WORKER_SNAP_DURABLE && want->is_chosen <= 1);
}

static void on_disconnect(void *arg, uint32_t local_rank, bool had_joined,
                          const char *why)
{
    (void)arg;
    (void)had_joined;
    expect(local_rank == 0 && why);
}

static const struct worker_socket_ops ops = {
    .whose = whose, .on_hello = on_hello, .on_report = on_report,
    .on_checkpoint_saved = on_saved, .on_save_plan = on_plan,
    .on_snap_begin = on_snap_begin, .on_snap_find = on_snap_find,
    .on_snap_fill = on_snap_fill, .on_snap_done = on_snap_done, .on_snap_want = on_snap_want,
    .on_disconnect = on_disconnect,
};

/* --- the peers --- */

static void hang_up(struct peer *p)
{
    close_fd(&p->fd);
    buf_release(&p->in);
    *p = (struct peer){.fd = -1};
}

static void call(struct peer *p)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memcpy(to.sun_path, w.path, sizeof(to.sun_path));
    expect(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        close(fd);
        return;
    }
    *p = (struct peer){.fd = fd};
}

/* What the agent says. */
static void hear_message(struct peer *p, const struct worker_msg *m)
{
    bool has_fd = m->type == WORKER_SNAP && m->snap.error == 0;

    expect(!p->is_over);
    switch (m->type) {
    case WORKER_WELCOME:
        expect(!p->is_welcome);
        p->is_welcome = true;
        return;
    case WORKER_REFUSED:
        expect(!p->is_welcome && m->refused.why[0]);
        p->is_over = true;
        return;
    case WORKER_COMM:
        expect(p->n_fds >= (m->comm.segment_bytes ? WORKER_COMM_FDS : 0));
        p->n_fds -= m->comm.segment_bytes ? WORKER_COMM_FDS : 0;
        break;
    case WORKER_SNAP:
        expect(p->n_fds >= has_fd);
        p->n_fds -= has_fd;
        break;
    default:
        expect(m->type == WORKER_STATE || m->type == WORKER_SNAP_STATUS);
        break;
    }
    expect(p->is_welcome);
}

static void take_fds(struct peer *p, struct msghdr *msg)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            expect(fcntl(fd, F_GETFD) >= 0);
            close(fd);
        }
        p->n_fds += n;
    }
}

/* False where nothing is there now. */
static bool hear_some(struct peer *p)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    struct iovec iov = {buf_reserve(&p->in, 65536), 65536};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(p->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n <= 0) {
        return false;
    }
    p->in.len += (size_t)n;
    take_fds(p, &msg);
    return true;
}

static void hear(struct peer *p)
{
    struct error e;
    size_t len;
    int rc;

    if (p->fd < 0) {
        return;
    }
    while (hear_some(p)) {
    }
    while ((rc = worker_frame_next(p->in.data, p->in.len, &len, &e)) == 1) {
        struct worker_msg m;

        expect(worker_msg_decode(p->in.data, len, &m, &e) == 0);
        buf_consume(&p->in, len);
        hear_message(p, &m);
    }
    expect(rc == 0 && p->n_fds == 0);
}

/* With a descriptor of its own, which nobody has asked for. */
static void say(struct peer *p, const uint8_t *data, size_t n, bool with_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {(void *)(uintptr_t)data, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (with_fd) {
        struct cmsghdr *h;

        msg.msg_control = control;
        msg.msg_controllen = sizeof(control);
        h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &p->fd, sizeof(int));
    }
    sendmsg(p->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- what happens --- */

static void make_segment(void)
{
    static const struct segment_spec spec = {
        .generation = 1, .n_nodes = 1, .world = 1, .n_local = 1, .max_local = 1,
        .chunk_bytes = 4096,
    };

    expect(w.segment || segment_create(&spec, &w.segment, NULL) == 0);
    worker_socket_set_segment(w.socket, w.segment);
}

static void act(uint8_t what)
{
    static const struct worker_snap_status status = {
        .level = WORKER_SNAP_HELD, .uuid = "0123456789abcdef0123456789abcdef"};
    struct peer *p = &w.peers[what / 8 % N_PEERS];

    switch (what % 8) {
    case 0:
        hang_up(p);
        break;
    case 1:
        shutdown(p->fd, SHUT_WR);
        break;
    case 2:
        hear(p);
        break;
    case 3:
        answer(w.asked, what & 64);
        break;
    case 4:
        if (w.socket) {
            worker_socket_set_state(w.socket, what & 64, what);
        }
        break;
    case 5:
        if (w.socket) {
            worker_socket_tell_snap(w.socket, &status);
        }
        break;
    case 6:
        if (w.socket) {
            make_segment();
        }
        break;
    default:
        if (p->fd >= 0) {
            say(p, (const uint8_t *)"", 1, true);
        }
        break;
    }
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < MAX_FDS; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void set_up(uint8_t flags)
{
    static const struct worker_welcome who = {.world = 1, .local_world = 1,
                                              .n_nodes = 1, .generation = 7,
                                              .run_dir = "/runs/x"};

    memset(&w, 0, sizeof(w));
    w.flags = flags;
    for (int i = 0; i < N_PEERS; i++) {
        w.peers[i].fd = -1;
    }
    snprintf(w.path, sizeof(w.path), "/tmp/muster-fuzz-%ld", (long)getpid());
    expect(uv_loop_init(&w.loop) == 0);
    expect(worker_socket_create(&w.loop, w.path, &who, &ops, NULL, &w.socket,
                                NULL) == 0);
}

static void tear_down(void)
{
    let_go();
    expect(uv_run(&w.loop, UV_RUN_DEFAULT) == 0);
    for (int i = 0; i < N_PEERS; i++) {
        hear(&w.peers[i]);
        hang_up(&w.peers[i]);
    }
    segment_destroy(w.segment);
    expect(uv_loop_close(&w.loop) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_warm; /* libuv keeps some descriptors */
    int before = count_fds();

    if (size < 1) {
        return 0;
    }
    set_up(data[0]);
    data++;
    size--;
    while (size >= 2) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        unsigned who = data[0] % (N_PEERS + 1);

        if (who == N_PEERS) {
            act(data[1]);
            n = 0;
        } else {
            if (w.peers[who].fd < 0) {
                call(&w.peers[who]);
            }
            if (w.peers[who].fd >= 0) {
                say(&w.peers[who], data + 2, n, false);
            }
        }
        uv_run(&w.loop, UV_RUN_NOWAIT);
        data += 2 + n;
        size -= 2 + n;
    }
    for (int i = 0; i < 4; i++) { /* what is on its way */
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    tear_down();
    expect(!is_warm || count_fds() == before);
    is_warm = true;
    return 0;
}
