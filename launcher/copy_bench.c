/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a snapshot takes from one agent to another, and to a worker that starts
 * from it there: two processes with what agents have for that (launcher/snap_copy.h), and
 * one of a worker, over TCP by way of loopback, as muster's links go between hosts. Beside
 * it, what one core takes to sign the same bytes, and to check them, as each end does; or,
 * where they are encrypted on their way, to seal and to open them.
 *
 *   copy_bench BYTES ROUNDS [encrypt]     lines: what, and nanoseconds
 *
 *   partner  until the partner has said that the copy is there, in memory that it had
 *   sign     to sign, or to check, whichever is slower
 *   bare     to sign, send, receive and check, by two threads that do nothing else
 *   lost     until what was asked for has come, into fresh memory, and is loaded from
 *            there, while it comes, to fresh memory of a worker (launcher/copy_worker.h)
 *   started  the same from memory of the node: for a worker that took as long to start as
 *            the rest takes, see launcher/agent_fetch_ahead.c
 *
 * Two copies go before, for which the partner makes its memory; and one that is asked for, as
 * a message goes before those of MPI: it opens the connection, and where the host of a virtual
 * machine has taken back what was not used, it gives that again.
 */
#include <config.h>

#include "base/aead.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/copy_bare.h"
#include "launcher/copy_said.h"
#include "launcher/copy_worker.h"
#include "launcher/snap_bed.h"
#include "launcher/snap_hold_priv.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_UP = 2, STUCK_MS = 120000 };

/* From the end that has saves to the one that gets them, and back. */
struct order {
    char uuid[COMMIT_UUID_BYTES]; /* to be fetched ... */
    uint64_t bytes;               /* ... which has so many */
    uint16_t port;                /* from there */
    uint64_t ns;                  /* what it took */
    uint64_t load_ns;             /* from memory of the node */
};

/* One of the two. */
struct end {
    uv_loop_t loop;
    uv_poll_t poll; /* orders and answers */
    int fd;
    struct snap_said said;
    struct snap_hold *hold;
    struct snap_copy *copy;
    struct link_listener *listener;
    struct copy_said copied;
    int n_orders;
    struct order order; /* the last one */
};

static char dir[64]; /* of this end, in memory */
static bool hides;   /* what is copied is encrypted */

static void remove_dir(void)
{
    if (dir[0]) {
        fs_remove_tree(dir, NULL);
    }
}

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "copy_bench: %s: %s\n", what, why);
    remove_dir();
    exit(1);
}

/* --- both ends --- */

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct end *end = ctx;

    snap_copy_take(end->copy, l, first);
}

static void on_order(uv_poll_t *poll, int status, int events)
{
    struct end *end = poll->data;

    (void)status, (void)events;
    if (recv(end->fd, &end->order, sizeof(end->order), 0) != sizeof(end->order)) {
        end->n_orders = -1; /* the other one has come to its end */
        uv_poll_stop(poll);
        return;
    }
    end->n_orders++;
}

static void say(struct end *end)
{
    if (send(end->fd, &end->order, sizeof(end->order), 0) < 0) {
        die("the other end", strerror(errno));
    }
}

/* Blocks in the loop: nothing else is to take time. */
static void run_until(struct end *end, const int *count, int n)
{
    while (*count < n && end->n_orders >= 0) {
        uv_run(&end->loop, UV_RUN_ONCE);
    }
    if (*count < n || end->copied.error.code) {
        die("copy", *count < n ? "the other end is gone" : end->copied.error.text);
    }
}

/* `on_coming` of the end that gets copies; NULL: this one has saves. */
static void open_end(struct end *end, int fd,
                     void (*on_coming)(void *arg, const struct snap_head *head))
{
    struct snap_hold_config hold;
    struct snap_copy_config copy = copy_said_config(&end->loop, STUCK_MS,
                                                    &end->copied);
    struct error e = {0};

    snprintf(dir, sizeof(dir), "/dev/shm/copy_bench.XXXXXX");
    if (!mkdtemp(dir) || uv_loop_init(&end->loop) < 0) {
        die("a directory and a loop", strerror(errno));
    }
    copy.hides = hides;
    copy.on_coming = on_coming;
    end->fd = fd;
    uv_poll_init(&end->loop, &end->poll, fd);
    end->poll.data = end;
    uv_poll_start(&end->poll, UV_READABLE, on_order);
    hold = snap_bed_config(&end->loop, dir, &end->said);
    hold.budget = UINT64_MAX / 2;
    hold.left = NULL;
    hold.is_elsewhere = true; /* the disk is measured elsewhere */
    if (on_coming) {
        copy_said_hold(&hold, &end->copied);
    }
    end->hold = snap_bed_hold(&hold);
    copy.own = end->hold;
    if (snap_copy_create(&copy, &end->copy, &e) < 0 ||
        link_listen(&end->loop, true, &end->listener, &e) < 0) {
        die("listen", e.text);
    }
    end->copied.to = end->copy;
    if (on_coming) {
        snap_copy_hold(end->copy, end->hold);
    }
    link_listener_open(end->listener, copy_said_key, on_peer, end);
}

