/* SPDX-License-Identifier: Apache-2.0 */
/* The shared library as a program finds it, without an agent. */
#include <config.h>

#include "muster.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_alone(struct muster *m)
{
    is_int(muster_rank(m), 0, "rank");
    is_int(muster_world(m), 1, "world");
    is_int(muster_local_rank(m), 0, "local rank");
    is_int(muster_local_world(m), 1, "local world");
    is_int(muster_node(m), 0, "node");
    is_int(muster_n_nodes(m), 1, "nodes");
    is_int(muster_generation(m), 1, "generation");
    ok(muster_run_dir(m) == NULL, "no run directory");
    ok(muster_resume_path(m) == NULL, "nothing to resume");
    is_int(muster_should_stop(m), 0, "no stop");
    is_int(muster_checkpoint_requested(m), 0, "no checkpoint");
    is_int(muster_checkpoint_saved(m, "ckpt/5", 5), 0, "saved");
    is_int(muster_barrier(m), 0, "barrier");
    is_str(muster_error_text(m), "", "no failure so far");
}

static void test_collectives(struct muster *m)
{
    float x[3] = {1, 2.5f, -3}, y[3] = {0};
    char data[] = "unchanged";

    is_int(muster_allreduce(m, x, y, 3, MUSTER_FLOAT32, MUSTER_SUM), 0, "sum");
    ok(memcmp(x, y, sizeof(x)) == 0, "is the input");
    is_int(muster_allreduce(m, x, x, 3, MUSTER_FLOAT32, MUSTER_MAX), 0,
           "in place");
    is_int(muster_allreduce(m, NULL, NULL, 0, MUSTER_INT64, MUSTER_MIN), 0,
           "nothing");
    is_int(muster_broadcast(m, data, sizeof(data), 0), 0, "broadcast");
    is_str(data, "unchanged", "of one's own");
    is_int(muster_broadcast(m, NULL, 0, 0), 0, "broadcast of nothing");
}

static void test_arguments(struct muster *m)
{
    char long_path[5000], data[64];
    struct muster_metric many[65], one = {"loss", NAN};
    static const char *const bad[] = {
        "", "a b", "a\n", "\xc3\xa9", NULL,
        "0123456789012345678901234567890123456789012345678901234567890123x",
    };

    is_int(muster_init(NULL), -EINVAL, "init of nothing");
    is_int(muster_allreduce(NULL, data, data, 1, 0, 0), -EINVAL, "no handle");
    is_int(muster_allreduce(m, data, data, 1, 5, 0), -EINVAL, "type");
    like(muster_error_text(m), "type 5", "says so");
    is_int(muster_allreduce(m, data, data, 1, -1, 0), -EINVAL, "negative type");
    is_int(muster_allreduce(m, data, data, 1, 0, 3), -EINVAL, "operation");
    is_int(muster_allreduce(m, NULL, data, 1, 0, 0), -EINVAL, "NULL send");
    is_int(muster_allreduce(m, data, NULL, 1, 0, 0), -EINVAL, "NULL recv");
    is_int(muster_allreduce(m, data, data + 4, 2, MUSTER_FLOAT32, 0), -EINVAL,
           "overlap");
    is_int(muster_allreduce(m, data, data + 8, 2, MUSTER_FLOAT32, 0), 0,
           "side by side");
    is_int(muster_allreduce(m, data, data, SIZE_MAX / 2, MUSTER_FLOAT64, 0),
           -EINVAL, "size overflow");
    is_int(muster_broadcast(m, data, 1, 1), -EINVAL, "root too big");
    is_int(muster_broadcast(m, data, 1, -1), -EINVAL, "root negative");
    is_int(muster_broadcast(m, NULL, 1, 0), -EINVAL, "NULL data");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct muster_metric b = {bad[i], 1};

        is_int(muster_report(m, 1, &b, 1), -EINVAL, "metric name %zu", i);
    }
    for (size_t i = 0; i < 65; i++) {
        many[i] = one;
    }
    is_int(muster_report(m, 1, many, 64), 0, "64 metrics");
    is_int(muster_report(m, 1, many, 65), -EINVAL, "65 metrics");
    is_str(muster_error_text(m), "report: 65 metrics, at most 64", "are too many");
    is_int(muster_report(m, -1, NULL, 0), 0, "no metrics");
    is_int(muster_report(m, 1, NULL, 1), -EINVAL, "NULL metrics");
    is_str(muster_error_text(m), "report: 1 metrics, and NULL for them", "which is said");
    is_int(muster_checkpoint_saved(m, "", 1), -EINVAL, "empty path");
    is_int(muster_checkpoint_saved(m, NULL, 1), -EINVAL, "NULL path");
    is_int(muster_should_stop(NULL), -EINVAL, "no handle to ask");
    is_int(muster_checkpoint_requested(NULL), -EINVAL, "nor whether to save");
    is_int(muster_barrier(NULL), -EINVAL, "nor to wait with");
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    is_int(muster_checkpoint_saved(m, long_path, 1), -ENAMETOOLONG, "long path");
    is_int(muster_barrier(m), 0, "bad arguments break nothing");
}

static void test_forked(struct muster *m)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(muster_barrier(m) == -EINVAL ? 7 : 1);
    }
    waitpid(pid, &status, 0);
    is_int(WEXITSTATUS(status), 7, "a forked child is not the worker");
}

static void test_no_agent(void)
{
    struct muster *m = NULL;
    char long_path[200];

    setenv("MUSTER_SOCKET", "/nonexistent/socket", 1);
    is_int(muster_init(&m), -ECONNREFUSED, "agent gone");
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    setenv("MUSTER_SOCKET", long_path, 1);
    is_int(muster_init(&m), -ENAMETOOLONG, "path of 199 bytes");
    ok(m == NULL, "not written");
    setenv("MUSTER_SOCKET", "", 1);
    is_int(muster_init(&m), 0, "empty is none");
    muster_finalize(m);
    muster_finalize(NULL);
}

/* `mpirun muster exec`: numbers, and no agent. */
static void test_rank_alone(void)
{
    struct muster *m = NULL;
    int32_t mine = 1, sum = 0;

    setenv("MUSTER_RANK", "1", 1);
    setenv("MUSTER_WORLD_SIZE", "4", 1);
    is_int(muster_init(&m), 0, "the numbers of a rank");
    is_int(muster_world(m), 1, "mean nothing by themselves");
    muster_finalize(m);
    setenv("MUSTER_SEAT", "1.2", 1);
    is_int(muster_init(&m), 0, "one that muster exec started");
    is_int(muster_rank(m), 1, "has its rank");
    is_int(muster_world(m), 4, "and its world");
    is_int(muster_report(m, 1, NULL, 0), 0, "its reports go nowhere");
    is_int(muster_allreduce(m, &mine, &sum, 1, MUSTER_INT32, MUSTER_SUM),
           -ENOTCONN, "it does not add up alone");
    like(muster_error_text(m), "muster run -- mpirun -n 4 PROGRAM",
         "and says what to do");
    is_int(muster_barrier(m), -ENOTCONN, "nor is there a barrier");
    muster_finalize(m);
    unsetenv("MUSTER_SEAT");
    unsetenv("MUSTER_RANK");
    unsetenv("MUSTER_WORLD_SIZE");
}

int main(void)
{
    struct muster *m = NULL;

    unsetenv("MUSTER_SOCKET");
    if (muster_init(&m) < 0) {
        bail_out("muster_init");
    }
    test_alone(m);
    test_collectives(m);
    test_arguments(m);
    test_forked(m);
    muster_finalize(m);
    test_no_agent();
    test_rank_alone();
    return tap_done();
}
