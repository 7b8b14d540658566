/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workers of the tests do: among it the hard cases of what training
 * code leaves behind.
 */
#include <config.h>

#include "launcher/workers_bed.h"

#include "base/fs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void wait_forever(void)
{
    for (;;) {
        pause();
    }
}

static int act_signal(int sig)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    signal(sig, SIG_DFL); /* a sanitizer may have taken it */
    raise(sig);
    return 99;
}

static void ignore_all(void)
{
    for (int s = 1; s < 65; s++) {
        signal(s, SIG_IGN);
    }
}

/* A daemon of the old school. `clean`: without the environment, too. */
static void leave_daemon(bool clean)
{
    char *argv[] = {(char *)"sleep", (char *)"1000", NULL};
    char *none[] = {NULL};

    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            ignore_all();
            close_range(0, ~0U, 0);
            execve("/bin/sleep", argv, clean ? none : environ);
            _exit(1);
        }
        _exit(0);
    }
    wait(NULL);
}

static int act_many(int n, bool own_sessions)
{
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            if (own_sessions && i % 2) {
                setsid();
            }
            wait_forever();
        }
    }
    printf("forked\n");
    fflush(stdout);
    wait_forever();
}

static int act_long(int megabytes)
{
    char block[1 << 16];

    memset(block, 'z', sizeof(block));
    for (int i = 0; i < megabytes * 16; i++) {
        if (fs_write_all(1, block, sizeof(block)) < 0) {
            return 1;
        }
    }
    return 0;
}

/* Like `exec > >(tee ...)` in a shell script: the last words come from a
 * process that outlives the worker. */
static int act_late_words(void)
{
    if (fork() == 0) {
        while (getppid() != (pid_t)atoi(getenv("AGENT"))) {
            usleep(500);
        }
        printf("last words\n");
        fflush(stdout);
        _exit(0);
    }
    return 0;
}

static int do_verb(const char *verb, int arg)
{
    if (strcmp(verb, "exit") == 0) {
        return arg;
    }
    if (strcmp(verb, "signal") == 0) {
        return act_signal(arg);
    }
    if (strcmp(verb, "say") == 0) {
        printf("out %s\n", getenv("WHO"));
        fprintf(stderr, "err %s\n", getenv("WHO"));
        return arg;
    }
    if (strcmp(verb, "last-words") == 0) {
        fputs("one\ntwo\nthree\n", stderr);
        return 1;
    }
    if (strcmp(verb, "stubborn") == 0) {
        ignore_all();
        printf("up\n");
        fflush(stdout);
        wait_forever();
    }
    if (strcmp(verb, "stopped") == 0) {
        printf("up\n");
        fflush(stdout);
        raise(SIGSTOP);
        wait_forever();
    }
    if (strcmp(verb, "daemon") == 0) {
        leave_daemon(arg);
        return 0;
    }
    if (strcmp(verb, "many") == 0) {
        return act_many(arg, true);
    }
    if (strcmp(verb, "mute") == 0) {
        close(1);
        close(2);
        wait_forever();
    }
    if (strcmp(verb, "long") == 0) {
        return act_long(arg);
    }
    if (strcmp(verb, "late") == 0) {
        return act_late_words();
    }
    printf("up\n");
    fflush(stdout);
    wait_forever();
}

int bed_act(int argc, char **argv)
{
    return do_verb(argv[1], argc > 2 ? atoi(argv[2]) : 0);
}
