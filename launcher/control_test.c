/* SPDX-License-Identifier: Apache-2.0 */
/* The loop runs in this thread; clients are a thread each, as commands are
 * processes of their own. */
#include <config.h>

#include "launcher/control_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/control_path.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A client's call, and what came of it. */
struct call {
    int (*run)(struct call *c);
    const char *run_id, *text;
    int rc;
    json_t *reply;
    struct error e;
    atomic_bool done;
};

static void *client(void *arg)
{
    struct call *c = arg;

    c->rc = c->run(c);
    atomic_store(&c->done, true);
    return NULL;
}

static void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* Turns the loop until the client has its answer. */
static void run_client(uv_loop_t *loop, struct call *c)
{
    uint64_t end = clock_mono_ms() + BED_WAIT_MS;
    uv_timer_t tick;
    pthread_t thread;

    uv_timer_init(loop, &tick);
    uv_timer_start(&tick, on_tick, 1, 1);
    pthread_create(&thread, NULL, client, c);
    while (!atomic_load(&c->done) && clock_mono_ms() < end) {
        uv_run(loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    pthread_join(thread, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
}

static int ask(struct call *c)
{
    json_t *request = json_loads(c->text, 0, NULL);
    int rc = control_ask(c->run_id, request, BED_WAIT_MS, &c->reply, &c->e);

    json_decref(request);
    return rc;
}

static int connect_raw(const char *run_id)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char dir[PATH_MAX];

    fs_runtime_dir(dir, sizeof(dir), NULL);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.60s/%.20s/front.ctl", dir,
             run_id);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        bail_out("connect %s", sa.sun_path);
    }
    return fd;
}

/* Sends bytes as they are; the number of lines that came back before the end. */
static int send_raw(struct call *c)
{
    _close_ int fd = connect_raw(c->run_id);
    char back[4096];
    int lines = 0;
    ssize_t n;

    if (send(fd, c->text, strlen(c->text), MSG_NOSIGNAL) < 0) {
        return 0;
    }
    shutdown(fd, SHUT_WR);
    while ((n = recv(fd, back, sizeof(back), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            lines += back[i] == '\n';
        }
    }
    return lines;
}

static void test_ask(void)
{
    static const struct {
        const char *request, *text;
        bool ok;
    } cases[] = {
        {"{\"v\":1,\"op\":\"cancel\",\"force\":true}", "as you say", true},
        {"{\"v\":1,\"op\":\"fail\"}", "cannot do that", false},
        {"{\"v\":2,\"op\":\"cancel\"}", "newer muster", false},
        {"{\"v\":1}", "expected an object", false},
        {"{}", "expected an object", false},
    };
    struct control_server *s = NULL;
    struct seen seen = {0};
    struct error e = {0};
    char path[PATH_MAX];
    struct stat st;
    uv_loop_t loop;

    uv_loop_init(&loop);
    is_int(control_server_create(&loop, "run1", "front", bed_on_request,
                                 &seen, &s, &e), 0, "listening: %s", e.text);
    fs_runtime_dir(path, sizeof(path) - 32, NULL);
    strncat(path, "/run1/front.ctl", 32);
    ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "private socket");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct call c = {.run = ask, .run_id = "run1",
                         .text = cases[i].request};

        run_client(&loop, &c);
        is_int(c.rc, 0, "ask %zu: %s", i, c.e.text);
        ok(json_is_true(json_object_get(c.reply, "ok")) == cases[i].ok,
           "ask %zu: ok or not", i);
        like(json_string_value(json_object_get(c.reply, "text")),
             cases[i].text, "ask %zu: text", i);
        json_decref(c.reply);
    }
    is_int(seen.n, 2, "only what is a request was handed over");
    control_server_destroy(s);
    bed_close_loop(&loop);
    ok(stat(path, &st) < 0, "the socket is gone");
}

