/* SPDX-License-Identifier: Apache-2.0 */
/* Whether somebody between two agents can read a copy on its way: where that is asked for
 * nobody can; else everybody. */
#include <config.h>

#include "launcher/copy_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLE_BYTES = 64, HAS_SEEN = 1, HAS_NOT = 0, IS_BROKEN = 2 };

static struct sockaddr_in here(uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listen_at(uint16_t *ret_port)
{
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        listen(fd, 1) < 0 || getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        bail_out("no port");
    }
    *ret_port = ntohs(at.sin_port);
    return fd;
}

/* Gives what comes at one end to the other one. False: it has come to its end. */
static bool pass(int from, int to, const char *sample, bool *seen)
{
    static char data[1 << 16];
    ssize_t n = read(from, data, sizeof(data));

    *seen |= n > 0 && memmem(data, (size_t)n, sample, SAMPLE_BYTES);
    for (ssize_t at = 0, k; at < n; at += k) {
        k = send(to, data + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (k < 0) {
            return false;
        }
    }
    if (n <= 0) {
        shutdown(to, SHUT_WR);
    }
    return n > 0;
}

/* Somebody between the two, who looks for a sample. */
static _Noreturn void listen_in(int listener, uint16_t port, const char *sample)
{
    struct sockaddr_in at = here(port);
    const int ends[2] = {accept(listener, NULL, NULL), socket(AF_INET, SOCK_STREAM, 0)};
    struct pollfd fds[2] = {{.fd = ends[0], .events = POLLIN},
                            {.fd = ends[1], .events = POLLIN}};
    bool seen = false;
    int n_open = 2;

    if (ends[0] < 0 || connect(ends[1], (struct sockaddr *)&at, sizeof(at)) < 0) {
        _exit(IS_BROKEN);
    }
    while (n_open > 0 && poll(fds, 2, 60000) > 0) {
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents && !pass(ends[i], ends[1 - i], sample, &seen)) {
                fds[i].fd = -1; /* poll() leaves it out */
                n_open--;
            }
        }
    }
    _exit(seen ? HAS_SEEN : HAS_NOT);
}

static int copy_past(bool hides)
{
    struct copy_bed b;
    char sample[SAMPLE_BYTES];
    uint16_t port;
    int listener = listen_at(&port), status = -1;
    pid_t pid;

    copy_bed_open(&b, UINT64_C(1) << 30);
    copy_bed_hide(&b, hides);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    memcpy(sample, snap_image(snap_hold_get(b.own, 2, UUID(1))), sizeof(sample));
    pid = fork();
    if (pid == 0) {
        listen_in(listener, link_listener_port(b.listener), sample);
    }
    close(listener);
    snap_copy_send(b.from, 2, UUID(1), 1, copy_said_addrs, port, NULL);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1) && b.copied.error.code == 0 &&
       copy_bed_is_same(&b, 2, UUID(1)), "it is there: %s", b.copied.error.text);
    copy_bed_close(&b);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                : IS_BROKEN;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    is_int(copy_past(false), HAS_SEEN, "it lies open on its way");
    is_int(copy_past(true), HAS_NOT, "it does not, where that is asked for");
    return tap_done();
}
