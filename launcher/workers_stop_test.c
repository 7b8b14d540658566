/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that are stopped, what they leave behind, and the next generation: with
 * workers that start plainly, and with such as are made of blanks.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "launcher/workers_bed.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct bed bed;

static void test_stop(void)
{
    struct view v;
    uint64_t t;

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 4, .verb = "wait"});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 4);
    workers_stop(v.set, 10000);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.ends[0].how.signal, SIGTERM, "a stop is SIGTERM");
    like(v.text[0], "was stopped by SIGTERM", "in words");
    ok(v.ends[0].stopped, "and no failure");

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 4, .verb = "stubborn"});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 4);
    t = clock_mono_ms();
    workers_stop(v.set, 150);
    bed_turn_until(&bed, v.n_gone);
    t = clock_mono_ms() - t;
    is_int(v.ends[3].how.signal, SIGKILL, "who ignores it is killed");
    ok(t >= 149 && t < 5000, "after the grace (%d ms)", (int)t);

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "stubborn"});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 2);
    workers_stop(v.set, 60000);
    workers_stop(v.set, 100000);
    uv_run(&bed.loop, UV_RUN_NOWAIT);
    is_int(v.n_exits, 0, "a long grace");
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.n_gone, 1, "may be cut short");

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "stubborn"});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 2);
    t = clock_mono_ms();
    workers_stop(v.set, 50000);
    workers_stop(v.set, 150);
    bed_turn_until(&bed, v.n_gone);
    ok(v.n_gone == 1 && clock_mono_ms() - t < 40000, "by another grace, too");

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "stopped"});
    bed_turn_until(&bed, bed_count(&bed, "up\n") == 2);
    t = clock_mono_ms();
    workers_stop(v.set, 20000);
    bed_turn_until(&bed, v.n_gone);
    is_int(v.ends[0].how.signal, SIGTERM, "a SIGSTOPped worker gets it, too");
    ok(clock_mono_ms() - t < 10000, "at once");
    bed_check_nobody(&bed, "stop");
}

static void test_left_behind(void)
{
    static const struct { const char *what, *verb; int arg; } cases[] = {
        {"a daemon", "daemon", 0},
        {"a daemon without its environment", "daemon", 1},
    };
    struct view v;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = cases[i].verb,
                                                 .arg = cases[i].arg,
                                                 .linger_ms = 100});
        bed_turn_until(&bed, v.n_exits == 2);
        is_int(v.n_gone, 0, "%s is not taken for gone", cases[i].what);
        bed_turn_until(&bed, v.n_gone);
        is_int(v.n_gone, 1, "it goes when the time is over");
        bed_check_nobody(&bed, cases[i].what);
    }
    bed_start(&bed, &v, (struct launch_args){.n = 2, .verb = "daemon",
                                             .linger_ms = 60000});
    bed_turn_until(&bed, v.n_exits == 2);
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone);
    bed_check_nobody(&bed, "a forced stop does not linger");

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 1, .verb = "many",
                                             .arg = 50});
    bed_turn_until(&bed, bed_count(&bed, "forked"));
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone);
    bed_check_nobody(&bed, "50 children, half of them in sessions of their own");

    buf_clear(&bed.printed);
    bed_start(&bed, &v, (struct launch_args){.n = 3, .verb = "late",
                                             .linger_ms = 15000});
    bed_turn_until(&bed, v.n_gone);
    is_int(bed_count(&bed, "last words"), 3,
           "last words of those that end by themselves are heard");
}

/* The daemon of a set that lives is left alone when another set ends. */
static void test_two_sets(void)
{
    _proc_list_ struct proc_list l = {0};
    struct view a, b, c;

    buf_clear(&bed.printed);
    bed_start(&bed, &a, (struct launch_args){.n = 1, .verb = "many", .arg = 4});
    bed_turn_until(&bed, bed_count(&bed, "forked"));
    bed_start(&bed, &b, (struct launch_args){.n = 2, .verb = "daemon",
                                             .linger_ms = 1});
    bed_turn_until(&bed, b.n_gone);
    is_int(b.n_gone, 1, "the second set is gone");
    proc_descendants(getpid(), &l, NULL);
    is_int((int)l.n, 5, "the first has all of its processes");
    for (size_t i = 0; i < l.n; i++) {
        is_int(workers_whose(a.set, l.items[i].pid), 0, "known for its own");
    }
    is_int(workers_whose(a.set, getpid()), -1, "others are not");
    bed_start(&bed, &c, (struct launch_args){.n = 1, .verb = "wait"});
    workers_stop(a.set, 0);
    bed_turn_until(&bed, a.n_gone);
    is_int(c.n_exits, 0, "and the third outlives the first");
    workers_stop(c.set, 0);
    bed_turn_until(&bed, c.n_gone);
    bed_check_nobody(&bed, "two sets");
}

