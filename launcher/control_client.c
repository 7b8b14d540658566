/* SPDX-License-Identifier: Apache-2.0 */
/* The commands' side of the control socket, and dropping a request file. */
#include <config.h>

#include "launcher/control.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/control_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(int dir_fd, const char *name)
{
    _close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un sa;

    control_address(dir_fd, name, &sa);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        return -1;
    }
    return take_fd(&fd);
}

static int wait_readable(int fd, uint64_t deadline_ms, struct error *e)
{
    uint64_t now = clock_mono_ms();
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    int rc;

    if (now >= deadline_ms) {
        return error_text(e, ETIMEDOUT, "the run did not answer in time");
    }
    rc = poll(&pfd, 1, (int)(deadline_ms - now));
    if (rc < 0 && errno != EINTR) {
        return error_set(e, errno, "wait for the run's answer");
    }
    return 0;
}

static int read_line(int fd, unsigned timeout_ms, struct buf *line,
                     struct error *e)
{
    uint64_t deadline_ms = clock_mono_ms() + timeout_ms;

    while (!line->len || line->data[line->len - 1] != '\n') {
        int rc = wait_readable(fd, deadline_ms, e);
        char part[4096];
        ssize_t n;

        if (rc < 0) {
            return rc;
        }
        n = recv(fd, part, sizeof(part), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            return error_text(e, ERR_LOST, "the run closed the connection "
                              "without an answer");
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return error_set(e, errno, "read the run's answer");
        }
        buf_append(line, part, n > 0 ? (size_t)n : 0);
        if (line->failed || line->len > CONTROL_MAX_ANSWER) {
            return error_text(e, ERR_FORMAT, "the run's answer is too long");
        }
    }
    return 0;
}

static int send_line(int fd, const json_t *request, struct error *e)
{
    char *text = json_dumps(request, JSON_COMPACT);
    size_t len = text ? strlen(text) : 0;
    int rc = 0;

    if (!text) {
        return error_set(e, ENOMEM, "write a request");
    }
    text[len] = '\n'; /* in place of the terminator */
    for (size_t at = 0; at <= len && rc == 0;) {
        ssize_t n = send(fd, text + at, len + 1 - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            rc = error_text(e, ERR_LOST, "send to the run: %s",
                            strerror(errno));
        }
        at += n > 0 ? (size_t)n : 0;
    }
    free(text);
    return rc;
}

static int ask_one(int fd, const json_t *request, unsigned timeout_ms,
                   json_t **ret_reply, struct error *e)
{
    _buf_ struct buf line = {0};
    json_error_t je;
    json_t *reply;
    int rc = send_line(fd, request, e);

    rc = rc < 0 ? rc : read_line(fd, timeout_ms, &line, e);
    if (rc < 0) {
        return rc;
    }
    reply = json_loadb(line.data, line.len, 0, &je);
    if (!json_is_object(reply)) {
        json_decref(reply);
        return error_text(e, ERR_FORMAT, "the run's answer is no JSON object");
    }
    *ret_reply = reply;
    return 0;
}

static int only_sockets(const struct dirent *d)
{
    return str_ends(d->d_name, CONTROL_SUFFIX) &&
           strlen(d->d_name) < CONTROL_NAME_SIZE;
}

/* Who answers for nobody but itself says so, and the next one is asked, too. */
static bool is_whole_answer(const json_t *reply)
{
    return !json_is_true(json_object_get(reply, "alone"));
}

/* Sockets whose owner died, or is just leaving, are passed over. */
int control_ask(const char *run_id, const json_t *request, unsigned timeout_ms,
                json_t **ret_reply, struct error *e)
{
    struct dirent **names = NULL;
    _close_ int dir_fd = -1;
    int n, rc = control_open_dir(run_id, false, &dir_fd, e);
    bool is_done = false, has_reply = false;

    if (rc < 0) {
        return rc;
    }
    rc = error_text(e, ENOENT, "nobody of run %s listens on this host",
                    run_id);
    n = scandirat(dir_fd, ".", &names, only_sockets, alphasort);
    for (int i = 0; i < n; i++) {
        _close_ int fd = is_done ? -1 : connect_to(dir_fd, names[i]->d_name);

        if (fd >= 0 && has_reply) {
            json_decref(*ret_reply);
            has_reply = false;
        }
        if (fd >= 0) {
            rc = ask_one(fd, request, timeout_ms, ret_reply, e);
            has_reply = rc == 0;
            is_done = has_reply ? is_whole_answer(*ret_reply)
                                : rc != -ERR_LOST;
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

static int only_agents(const struct dirent *d)
{
    return only_sockets(d) && str_starts(d->d_name, "agent-");
}

/* 0 only for an answer that says yes. */
static int ask_agent(int fd, const json_t *request, unsigned timeout_ms,
                     json_t **ret_reply, struct error *e)
{
    json_t *reply = NULL;
    const char *text;
    int rc = ask_one(fd, request, timeout_ms, &reply, e);

    if (rc == 0 && !json_is_true(json_object_get(reply, "ok"))) {
        text = json_string_value(json_object_get(reply, "text"));
        rc = error_text(e, EPERM, "%s", text ? text : "no reason given");
        json_decref(reply);
    } else if (rc == 0) {
        *ret_reply = reply;
    }
    return rc;
}

int control_ask_agents(const char *run_id, const json_t *request,
                       unsigned timeout_ms, json_t **ret_reply,
                       struct error *e)
{
    struct dirent **names = NULL;
    _close_ int dir_fd = -1;
    int n, rc = control_open_dir(run_id, false, &dir_fd, e);

    if (rc < 0) {
        return rc;
    }
    rc = error_text(e, ENOENT, "no agent of run %s listens on this host",
                    run_id);
    n = scandirat(dir_fd, ".", &names, only_agents, alphasort);
    for (int i = 0; i < n; i++) {
        _close_ int fd = rc == 0 ? -1 : connect_to(dir_fd, names[i]->d_name);

        if (fd >= 0) {
            rc = ask_agent(fd, request, timeout_ms, ret_reply, e);
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

bool control_is_heard(const char *run_id)
{
    struct dirent **names = NULL;
    _close_ int dir_fd = -1;
    bool is_heard = false;
    int n = control_open_dir(run_id, false, &dir_fd, NULL) < 0
                ? 0 : scandirat(dir_fd, ".", &names, only_sockets, alphasort);

    for (int i = 0; i < n; i++) {
        _close_ int fd = is_heard ? -1 : connect_to(dir_fd, names[i]->d_name);

        is_heard = is_heard || fd >= 0;
        free(names[i]);
    }
    free(names);
    return is_heard;
}

int control_drop(const char *run_dir, const json_t *request, char *ret_path,
                 struct error *e)
{
    char *text = json_dumps(request, JSON_COMPACT);
    char path[PATH_MAX];
    unsigned salt = 0;
    int rc;

    if (!text) {
        return error_set(e, ENOMEM, "write a request");
    }
    if (getrandom(&salt, sizeof(salt), 0) < 0) {
        salt = (unsigned)getpid();
    }
    rc = fs_path(path, sizeof(path), e, "%s/control/%020llu-%08x.json", run_dir,
                 (unsigned long long)clock_wall_ns(), salt);
    rc = rc < 0 ? rc : fs_write_atomic(path, text, strlen(text), e);
    free(text);
    if (rc == 0 && ret_path) {
        str_copy(ret_path, PATH_MAX, path);
    }
    return rc;
}
