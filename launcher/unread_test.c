/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/unread.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_kinds(void)
{
    char path[] = "/tmp/muster-unread.XXXXXX";
    int file = mkstemp(path), null = open("/dev/null", O_RDWR);
    int pair[2], ends[2];
    bool wrote;

    if (file < 0 || null < 0 || pipe(ends) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) {
        bail_out("no descriptors");
    }
    ok(!unread_is_there(null), "/dev/null");
    ok(!unread_is_there(file), "an empty file");
    ok(!unread_is_there(ends[0]) && !unread_is_there(pair[0]),
       "a pipe and a socket in which nothing is");
    wrote = write(file, "ab", 2) == 2 && write(ends[1], "a", 1) == 1 &&
            write(pair[1], "a", 1) == 1;
    ok(wrote && unread_is_there(ends[0]) && unread_is_there(pair[0]),
       "what is in them is seen");
    ok(!unread_is_there(file), "a file that was read to its end");
    lseek(file, 1, SEEK_SET);
    ok(unread_is_there(file), "and one that was not");
    close(ends[1]);
    ok(unread_is_there(ends[0]), "who wrote may be gone");
    close(null);
    ok(!unread_is_there(null), "none at all");
    unlink(path);
}

int main(void)
{
    test_kinds();
    return tap_done();
}