/* Makes a FIFO of the environment of one that is there instead of /proc. */
static void make_silent(const char *root, pid_t pid, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%d", root, (int)pid);
    mkdir(path, 0700);
    snprintf(path, PATH_MAX, "%s/%d/task", root, (int)pid);
    mkdir(path, 0700);
    snprintf(path, PATH_MAX, "%s/%d/task/%d", root, (int)pid, (int)pid);
    mkdir(path, 0700);
    snprintf(path, PATH_MAX, "%s/%d/task/%d/environ", root, (int)pid, (int)pid);
    if (mkfifo(path, 0600) < 0) {
        bail_out("mkfifo %s", path);
    }
}

/* The one of set `v` that is in a session of its own; -1 where none is yet. */
static pid_t find_daemon(const struct view *v)
{
    _proc_list_ struct proc_list l = {0};
    pid_t worker = worker_pid(v->set, 0);

    proc_descendants(getpid(), &l, NULL);
    for (size_t i = 0; i < l.n; i++) {
        if (l.items[i].parent == worker && l.items[i].session != worker) {
            return l.items[i].pid;
        }
    }
    return -1;
}

/* A daemon in the middle of an exec that does not come to its end. Whose it is, is
 * not known: it may be of either set, so it is not killed, and the one that ends
 * waits. */
static void test_silent(void)
{
    char root[128], path[PATH_MAX];
    struct view a, b;
    pid_t daemon = -1;
    int fd;

    buf_clear(&bed.printed);
    snprintf(root, sizeof(root), "%s/proc", bed.dir);
    mkdir(root, 0700);
    bed_start(&bed, &a, (struct launch_args){.n = 1, .verb = "wait"});
    bed_start(&bed, &b, (struct launch_args){.n = 1, .verb = "many", .arg = 2});
    bed_turn_until(&bed, (daemon = find_daemon(&b)) > 0);
    make_silent(root, daemon, path);
    bed.host.env.root = root;
    workers_stop(b.set, 0);
    bed_turn_until(&bed, b.n_stuck);
    is_int(b.n_gone, 0, "a set is not gone as long as one may be of it");
    is_int(b.stuck.pid, daemon, "which one, is told");
    ok(b.stuck.is_silent, "and that it does not tell whose it is");
    ok(kill(daemon, 0) == 0, "it lives");
    fd = open(path, O_WRONLY | O_CLOEXEC);
    bed.host.env.root = NULL;
    if (fd < 0 || write(fd, "A=1", 4) != 4) {
        bail_out("nobody reads %s", path);
    }
    close(fd);
    bed_turn_until(&bed, b.n_gone);
    is_int(b.n_gone, 1, "it is when that one has answered");
    is_int(a.n_exits, 0, "the other set lives on");
    workers_stop(a.set, 0);
    bed_turn_until(&bed, a.n_gone);
    bed_check_nobody(&bed, "one that was silent");
}

/* --- how long a restart takes --- */

enum { N_ROUNDS = 10 };

/* The next generation, from inside on_gone of the last. */
static void next_round(struct view *v)
{
    struct launch_args next = {.n = 8, .verb = "wait", .program = bed.self};
    struct error e = {0};

    v->n_started = 0;
    if (v->n_gone < N_ROUNDS && bed_try_start(&bed, v, next, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static uint64_t plain_ns(void)
{
    char *argv[] = {bed.self, (char *)"exit", (char *)"0", NULL};
    uint64_t best = UINT64_MAX;

    for (int k = 0; k < 10; k++) {
        uint64_t t = clock_mono_ns();
        pid_t pid[8];

        for (int i = 0; i < 8; i++) {
            if (posix_spawn(&pid[i], bed.self, NULL, NULL, argv,
                            environ) != 0) {
                bail_out("posix_spawn");
            }
        }
        t = clock_mono_ns() - t;
        best = t < best ? t : best;
        for (int i = 0; i < 8; i++) {
            waitpid(pid[i], NULL, 0);
        }
    }
    return best;
}

static void test_restart(const char *how)
{
    uint64_t plain = plain_ns(), best = UINT64_MAX;
    struct view v;

    bed_start(&bed, &v, (struct launch_args){.n = 8, .verb = "wait"});
    v.then = next_round;
    bed_turn_until(&bed, v.n_started);
    for (int round = 1; round < N_ROUNDS; round++) {
        uint64_t t;

        bed_fill(&bed, 8);
        t = clock_mono_ns();
        workers_stop(v.set, 0);
        while (v.n_gone < round || !v.n_started) {
            uv_run(&bed.loop, UV_RUN_ONCE);
        }
        t = clock_mono_ns() - t;
        best = t < best ? t : best;
    }
    workers_stop(v.set, 0);
    bed_turn_until(&bed, v.n_gone == N_ROUNDS);
    is_int(v.n_gone, N_ROUNDS, "ten generations");
    diag("8 workers killed, reaped and 8 executed %s: %.2f ms; "
         "8 x posix_spawn: %.2f ms", how, (double)best / 1e6,
         (double)plain / 1e6);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return bed_act(argc, argv);
    }
    bed_open(&bed);
    test_stop();
    test_left_behind();
    test_two_sets();
    test_silent();
    test_restart("plainly");
    bed_use_blanks(&bed);
    test_stop();
    test_left_behind();
    test_two_sets();
    test_restart("of blanks");
    bed_close(&bed);
    return tap_done();
}
