/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-exec [option...] -- program [argument...]
 * muster-exec --parent=PID --wait=FD
 *
 * Sets this process up and becomes the program. Everything that can go wrong is
 * looked for before the gate, so that a set of workers whose program is missing
 * on one node does not start on the others. A failure goes to the status
 * descriptor as one record (launcher/exec.h), or without one to stderr, and the
 * exit status is 126 or 127 as of a shell.
 *
 * Nothing here may print to stdout, and no environment variable steers it: the
 * environment is the worker's.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/exec_setup.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void exec_fail(const struct setup *s, enum exec_stage stage, int code,
               const char *fmt, ...)
{
    struct exec_report r = {.id = s->o.id, .stage = stage, .code = code};
    const char *program = s->argv && s->argv[0] ? s->argv[0] : "muster-exec";
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r.detail, sizeof(r.detail), fmt, ap);
    va_end(ap);
    if (s->o.status_fd >= 0) {
        _buf_ struct buf b = {0};

        exec_report_encode(&b, &r);
        fs_write_all(s->o.status_fd, b.data, b.len);
    } else {
        exec_report_text(&r, program, text, sizeof(text));
        fprintf(stderr, "muster-exec: %s\n", text);
    }
    _exit(exec_report_status(&r));
}

enum option_id {
    OPT_ID = 256, OPT_STATUS, OPT_GATE, OPT_KEEP, OPT_PARENT, OPT_CWD,
    OPT_CPUS, OPT_UMASK, OPT_CORE, OPT_OOM, OPT_SAME_SESSION,
    OPT_FIND, OPT_PYTHON_ONLY, OPT_WAIT,
};

static const struct option long_options[] = {
    {"id", required_argument, NULL, OPT_ID},
    {"status", required_argument, NULL, OPT_STATUS},
    {"gate", required_argument, NULL, OPT_GATE},
    {"keep", required_argument, NULL, OPT_KEEP},
    {"parent", required_argument, NULL, OPT_PARENT},
    {"cwd", required_argument, NULL, OPT_CWD},
    {"cpus", required_argument, NULL, OPT_CPUS},
    {"umask", required_argument, NULL, OPT_UMASK},
    {"core", required_argument, NULL, OPT_CORE},
    {"oom", required_argument, NULL, OPT_OOM},
    {"find", required_argument, NULL, OPT_FIND},
    {"python-only", no_argument, NULL, OPT_PYTHON_ONLY},
    {"same-session", no_argument, NULL, OPT_SAME_SESSION},
    {"wait", required_argument, NULL, OPT_WAIT},
    {NULL, 0, NULL, 0},
};

static const struct setup no_setup = {
    .o = {.status_fd = -1, .gate_fd = -1}, .wait_fd = -1};

static int64_t number(const struct setup *s, const char *text, int64_t least,
                      int64_t most)
{
    int64_t v;

    if (str_to_i64(text, &v) < 0 || v < least || v > most) {
        exec_fail(s, EXEC_OPTIONS, 0, "value %s", text);
    }
    return v;
}

static void take_option(struct setup *s, int id, const char *value)
{
    switch (id) {
    case OPT_ID:
        s->o.id = (uint32_t)number(s, value, 0, UINT32_MAX);
        break;
    case OPT_STATUS:
        s->o.status_fd = (int)number(s, value, 3, INT_MAX);
        break;
    case OPT_GATE:
        s->o.gate_fd = (int)number(s, value, 0, INT_MAX);
        break;
    case OPT_KEEP:
        if (s->o.n_keep == EXEC_MAX_KEEP) {
            exec_fail(s, EXEC_OPTIONS, 0, "more than %d --keep", EXEC_MAX_KEEP);
        }
        s->keep[s->o.n_keep++] = (int)number(s, value, 0, INT_MAX);
        break;
    case OPT_PARENT:
        s->parent = (pid_t)number(s, value, 1, INT_MAX);
        break;
    case OPT_CWD:
        s->o.cwd = value;
        break;
    case OPT_CPUS:
        s->o.cpus = value;
        break;
    case OPT_UMASK:
        s->o.umask = value;
        break;
    case OPT_CORE:
        s->o.core = value;
        break;
    case OPT_FIND:
        s->o.find = value;
        break;
    case OPT_SAME_SESSION:
        s->o.same_session = true;
        break;
    case OPT_PYTHON_ONLY:
        s->o.python_only = true;
        break;
    case OPT_WAIT:
        s->wait_fd = (int)number(s, value, 3, INT_MAX);
        break;
    case OPT_OOM:
        s->o.oom_score_adj = (int)number(s, value, -1000, 1000);
        break;
    default:
        exec_fail(s, EXEC_OPTIONS, 0, "%s", value ? value : "");
    }
}

static void parse(struct setup *s, int argc, char **argv)
{
    opterr = 0;
    optind = 0; /* anew */
    for (;;) {
        int before = optind ? optind : 1;
        int id = getopt_long(argc, argv, "+", long_options, NULL);

        if (id == -1) {
            break;
        }
        take_option(s, id, id == '?' ? argv[before] : optarg);
    }
    if (optind >= argc && s->wait_fd < 0) {
        exec_fail(s, EXEC_OPTIONS, 0, ": no program given");
    }
    s->argv = argv + optind;
}

static void wait_at_gate(const struct setup *s)
{
    char c;
    ssize_t n;

    if (s->o.gate_fd < 0) {
        return;
    }
    do {
        n = read(s->o.gate_fd, &c, 1);
    } while (n < 0 && errno == EINTR);
    if (n != 1) {
        exec_fail(s, EXEC_GATE, n < 0 ? errno : 0, "%s", "");
    }
}

static _Noreturn void run(const struct setup *s, const char *path)
{
    int code;

    execve(path, s->argv, environ);
    code = errno;
    if (code == ENOEXEC) {
        exec_fail(s, EXEC_FORMAT, code, "neither a program for this machine nor "
                  "a script that begins with #! and an interpreter");
    }
    exec_fail(s, EXEC_RUN, code, "%s", path);
}

/* A blank: what it is to be takes the place of its own command line. */
static void wait_for_role(struct setup *s)
{
    struct exec_role role;

    exec_wait(s, &role);
    *s = no_setup;
    s->o.status_fd = role.status_fd;
    s->o.gate_fd = role.gate_fd;
    parse(s, role.argc, role.argv);
}

int main(int argc, char **argv)
{
    static struct setup s;
    static char path[PATH_MAX];

    s = no_setup;
    parse(&s, argc, argv);
    if (s.wait_fd >= 0) {
        wait_for_role(&s);
    }
    exec_set_up(&s);
    if (s.o.find) {
        char *other[] = {(char *)(uintptr_t)s.o.find, NULL};
        struct setup as_if = s;

        as_if.argv = other;
        exec_find(&as_if, path);
    }
    if (s.o.python_only) {
        exec_python(&s, path);
    } else {
        exec_find(&s, path);
    }
    wait_at_gate(&s);
    run(&s, path);
}