/* --- who gets them --- */

static struct copy_worker worker; /* of the end that fetches */
static struct snap_hold *worker_hold;

/* One that comes when all is there. */
static uint64_t load_ns(const struct snap *s)
{
    uint64_t begin = clock_mono_ns();

    copy_worker_ask(&worker, s->head.image_bytes);
    copy_worker_give(&worker, s);
    return copy_worker_end(&worker) - begin;
}

static bool is_none(void *arg, uint32_t rank)
{
    (void)arg, (void)rank;
    return false;
}

/* As its agent answers (launcher/agent_fetch.c). */
static void on_coming(void *arg, const struct snap_head *head)
{
    (void)arg;
    copy_worker_give(&worker, snap_hold_coming(worker_hold, head->rank, head->uuid,
                                               head->image_bytes));
}

/* The memory of copies goes first: a node that is new has none, nor any to give back. */
static void fetch(struct end *end)
{
    struct error e = {0};
    uint64_t begin;

    snap_hold_keep(end->hold, UINT64_MAX, is_none, NULL);
    snap_bin_wait(end->hold->bin);
    worker_hold = end->hold;
    begin = clock_mono_ns();
    if (snap_copy_fetch(end->copy, 0, end->order.uuid, copy_said_addrs, end->order.port,
                        &e) < 0) {
        die("fetch", e.text);
    }
    copy_worker_ask(&worker, end->order.bytes);
    run_until(end, &end->copied.n_fetched, end->copied.n_fetched + 1);
    end->order.ns = copy_worker_end(&worker) - begin;
    end->order.load_ns = load_ns(snap_hold_get(end->hold, 0, end->order.uuid));
    say(end);
}

static void get_copies(int fd)
{
    static struct end end;
    int n_done = 0;

    copy_worker_start(&worker);
    open_end(&end, fd, on_coming);
    end.order.port = link_listener_port(end.listener);
    say(&end);
    while (end.n_orders >= 0) {
        uv_run(&end.loop, UV_RUN_ONCE);
        if (end.n_orders > n_done) {
            n_done = end.n_orders;
            fetch(&end);
        }
    }
    remove_dir();
    exit(0);
}

/* --- who has them --- */

/* As random as it may be, where nothing is yet. */
static void fill(char *data, uint64_t len)
{
    uint64_t x = 1;

    for (uint64_t i = 0; i + 8 <= len; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(data + i, &x, sizeof(x));
    }
}

static void save(struct end *end, const char *uuid, uint64_t step, uint64_t len)
{
    struct error e = {0};

    snap_bed_begin(&end->loop, end->hold, &end->said, 0, uuid, step, dir,
                   snap_room(len, 1));
    if (step <= 2) {
        fill((char *)end->said.snap->map + SNAP_PAGE_BYTES, len);
    }
    if (snap_hold_done(end->hold, 0, uuid, len, 1, &e) < 0) {
        die("save", e.text);
    }
}

static uint64_t copy_ns(struct end *end, const char *uuid, uint16_t port)
{
    uint64_t begin = clock_mono_ns();
    struct error e = {0};

    if (snap_copy_send(end->copy, 0, uuid, 1, copy_said_addrs, port, &e) < 0) {
        die("send", e.text);
    }
    run_until(end, &end->copied.n_sent, end->copied.n_sent + 1);
    return clock_mono_ns() - begin;
}

static const struct order *fetch_from(struct end *end, const char *uuid, uint64_t len)
{
    end->order.bytes = len;
    str_copy(end->order.uuid, sizeof(end->order.uuid), uuid);
    end->order.port = link_listener_port(end->listener);
    say(end);
    run_until(end, &end->n_orders, end->n_orders + 1);
    return &end->order;
}

