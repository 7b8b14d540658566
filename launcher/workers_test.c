/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers from their start to their end: what is told of them. All of it twice: with
 * workers that start plainly, and with such as are made of blanks.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/str.h"
#include "launcher/workers_bed.h"
#include "launcher/workers_set.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct bed bed;

/* Reads a file that is there before what it will hold. */
static bool read_some(const char *path, char **text)
{
    free(*text);
    *text = NULL;
    return fs_read(path, 100, text, NULL, NULL) == 0 && **text;
}

static void test_plain(void)
{
    char logs[128], path[160];
    _free_ char *text = NULL;
    struct view v;

    snprintf(logs, sizeof(logs), "%s/%d", bed.dir, bed.blanks != NULL);
    buf_clear(&bed.printed);
    bed.n_wrong_stream = 0;
    bed_start(&bed, &v, (struct launch_args){.n = 4, .verb = "say",
                                             .logs_dir = logs});
    is_int((int)workers_count(v.set), 4, "four workers");
    is_int((int)workers_alive(v.set), 4, "alive");
    ok(worker_pid(v.set, 3) > 0 && worker_pid(v.set, 4) == -1, "their pids");
    is_int(v.n_exits, 0, "nothing is told from inside the call");
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_started, 1, "started once");
    is_int(v.n_exits, 4, "four ends");
    is_int(v.n_gone, 1, "gone once");
    like(v.text[0], " on node2 finished", "in words");
    is_int(bed_count(&bed, "out "), 4, "stdout of all");
    is_int(bed_count(&bed, "err "), 4, "stderr of all");
    is_int(bed.n_wrong_stream, 0, "each as what it is");
    snprintf(path, sizeof(path), "%s/102/stderr", logs);
    bed_turn_until(&bed, read_some(path, &text));
    is_str(text, "err 2\n", "a file for each");
    bed_check_nobody(&bed, "plain");
}

static void test_codes(void)
{
    int bad = 0;

    for (int base = 0; base < 256; base += 32) {
        int codes[32];
        struct view v;

        for (int i = 0; i < 32; i++) {
            codes[i] = base + i;
        }
        bed_start(&bed, &v, (struct launch_args){.n = 32, .verb = "exit",
                                                 .args = codes});
        bed_turn_until(&bed, v.n_gone);
        for (int i = 0; i < v.n_exits; i++) {
            int want = base + (int)v.ends[i].local_rank;

            bad += v.ends[i].status != want || v.ends[i].how.code != want ||
                   v.ends[i].rank != 100 + v.ends[i].local_rank ||
                   v.ends[i].stopped || v.ends[i].exec_failed;
        }
        bad += v.n_exits != 32;
    }
    is_int(bad, 0, "exit codes 0 to 255");
}

static void test_signals(void)
{
    static const int sigs[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP,
                               SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1,
                               SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM,
                               SIGSTKFLT, SIGXCPU, SIGXFSZ, SIGVTALRM,
                               SIGPROF, SIGIO, SIGPWR, SIGSYS, 34, 40, 64};
    struct view v;
    int bad = 0;

    bed_start(&bed, &v, (struct launch_args){.n = ARRAY_SIZE(sigs),
                                             .verb = "signal", .args = sigs});
    bed_turn_until(&bed, v.n_gone);
    for (int i = 0; i < v.n_exits; i++) {
        int sig = sigs[v.ends[i].local_rank];
        char want[64];

        snprintf(want, sizeof(want), "worker %u on node2 was killed by %s",
                 v.ends[i].rank, child_signal_name(sig));
        bad += v.ends[i].how.signal != sig || v.ends[i].status != 128 + sig ||
               strcmp(v.text[i], want) != 0;
    }
    is_int(v.n_exits, (int)ARRAY_SIZE(sigs), "all ended");
    is_int(bad, 0, "each by its signal, which is named");
}

static void test_exec_failures(void)
{
    static const struct {
        const char *program, *cwd, *want;
        int status;
    } cases[] = {
        {"./none.sh", "/usr", "worker 101 on node2: cannot run ./none.sh: no "
                              "such file in /usr", 127},
        {"nonesuch", NULL, "worker 101 on node2: cannot run nonesuch: not "
                           "found in PATH (/usr/bin:/bin)", 127},
        {"/", NULL, "worker 101 on node2: cannot run /: it is a directory",
         126},
        {"true", "/none", "worker 101 on node2: cannot run true: working "
                          "directory /none: No such file or directory", 126},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct view v;

        bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "x",
                                                 .program = cases[i].program,
                                                 .cwd = cases[i].cwd});
        bed_turn_until(&bed, v.n_gone);
        is_int(v.n_started, 0, "not started");
        for (int k = 0; k < 2; k++) {
            if (v.ends[k].local_rank == 1) {
                is_str(v.text[k], cases[i].want, "in words");
                is_int(v.ends[k].status, cases[i].status, "status");
                ok(v.ends[k].exec_failed, "never ran");
            }
        }
    }
}

