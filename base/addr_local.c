/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of this host, and which of them others are told. */
#include <config.h>

#include "base/addr.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

enum {
    N_ADDR_MAX = 8,
    N_RANKS = 4, /* what rank_interface() gives is less */
};

enum choice_kind { BY_NAME, BY_NETWORK, BY_ADDRESS };

struct choice {
    const char *text; /* one item of the list, without an end */
    size_t len;
    enum choice_kind kind;
    struct sockaddr_storage address; /* of a network, or in one */
    uint64_t bits;                   /* that count; 0 for an address */
};

/* Interfaces whose addresses repeat on every host or lead nowhere. */
static bool is_virtual(const struct ifaddrs *i)
{
    static const char *const prefixes[] = {
        "docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc",
        "lxd", "podman", "tun", "tap", "wg", "tailscale", "ppp", "utun",
        "zt", "nebula", "vpn", "ipsec", "cscotun", "gpd", "vmnet", "vboxnet",
        "dummy", "kube-", "nodelocaldns", "cilium", "weave",
    };

    if (i->ifa_flags & IFF_POINTOPOINT) {
        return true; /* as VPNs are */
    }
    for (size_t k = 0; k < ARRAY_SIZE(prefixes); k++) {
        if (str_starts(i->ifa_name, prefixes[k])) {
            return true;
        }
    }
    return false;
}

/* 0 is best; -1 is useless to other hosts. */
static int rank_interface(const struct ifaddrs *i)
{
    int rank = is_virtual(i) ? 2 : 0;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
        (i->ifa_flags & IFF_LOOPBACK)) {
        return -1;
    }
    if (i->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)i->ifa_addr;

        /* 169.254/16 */
        return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe ? -1 : rank;
    }
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;

        return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? -1 : rank + 1;
    }
    return -1;
}

int addr_local(bool loopback, struct strlist *ret, struct error *e)
{
    struct ifaddrs *all = NULL;

    if (!loopback && getifaddrs(&all) < 0) {
        return error_set(e, errno, "list network interfaces");
    }
    for (int rank = 0; rank < N_RANKS; rank++) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[ADDR_MAX];

            if (rank_interface(i) == rank && ret->n < N_ADDR_MAX) {
                addr_format(i->ifa_addr, text, NULL);
                strlist_add(ret, text);
            }
        }
    }
    if (all) {
        freeifaddrs(all);
    }
    if (ret->n == 0) {
        strlist_add(ret, "127.0.0.1");
    }
    return ret->failed ? error_set(e, ENOMEM, "list addresses") : 0;
}

/* --- the user's choice --- */

/* The next item of a list; false at its end. */
static bool next_item(const char **at, struct choice *ret)
{
    if (!*at) {
        return false;
    }
    ret->text = *at;
    ret->len = strcspn(*at, ",");
    *at = (*at)[ret->len] ? *at + ret->len + 1 : NULL;
    return true;
}

static bool is_name(const struct choice *c)
{
    if (c->len == 0 || c->len >= IF_NAMESIZE) {
        return false;
    }
    for (size_t i = 0; i < c->len; i++) {
        if (!isalnum((unsigned char)c->text[i]) &&
            !strchr("._-@", c->text[i])) {
            return false;
        }
    }
    return true;
}

static bool is_address(struct choice *c)
{
    char text[ADDR_MAX] = "";

    if (c->len >= sizeof(text)) {
        return false;
    }
    memcpy(text, c->text, c->len);
    return addr_parse(text, 0, &c->address, NULL) == 0;
}

/* ADDRESS/BITS */
static bool is_network(struct choice *c)
{
    const char *slash = memchr(c->text, '/', c->len);
    size_t len = slash ? (size_t)(slash - c->text) : 0;
    char text[ADDR_MAX] = "", bits[4] = "";

    if (!slash || len >= sizeof(text) || c->len - len - 1 >= sizeof(bits)) {
        return false;
    }
    memcpy(text, c->text, len);
    memcpy(bits, slash + 1, c->len - len - 1);
    return addr_parse(text, 0, &c->address, NULL) == 0 &&
           str_to_u64(bits, &c->bits) == 0 &&
           c->bits <= (c->address.ss_family == AF_INET ? 32 : 128);
}

static bool parse_choice(struct choice *c)
{
    c->kind = is_network(c) ? BY_NETWORK
              : is_address(c) ? BY_ADDRESS : BY_NAME;
    return c->kind != BY_NAME || is_name(c);
}

bool addr_choice_is_valid(const char *text, struct buf *why)
{
    struct choice c;

    while (next_item(&text, &c)) {
        if (!parse_choice(&c)) {
            buf_printf(why, "'%.*s' is neither the name of an interface nor an "
                       "address or network such as 10.1.0.0/16",
                       c.len > 60 ? 60 : (int)c.len, c.text);
            return false;
        }
    }
    return true;
}

