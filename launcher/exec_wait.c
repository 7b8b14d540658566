/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-exec --wait=FD: a blank, see launcher/blanks.h. Until it is told what to be
 * it holds the socket alone, and nothing is set up: what it was started with may not
 * be what the worker gets. Then it is as if it had been started with that command
 * line, environment and output.
 */
#include <config.h>

#include "launcher/exec_setup.h"

#include "base/cleanup.h"
#include "base/seqsock.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Nobody needs it: its agent has ended, or has no more use for it. */
static _Noreturn void leave(void)
{
    _exit(0);
}

/* The agent leaves none open; this is for what its libraries might. */
static void close_others(int fd)
{
    if (fd > 3) {
        syscall(SYS_close_range, 3U, (unsigned)fd - 1, 0);
    }
    syscall(SYS_close_range, (unsigned)fd + 1, ~0U, 0);
}

/* The strings of [*at, end), ended by zero bytes: `n` of them, or all. */
static char **split(char **at, char *end, size_t n)
{
    size_t there = 0;
    char **list;

    for (char *p = *at; p < end && there < n; p += strlen(p) + 1) {
        there++;
    }
    list = calloc(there + 1, sizeof(*list));
    for (size_t i = 0; list && i < there; i++) {
        list[i] = *at;
        *at += strlen(*at) + 1;
    }
    return list;
}

/* What it says stays in memory until the exec. */
static bool read_role(int blob, struct exec_role *ret)
{
    struct buf said = {0};
    struct wire_reader r;
    char *at, *end;
    uint32_t n;

    if (seqsock_blob_read(blob, EXEC_ROLE_MAX, &said, NULL) < 0) {
        return false;
    }
    r = wire_reader(said.data, said.len);
    n = wire_get_u32(&r);
    if (r.bad) {
        return false;
    }
    at = said.data + r.at;
    end = said.data + said.len; /* where buf has put a zero byte */
    ret->argc = (int)n;
    ret->argv = split(&at, end, n);
    environ = ret->argv ? split(&at, end, SIZE_MAX) : NULL;
    return environ && ret->argv[0];
}

void exec_wait(const struct setup *s, struct exec_role *ret)
{
    _seqsock_msg_ struct seqsock_msg m;
    int fd = s->wait_fd;

    exec_tie_to_parent(s);
    close_others(fd);
    seqsock_msg_init(&m);
    if (seqsock_recv(fd, &m) <= 0 || m.type != EXEC_ROLE ||
        !read_role(m.fds[EXEC_ROLE_BLOB], ret) ||
        dup2(m.fds[EXEC_ROLE_OUT], 1) < 0 ||
        dup2(m.fds[EXEC_ROLE_ERR], 2) < 0) {
        leave();
    }
    ret->status_fd = take_fd(&m.fds[EXEC_ROLE_STATUS]);
    ret->gate_fd = take_fd(&m.fds[EXEC_ROLE_GATE]);
    if (seqsock_send(fd, EXEC_ROLE_TAKEN, NULL, NULL, 0) < 0) {
        leave();
    }
    close(fd);
}
