/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-exec [option...] -- program [argument...]
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
#include "launcher/exec.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_KEEP = 64, MAX_CPUS = 65536 };

struct setup {
    struct exec_options o;
    int keep[MAX_KEEP];
    pid_t parent;
    char **argv;
};

/* Tells the parent, or the terminal, and ends. */
__attribute__((format(printf, 4, 5))) static _Noreturn void
fail(const struct setup *s, enum exec_stage stage, int code, const char *fmt,
     ...)
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
    OPT_CPUS, OPT_UMASK, OPT_CORE, OPT_OOM,
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
    {NULL, 0, NULL, 0},
};

static int64_t number(const struct setup *s, const char *text, int64_t least,
                      int64_t most)
{
    int64_t v;

    if (str_to_i64(text, &v) < 0 || v < least || v > most) {
        fail(s, EXEC_OPTIONS, 0, "value %s", text);
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
        if (s->o.n_keep == MAX_KEEP) {
            fail(s, EXEC_OPTIONS, 0, "more than %d --keep", MAX_KEEP);
        }
        s->keep[s->o.n_keep++] = (int)number(s, value, 3, INT_MAX);
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
    case OPT_OOM:
        s->o.oom_score_adj = (int)number(s, value, -1000, 1000);
        break;
    default:
        fail(s, EXEC_OPTIONS, 0, "%s", value ? value : "");
    }
}

static void parse(struct setup *s, int argc, char **argv)
{
    opterr = 0;
    for (;;) {
        int before = optind;
        int id = getopt_long(argc, argv, "+", long_options, NULL);

        if (id == -1) {
            break;
        }
        take_option(s, id, id == '?' ? argv[before] : optarg);
    }
    if (optind >= argc) {
        fail(s, EXEC_OPTIONS, 0, ": no program given");
    }
    s->argv = argv + optind;
}

/* The signal first, then the question: a parent that ended before the first is
 * noticed by the second. */
static void tie_to_parent(const struct setup *s)
{
    if (!s->parent) {
        return;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        fail(s, EXEC_PARENT, errno, "set the parent-death signal");
    }
    if (getppid() != s->parent) {
        fail(s, EXEC_PARENT, 0, "(process %d)", (int)s->parent);
    }
}

static void new_session(const struct setup *s)
{
    if (setsid() < 0 && getsid(0) != getpid()) {
        /* A shell with job control has made us a group leader: then the session
         * stays the shell's, which is what somebody at a shell wants. */
        if (errno != EPERM) {
            fail(s, EXEC_SESSION, errno, "%s", "");
        }
    }
}

static void go_there(const struct setup *s)
{
    char *end;
    long mask;

    if (s->o.cwd && chdir(s->o.cwd) < 0) {
        fail(s, EXEC_CWD, errno, "%s", s->o.cwd);
    }
    if (s->o.umask) {
        mask = strtol(s->o.umask, &end, 8);
        if (end == s->o.umask || *end || mask < 0 || mask > 0777) {
            fail(s, EXEC_OPTIONS, 0, "--umask=%s", s->o.umask);
        }
        umask((mode_t)mask);
    }
}

/* One "a" or "a-b" at *p; false where it is neither. */
static bool take_range(const char **p, long *first, long *last)
{
    char *end;

    if (**p < '0' || **p > '9') {
        return false;
    }
    *first = *last = strtol(*p, &end, 10);
    if (*end == '-') {
        *p = end + 1;
        if (**p < '0' || **p > '9') {
            return false;
        }
        *last = strtol(*p, &end, 10);
    }
    *p = end;
    return *first <= *last && *last < MAX_CPUS;
}

static void bind_to_cpus(const struct setup *s)
{
    static unsigned char bits[MAX_CPUS / 8];
    cpu_set_t *set = (cpu_set_t *)(void *)bits;
    const char *p = s->o.cpus;
    long first, last;

    if (!p) {
        return;
    }
    do {
        if (!take_range(&p, &first, &last)) {
            fail(s, EXEC_CPUS, EINVAL, "%s", s->o.cpus);
        }
        for (long i = first; i <= last; i++) {
            CPU_SET_S((size_t)i, sizeof(bits), set);
        }
    } while (*p++ == ',');
    if (p[-1]) {
        fail(s, EXEC_CPUS, EINVAL, "%s", s->o.cpus);
    }
    if (sched_setaffinity(0, sizeof(bits), set) < 0) {
        fail(s, EXEC_CPUS, errno, "%s", s->o.cpus);
    }
}

