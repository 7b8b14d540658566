/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/seqsock.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int make_address(const char *path, struct sockaddr_un *ret,
                        struct error *e)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path)) {
        return error_text(e, ENAMETOOLONG, "the socket path %s is longer than "
                          "%zu bytes: set XDG_RUNTIME_DIR to a shorter "
                          "directory", path, sizeof(ret->sun_path) - 1);
    }
    memcpy(ret->sun_path, path, strlen(path));
    return 0;
}

/* A socket, and the address of `path` for it. */
static int make_socket(const char *path, int flags, struct sockaddr_un *ret,
                       struct error *e)
{
    int fd, rc = make_address(path, ret, e);

    if (rc < 0) {
        return rc;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    return fd < 0 ? error_set(e, errno, "make a socket") : fd;
}

int seqsock_listen(const char *path, struct error *e)
{
    struct sockaddr_un sa;
    _close_ int fd = make_socket(path, SOCK_NONBLOCK, &sa, e);

    if (fd < 0) {
        return fd;
    }
    unlink(path);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        chmod(path, 0600) < 0 || listen(fd, 16) < 0) {
        return error_set(e, errno, "listen at %s", path);
    }
    return take_fd(&fd);
}

int seqsock_connect(const char *path, struct error *e)
{
    struct sockaddr_un sa;
    _close_ int fd = make_socket(path, 0, &sa, e);

    if (fd < 0) {
        return fd;
    }
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        return error_set(e, errno, "connect to %s", path);
    }
    return take_fd(&fd);
}

int seqsock_accept(int fd, struct error *e)
{
    _close_ int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred who;
    socklen_t len = sizeof(who);

    if (peer < 0) {
        return error_set(e, errno, "accept");
    }
    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
        who.uid != geteuid()) {
        return error_set(e, EPERM, "accept a process of another user");
    }
    return take_fd(&peer);
}

int seqsock_peer(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ? 0
                                                                   : who.pid;
}

void seqsock_msg_init(struct seqsock_msg *m)
{
    *m = (struct seqsock_msg){0};
    for (size_t i = 0; i < SEQSOCK_MAX_FDS; i++) {
        m->fds[i] = -1;
    }
}

void seqsock_msg_release(struct seqsock_msg *m)
{
    for (size_t i = 0; i < SEQSOCK_MAX_FDS; i++) {
        close_fd(&m->fds[i]);
    }
    buf_release(&m->data);
    seqsock_msg_init(m);
}

int seqsock_send(int fd, uint16_t type, const struct buf *data,
                 const int *fds, size_t n_fds)
{
    uint8_t head[2] = {(uint8_t)(type >> 8), (uint8_t)type};
    struct iovec iov[2] = {{head, 2}, {data ? data->data : NULL,
                                       data ? data->len : 0}};
    union {
        char space[CMSG_SPACE(sizeof(int) * SEQSOCK_MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n;

    if ((data && (data->failed || data->len > SEQSOCK_MAX)) ||
        n_fds > SEQSOCK_MAX_FDS) {
        return -EMSGSIZE;
    }
    if (n_fds) {
        struct cmsghdr *c;

        memset(&control, 0, sizeof(control));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *msg, struct seqsock_msg *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (i < SEQSOCK_MAX_FDS && m->fds[i] < 0) {
                m->fds[i] = fd;
            } else {
                close(fd);
            }
        }
    }
}

/* Of a peer that has closed without having read all, the kernel says that first, once;
 * what it had sent comes after. */
static ssize_t receive(int fd, struct msghdr *msg)
{
    bool was_reset = false;

    for (;;) {
        ssize_t n = recvmsg(fd, msg, MSG_CMSG_CLOEXEC);

        if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || was_reset))) {
            return n;
        }
        was_reset = was_reset || errno == ECONNRESET;
    }
}

int seqsock_recv(int fd, struct seqsock_msg *ret)
{
    uint8_t head[2];
    char *space = buf_reserve(&ret->data, SEQSOCK_MAX);
    struct iovec iov[2] = {{head, 2}, {space, SEQSOCK_MAX}};
    union {
        char space[CMSG_SPACE(sizeof(int) * SEQSOCK_MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;

    if (!space) {
        return -ENOMEM;
    }
    n = receive(fd, &msg);
    if (n <= 0) {
        return n < 0 ? (errno == ECONNRESET ? 0 : -errno) : 0;
    }
    take_fds(&msg, ret);
    if (n < 2 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        seqsock_msg_release(ret);
        return -ERR_FORMAT;
    }
    ret->type = (uint16_t)(head[0] << 8 | head[1]);
    ret->data.len = (size_t)n - 2;
    ret->data.data[ret->data.len] = '\0';
    return 1;
}

int seqsock_blob(const void *data, size_t len, struct error *e)
{
    _close_ int fd = memfd_create("muster-blob", MFD_CLOEXEC |
                                  MFD_ALLOW_SEALING);
    int rc;

    if (fd < 0) {
        return error_set(e, errno, "make a memory file");
    }
    rc = fs_write_all(fd, data, len);
    if (rc < 0) {
        return error_set(e, -rc, "write a memory file of %zu bytes", len);
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE |
                               F_SEAL_SEAL) < 0) {
        return error_set(e, errno, "seal a memory file");
    }
    return take_fd(&fd);
}

int seqsock_blob_read(int fd, size_t max, struct buf *ret, struct error *e)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    char *to;
    size_t done = 0;

    if (seals < 0 || !(seals & F_SEAL_WRITE) || !(seals & F_SEAL_SHRINK) ||
        fstat(fd, &st) < 0) {
        return error_text(e, ERR_FORMAT, "a blob that is not sealed");
    }
    if ((uint64_t)st.st_size > max) {
        return error_text(e, EFBIG, "a blob of %llu bytes",
                          (unsigned long long)st.st_size);
    }
    to = buf_reserve(ret, (size_t)st.st_size);
    if (!to) {
        return error_set(e, ENOMEM, "read a blob");
    }
    while (done < (size_t)st.st_size) {
        ssize_t n = pread(fd, to + done, (size_t)st.st_size - done,
                          (off_t)done);

        if (n <= 0) {
            return error_set(e, n < 0 ? errno : EIO, "read a blob");
        }
        done += (size_t)n;
    }
    ret->len += done;
    ret->data[ret->len] = '\0';
    return 0;
}
