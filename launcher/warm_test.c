/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a warm interpreter, with the Python of this machine and modules of
 * no size. What its workers are like is the matter of tests/t2106-warm.t.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/turn_bed.h"
#include "launcher/warm.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

static uv_loop_t loop;
static struct child_table *table;
static char exec_path[PATH_MAX], hook_dir[PATH_MAX];

struct told {
    int n;
    int n_over;
    char text[600];
};

static void on_told(void *arg, const char *text, bool is_over)
{
    struct told *t = arg;

    t->n++;
    t->n_over += is_over;
    str_copy(t->text, sizeof(t->text), text);
}

static struct warm *make(const char *module, unsigned import_ms,
                         struct told *told)
{
    static char *const argv[] = {(char *)PYTHON, (char *)"-c",
        (char *)"import sys; print(sys.argv); sys.exit(int(sys.argv[1]))",
        (char *)"0", NULL};
    _strlist_ struct strlist modules = {0};
    struct warm_config config = {
        .loop = &loop, .children = table, .exec_path = exec_path,
        .hook_dir = hook_dir, .argv = argv, .envp = environ,
        .modules = &modules, .import_ms = import_ms, .on_told = on_told,
        .arg = told,
    };
    struct error e = {0};
    struct warm *w = NULL;

    strlist_add(&modules, module);
    if (warm_create(&config, &w, &e) < 0) {
        bail_out("%s", e.text);
    }
    return w;
}

static void finish(struct warm *w)
{
    warm_destroy(w);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int((int)child_count(table), 0, "nobody is left");
}

static void on_exit_seen(void *arg, const struct child_exit *how)
{
    *(int *)arg = 1 + (how->signal ? 1000 + how->signal : how->code);
}

static void test_worker(void)
{
    static char *const argv[] = {(char *)PYTHON, (char *)"-c",
        (char *)"import sys; print(sys.argv); sys.exit(int(sys.argv[1]))",
        (char *)"5", (char *)"six", NULL};
    struct told told = {0};
    struct warm *w = make("decimal", 0, &told);
    int out[2], status[2], gate[2], ended = 0;
    struct warm_job job = {.argv = argv, .envp = environ};
    struct error e = {0};
    char text[100] = "";
    pid_t pid = -1;

    warm_fill(w, 2);
    ok(turn_until(&loop, &told.n, 1), "it gets ready");
    like(told.text, "has imported decimal (", "and says so");
    is_int((int)warm_waiting(w), 2, "two wait");
    is_int((int)child_count(table), 3, "and are our children");
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0) {
        bail_out("no pipes");
    }
    job.out_fd = job.err_fd = out[1];
    job.status_fd = status[1];
    job.gate_fd = gate[1];
    is_int(warm_start(w, &job, on_exit_seen, &ended, &pid, &e), 0,
           "one becomes a worker");
    ok(child_is_known(table, pid), "which is our child");
    close(status[1]);
    is_int((int)write(gate[0], "g", 1), 1, "it is let go");
    is_int((int)read(status[0], text, 1), 0, "it begins");
    turn_until(&loop, &ended, 1);
    is_int(ended, 6, "its status is its own");
    is_int((int)read(out[0], text, sizeof(text) - 1), 19, "it prints");
    like(text, "['-c', '5', 'six']", "its arguments are its own");
    is_int((int)warm_waiting(w), 1, "one is left");
    close(out[0]);
    close(out[1]);
    close(status[0]);
    close(gate[0]);
    close(gate[1]);
    finish(w);
}

/* One that the gate does not let go ends, as under muster-exec. */
static void test_gate(void)
{
    static char *const argv[] = {(char *)PYTHON, (char *)"-c",
        (char *)"import sys; print(sys.argv); sys.exit(int(sys.argv[1]))",
        (char *)"5", NULL};
    struct told told = {0};
    struct warm *w = make("decimal", 0, &told);
    int status[2], gate[2], ended = 0;
    struct warm_job job = {.id = 3, .argv = argv, .envp = environ};
    char record[20] = "";
    pid_t pid = -1;

    warm_fill(w, 1);
    turn_until(&loop, &told.n, 1);
    if (pipe2(status, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0) {
        bail_out("no pipes");
    }
    job.out_fd = job.err_fd = 2;
    job.status_fd = status[1];
    job.gate_fd = gate[1];
    is_int(warm_start(w, &job, on_exit_seen, &ended, &pid, NULL), 0, "started");
    is_int(warm_start(w, &job, on_exit_seen, &ended, &pid, NULL), -EAGAIN,
           "a second one is not there");
    close(gate[0]);
    close(gate[1]);
    close(status[1]);
    turn_until(&loop, &ended, 1);
    is_int(ended, 127, "126: called off");
    is_int((int)read(status[0], record, sizeof(record)), 20, "one record");
    is_int(record[7], 3, "with its id");
    is_int(record[11], 12, "and the stage");
    close(status[0]);
    finish(w);
}

static void test_late(void)
{
    struct told told = {0};
    char dir[] = "/tmp/warm-test.XXXXXX", path[PATH_MAX];
    struct warm *w;
    FILE *f;

    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    snprintf(path, sizeof(path), "%s/endless.py", dir);
    f = fopen(path, "w");
    fputs("import time\ntime.sleep(1000)\n", f);
    fclose(f);
    setenv("PYTHONPATH", dir, 1);
    w = make("endless", 1000, &told);
    unsetenv("PYTHONPATH");
    warm_fill(w, 1);
    ok(turn_until(&loop, &told.n_over, 1),
       "an import that does not end is over");
    like(told.text, "it has not imported endless in 1 s", "and is named");
    is_int((int)warm_waiting(w), 0, "nobody waits");
    finish(w);
    unlink(path);
    rmdir(dir);
}

/* Destroyed at any moment of its start. */
static void test_destroy(void)
{
    for (int i = 0; i < 12; i++) {
        struct told told = {0};
        struct warm *w = make("decimal", 0, &told);

        warm_fill(w, 2);
        for (int turns = 0; turns < i && told.n == 0; turns++) {
            uv_run(&loop, UV_RUN_ONCE);
        }
        finish(w);
    }
}

/* In the build folder, above this program. */
static void find_helpers(void)
{
    const char *build = getenv("MUSTER_BUILDDIR");
    char self[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    for (int i = 0; i < 2 && n > 0; i++) {
        *strrchr(self, '/') = '\0';
    }
    build = build ? build : self;
    fs_path(exec_path, sizeof(exec_path), NULL, "%s/muster-exec", build);
    fs_path(hook_dir, sizeof(hook_dir), NULL, "%s/muster-warm", build);
}

int main(void)
{
    struct error e = {0};

    if (access(PYTHON, X_OK) < 0) {
        printf("1..0 # SKIP no " PYTHON ": see scripts/install-deps\n");
        return 0;
    }
    uv_loop_init(&loop);
    find_helpers();
    if (child_become_subreaper(&e) < 0 ||
        child_table_create(&loop, &table, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_worker();
    test_gate();
    test_late();
    test_destroy();
    child_table_destroy(table);
    uv_run(&loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&loop), 0, "nothing is left on the loop");
    return tap_done();
}
