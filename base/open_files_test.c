/* SPDX-License-Identifier: Apache-2.0 */
/* What is enough is left alone, what can be had is taken, and what is too little is an
 * error with its numbers. */
#include <config.h>

#include "base/cleanup.h"
#include "base/open_files.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own, for a hard limit cannot be raised again: what is left of the
 * soft one, or (negative) the code. */
static int try(rlim_t soft, rlim_t hard, unsigned n)
{
    struct rlimit l = {soft, hard};
    int ends[2], got = 0;
    pid_t pid;

    if (pipe(ends) < 0 || (pid = fork()) < 0) {
        bail_out("fork");
    }
    if (pid == 0) {
        int rc = setrlimit(RLIMIT_NOFILE, &l) < 0 ? -EPERM : open_files_need(n, NULL);

        getrlimit(RLIMIT_NOFILE, &l);
        rc = rc < 0 ? rc : (int)l.rlim_cur;
        _exit(write(ends[1], &rc, sizeof(rc)) == sizeof(rc) ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &got, sizeof(got)) != sizeof(got)) {
        bail_out("no word of a child");
    }
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return got;
}

int main(void)
{
    static const struct {
        rlim_t soft, hard;
        unsigned n;
        int want;
    } cases[] = {
        {100, 200, 0, 100},
        {OPEN_FILES_MIN, OPEN_FILES_MIN, 0, OPEN_FILES_MIN},
        {24, 200, 0, OPEN_FILES_MIN},
        {24, OPEN_FILES_MIN, 0, OPEN_FILES_MIN},
        {24, OPEN_FILES_MIN - 1, 0, -EMFILE},
        {24, 24, 0, -EMFILE},
        {0, 0, 0, -EMFILE},
        {100, 200, 100, 100},
        {100, 200, 101, 101},
        {100, 200, 201, -EMFILE},
    };
    struct rlimit l = {24, 24};
    struct error e = {0};

    if (tap_valgrind()) {
        skip("valgrind keeps limits of its own");
        return tap_done();
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(try(cases[i].soft, cases[i].hard, cases[i].n), cases[i].want,
               "%u where %d of %d may be", cases[i].n, (int)cases[i].soft,
               (int)cases[i].hard);
    }
    setrlimit(RLIMIT_NOFILE, &l);
    is_int(open_files_need(0, &e), -EMFILE, "too few");
    like(e.text, "the limit of open files is 24 (ulimit -Hn): muster needs at least 64 here",
         "it says how many, and what is needed");
    return tap_done();
}