static bool sign(struct aead *aead, uint64_t at, const struct aead_text *t)
{
    return hides ? aead_seal(aead, at, t)
                 : aead_sign(aead, at, t->at, t->len, t->at + t->len);
}

/* The tag is behind it in either case. */
static bool check(struct aead *aead, uint64_t at, const struct aead_text *t)
{
    struct aead_text sealed = *t;

    sealed.len += AEAD_TAG_BYTES;
    return hides ? aead_open(aead, at, &sealed)
                 : aead_check(aead, at, t->at, t->len, t->at + t->len);
}

/* As a channel does it (base/channel.c), without all that is around it. */
static uint64_t sign_ns(const char *data, uint64_t len)
{
    static struct aead aead;
    static uint8_t text[COPY_CHUNK_BYTES + AEAD_TAG_BYTES];
    uint64_t ns[2] = {0};

    aead_init(&aead, aead_best(), copy_said_key);
    for (uint64_t at = 0; at < len; at += COPY_CHUNK_BYTES) {
        size_t n = len - at < COPY_CHUNK_BYTES ? len - at : COPY_CHUNK_BYTES;
        struct aead_text t = {.at = text, .len = n};
        uint64_t begin, between;

        memcpy(text, data + at, n);
        begin = clock_mono_ns();
        if (!sign(&aead, at, &t)) {
            die("sign", "it cannot be done");
        }
        between = clock_mono_ns();
        if (!check(&aead, at, &t)) {
            die("check", "what was signed");
        }
        ns[0] += between - begin;
        ns[1] += clock_mono_ns() - between;
    }
    aead_release(&aead);
    return ns[0] > ns[1] ? ns[0] : ns[1];
}

static uint64_t bare_ns(const char *data, uint64_t len)
{
    char *to = mmap(NULL, len, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t ns = to == MAP_FAILED ? 0 : copy_bare_ns(data, to, len, COPY_CHUNK_BYTES, hides);

    if (ns == 0 || memcmp(to, data, len) != 0) {
        die("the bare copy", ns == 0 ? strerror(errno) : "it differs");
    }
    munmap(to, len);
    return ns;
}

static void have_saves(int fd, uint64_t len, int n_rounds)
{
    static struct end end;
    uint16_t port;

    open_end(&end, fd, NULL);
    run_until(&end, &end.n_orders, 1);
    port = end.order.port;
    for (int i = 1; i <= WARM_UP + n_rounds; i++) {
        char uuid[COMMIT_UUID_BYTES];
        const char *image;
        uint64_t copy;

        snprintf(uuid, sizeof(uuid), "%032x", i);
        save(&end, uuid, (uint64_t)i, len);
        copy = copy_ns(&end, uuid, port);
        if (i > WARM_UP) {
            image = snap_image(snap_hold_get(end.hold, 0, uuid));
            printf("partner %llu\nsign %llu\nbare %llu\n", (unsigned long long)copy,
                   (unsigned long long)sign_ns(image, len),
                   (unsigned long long)bare_ns(image, len));
        }
    }
    for (int i = 0; i <= n_rounds; i++) {
        char uuid[COMMIT_UUID_BYTES];
        const struct order *took;

        snprintf(uuid, sizeof(uuid), "%032x", WARM_UP + n_rounds);
        took = fetch_from(&end, uuid, len);
        if (i == 0) {
            continue;
        }
        printf("lost %llu\nstarted %llu\n", (unsigned long long)took->ns,
               (unsigned long long)took->load_ns);
    }
    remove_dir();
}

int main(int argc, char **argv)
{
    bool is_said = argc == 3 || (argc == 4 && strcmp(argv[3], "encrypt") == 0);
    uint64_t len = is_said ? strtoull(argv[1], NULL, 10) : 0;
    int n_rounds = is_said ? atoi(argv[2]) : 0, fds[2], status;
    pid_t pid;

    if (len == 0 || n_rounds < 1) {
        fprintf(stderr, "usage: copy_bench BYTES ROUNDS [encrypt]\n");
        return 2;
    }
    hides = argc == 4;
    if (sodium_init() < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) < 0 ||
        (pid = fork()) < 0) {
        die("begin", strerror(errno));
    }
    if (pid == 0) {
        close(fds[0]);
        get_copies(fds[1]);
    }
    close(fds[1]);
    have_saves(fds[0], len, n_rounds);
    close(fds[0]);
    return waitpid(pid, &status, 0) != pid || status != 0;
}
