/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* In place of libc's: the interfaces of a test, where there are some. */
static struct ifaddrs *fake;

int getifaddrs(struct ifaddrs **ret)
{
    int (*real)(struct ifaddrs **);

    if (fake) {
        *ret = fake;
        return 0;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
    return real(ret);
}

void freeifaddrs(struct ifaddrs *list)
{
    void (*real)(struct ifaddrs *);

    if (list != fake) {
        *(void **)&real = dlsym(RTLD_NEXT, "freeifaddrs");
        real(list);
    }
}

static void check(const char *text, const char *want)
{
    struct sockaddr_storage sa;
    char got[ADDR_MAX];
    uint16_t port = 0;
    struct error e = {0};
    int rc = addr_parse(text, 4711, &sa, &e);

    if (!want) {
        is_int(rc, -EINVAL, "'%s' is no address", text);
        like(e.text, text[0] ? text : "''", "and is named");
        return;
    }
    is_int(rc, 0, "'%s' is an address", text);
    addr_format((struct sockaddr *)&sa, got, &port);
    is_str(got, want, "and reads %s", want);
    is_int(port, 4711, "with its port");
}

static void test_text(void)
{
    check("1.2.3.4", "1.2.3.4");
    check("255.255.255.255", "255.255.255.255");
    check("::1", "::1");
    check("2001:DB8::0:1", "2001:db8::1");
    check("::ffff:10.0.0.7", "10.0.0.7");
    check("1.2.3", NULL);
    check("1.2.3.4.5", NULL);
    check("256.1.1.1", NULL);
    check("host", NULL);
    check("1.2.3.4:5", NULL);
    check("fe80::1%eth0", NULL);
    check("", NULL);
}

static void test_other_family(void)
{
    struct sockaddr sa = {.sa_family = AF_UNIX};
    char got[ADDR_MAX];
    uint16_t port = 7;

    addr_format(&sa, got, &port);
    is_str(got, "?", "an address of another kind");
    is_int(port, 0, "has no port");
}

static void test_local(void)
{
    _strlist_ struct strlist all = {0};
    _strlist_ struct strlist loopback = {0};
    struct sockaddr_storage sa;
    struct error e = {0};

    is_int(addr_local(true, &loopback, &e), 0, "loopback alone");
    is_int((intmax_t)loopback.n, 1, "is one address");
    is_str(loopback.items[0], "127.0.0.1", "the usual one");
    is_int(addr_local(false, &all, &e), 0, "all of this host");
    ok(all.n >= 1 && all.n <= 8, "some, and not too many (%zu)", all.n);
    for (size_t i = 0; i < all.n; i++) {
        is_int(addr_parse(all.items[i], 1, &sa, &e), 0, "%s is numeric",
               all.items[i]);
        ok(strncmp(all.items[i], "fe80", 4) && strncmp(all.items[i], "169.254",
                                                       7),
           "and leads here from elsewhere");
    }
}

enum { MAX_IFS = 16 };

struct interface {
    const char *name;
    unsigned flags;
    const char *addr; /* NULL: one without; its mask may follow a blank */
};

/* One of the two words; false where there is none. */
static bool parse_word(const char *text, bool is_second,
                       struct sockaddr_storage *ret)
{
    const char *blank = strchr(text, ' ');
    char first[ADDR_MAX];

    if (is_second) {
        return blank && addr_parse(blank + 1, 0, ret, NULL) == 0;
    }
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, " "), text);
    return addr_parse(first, 0, ret, NULL) == 0;
}

static struct ifaddrs *make_list(const struct interface *ifs,
                                 struct ifaddrs *list,
                                 struct sockaddr_storage *addrs)
{
    static struct sockaddr_storage masks[MAX_IFS];

    for (size_t n = 0; ifs[n].name; n++) {
        list[n].ifa_name = (char *)ifs[n].name;
        list[n].ifa_flags = ifs[n].flags;
        list[n].ifa_next = ifs[n + 1].name ? &list[n + 1] : NULL;
        if (ifs[n].addr && parse_word(ifs[n].addr, false, &addrs[n])) {
            list[n].ifa_addr = (struct sockaddr *)&addrs[n];
        }
        if (ifs[n].addr && parse_word(ifs[n].addr, true, &masks[n])) {
            list[n].ifa_netmask = (struct sockaddr *)&masks[n];
        }
    }
    return list;
}

/* The addresses that a host with these interfaces gives to others, in order. */
static void check_interfaces(const struct interface *ifs, const char *want,
                             const char *what)
{
    struct sockaddr_storage addrs[MAX_IFS];
    struct ifaddrs list[MAX_IFS] = {0};
    _strlist_ struct strlist got = {0};
    _free_ char *joined = NULL;
    struct error e = {0};

    fake = make_list(ifs, list, addrs);
    is_int(addr_local(false, &got, &e), 0, "%s", what);
    fake = NULL;
    joined = str_shell_join(got.items);
    is_str(joined, want, "what others are told");
}