/* The bytes of an address, in the order of the network. */
static const uint8_t *bytes_of(const struct sockaddr *sa)
{
    return sa->sa_family == AF_INET
               ? (const void *)&((const struct sockaddr_in *)(const void *)sa)
                     ->sin_addr
               : (const void *)&((const struct sockaddr_in6 *)(const void *)sa)
                     ->sin6_addr;
}

static bool is_within(const struct sockaddr *sa, const struct choice *c)
{
    const uint8_t *a, *b;

    if (sa->sa_family != c->address.ss_family) {
        return false;
    }
    a = bytes_of(sa);
    b = bytes_of((const struct sockaddr *)&c->address);
    for (size_t i = 0; i < c->bits; i++) {
        if ((a[i / 8] ^ b[i / 8]) & (0x80 >> (i % 8))) {
            return false;
        }
    }
    return true;
}

/* Whether the address is in the network that the interface is in. */
static bool is_beside(const struct ifaddrs *i, const struct choice *c)
{
    size_t n = c->address.ss_family == AF_INET ? 4 : 16;
    const uint8_t *a, *b, *mask;

    if (i->ifa_addr->sa_family != c->address.ss_family || !i->ifa_netmask) {
        return false;
    }
    a = bytes_of(i->ifa_addr);
    b = bytes_of((const struct sockaddr *)&c->address);
    /* The kernel need not fill in the family of a mask. */
    mask = a - (const uint8_t *)i->ifa_addr + (const uint8_t *)i->ifa_netmask;
    for (size_t k = 0; k < n; k++) {
        if ((a[k] ^ b[k]) & mask[k]) {
            return false;
        }
    }
    return true;
}

static bool is_chosen(const struct ifaddrs *i, const struct choice *c)
{
    switch (c->kind) {
    case BY_NETWORK:
        return is_within(i->ifa_addr, c);
    case BY_ADDRESS:
        return is_beside(i, c);
    case BY_NAME:
        break;
    }
    return strlen(i->ifa_name) == c->len &&
           memcmp(i->ifa_name, c->text, c->len) == 0;
}

static bool has(const struct strlist *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static void add_chosen(const struct ifaddrs *all, const struct choice *c,
                       struct strlist *ret)
{
    for (int rank = 0; rank < N_RANKS; rank++) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[ADDR_MAX];

            if (rank_interface(i) != rank || !is_chosen(i, c) ||
                ret->n >= N_ADDR_MAX) {
                continue;
            }
            addr_format(i->ifa_addr, text, NULL);
            if (!has(ret, text)) {
                strlist_add(ret, text);
            }
        }
    }
}

static int none_is_chosen(const struct ifaddrs *all, const char *choice,
                          struct error *e)
{
    _buf_ struct buf has = {0};
    char host[256] = "this host";

    gethostname(host, sizeof(host) - 1);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char text[ADDR_MAX];

        if (rank_interface(i) >= 0) {
            addr_format(i->ifa_addr, text, NULL);
            buf_printf(&has, "%s%s %s", has.len ? ", " : "", i->ifa_name, text);
        }
    }
    return error_text(e, ENODEV, "%s has no address for network.interface "
                      "%.60s; it has %.150s", host, choice,
                      has.len ? buf_str(&has) : "none that leads elsewhere");
}

int addr_chosen(const char *choice, struct strlist *ret, struct error *e)
{
    const char *at = choice;
    struct ifaddrs *all;
    struct choice c;
    int rc = 0;

    if (getifaddrs(&all) < 0) {
        return error_set(e, errno, "list network interfaces");
    }
    while (next_item(&at, &c)) {
        if (parse_choice(&c)) {
            add_chosen(all, &c, ret);
        }
    }
    if (ret->failed) {
        rc = error_set(e, ENOMEM, "list addresses");
    } else if (ret->n == 0) {
        rc = none_is_chosen(all, choice, e);
    }
    freeifaddrs(all);
    return rc;
}

static bool is_loopback(const struct ifaddrs *i)
{
    return i->ifa_addr && (i->ifa_flags & IFF_LOOPBACK) &&
           (i->ifa_addr->sa_family == AF_INET ||
            i->ifa_addr->sa_family == AF_INET6);
}

int addr_interface(const char *addr, char *to, size_t size)
{
    struct ifaddrs *all;
    int rc = -ENODEV;

    if (getifaddrs(&all) < 0) {
        return -errno;
    }
    for (const struct ifaddrs *i = all; i && rc < 0; i = i->ifa_next) {
        char text[ADDR_MAX];

        if (rank_interface(i) >= 0 || is_loopback(i)) {
            addr_format(i->ifa_addr, text, NULL);
            if (strcmp(text, addr) == 0) {
                str_copy(to, size, i->ifa_name);
                rc = 0;
            }
        }
    }
    freeifaddrs(all);
    return rc;
}
