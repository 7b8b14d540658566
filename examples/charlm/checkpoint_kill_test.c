/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of checkpoints is killed with SIGKILL at a random moment, again and
 * again. Whatever the moment, the files under checkpoint names are whole, the
 * newest that was announced is there, and the next start leaves no rubbish.
 */
#include <config.h>

#include "checkpoint.h"
#include "random.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_KILLS = 50, KEEP = 2 };

/* Large enough that a kill mostly hits while the file is written. */
static const struct shape shape = {
    .vocab = 50,
    .context = 64,
    .width = 64,
    .heads = 4,
    .layers = 2,
};
static const struct text text = {.n_symbols = 50};

/* What the writer says, where it outlives the writer. */
struct announced {
    volatile uint64_t begun;
    volatile uint64_t saved;
};

/* Every value of a state tells its step. */
static void mark(struct state *s, uint64_t step)
{
    s->step = step;
    for (size_t i = 0; i < 3 * s->n_weights; i++) {
        s->values[i] = (real)step;
    }
}

static bool is_marked(const struct state *s)
{
    for (size_t i = 0; i < 3 * s->n_weights; i++) {
        if (s->values[i] != (real)s->step) {
            return false;
        }
    }
    return true;
}

static _Noreturn void write_until_killed(const char *dir, struct state *s,
                                         struct announced *a)
{
    struct failure f;
    char path[PATH_MAX];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (checkpoint_directory(dir, &f) < 0) {
        _exit(1);
    }
    for (uint64_t step = a->saved + 1;; step++) {
        mark(s, step);
        a->begun = step;
        if (checkpoint_save(dir, s, path, &f) < 0) {
            _exit(1);
        }
        a->saved = step;
        if (checkpoint_tidy(path, KEEP, &f) < 0) {
            _exit(1);
        }
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* Seconds that one checkpoint takes here. */
static double time_one(const char *dir, struct state *s)
{
    struct failure f;
    char path[PATH_MAX];
    double begin = now();

    mark(s, 0);
    if (checkpoint_save(dir, s, path, &f) < 0) {
        bail_out("%s", f.text);
    }
    unlink(path);
    return now() - begin;
}

struct found {
    uint64_t newest;
    int n_whole;
    int n_broken;
    int n_temporary;
};

static struct found look(const char *dir, struct state *s)
{
    struct found found = {0};
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[PATH_MAX];
        struct failure f;

        if (strstr(e->d_name, ".tmp")) {
            found.n_temporary++;
        }
        if (!strstr(e->d_name, ".ckpt")) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (checkpoint_load(path, s, &f) == 0 && is_marked(s)) {
            found.n_whole++;
            found.newest = s->step > found.newest ? s->step : found.newest;
        } else {
            found.n_broken++;
            diag("%s: %s", path, f.text);
        }
    }
    if (d) {
        closedir(d);
    }
    return found;
}

/* Starts a writer and kills it after `seconds`. */
static void run_writer(const char *dir, struct state *s, struct announced *a,
                       double seconds)
{
    uint64_t before = a->saved;
    double deadline;
    int status;
    pid_t pid = fork();

    if (pid < 0) {
        bail_out("cannot fork");
    }
    if (pid == 0) {
        write_until_killed(dir, s, a);
    }
    /* The clock runs from the first file on. */
    for (deadline = now() + 60; a->begun <= before && now() < deadline;) {
        pause_for(1e-4);
    }
    pause_for(seconds);
    kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) {
        bail_out("the writer ended by itself");
    }
}

static void remove_all(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) {
        closedir(d);
    }
    rmdir(dir);
}

int main(void)
{
    char dir[] = "checkpoint_kill_test.XXXXXX";
    struct announced *a = mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int n_broken = 0, n_lost = 0, n_left = 0, n_interrupted = 0;
    char path[PATH_MAX];
    struct failure f;
    struct state s;
    double seconds;

    if (!mkdtemp(dir) || a == MAP_FAILED ||
        state_create(&s, shape, &text, 1, 8, &f) < 0) {
        bail_out("no place to work");
    }
    seconds = time_one(dir, &s);
    for (uint64_t i = 0; i < N_KILLS; i++) {
        double part = random_uniform(1, RANDOM_TEST, i);
        struct found found;

        run_writer(dir, &s, a, part * 2.5 * seconds);
        found = look(dir, &s);
        n_broken += found.n_broken;
        n_interrupted += found.n_temporary > 0;
        if (found.newest < a->saved || found.newest > a->begun) {
            n_lost++;
            diag("kill %d: newest %d of %d announced, %d begun", (int)i,
                 (int)found.newest, (int)a->saved, (int)a->begun);
        }
        a->saved = found.newest;
        if (checkpoint_directory(dir, &f) < 0) {
            bail_out("%s", f.text);
        }
        n_left += look(dir, &s).n_temporary;
    }
    is_int(n_broken, 0, "%d kills: no broken file under a name", N_KILLS);
    is_int(n_lost, 0, "and none lost that was announced");
    is_int(n_left, 0, "nothing is left after the next start");
    mark(&s, a->saved + 1);
    if (checkpoint_save(dir, &s, path, &f) < 0 ||
        checkpoint_tidy(path, KEEP, &f) < 0) {
        bail_out("%s", f.text);
    }
    is_int(look(dir, &s).n_whole, KEEP, "nor of old checkpoints");
    ok(n_interrupted > 0, "%d kills hit an unfinished file", n_interrupted);
    diag("%.1f ms a checkpoint, %d written", seconds * 1e3, (int)a->saved);
    state_release(&s);
    remove_all(dir);
    return tap_done();
}
