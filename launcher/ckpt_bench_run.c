/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run is one of this machine alone, whatever this process is a part of, with an
 * index of runs of its own: nobody sees it. It ends with this process (the kernel tells
 * it), and workers who end end it.
 */
#include <config.h>

#include "launcher/ckpt_bench.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/ckpt_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 100, MAX_SAID_BYTES = 1 << 20, SHOWN_BYTES = 2000 };
enum { MAX_FIGURES_BYTES = 1 << 20 };

struct bench_run {
    const struct ckpt_bench *b;
    char figures[PATH_MAX];
    struct ckpt_line line; /* how far it is */
    int said;      /* what the run says */
    int held;
    pid_t pid;
    int by_signal; /* that ended it, or 0 */
};

/* --- starting it --- */

static void words(const struct bench_run *r, const char *muster, const char *worker,
                  const char *place, struct strlist *to)
{
    strlist_add(to, muster);
    strlist_add(to, "run");
    if (geteuid() == 0) {
        strlist_add(to, "--allow-run-as-root");
    }
    strlist_add(to, "--quiet");
    strlist_add(to, "--name=ckpt-bench");
    strlist_addf(to, "--run-dir=%s/run", place);
    strlist_add(to, "--max-restarts=0");
    strlist_addf(to, "--nproc-per-node=%u", r->b->ranks);
    strlist_add(to, "--set");
    strlist_add(to, "limits.grace=1s");
    strlist_add(to, "--set");
    strlist_add(to, "detach.timeout=1s");
    strlist_add(to, "--");
    strlist_add(to, worker);
    strlist_addf(to, "%s/ckpt", place);
    strlist_addf(to, "%llu", (unsigned long long)r->b->bytes);
    strlist_addf(to, "%u", r->b->tensors);
    strlist_addf(to, "%u", r->b->rounds);
    strlist_add(to, r->figures);
}

/* Of a run, a batch job or an MPI launch that this process is in. Settings of Open MPI
 * that the site has made are kept where there is no launch. */
static bool is_of_others(const char *entry)
{
    static const char *const prefixes[] = {"MUSTER_", "SLURM_", "PMI_", "PMIX_",
                                           "PRTE_", "PET_", "TORCHELASTIC_"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (str_starts(entry, prefixes[i])) {
            return true;
        }
    }
    return getenv("OMPI_COMM_WORLD_RANK") && str_starts(entry, "OMPI_");
}

static void environment(const char *place, struct strlist *to)
{
    char state[PATH_MAX + 16];

    for (char **entry = environ; *entry; entry++) {
        if (!is_of_others(*entry)) {
            strlist_add(to, *entry);
        }
    }
    snprintf(state, sizeof(state), "%s/state", place);
    strlist_setenv(to, "XDG_STATE_HOME", state);
}

/* In the child. A process group of its own: Ctrl-C is ours to pass on, once. */
static void become_run(const struct bench_run *r, char **argv, char **envp,
                       pid_t parent)
{
    sigset_t none;

    signal(SIGINT, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGINT);
    if (getppid() != parent) {
        _exit(1);
    }
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(0);
    if (open("/dev/null", O_RDONLY) == 0 && dup2(r->said, 1) == 1 &&
        dup2(r->said, 2) == 2 && fcntl(r->held, F_SETFD, 0) == 0) {
        execve(argv[0], argv, envp);
    }
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(1);
}