static void test_interfaces(void)
{
    static const struct interface usual[] = {
        {"lo", IFF_UP | IFF_LOOPBACK, "127.0.0.1"},
        {"lo", IFF_UP | IFF_LOOPBACK, "::1"},
        {"docker0", IFF_UP, "172.17.0.1"},
        {"wg0", IFF_UP, "fd01::9"},
        {"eth0", IFF_UP, "fd00::5"},
        {"eth0", IFF_UP, "fe80::5"},
        {"eth0", IFF_UP, "10.0.0.5"},
        {"eth1", 0, "10.0.1.5"},
        {"eth2", IFF_UP, "169.254.3.4"},
        {"ib0", IFF_UP, "10.1.0.5"},
        {"ib1", IFF_UP, NULL},
        {0},
    };
    static const struct interface alone[] = {
        {"lo", IFF_UP | IFF_LOOPBACK, "127.0.0.1"}, {0},
    };
    static const struct interface many[] = {
        {"e0", IFF_UP, "10.0.0.1"}, {"e1", IFF_UP, "10.0.0.2"},
        {"e2", IFF_UP, "10.0.0.3"}, {"e3", IFF_UP, "10.0.0.4"},
        {"e4", IFF_UP, "10.0.0.5"}, {"e5", IFF_UP, "10.0.0.6"},
        {"e6", IFF_UP, "10.0.0.7"}, {"e7", IFF_UP, "10.0.0.8"},
        {"e8", IFF_UP, "10.0.0.9"}, {0},
    };

    check_interfaces(usual, "10.0.0.5 10.1.0.5 fd00::5 172.17.0.1 fd01::9",
                     "a usual host");
    check_interfaces(alone, "127.0.0.1", "a host without a network");
    check_interfaces(many, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 "
                     "10.0.0.6 10.0.0.7 10.0.0.8", "a host with many");
}

/* What somebody chose, and the addresses that it means; NULL: none. */
static void check_choice(const char *choice, const char *want)
{
    _strlist_ struct strlist got = {0};
    _free_ char *joined = NULL;
    struct error e = {0};
    int rc = addr_chosen(choice, &got, &e);

    if (!want) {
        is_int(rc, -ENODEV, "%s: none here", choice);
        like(e.text, choice, "it is named");
        like(e.text, "eth0 10.0.0.5, ib0 10.1.0.5", "with what there is");
        return;
    }
    joined = str_shell_join(got.items);
    is_str(joined, want, "%s", choice);
}

static void test_choice(void)
{
    static const struct interface ifs[] = {
        {"lo", IFF_UP | IFF_LOOPBACK, "127.0.0.1"},
        {"eth0", IFF_UP, "10.0.0.5 255.255.255.0"},
        {"ib0", IFF_UP, "10.1.0.5 255.255.254.0"},
        {"ib0", IFF_UP, "fd00::5 ffff:ffff:ffff:ffff::"},
        {"ib0", IFF_UP, "fe80::5"},
        {"ib01", IFF_UP, "10.2.0.5 255.255.255.255"},
        {"docker0", IFF_UP, "172.17.0.1"},
        {"eth9", 0, "10.9.0.5"},
        {"far", IFF_UP | IFF_POINTOPOINT, "10.8.0.5"},
        {0},
    };
    struct sockaddr_storage addrs[MAX_IFS];
    struct ifaddrs list[MAX_IFS] = {0};
    char name[32] = "";

    check_interfaces(ifs, "10.0.0.5 10.1.0.5 10.2.0.5 fd00::5 172.17.0.1 "
                     "10.8.0.5", "links to one other host come last");
    fake = make_list(ifs, list, addrs);
    check_choice("ib0", "10.1.0.5 fd00::5");
    check_choice("ib0,eth0", "10.1.0.5 fd00::5 10.0.0.5");
    check_choice("eth0,10.0.0.0/8", "10.0.0.5 10.1.0.5 10.2.0.5 10.8.0.5");
    check_choice("10.1.0.0/15", "10.0.0.5 10.1.0.5");
    check_choice("10.1.0.4/31", "10.1.0.5");
    check_choice("fd00::/8", "fd00::5");
    check_choice("0.0.0.0/0,::/0",
                 "10.0.0.5 10.1.0.5 10.2.0.5 172.17.0.1 10.8.0.5 fd00::5");
    check_choice("docker0", "172.17.0.1");
    check_choice("10.1.1.99", "10.1.0.5");
    check_choice("fd00::7", "fd00::5");
    check_choice("10.2.0.5", "10.2.0.5");
    check_choice("10.1.1.9,eth0", "10.1.0.5 10.0.0.5");
    check_choice("10.1.2.9", NULL);
    check_choice("10.2.0.6", NULL);
    check_choice("172.17.0.1", NULL);
    check_choice("fd00:0:0:1::7", NULL);
    check_choice("127.0.0.1", NULL);
    check_choice("ib1", NULL);
    check_choice("ib", NULL);
    check_choice("eth9", NULL);
    check_choice("lo", NULL);
    check_choice("10.1.0.6/31", NULL);
    is_int(addr_interface("10.1.0.5", name, sizeof(name)), 0, "whose it is");
    is_str(name, "ib0", "can be asked");
    is_int(addr_interface("10.1.0.6", name, sizeof(name)), -ENODEV,
           "of those of this host");
    fake = NULL;
    is_int(addr_interface("127.0.0.1", name, sizeof(name)), 0, "loopback");
    is_str(name, "lo", "has one, too");
}

