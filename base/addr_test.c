/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

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

int main(void)
{
    test_text();
    test_other_family();
    test_local();
    return tap_done();
}
