/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/shell.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/commands.h"
#include "launcher/control.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASK_MS = 10000, MAX_CPUS = 65536 };

/* What the agent tells: owned. */
struct place {
    pid_t pid;
    mode_t mask;
    char cwd[PATH_MAX];
    struct strlist env;
};

static void place_release(struct place *p)
{
    strlist_release(&p->env);
}

/* --- what the agent tells --- */

/* The bytes of a string of base64, with a zero behind them; the caller frees
 * them. NULL for what is none, or without memory. */
static char *get_bytes(const json_t *o, const char *key, size_t *ret_len)
{
    const char *text = json_string_value(json_object_get(o, key));
    size_t size = text ? strlen(text) : 0;
    _free_ char *data = text ? malloc(size + 1) : NULL;

    if (!data || sodium_base642bin((unsigned char *)data, size, text, size,
                                   NULL, ret_len, NULL,
                                   sodium_base64_VARIANT_ORIGINAL) < 0) {
        return NULL;
    }
    data[*ret_len] = '\0';
    return take_ptr(&data);
}

static int read_place(const json_t *reply, struct place *ret, struct error *e)
{
    size_t env_len = 0, cwd_len = 0;
    _free_ char *env = get_bytes(reply, "env", &env_len);
    _free_ char *cwd = get_bytes(reply, "cwd", &cwd_len);

    ret->pid = (pid_t)json_integer_value(json_object_get(reply, "pid"));
    ret->mask = (mode_t)json_integer_value(json_object_get(reply, "umask")) &
                0777;
    if (!env || !cwd || cwd_len >= sizeof(ret->cwd) || ret->pid <= 0) {
        return error_text(e, ERR_FORMAT, "the agent's answer does not parse");
    }
    str_copy(ret->cwd, sizeof(ret->cwd), cwd);
    for (size_t at = 0; at < env_len; at += strlen(env + at) + 1) {
        strlist_add(&ret->env, env + at);
    }
    return ret->env.failed ? error_set(e, ENOMEM, "take the environment") : 0;
}

static int ask(const char *run_id, int64_t rank, struct place *ret,
               struct error *e)
{
    json_t *request = json_pack("{s:i,s:s,s:I}", "v", 1, "op", "shell", "rank",
                                (json_int_t)rank);
    json_t *reply = NULL;
    int rc = request ? control_ask_agents(run_id, request, ASK_MS, &reply, e)
                     : error_set(e, ENOMEM, "ask the agent");

    json_decref(request);
    rc = rc < 0 ? rc : read_place(reply, ret, e);
    json_decref(reply);
    return rc;
}

/* --- taking it --- */

/* As far as this session may: hard limits only root can raise. */
static void take_limits(pid_t pid)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit want, own;

        if (prlimit(pid, (__rlimit_resource_t)i, NULL, &want) < 0 ||
            getrlimit((__rlimit_resource_t)i, &own) < 0 ||
            setrlimit((__rlimit_resource_t)i, &want) == 0) {
            continue;
        }
        want.rlim_max = own.rlim_max;
        if (want.rlim_cur > own.rlim_max) {
            want.rlim_cur = own.rlim_max;
        }
        setrlimit((__rlimit_resource_t)i, &want);
    }
}

/* As far as the cgroup of this session allows. */
static void take_binding(pid_t pid)
{
    cpu_set_t set[MAX_CPUS / CPU_SETSIZE] = {0};

    if (sched_getaffinity(pid, sizeof(set), set) == 0) {
        sched_setaffinity(0, sizeof(set), set);
    }
}

static int take_place(struct place *p, struct error *e)
{
    const char *term = getenv("TERM");

    if (term) {
        strlist_setenv(&p->env, "TERM", term); /* of this terminal */
    }
    if (p->env.failed) {
        return error_set(e, ENOMEM, "take the environment");
    }
    if (chdir(p->cwd) < 0) {
        return error_set(e, errno, "go to %s", p->cwd);
    }
    umask(p->mask);
    take_limits(p->pid);
    take_binding(p->pid);
    signal(SIGPIPE, SIG_DFL); /* main() ignores these */
    signal(SIGXFSZ, SIG_DFL);
    return 0;
}

/* --- the program --- */

static const char *find_shell(const struct place *p)
{
    const char *shell = strlist_getenv(&p->env, "SHELL");
    const struct passwd *pw = shell && shell[0] ? NULL : getpwuid(geteuid());

    if (pw) {
        shell = pw->pw_shell;
    }
    return shell && shell[0] ? shell : "/bin/sh";
}

/* Returns an exit status. */
static int become(const struct place *p, const struct strlist *argv,
                  struct error *e)
{
    const char *path_env = strlist_getenv(&p->env, "PATH");
    const char *name = argv->n ? argv->items[0] : find_shell(p);
    char *const shell_argv[] = {(char *)name, NULL};
    char path[PATH_MAX];
    int rc = fs_which(name, path_env ? path_env : "/usr/bin:/bin", path,
                      sizeof(path));

    if (rc == 0) {
        execve(path, argv->n ? argv->items : shell_argv, p->env.items);
        rc = -errno;
    }
    error_set(e, -rc, "run %s", name);
    return rc == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC;
}

int shell_enter(const char *run_id, int64_t rank, const struct strlist *argv,
                struct error *e)
{
    __attribute__((cleanup(place_release))) struct place p = {0};
    int rc = ask(run_id, rank, &p, e);

    rc = rc < 0 ? rc : take_place(&p, e);
    return rc < 0 ? EXIT_FAILED : become(&p, argv, e);
}
