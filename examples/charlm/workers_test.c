/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charlm as several processes, with the agent's ends of their sockets in this
 * one: the gradient of N workers is that of one, and reports, checkpoints,
 * stopping, resuming and the loss of a worker go as they should.
 */
#include <config.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/worker_socket.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_MAX = 4, DEADLINE_MS = 60000, RUNNING = -1000 };

extern char **environ;

/* One run of some workers, and what was seen of it. */
struct run {
    uv_loop_t loop;
    uint32_t n;
    struct worker_socket *sockets[N_MAX];
    struct segment *segment;
    pid_t pids[N_MAX];
    int results[N_MAX]; /* exit status, -signal, or RUNNING */
    uint32_t n_hellos;
    int n_reports, n_wrong_reports;
    int64_t step;
    double first_loss, last_loss;
    int n_saved;
    int64_t saved_step;
    char saved_path[WORKER_PATH_SIZE];
    char resume_path[WORKER_PATH_SIZE];
    void (*on_step)(struct run *r);
};

static char dir[] = "/tmp/charlm-workers-XXXXXX";
static const char *program;

static const char *path_in(const char *name, int i, char *to)
{
    snprintf(to, 128, "%s/%s%d", dir, name, i);
    return to;
}

static void on_hello(void *arg, uint32_t local_rank, int pid)
{
    struct run *r = arg;
    struct segment_spec spec = {
        .generation = 1, .n_nodes = 1, .world = r->n, .n_local = r->n,
        .max_local = r->n,
    };

    (void)local_rank;
    (void)pid;
    r->n_hellos++;
    if (r->n_hellos < r->n) {
        return;
    }
    if (segment_create(&spec, &r->segment, NULL) < 0) {
        bail_out("no segment");
    }
    for (uint32_t i = 0; i < r->n; i++) {
        worker_socket_set_segment(r->sockets[i], r->segment);
    }
}

static void on_report(void *arg, uint32_t local_rank,
                      const struct worker_report *report)
{
    struct run *r = arg;

    r->n_reports++;
    r->n_wrong_reports += local_rank != 0 || report->n_metrics != 3 ||
                          report->step <= r->step ||
                          strcmp(report->metrics[0].name, "loss") != 0 ||
                          strcmp(report->metrics[1].name, "step_time") != 0 ||
                          strcmp(report->metrics[2].name, "throughput") != 0;
    r->step = report->step;
    r->last_loss = report->metrics[0].value;
    if (r->n_reports == 1) {
        r->first_loss = r->last_loss;
    }
    if (r->on_step) {
        r->on_step(r);
    }
}

static void on_saved(void *arg, uint32_t local_rank, const char *path,
                     int64_t step)
{
    struct run *r = arg;

    (void)local_rank;
    r->n_saved++;
    r->saved_step = step;
    str_copy(r->saved_path, sizeof(r->saved_path), path);
}

static const struct worker_socket_ops ops = {
    .on_hello = on_hello,
    .on_report = on_report,
    .on_checkpoint_saved = on_saved,
};

