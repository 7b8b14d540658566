/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/addr.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

int addr_parse(const char *text, uint16_t port, struct sockaddr_storage *ret,
               struct error *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons(port)};

    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof(v4));
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
        memcpy(ret, &v6, sizeof(v6));
        return 0;
    }
    return error_text(e, EINVAL, "'%.60s' is not a numeric address", text);
}

void addr_ways_print(const struct strlist *addrs, uint16_t port,
                     struct buf *to)
{
    for (size_t i = 0; i < addrs->n; i++) {
        buf_printf(to, "%s%s", i ? "," : "", addrs->items[i]);
    }
    buf_printf(to, ":%u", port);
}

/* One address of `len` bytes. */
static int take_way(const char *text, size_t len, struct strlist *ret,
                    struct error *e)
{
    struct sockaddr_storage sa;
    char addr[ADDR_MAX];

    snprintf(addr, sizeof(addr), "%.*s", (int)(len < ADDR_MAX ? len : 0), text);
    if (addr_parse(addr, 0, &sa, e) < 0) {
        return -EINVAL;
    }
    strlist_add(ret, addr);
    return ret->failed ? error_set(e, ENOMEM, "read addresses") : 0;
}

int addr_ways_parse(const char *text, struct strlist *ret, uint16_t *ret_port,
                    struct error *e)
{
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    int n = 0, rc = 0;

    if (!colon || str_to_u64(colon + 1, &port) < 0 || port < 1 ||
        port > UINT16_MAX) {
        return error_text(e, EINVAL, "'%.60s' does not end with a port", text);
    }
    while (rc == 0) {
        size_t len = strcspn(text, ",");

        len = text + len > colon ? (size_t)(colon - text) : len;
        rc = ++n > ADDR_MAX_WAYS
                 ? error_text(e, EINVAL, "more than %d addresses",
                              ADDR_MAX_WAYS)
                 : take_way(text, len, ret, e);
        text += len + 1;
        if (text > colon) {
            break;
        }
    }
    *ret_port = rc < 0 ? *ret_port : (uint16_t)port;
    return rc;
}

/* 0, or the error of the first step that failed. */
static int try_listen(const char *any, uint16_t port)
{
    const int one = 1;
    struct sockaddr_storage sa;
    _close_ int fd = -1;

    if (addr_parse(any, port, &sa, NULL) < 0) {
        return EINVAL;
    }
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        (sa.ss_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0) ||
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 1) < 0) {
        return errno;
    }
    return 0;
}

bool addr_port_is_free(uint16_t port)
{
    /* A host without IPv6 fails there in other ways. */
    return port && try_listen("::", port) != EADDRINUSE &&
           try_listen("0.0.0.0", port) == 0;
}

void addr_format(const struct sockaddr *sa, char to[ADDR_MAX],
                 uint16_t *ret_port)
{
    uint16_t port = 0;

    str_copy(to, ADDR_MAX, "?");
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)sa;

        inet_ntop(AF_INET, &v4->sin_addr, to, ADDR_MAX);
        port = ntohs(v4->sin_port);
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)sa;

        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
            inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], to, ADDR_MAX);
        } else {
            inet_ntop(AF_INET6, &v6->sin6_addr, to, ADDR_MAX);
        }
        port = ntohs(v6->sin6_port);
    }
    if (ret_port) {
        *ret_port = port;
    }
}
