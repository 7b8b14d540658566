/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/str.h"
#include "launcher/commands.h"
#include "launcher/front.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int become_companion(const struct strlist *argv)
{
    struct error e = {0};
    char helper[PATH_MAX];

    if (fs_helper("muster-mpi", helper, sizeof(helper), &e) == 0) {
        execv(helper, argv->items);
        error_set(&e, errno, "run %s", helper);
    }
    return command_fail(&e);
}

/* Rank 0 of `mpirun ... muster run`: a child shows the run, this process goes
 * on as muster-mpi. There is one thread here, and no loop yet. */
static int run_as_first(const struct run_options *o, struct spec_result *r,
                        struct strlist *argv)
{
    _cleanup_(rundir) struct rundir *dir = NULL;
    _run_config_ struct run_config config = {0};
    struct front_config front = {.run = &config, .is_quiet = o->quiet,
                                 .loopback = true, .by_hand = true};
    _secret_ uint8_t *key = secret_alloc(JOB_KEY_BYTES);
    struct error e = {0};
    uint16_t port = 0;
    int ends[2];
    pid_t pid;

    if (run_make_dir(o, r->job, &dir, key, &e) < 0 ||
        run_make_config(r, &config, &e) < 0 ||
        run_take_up(dir, o, &config, &e) < 0 ||
        run_mark_dir(dir, &config, &e) < 0) {
        return command_fail(&e);
    }
    if (o->cwd) {
        str_copy(config.cwd, sizeof(config.cwd), o->cwd);
    }
    front.cwd = config.cwd;
    front.plan.agent_is_node = o->agent_is_node;
    config.by_hand = true;
    config.detach_ms = UINT64_MAX;
    if (pipe2(ends, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        error_set(&e, errno, "start the front end");
        return command_fail(&e);
    }
    if (pid == 0) {
        close(ends[0]);
        front.dir = dir;
        front.key = key;
        secret_forget();
        front.port_fd = ends[1];
        if (rundir_inherit(dir, &e) < 0) {
            _exit(command_fail(&e));
        }
        _exit(front_run(&front));
    }
    close(ends[1]);
    if (read(ends[0], &port, sizeof(port)) != sizeof(port)) {
        return EXIT_FAILED; /* the child said why */
    }
    strlist_addf(argv, "--run-id=%s", dir->id);
    strlist_addf(argv, "--run-dir=%s", dir->path);
    strlist_addf(argv, "--front=127.0.0.1:%u", port);
    dir->lock_fd = -1; /* the child holds the lock */
    return become_companion(argv);
}

int run_by_hand(const struct run_options *o, struct spec_result *r)
{
    const char *rank = getenv(slurm_is_mpi_launch() ? "PMIX_RANK"
                                                    : "OMPI_COMM_WORLD_RANK");
    _strlist_ struct strlist argv = {0};

    if (r->job->suspend) {
        struct front_record was = {.by_hand = true, .agents_per_host = 1};

        return rank && strcmp(rank, "0") != 0 ? EXIT_RESUMABLE
                                              : run_make_suspended(o, r, &was);
    }
    strlist_add(&argv, "muster-mpi");
    strlist_add(&argv, "--by-hand");
    strlist_addf(&argv, "--gather-seconds=%llu",
                 (unsigned long long)r->job->gang_timeout_ms / 1000 + 1);
    if (o->agent_is_node) {
        strlist_add(&argv, "--agent-is-node");
    }
    if (job_interface(r->job)) {
        strlist_addf(&argv, "--interface=%s", job_interface(r->job));
    }
    if (o->insecure) {
        strlist_add(&argv, "--insecure-bootstrap");
    }
    if (o->key_file) {
        strlist_addf(&argv, "--key-file=%s", o->key_file);
    }
    return rank && strcmp(rank, "0") != 0 ? become_companion(&argv)
                                          : run_as_first(o, r, &argv);
}