static void raise_limit(const struct setup *s, const struct exec_limit *limit)
{
    struct rlimit l;
    rlim_t want;

    if (getrlimit((__rlimit_resource_t)limit->what, &l) < 0) {
        fail(s, EXEC_LIMITS, errno, "on %s", limit->name);
    }
    want = exec_limit_soft(limit, &l);
    if (l.rlim_cur == want) {
        return;
    }
    l.rlim_cur = want;
    if (setrlimit((__rlimit_resource_t)limit->what, &l) < 0) {
        fail(s, EXEC_LIMITS, errno, "on %s", limit->name);
    }
}

static void limit_core(const struct setup *s)
{
    uint64_t bytes = RLIM_INFINITY;
    struct rlimit l;

    if (!s->o.core) {
        return;
    }
    if (strcmp(s->o.core, "unlimited") && str_to_u64(s->o.core, &bytes) < 0) {
        fail(s, EXEC_OPTIONS, 0, "--core=%s", s->o.core);
    }
    if (getrlimit(RLIMIT_CORE, &l) < 0) {
        fail(s, EXEC_LIMITS, errno, "on core files");
    }
    l.rlim_cur = bytes < l.rlim_max ? bytes : l.rlim_max;
    if (setrlimit(RLIMIT_CORE, &l) < 0) {
        fail(s, EXEC_LIMITS, errno, "on core files");
    }
}

static void set_limits(const struct setup *s)
{
    for (size_t i = 0; i < EXEC_N_LIMITS; i++) {
        raise_limit(s, &exec_limits[i]);
    }
    limit_core(s);
}

/* Best effort: the agent is to outlive a worker when memory runs out, but a
 * container may have /proc read-only. */
static void prefer_oom(const struct setup *s)
{
    _close_ int fd = -1;
    char text[16];
    int n;

    if (!s->o.oom_score_adj) {
        return;
    }
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    n = snprintf(text, sizeof(text), "%d", s->o.oom_score_adj);
    if (fd >= 0 && write(fd, text, (size_t)n) < 0) {
        return;
    }
}