static void test_choice_syntax(void)
{
    static const char *const good[] = {"ib0", "eth0.17,br-lan", "10.1.0.0/16",
                                       "fd00::/8", "::/0", "0.0.0.0/0",
                                       "10.1.0.5", "fd00::5,ib0"};
    static const char *const bad[] = {
        "", ",", "ib0,", "ib0,,eth0", "10.1.0.0/33", "::/129", "10.1/16",
        "10.1.0.0/", "10.1.0.0/-1", "/8", "10.1.0.5:1", "ib 0", "ib0;x",
        "a-name-that-is-far-too-long", "10.1.0.0/8/8",
    };

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        _buf_ struct buf why = {0};

        ok(addr_choice_is_valid(good[i], &why), "'%s' is a choice", good[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _buf_ struct buf why = {0};

        ok(!addr_choice_is_valid(bad[i], &why), "'%s' is none", bad[i]);
        like(buf_str(&why), "neither the name of an interface nor an address",
             "which is said");
    }
}

/* In use on one address is in use. */
static void test_ports(void)
{
    static const char *const hosts[] = {"127.0.0.1", "0.0.0.0"};
    uint16_t port = 0;

    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        _close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_storage sa;
        socklen_t len = sizeof(sa);
        char text[ADDR_MAX];

        if (addr_parse(hosts[i], 0, &sa, NULL) < 0 ||
            bind(fd, (struct sockaddr *)&sa, sizeof(struct sockaddr_in)) < 0 ||
            listen(fd, 1) < 0 ||
            getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
            bail_out("cannot listen on %s", hosts[i]);
        }
        addr_format((struct sockaddr *)&sa, text, &port);
        ok(!addr_port_is_free(port), "a port that is in use on %s", hosts[i]);
    }
    while (port > 0 && !addr_port_is_free(port)) {
        port--;
    }
    ok(port > 0, "%u is free", (unsigned)port);
    ok(!addr_port_is_free(0), "port 0 is none");
}

/* The ways to a host, through their text and back. */
static void test_ways(void)
{
    static const char *const good[] = {
        "127.0.0.1:1", "10.0.0.1,fd00::5:65535",
        "1.0.0.1,1.0.0.2,1.0.0.3,1.0.0.4,1.0.0.5,1.0.0.6,1.0.0.7,::1:80",
    };
    static const char *const bad[] = {
        "", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
        "10.0.0.1:-1", ":80", ",:80", "10.0.0.1,:80", ",10.0.0.1:80",
        "10.0.0.1,,10.0.0.2:80", "somehost:80", "10.0.0.1 :80",
        "1.0.0.1,1.0.0.2,1.0.0.3,1.0.0.4,1.0.0.5,1.0.0.6,1.0.0.7,::1,::2:80",
        "10.0.0.1000000000000000000000000000000000000000000000000000000000:80",
    };

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        _strlist_ struct strlist addrs = {0};
        _buf_ struct buf text = {0};
        struct error e = {0};
        uint16_t port = 0;

        is_int(addr_ways_parse(good[i], &addrs, &port, &e), 0, "%s", good[i]);
        addr_ways_print(&addrs, port, &text);
        is_str(buf_str(&text), good[i], "comes back as it was");
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _strlist_ struct strlist addrs = {0};
        struct error e = {0};
        uint16_t port = 7;

        is_int(addr_ways_parse(bad[i], &addrs, &port, &e), -EINVAL,
               "'%s' is refused: %s", bad[i], e.text);
        ok(port == 7 && e.text[0], "with a reason, and no port");
    }
}

int main(void)
{
    test_text();
    test_ways();
    test_other_family();
    test_local();
    test_interfaces();
    test_choice();
    test_choice_syntax();
    test_ports();
    return tap_done();
}