static void test_hostile(void)
{
    static const struct {
        const char *bytes;
        int lines;
    } cases[] = {
        {"", 0},
        {"\n", 1},
        {"nonsense\n", 1},
        {"{\"v\":1,\"op\":\"a\"}\n{\"v\":1,\"op\":\"b\"}\n", 2},
        {"{\"v\":1,\"op\":\"never ended\"}", 0},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n", 1},
        {"\xff\xfe\n", 1},
    };
    struct control_server *s = NULL;
    struct seen seen = {0};
    struct call big = {.run = send_raw, .run_id = "run2"};
    _free_ char *bytes = malloc(200001);
    uv_loop_t loop;

    uv_loop_init(&loop);
    control_server_create(&loop, "run2", "front", bed_on_request, &seen,
                          &s, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct call c = {.run = send_raw, .run_id = "run2",
                         .text = cases[i].bytes};

        run_client(&loop, &c);
        is_int(c.rc, cases[i].lines, "hostile %zu: answers", i);
    }
    is_int(seen.n, 2, "two requests");
    memset(bytes, 'x', 200000);
    bytes[200000] = '\0';
    big.text = bytes;
    run_client(&loop, &big);
    is_int(big.rc, 0, "a line without end is cut off");
    control_server_destroy(s);
    bed_close_loop(&loop);
}

/* More connections than are served, all silent: the rest is closed, and the
 * server goes away with them open. */
static void test_many(void)
{
    struct control_server *s = NULL;
    struct seen seen = {0};
    int fds[40], n_closed = 0;
    uv_loop_t loop;
    char c;

    uv_loop_init(&loop);
    control_server_create(&loop, "run3", "front", bed_on_request, &seen,
                          &s, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = connect_raw("run3");
    }
    for (int i = 0; i < 100; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        n_closed += recv(fds[i], &c, 1, MSG_DONTWAIT) == 0;
    }
    is_int(n_closed, 8, "beyond 32 they are closed");
    control_server_destroy(s);
    bed_close_loop(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        close(fds[i]);
    }
}

static void *accept_and_close(void *arg)
{
    int fd = accept(*(int *)arg, NULL, NULL);

    close(fd);
    return NULL;
}

/* An agent that goes just when it is asked: the next one of the run answers. */
static void test_one_dies(void)
{
    struct control_server *s = NULL;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct call c = {.run = ask, .run_id = "run7",
                     .text = "{\"v\":1,\"op\":\"x\"}"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct seen seen = {0};
    char dir[PATH_MAX];
    pthread_t thread;
    uv_loop_t loop;

    uv_loop_init(&loop);
    control_server_create(&loop, "run7", "front", bed_on_request, &seen,
                          &s, NULL);
    fs_runtime_dir(dir, sizeof(dir), NULL);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.80s/run7/agent-0.ctl", dir);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 1) < 0) {
        bail_out("listen at %s", sa.sun_path);
    }
    pthread_create(&thread, NULL, accept_and_close, &fd);
    run_client(&loop, &c);
    pthread_join(thread, NULL);
    is_int(c.rc, 0, "asked after one that died: %s", c.e.text);
    is_int(seen.n, 1, "the other one was");
    json_decref(c.reply);
    close(fd);
    unlink(sa.sun_path);
    control_server_destroy(s);
    bed_close_loop(&loop);
}

/* Connections that ask nothing, or a byte at a time without an end, are closed
 * after some time. */
static void test_idle(void)
{
    uint64_t end = clock_mono_ms() + 60000;
    struct control_server *s = NULL;
    struct seen seen = {0};
    int fds[2], n_closed = 0;
    uv_timer_t tick;
    uv_loop_t loop;

    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 50, 50);
    control_server_create(&loop, "run5", "front", bed_on_request, &seen,
                          &s, NULL);
    fds[0] = connect_raw("run5");
    fds[1] = connect_raw("run5");
    while (n_closed < 2 && clock_mono_ms() < end) {
        uv_run(&loop, UV_RUN_ONCE);
        if (fds[1] >= 0 && send(fds[1], "{", 1, MSG_NOSIGNAL) < 0) {
            close_fd(&fds[1]);
            n_closed++;
        }
        if (fds[0] >= 0 && recv(fds[0], &(char){0}, 1, MSG_DONTWAIT) == 0) {
            close_fd(&fds[0]);
            n_closed++;
        }
    }
    ok(fds[0] < 0, "a silent client is given up");
    ok(fds[1] < 0, "and so is one that never comes to an end");
    close_fd(&fds[0]);
    close_fd(&fds[1]);
    uv_close((uv_handle_t *)&tick, NULL);
    control_server_destroy(s);
    bed_close_loop(&loop);
}