static void test_held(void)
{
    struct view v;

    bed_start(&bed, &v, (struct launch_args){.n = 3, .verb = "say",
                                             .hold = true});
    for (int i = 0; i < 20; i++) {
        uv_run(&bed.loop, UV_RUN_NOWAIT);
        usleep(2000);
    }
    is_int(v.n_started + v.n_exits, 0, "held at the gate");
    workers_release(v.set);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_exits, 3, "released");
    is_int(v.n_started, 1, "started");

    bed_start(&bed, &v, (struct launch_args){.n = 3, .verb = "say",
                                             .hold = true});
    workers_stop(v.set, 5000);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_exits, 3, "stopped at the gate");
    is_int(v.n_started, 0, "never started");
    ok(v.ends[0].stopped && !v.ends[0].exec_failed, "which is no failure");

    bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "x", .hold = true,
                                             .program = "nonesuch"});
    bed_turn_until(&bed, v.n_exits == 2);
    is_int(v.n_exits, 2, "what cannot run is told before the gate");
    bed_turn_until(&bed, v.n_gone);
    bed_check_nobody(&bed, "held");
}

/* As a blank that was lost and killed does which does not die at once. */
static int keep_status_open(const struct view *v)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", v->set->status_fd);
    return open(path, O_WRONLY | O_CLOEXEC);
}

static void test_status_kept_open(void)
{
    struct view v;

    for (int fails = 0; fails < 2; fails++) {
        struct launch_args two = {.n = 2, .verb = "exit", .args = (int[]){0, fails},
                                  .hold = true};
        _close_ int writer = -1;

        bed_start(&bed, &v, two);
        writer = keep_status_open(&v);
        ok(writer >= 0, "somebody else has their status pipe");
        workers_release(v.set);
        bed_turn_until(&bed, v.n_gone);
        is_int(v.n_exits, 2, "and goes on when they have ended");
        is_int(v.n_started, 1, "which they had started for, as is told");
    }
    bed_check_nobody(&bed, "a pipe that does not end");
}

static void test_odd_output(void)
{
    struct view v;

    bed_start(&bed, &v, (struct launch_args){.n = 1, .verb = "mute"});
    bed_turn_until(&bed, v.n_started);
    for (int i = 0; i < 10; i++) {
        uv_run(&bed.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    is_int(v.n_exits, 0, "a worker that closes its output lives on");
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone);
    bed_start(&bed, &v, (struct launch_args){.n = 1, .verb = "long",
                                             .arg = 10});
    bed_turn_until(&bed, v.n_gone);
    is_int(v.ends[0].status, 0, "10 MB without a newline are taken");
}

static void test_tail(void)
{
    struct view v;

    bed_start(&bed, &v, (struct launch_args){.n = 1, .verb = "say", .arg = 7});
    bed_turn_until(&bed, v.n_gone);
    is_str(v.tail[0], "err 0\n", "a failure comes with its last lines");
    is_str(v.text[0], "worker 100 on node2 exited with status 7", "and words");
    bed_start(&bed, &v, (struct launch_args){.n = 1, .verb = "last-words"});
    bed_turn_until(&bed, v.n_gone);
    is_str(v.tail[0], "one\ntwo\nthree\n", "as many as there are");
}

static void test_first_failure(void)
{
    static const int codes[] = {5, 0, 0, 0};
    struct view v;

    bed_start(&bed, &v, (struct launch_args){.n = 4, .verb = "exit",
                                             .args = codes});
    v.stop_on_failure = true;
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_exits, 4, "a stop from inside on_exit");
}