static void listen_for(struct run *r, uint32_t i)
{
    struct worker_welcome who = {
        .rank = i, .world = r->n, .local_rank = i, .local_world = r->n,
        .n_nodes = 1, .generation = 1,
    };
    struct error e = {0};
    char path[128];

    str_copy(who.run_dir, sizeof(who.run_dir), dir);
    str_copy(who.resume_path, sizeof(who.resume_path), r->resume_path);
    if (worker_socket_create(&r->loop, path_in("socket", (int)i, path), &who,
                             &ops, r, &r->sockets[i], &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* Starts worker i with the small model, and `extra` (NULL at its end). */
static void start(struct run *r, uint32_t i, const char *const *extra)
{
    char text[128], out[128], err[128];
    const char *argv[32] = {
        program, "--data", path_in("text", 0, text), "--width", "16",
        "--heads", "2", "--layers", "1", "--context", "16", "--rate", "0.01",
        "--batch", "10", "--sample", "20",
    };
    posix_spawn_file_actions_t actions;
    size_t n = 17;
    int rc;

    while (*extra) {
        argv[n++] = *extra++;
    }
    setenv("MUSTER_SOCKET", worker_socket_path(r->sockets[i]), 1);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path_in("out", (int)i, out),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, path_in("err", (int)i, err),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    rc = posix_spawn(&r->pids[i], program, &actions, NULL, (char **)argv,
                     environ);
    posix_spawn_file_actions_destroy(&actions);
    r->results[i] = RUNNING;
    if (rc != 0) {
        bail_out("start %s: %s", program, strerror(rc));
    }
}

/* As an agent does: who fails ends the collectives of the others. */
static bool all_ended(struct run *r)
{
    bool all = true;

    for (uint32_t i = 0; i < r->n; i++) {
        int status;

        if (r->results[i] == RUNNING &&
            waitpid(r->pids[i], &status, WNOHANG) == r->pids[i]) {
            r->results[i] = WIFEXITED(status) ? WEXITSTATUS(status)
                                              : -WTERMSIG(status);
            if (r->results[i] != 0 && r->segment) {
                segment_abort(r->segment, SEGMENT_ABORT_LOST,
                              "a worker is gone");
            }
        }
        all = all && r->results[i] != RUNNING;
    }
    return all;
}

static void run_workers(struct run *r, uint32_t n, const char *const *extra)
{
    uint64_t deadline_ms = clock_mono_ms() + DEADLINE_MS;

    r->n = n;
    uv_loop_init(&r->loop);
    for (uint32_t i = 0; i < n; i++) {
        listen_for(r, i);
        start(r, i, extra);
    }
    while (!all_ended(r)) {
        if (clock_mono_ms() > deadline_ms) {
            for (uint32_t i = 0; i < n; i++) {
                kill(r->pids[i], SIGKILL);
            }
        }
        uv_run(&r->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    /* What they said last may still be in the sockets. */
    for (int i = 0; i < 10; i++) {
        uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    for (uint32_t i = 0; i < n; i++) {
        worker_socket_destroy(r->sockets[i]);
    }
    uv_run(&r->loop, UV_RUN_DEFAULT);
    uv_loop_close(&r->loop);
    segment_destroy(r->segment);
    r->segment = NULL;
}

/* The first bytes of what worker i wrote to "out" or "err". */
static const char *said(const char *stream, int i)
{
    static char text[4096];
    char path[128];
    FILE *f = fopen(path_in(stream, i, path), "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if (f) {
        fclose(f);
    }
    return text;
}

static void all_exited(const struct run *r, int expected, const char *name)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (!is_int(r->results[i], expected, "%s: worker %u", name, i)) {
            diag("%s", said("err", (int)i));
        }
    }
}

/* The values of a dump, in order; the caller frees them. */
static double *read_dump(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "r");
    double *values = calloc(100000, sizeof(*values));
    size_t n = 0;

    while (f && values && n < 100000 &&
           fscanf(f, "%*s %*u %lf", &values[n]) == 1) {
        n++;
    }
    if (f) {
        fclose(f);
    }
    *ret_n = n;
    return values;
}

static void test_gradients(void)
{
    double *one = NULL;
    size_t n_one = 0;

    for (uint32_t n = 1; n <= N_MAX; n++) {
        char path[128];
        const char *extra[] = {"--steps", "0", "--dump-gradients",
                               path_in("gradient", (int)n, path), NULL};
        struct run r = {0};
        double worst = 0, largest = 0, *values;
        size_t n_values;

        run_workers(&r, n, extra);
        all_exited(&r, 0, "gradient");
        values = read_dump(path, &n_values);
        unlink(path);
        if (n == 1) {
            one = values;
            n_one = n_values;
            ok(n_one > 1000, "%zu gradients of one worker", n_one);
            continue;
        }
        for (size_t i = 0; i < n_values && n_values == n_one; i++) {
            worst = fmax(worst, fabs(values[i] - one[i]));
            largest = fmax(largest, fabs(one[i]));
        }
        ok(n_values == n_one && largest > 0 && worst < 1e-6 * largest,
           "%u workers have the same (error %.2g of %.2g)", n, worst, largest);
        free(values);
    }
    free(one);
}

static void test_trains(void)
{
    const char *extra[] = {"--steps", "60", "--checkpoint-every", "20", NULL};
    struct run r = {0}, again = {0};
    char path[256];

    run_workers(&r, 4, extra);
    all_exited(&r, 0, "training");
    is_int(r.n_reports, 60, "a report each step");
    is_int(r.n_wrong_reports, 0, "of worker 0, in order, with all metrics");
    ok(r.last_loss < r.first_loss - 0.5, "loss falls from %.2f to %.2f",
       r.first_loss, r.last_loss);
    is_int(r.n_saved, 3, "three checkpoints");
    snprintf(path, sizeof(path), "%s/ckpt/charlm-00000060.ckpt", dir);
    is_str(r.saved_path, path, "in the directory of the run");
    like(said("out", 0), "4 workers, generation 1", "worker 0 says so");
    like(said("out", 0), "final loss", "and how it ends");
    is_str(said("out", 1), "", "the others say nothing");

    str_copy(again.resume_path, sizeof(again.resume_path), r.saved_path);
    extra[1] = "70";
    run_workers(&again, 3, extra);
    all_exited(&again, 0, "resumed by three");
    like(said("out", 0), "resumed from step 60", "from the checkpoint");
    is_int(again.n_reports, 10, "for the steps that were left");
    ok(again.last_loss < r.first_loss - 0.5, "with what was learnt");
}

static void ask_at_7(struct run *r)
{
    if (r->step == 7) {
        worker_socket_set_state(r->sockets[2], false, 1);
    }
    if (r->step == 40) {
        worker_socket_set_state(r->sockets[1], true, 1);
    }
}

/* One worker is told, and not the one that saves. */
static void test_stops(void)
{
    const char *extra[] = {"--steps", "1000000", "--checkpoint-every", "0",
                           NULL};
    struct run r = {.on_step = ask_at_7};

    run_workers(&r, 4, extra);
    all_exited(&r, 0, "stopped");
    ok(r.step >= 40 && r.step < 5000, "soon after it was asked (step %d)",
       (int)r.step);
    is_int(r.n_saved, 2, "a checkpoint when asked, one at the end");
    is_int(r.saved_step, r.step, "of the last step");
    like(said("out", 0), "asked to stop", "and says why");
}

static void kill_at_5(struct run *r)
{
    if (r->step == 5) {
        kill(r->pids[2], SIGKILL);
    }
}

static void test_lost(void)
{
    const char *extra[] = {"--steps", "1000000", NULL};
    struct run r = {.on_step = kill_at_5};

    run_workers(&r, 4, extra);
    is_int(r.results[2], -SIGKILL, "a worker is killed");
    is_int(r.results[0], 1, "worker 0 fails");
    is_int(r.results[1], 1, "worker 1 fails");
    is_int(r.results[3], 1, "worker 3 fails");
    like(said("err", 3), "worker 3 of 4: ", "says which it is");
    like(said("err", 3), " step ", "in what step");
    like(said("err", 3), "a worker is gone", "and why");
}

static void test_refuses(void)
{
    const char *extra[] = {"--steps", "10", NULL};
    struct run r = {0};
    char path[128];
    FILE *f = fopen(path_in("bad", 0, path), "w");

    if (!f || fputs("CHARLM\r\n", f) < 0 || fclose(f) != 0) {
        bail_out("cannot write %s", path);
    }
    str_copy(r.resume_path, sizeof(r.resume_path), path);
    run_workers(&r, 2, extra);
    all_exited(&r, 1, "a damaged checkpoint");
    like(said("err", 0), path, "worker 0 names it");
    like(said("err", 1), path, "and so does worker 1");
    is_int(r.n_reports, 0, "no step is taken");
}

static void write_text(void)
{
    char path[128];
    FILE *f = fopen(path_in("text", 0, path), "w");

    for (int i = 0; f && i < 300; i++) {
        fprintf(f, "line %d: the quick brown fox and %d lazy dogs\n", i, i * i);
    }
    if (!f || fclose(f) != 0) {
        bail_out("cannot write %s", path);
    }
}

static void find_program(char *to, size_t size)
{
    const char *build = getenv("MUSTER_BUILDDIR");

    snprintf(to, size, "%s/examples/charlm/charlm", build ? build : ".");
    if (access(to, X_OK) < 0) {
        bail_out("no %s", to);
    }
    program = to;
}

int main(void)
{
    char path[4096];
    struct error e = {0};

    find_program(path, sizeof(path));
    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    unsetenv("MUSTER_RESUME_PATH");
    write_text();
    test_gradients();
    test_trains();
    test_stops();
    test_lost();
    test_refuses();
    is_int(fs_remove_tree(dir, &e), 0, "nothing is left");
    return tap_done();
}
