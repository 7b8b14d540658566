/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a piece of a test in a process of its own, under ptrace: looks at each system
 * call, kills the process before one of them, or lets calls fail as a disk, a full
 * quota or a lack of memory would. On the real filesystem, on x86-64.
 *
 *     struct tracer_harm harm = {.at = 17, .error = ENOSPC};
 *     tracer_run(play, &args, &harm, &what);
 *
 * A process that has threads is traced with all of them; in which order their calls
 * come is then not the same each time.
 */
#ifndef MUSTER_TESTS_LIB_TRACER_H
#define MUSTER_TESTS_LIB_TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* For `error`, instead of an errno value. */
enum {
    TRACER_KILL = 0,
    TRACER_SHORT = -1, /* half of what is read or written, of more than a byte */
};

struct tracer_harm {
    uint64_t at; /* at this call (the first is 1); 0: never */
    int error;
    bool stays;  /* and at all that follow, where it may be */
};

/* A call: before it is made, or (is_done) after it was. */
struct tracer_call {
    pid_t tid;
    bool is_done;
    int64_t number; /* SYS_... */
    uint64_t args[6];
    bool is_on_file; /* its first argument is a descriptor of a file or directory */
    int64_t result;  /* is_done; negative errno values */
};

struct tracer_run {
    /* NULL, or called for each call, undisturbed or not. */
    void (*look)(void *arg, const struct tracer_call *call);
    void *arg;
    uint64_t max_calls;  /* as many, and it is stuck: killed. 0: any number */
    /* What became of it. Where nobody looks, calls after the only harm do not count. */
    uint64_t n_calls, n_harmed;
    bool is_killed;      /* as `harm` has wanted it */
    bool is_stuck;       /* too many calls, or 60 s */
    int status;          /* else: of waitpid() */
};

/* Whether processes can be traced here; else `why`. */
bool tracer_works(const char **ret_why);

/* Whether a filesystem or the kernel may answer that call so. TRACER_KILL always. */
bool tracer_may_fail(const struct tracer_call *call, int error);

/* Runs `body` in a child, whose memory is its own, but for what is mapped shared; it
 * ends when that returns. */
void tracer_run(void (*body)(void *arg), void *arg,
                const struct tracer_harm *harm, struct tracer_run *run);

/* The same, untraced; its status, of waitpid(). It has 60 s as well. */
int tracer_let(void (*body)(void *arg), void *arg);

#endif