static void test_no_exec(void)
{
    struct launch_args three = {.n = 3, .verb = "x"};
    char path[sizeof(bed.host.exec_path)];
    struct error e = {0};
    struct view v = {0};

    if (tap_valgrind()) {
        skip("under valgrind it starts, and fails then");
        return;
    }
    bed_fill(&bed, 0);
    str_copy(path, sizeof(path), bed.host.exec_path);
    str_copy(bed.host.exec_path, sizeof(path), "/none/muster-exec");
    is_int(bed_try_start(&bed, &v, three, &e), -ENOENT,
           "no muster-exec");
    like(e.text, "/none/muster-exec", "which is named");
    str_copy(bed.host.exec_path, sizeof(bed.host.exec_path), path);
    bed_turn_until(&bed, !bed.host.sets);
    is_int(v.n_started + v.n_exits + v.n_gone, 0, "nothing is told");
    ok(bed.host.sets == NULL, "nothing is left");
}

static void test_no_workers(void)
{
    struct launch_args none = {.n = 0, .verb = "x"};
    struct error e = {0};
    struct view v = {0};

    is_int(bed_try_start(&bed, &v, none, &e), -EINVAL,
           "no workers");
    workers_destroy(NULL);
}

/* No descriptor for the second of three: those before it are taken back. */
static void test_out_of_descriptors(void)
{
    struct rlimit old, few;
    struct error e = {0};
    struct view v = {0};
    int probe, rc;

    bed_fill(&bed, 5);
    probe = dup(0);
    close(probe);
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = (rlim_t)probe + 10;
    setrlimit(RLIMIT_NOFILE, &few);
    rc = bed_try_start(&bed, &v, (struct launch_args){.n = 5, .verb = "wait",
                                                      .program = bed.self}, &e);
    setrlimit(RLIMIT_NOFILE, &old);
    is_int(rc, -EMFILE, "too few descriptors");
    bed_turn_until(&bed, !bed.host.sets);
    is_int(v.n_exits + v.n_gone, 0, "nothing is told");
    bed_check_nobody(&bed, "a start that failed half-way");
}

static int count_of(const struct view *v, const struct proc_list *l)
{
    int n = 0;

    for (size_t i = 0; i < l->n; i++) {
        for (unsigned k = 0; k < workers_count(v->set); k++) {
            n += worker_pid(v->set, k) == l->items[i].pid;
        }
    }
    return n;
}

/* Of four two are stopped and one is dead: the set has four workers, and nobody hears
 * of more. */
static void test_lost_blanks(void)
{
    struct launch_args four = {.n = 4, .verb = "wait"};
    _proc_list_ struct proc_list l = {0};
    struct error e = {0};
    struct view v = {0};

    buf_clear(&bed.printed);
    bed_fill(&bed, 4);
    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 4, "four blanks");
    kill(l.items[0].pid, SIGSTOP);
    kill(l.items[2].pid, SIGSTOP);
    kill(l.items[3].pid, SIGKILL);
    is_int(bed_try_start(&bed, &v, four, &e), 0, "a set is started");
    is_int(count_of(&v, &l), 1, "one blank is of use");
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 4);
    is_int(v.n_started, 1, "all are started");
    is_int(v.n_exits, 0, "and nobody has ended");
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_exits, 4, "before they are stopped");
    bed_check_nobody(&bed, "blanks that were lost");

}

/* For tests/t2031-watch.t: an agent with three sets, to be killed. */
static int be_agent(void)
{
    struct view a, b, c;

    bed_open(&bed);
    rmdir(bed.dir); /* nobody will when we are killed */
    bed_start(&bed, &a, (struct launch_args){.n = 4, .verb = "stubborn"});
    bed_start(&bed, &b, (struct launch_args){.n = 1, .verb = "many",
                                             .arg = 20});
    bed_start(&bed, &c, (struct launch_args){.n = 4, .verb = "daemon",
                                             .linger_ms = 100000});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 4 && c.n_exits == 4 &&
                   bed_count(&bed, "forked"));
    printf("%d\n", getpid());
    fflush(stdout);
    return uv_run(&bed.loop, UV_RUN_DEFAULT);
}

static void test_all(void)
{
    test_plain();
    test_codes();
    test_signals();
    test_exec_failures();
    test_held();
    test_status_kept_open();
    test_odd_output();
    test_tail();
    test_first_failure();
    test_no_exec();
    test_no_workers();
    test_out_of_descriptors();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "agent") == 0) {
        return be_agent();
    }
    if (argc > 1) {
        return bed_act(argc, argv);
    }
    bed_open(&bed);
    test_all();
    bed_use_blanks(&bed);
    test_all();
    test_lost_blanks();
    bed_close(&bed);
    return tap_done();
}