/* Only this user finds the socket, and only this user (or root) is heard. */
static void test_other_user(void)
{
    struct control_server *s = NULL;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    _close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct seen seen = {0};
    char dir[PATH_MAX], path[PATH_MAX];
    mode_t old = umask(0);
    struct stat st;
    uv_loop_t loop;
    char c;

    uv_loop_init(&loop);
    control_server_create(&loop, "run6", "front", bed_on_request, &seen,
                          &s, NULL);
    umask(old);
    fs_runtime_dir(dir, sizeof(dir), NULL);
    fs_path(path, sizeof(path), NULL, "%s/run6", dir);
    is_int(stat(path, &st) < 0 ? 0 : st.st_mode & 07777, 0700,
           "the folder of the socket is private");
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.80s/front.ctl", path);
    is_int(stat(sa.sun_path, &st) < 0 ? 0 : st.st_mode & 07777, 0600,
           "and so is the socket");
    if (geteuid() == 0) {
        /* As if both were open. */
        chmod(getenv("XDG_RUNTIME_DIR"), 0711);
        chmod(dir, 0711);
        chmod(path, 0711);
        chmod(sa.sun_path, 0666);
        if (seteuid(65534) < 0) {
            bail_out("seteuid");
        }
        is_int(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0,
               "another user comes to an open one");
        /* Leak checkers cannot look into what has changed its user. */
        if (seteuid(0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0) {
            bail_out("seteuid");
        }
        for (int i = 0; i < 100; i++) {
            uv_run(&loop, UV_RUN_NOWAIT);
        }
        is_int((int)recv(fd, &c, 1, MSG_DONTWAIT), 0, "and is sent away");
    } else {
        skip("only root can stand for two users");
    }
    control_server_destroy(s);
    bed_close_loop(&loop);
}

static void test_nobody(void)
{
    char dir[PATH_MAX], path[PATH_MAX];
    json_t *request = json_pack("{s:i,s:s}", "v", 1, "op", "cancel");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    _close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    _close_ int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    json_t *reply = NULL;
    struct error e = {0};

    is_int(control_ask("nobody", request, 100, &reply, &e), -ENOENT, "no run");
    is_int(control_ask("../x", request, 100, &reply, &e), -EINVAL, "no id");
    /* A socket whose owner was killed. */
    fs_runtime_dir(dir, sizeof(dir), NULL);
    fs_path(path, sizeof(path), NULL, "%s/run4", dir);
    mkdir(path, 0700);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.80s/dead.ctl", path);
    is_int(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0, "dead socket");
    is_int(control_ask("run4", request, 100, &reply, &e), -ENOENT,
           "a dead one is passed over");
    fs_path(path, sizeof(path), NULL, "%s/run4/other.sock", dir);
    str_copy(sa.sun_path, sizeof(sa.sun_path), path);
    is_int(bind(other, (struct sockaddr *)&sa, sizeof(sa)), 0, "a stranger");
    is_int(listen(other, 1), 0, "which listens");
    is_int(control_ask("run4", request, 100, &reply, &e), -ENOENT,
           "is not asked");
    is_int(listen(fd, 1), 0, "one that never answers");
    is_int(control_ask("run4", request, 100, &reply, &e), -ETIMEDOUT,
           "is given up on");
    json_decref(request);
}

int main(void)
{
    char dir[] = "/tmp/control-test-XXXXXX";

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    setenv("XDG_RUNTIME_DIR", dir, 1);
    test_ask();
    test_hostile();
    test_many();
    test_one_dies();
    test_idle();
    test_other_user();
    test_nobody();
    control_server_destroy(NULL);
    fs_remove_tree(dir, NULL);
    return tap_done();
}
