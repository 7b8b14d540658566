/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between processes of one user on one host a link needs no TCP and no cipher: it
 * goes over a Unix socket, and both ends ask the kernel who the other one is. Its
 * name is in the abstract namespace, so there is no file to be left behind, and it
 * is made of the key and of the TCP port: nobody else can take it first. Where the other end is
 * on another host, or in a container with a network of its own, nobody listens at
 * that name.
 */
#include <config.h>

#include "base/link_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NAME_BYTES = 16 };

/* The length of the address, for connect() and bind(). */
static socklen_t make_address(const struct link_local *at,
                              struct sockaddr_un *ret)
{
    char hex[2 * NAME_BYTES + 1], text[64];
    uint8_t hash[NAME_BYTES];
    int n;

    snprintf(text, sizeof(text), "muster-local %s %u", at->name, at->port);
    crypto_generichash(hash, sizeof(hash), (const uint8_t *)text, strlen(text),
                       at->key, CHANNEL_KEY_BYTES);
    sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    n = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "muster-%s",
                 hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int make_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd < 0 ? -errno : fd;
}

int link_local_listen(const struct link_local *at)
{
    struct sockaddr_un sa;
    socklen_t len = make_address(at, &sa);
    _close_ int fd = make_socket();

    if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, len) < 0) {
        return -errno;
    }
    return take_fd(&fd);
}

int link_local_connect(const struct link_local *at)
{
    struct sockaddr_un sa;
    socklen_t len = make_address(at, &sa);
    _close_ int fd = make_socket();

    if (fd < 0) {
        return take_fd(&fd);
    }
    if (connect(fd, (struct sockaddr *)&sa, len) < 0) {
        return -errno;
    }
    return link_local_is_own(fd) ? take_fd(&fd) : -EPERM;
}

bool link_local_is_own(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           who.uid == geteuid();
}
