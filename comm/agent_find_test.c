/* SPDX-License-Identifier: Apache-2.0 */
/* What is said between muster-mpi and the keeper of its node, and what is not. */
#include <config.h>

#include "comm/agent_find.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/seqsock.h"
#include "base/str.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the keeper knows them. */
enum { START = 1, STARTED, FAILED };
enum { SHORT_MS = 100, LONG_MS = 60000 };

struct bed {
    char dir[64];
    int lock, keeper;
};

static void bed_open(struct bed *b)
{
    struct error e = {0};

    str_copy(b->dir, sizeof(b->dir), "/tmp/agent-find-test.XXXXXX");
    if (!mkdtemp(b->dir) || setenv("XDG_RUNTIME_DIR", b->dir, 1) < 0) {
        bail_out("a directory");
    }
    b->keeper = agent_keeper_open("tag", &b->lock, &e);
    if (b->keeper < 0) {
        bail_out("%s", e.text);
    }
}

static void path_in(const struct bed *b, const char *name, char *to)
{
    if (fs_path(to, PATH_MAX, NULL, "%s/muster/tag/%s", b->dir, name) < 0) {
        bail_out("a path");
    }
}

static int connect_to(const struct bed *b)
{
    char path[PATH_MAX];
    struct error e = {0};
    int fd;

    path_in(b, "keeper", path);
    fd = seqsock_connect(path, &e);
    if (fd < 0) {
        bail_out("%s", e.text);
    }
    return fd;
}

/* --- the keeper --- */

static void test_questions(const struct bed *b)
{
    static const struct {
        const char *what;
        uint16_t type;
        uint8_t bytes[8];
        size_t len;
    } cases[] = {
        {"no number", START, {0}, 0},
        {"half a number", START, {0, 0}, 2},
        {"more than a number", START, {0, 0, 0, 1, 0}, 5},
        {"an agent too many", START, {0x7f, 0xff, 0xff, 0xff}, 4},
        {"all of them", START, {0xff, 0xff, 0xff, 0xff}, 4},
        {"an answer", STARTED, {0, 0, 0, 0}, 4},
        {"an unknown question", 0xffff, {0, 0, 0, 0}, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _close_ int fd = connect_to(b);
        _buf_ struct buf data = {0};
        struct error e = {0};

        buf_append(&data, cases[i].bytes, cases[i].len);
        seqsock_send(fd, cases[i].type, &data, NULL, 0);
        is_int(agent_keeper_serve(b->keeper, "tag", LONG_MS, &e), -ERR_FORMAT,
               "%s is refused", cases[i].what);
    }
    ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD,
       "and nobody was started");
}

/* Who goes, and who stays and says nothing. */
static void test_silence(const struct bed *b)
{
    struct error e = {0};
    int fd = connect_to(b);

    close(fd);
    is_int(agent_keeper_serve(b->keeper, "tag", LONG_MS, &e), 0,
           "one that goes has asked nothing");
    fd = connect_to(b);
    is_int(agent_keeper_serve(b->keeper, "tag", LONG_MS, &e), 0,
           "nor has one that says nothing in time");
    close(fd);
    is_int(agent_keeper_serve(b->keeper, "tag", LONG_MS, &e), -EAGAIN,
           "and nobody is no one");
}

static void test_one(const struct bed *b)
{
    struct error e = {0};
    int lock = -1;

    is_int(agent_keeper_open("tag", &lock, &e), -EEXIST, "there is one keeper");
    like(e.text, "run tag has a keeper on this node already", "which is told");
    (void)b;
}

/* --- who asks it --- */

/* A keeper that answers the first question like that; SIZE_MAX: not at all. */
static void answer(const struct bed *b, uint16_t type, const void *data,
                   size_t len)
{
    struct pollfd p = {.fd = b->keeper, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    _buf_ struct buf reply = {0};
    int fd;

    seqsock_msg_init(&m);
    poll(&p, 1, LONG_MS);
    fd = seqsock_accept(b->keeper, NULL);
    p.fd = fd;
    poll(&p, 1, LONG_MS);
    seqsock_recv(fd, &m);
    if (len != SIZE_MAX) {
        buf_append(&reply, data, len);
        seqsock_send(fd, type, &reply, NULL, 0);
        poll(&p, 1, LONG_MS); /* it has heard */
    } else {
        poll(&p, 1, 2 * SHORT_MS);
    }
}

static void test_answers(const struct bed *b)
{
    static const struct {
        const char *what;
        uint16_t type;
        const char *bytes;
        size_t len;
        int rc;
        const char *text;
    } cases[] = {
        {"a failure", FAILED, "\0\0\0\3bad", 7, -EIO, "bad"},
        {"half a failure", FAILED, "\0\0\0\377bad", 7, -EIO, "answers strangely"},
        {"no failure", FAILED, "", 0, -EIO, "answers strangely"},
        {"another answer", 77, "\0\0\0\3bad", 7, -EIO, "bad"},
        {"silence", 0, "", SIZE_MAX, -ETIMEDOUT, "does not answer"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned ms = cases[i].len == SIZE_MAX ? SHORT_MS : LONG_MS;
        struct error e = {0};
        pid_t pid = fork();

        if (pid == 0) {
            answer(b, cases[i].type, cases[i].bytes, cases[i].len);
            _exit(0);
        }
        is_int(agent_find_kept("tag", 0, ms, &e), cases[i].rc, "%s",
               cases[i].what);
        like(e.text, cases[i].text, "in words");
        waitpid(pid, NULL, 0);
    }
}

static void test_gone(struct bed *b)
{
    struct error e = {0};

    close(b->keeper);
    ok(agent_find_kept("tag", 0, SHORT_MS, &e) < 0, "a keeper that has ended");
    like(e.text, "the step of the agents has ended on this node", "is told");
    close(b->lock);
}

int main(void)
{
    struct bed b;

    bed_open(&b);
    test_questions(&b);
    test_silence(&b);
    test_one(&b);
    test_answers(&b);
    test_gone(&b);
    fs_remove_tree(b.dir, NULL);
    return tap_done();
}