static int start(struct bench_run *r, const char *place, struct error *e)
{
    char muster[PATH_MAX], worker[PATH_MAX];
    _strlist_ struct strlist argv = {0}, envp = {0};
    pid_t parent = getpid();
    int rc = fs_program(muster, sizeof(muster), e);

    rc = rc < 0 ? rc : fs_helper("muster-ckpt-bench", worker, sizeof(worker), e);
    rc = rc < 0 ? rc : fs_path(r->figures, sizeof(r->figures), e, "%s/figures",
                               place);
    if (rc < 0) {
        return rc;
    }
    words(r, muster, worker, place, &argv);
    environment(place, &envp);
    if (argv.failed || envp.failed) {
        return error_set(e, ENOMEM, "start the run");
    }
    r->said = memfd_create("muster-ckpt-bench", MFD_CLOEXEC);
    r->pid = r->said < 0 ? -1 : fork();
    if (r->pid < 0) {
        return error_set(e, errno, "start the run");
    }
    if (r->pid == 0) {
        become_run(r, argv.items, envp.items, parent);
    }
    return 0;
}

/* --- while it runs --- */

/* The last line of the workers that says how far they are. */
static void show_progress(struct bench_run *r)
{
    _free_ char *text = NULL;
    char what[64], doing[96], *at = NULL, *next;
    unsigned done, of;

    if (!ckpt_line_is_due(&r->line) ||
        fs_read(r->figures, MAX_FIGURES_BYTES, &text, NULL, NULL) < 0) {
        return;
    }
    for (next = strstr(text, "# "); next; next = strstr(next + 1, "# ")) {
        at = next;
    }
    if (at && sscanf(at, "# %u %u %63[a-z ]", &done, &of, what) == 3) {
        snprintf(doing, sizeof(doing), "measuring %s", what);
        ckpt_line_count(&r->line, doing, done, of);
    }
}

static int look_for_signal(const sigset_t *set)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};

    return sigtimedwait(set, NULL, &pause);
}

/* Until it has ended. The first signal asks it to, each further one harder. They stay
 * blocked: what comes after it takes everything away, and little time. */
static int wait_for(struct bench_run *r)
{
    sigset_t set;
    int status = 0, sig;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (waitpid(r->pid, &status, WNOHANG) == 0) {
        sig = look_for_signal(&set);
        if (sig > 0) {
            r->by_signal = sig;
            kill(r->pid, SIGINT);
        }
        show_progress(r);
    }
    ckpt_line_end(&r->line);
    return status;
}

/* --- after it --- */

/* The last lines of what it said. */
static void show_said(const struct bench_run *r)
{
    _free_ char *text = NULL;
    _buf_ struct buf clean = {0};
    size_t len = 0;
    char *from;

    if (lseek(r->said, 0, SEEK_SET) < 0 ||
        fs_read_fd(r->said, "what the run said", MAX_SAID_BYTES, &text, &len,
                   NULL) < 0) {
        return;
    }
    from = len > SHOWN_BYTES ? text + len - SHOWN_BYTES : text;
    if (from != text) {
        from += strcspn(from, "\n"); /* half a line */
        from += *from == '\n';
    }
    for (char *end; *from; from = end + (*end == '\n')) {
        end = from + strcspn(from, "\n");
        buf_puts(&clean, "  ");
        show_clean(&clean, from, (size_t)(end - from));
        buf_puts(&clean, "\n");
    }
    fputs(buf_str(&clean), stderr);
}

static int verdict(const struct bench_run *r, int status, struct error *e)
{
    if (r->by_signal) {
        return error_text(e, ECANCELED, "ckpt bench: ended by signal %d, and %s is "
                          "as it was", r->by_signal, r->b->dir);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    show_said(r);
    return error_text(e, EIO, "ckpt bench: its run %s %d, see above",
                      WIFEXITED(status) ? "ended with status" : "was ended by signal",
                      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

int ckpt_bench_run(const struct ckpt_bench *b, const char *place, int held,
                   char **ret, struct error *e)
{
    struct bench_run r = {.b = b, .said = -1, .held = held};
    int rc = start(&r, place, e);

    if (rc == 0) {
        rc = verdict(&r, wait_for(&r), e);
    }
    close_fd(&r.said);
    return rc < 0 ? rc : fs_read(r.figures, MAX_FIGURES_BYTES, ret, NULL, e);
}