static void reset_signals(void)
{
    sigset_t none;

    for (int sig = 1; sig < 65; sig++) {
        signal(sig, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void empty_stdin(const struct setup *s)
{
    int fd = open("/dev/null", O_RDONLY);

    if (fd < 0 || dup2(fd, 0) < 0) {
        fail(s, EXEC_STDIN, errno, "%s", "");
    }
    if (fd > 2) {
        close(fd);
    }
}

/* For kernels and sandboxes without close_range. */
static void mark_one_by_one(void)
{
    struct rlimit l = {.rlim_cur = 1024};

    getrlimit(RLIMIT_NOFILE, &l);
    for (int fd = 3; fd < (int)l.rlim_cur && fd < 65536; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

static void sort_fds(const struct setup *s)
{
    enum { CLOEXEC = 1 << 2 }; /* CLOSE_RANGE_CLOEXEC, absent in old headers */

    if (syscall(SYS_close_range, 3U, ~0U, CLOEXEC) < 0) {
        mark_one_by_one();
    }
    for (size_t i = 0; i < s->o.n_keep; i++) {
        if (fcntl(s->keep[i], F_SETFD, 0) < 0) {
            fail(s, EXEC_FDS, errno, "%d", s->keep[i]);
        }
    }
}

/* The first that PATH has of that name, whether it may be run or not. */
static bool find_existing(const char *name, char *to, size_t size)
{
    const char *p = getenv("PATH");

    while (p && *p) {
        size_t len = strcspn(p, ":");
        struct stat st;

        if ((size_t)snprintf(to, size, "%.*s%s%s", (int)len, p,
                             len ? "/" : "", name) < size &&
            stat(to, &st) == 0 && !S_ISDIR(st.st_mode)) {
            return true;
        }
        p += len + (p[len] == ':');
    }
    return false;
}

static _Noreturn void fail_find(const struct setup *s, char *path, int code)
{
    char cwd[PATH_MAX] = "?";
    struct stat st;

    /* A directory of PATH that may not be searched is no news. */
    if (code == EACCES && !strchr(s->argv[0], '/') &&
        !find_existing(s->argv[0], path, PATH_MAX)) {
        code = ENOENT;
    }
    if (code == EACCES && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        fail(s, EXEC_FIND, EISDIR, "it is a directory");
    }
    if (code == EACCES && stat(path, &st) == 0) {
        fail(s, EXEC_FIND, code, "%s is not executable (chmod +x makes it so, "
             "unless its filesystem is mounted noexec)", path);
    }
    if (code != ENOENT) {
        fail(s, EXEC_FIND, code, "%s", strerror(code));
    }
    if (!strchr(s->argv[0], '/')) {
        fail(s, EXEC_FIND, code, "not found in PATH (%s)",
             getenv("PATH") ? getenv("PATH") : "which is not set");
    }
    if (s->argv[0][0] != '/' && getcwd(cwd, sizeof(cwd))) {
        fail(s, EXEC_FIND, code, "no such file in %s", cwd);
    }
    fail(s, EXEC_FIND, code, "no such file");
}

/* "#!/usr/bin/env name": would env find it? */
static void check_env(const struct setup *s, const char *name)
{
    char found[PATH_MAX];

    if (!name || name[0] == '-' || strchr(name, '=')) {
        return;
    }
    if (fs_which(name, getenv("PATH"), found, sizeof(found)) < 0) {
        fail(s, EXEC_INTERPRETER, ENOENT, "interpreter %s (line 1, by env) not "
             "found in PATH", name);
    }
}

/* The next word of *p, cut off where it ends; NULL where there is none. */
static char *next_word(char **p)
{
    char *word = *p + strspn(*p, " \t");
    size_t len = strcspn(word, " \t");

    *p = word + len + (word[len] != '\0');
    word[len] = '\0';
    return len ? word : NULL;
}

static void check_script(const struct setup *s, char *head)
{
    char *line = head + 2, *name, *arg, *base;
    size_t len = strcspn(line, "\n");

    line[len] = '\0';
    if (len && line[len - 1] == '\r') {
        fail(s, EXEC_INTERPRETER, ENOENT, "line 1 ends in a carriage return: "
             "the file has DOS line ends, save it with Unix ones");
    }
    name = next_word(&line);
    arg = next_word(&line);
    if (!name) {
        fail(s, EXEC_INTERPRETER, ENOEXEC, "no interpreter after #! (line 1)");
    }
    if (access(name, F_OK) < 0) {
        fail(s, EXEC_INTERPRETER, errno, "interpreter %s (line 1) not found",
             name);
    }
    if (access(name, X_OK) < 0) {
        fail(s, EXEC_INTERPRETER, errno, "interpreter %s (line 1) is not "
             "executable", name);
    }
    base = strrchr(name, '/');
    if (base && strcmp(base, "/env") == 0) {
        check_env(s, arg);
    }
}

/* The program that loads this one: musl's on a glibc system, say, or one that
 * an image has left out. execve() would only say "no such file". */
static void check_loader(const struct setup *s, const char *head, size_t len)
{
    ElfW(Ehdr) eh;
    ElfW(Phdr) ph;

    if (len < sizeof(eh)) {
        return;
    }
    memcpy(&eh, head, sizeof(eh));
    if (eh.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64
                                                      : ELFCLASS32)) {
        return;
    }
    for (size_t i = 0; i < eh.e_phnum; i++) {
        size_t at = (size_t)eh.e_phoff + i * sizeof(ph);

        if (eh.e_phoff > len || at + sizeof(ph) > len) {
            return;
        }
        memcpy(&ph, head + at, sizeof(ph));
        if (ph.p_type == PT_INTERP && ph.p_offset < len &&
            ph.p_filesz <= len - ph.p_offset && ph.p_filesz > 1 &&
            head[ph.p_offset + ph.p_filesz - 1] == '\0' &&
            access(head + ph.p_offset, X_OK) < 0) {
            fail(s, EXEC_INTERPRETER, errno, "its loader %s is not there "
                 "(a program built for another system?)",
                 head + ph.p_offset);
        }
    }
}

static void check_head(const struct setup *s, const char *path)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    static char head[4096];
    ssize_t n;

    /* A program may be executable and not readable. */
    n = fd < 0 ? -1 : read(fd, head, sizeof(head) - 1);
    if (n > 2 && memcmp(head, "#!", 2) == 0) {
        check_script(s, head);
    } else if (n > SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0) {
        check_loader(s, head, (size_t)n);
    }
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
        fail(s, EXEC_GATE, n < 0 ? errno : 0, "%s", "");
    }
}

static _Noreturn void run(const struct setup *s, const char *path)
{
    int code;

    execve(path, s->argv, environ);
    code = errno;
    if (code == ENOEXEC) {
        fail(s, EXEC_FORMAT, code, "neither a program for this machine nor a "
             "script that begins with #! and an interpreter");
    }
    fail(s, EXEC_RUN, code, "%s", path);
}

int main(int argc, char **argv)
{
    static struct setup s = {.o = {.status_fd = -1, .gate_fd = -1}};
    static char path[PATH_MAX];
    int rc;

    parse(&s, argc, argv);
    tie_to_parent(&s);
    new_session(&s);
    go_there(&s);
    bind_to_cpus(&s);
    set_limits(&s);
    prefer_oom(&s);
    reset_signals();
    empty_stdin(&s);
    sort_fds(&s);
    rc = fs_which(s.argv[0], getenv("PATH"), path, sizeof(path));
    if (rc < 0) {
        fail_find(&s, path, -rc);
    }
    check_head(&s, path);
    wait_at_gate(&s);
    run(&s, path);
}
