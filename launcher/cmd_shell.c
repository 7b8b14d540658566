/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster shell: a shell, or a command, where a worker is. The agent of its host
 * tells what the worker was given; this process takes that, and becomes the
 * shell, so that terminal, job control and exit status are its own. It is no
 * child of the agent and no worker: neither the end of a generation nor that of
 * the run ends it. On another host the same is done there, over srun or ssh.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/options.h"
#include "launcher/runview.h"
#include "launcher/shell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct shell_options {
    const char *here; /* a run id: the worker is on this host */
};

static const struct option_def table[] = {
    {"here", "ID", NULL, OPTION_STR, offsetof(struct shell_options, here), NULL,
     0},
    {0},
};

static const struct options options = {
    .command = "shell",
    .usage = "RUN [RANK] [-- PROGRAM [ARG...]]",
    .about = "Starts a shell, or PROGRAM, where a worker of the run is (that of "
             "rank 0, or RANK): on its host, in its directory, with its "
             "environment, limits and binding. RUN is a run directory, a run id "
             "or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 2,
    .takes_rest = true,
};

static int parse_rank(const char *text, int64_t *ret, struct error *e)
{
    if (str_to_i64(text, ret) < 0 || *ret < 0) {
        return error_text(e, ERR_USAGE, "'%.40s' is not the rank of a worker",
                          text);
    }
    return 0;
}

/* Others cannot ask the agent, and root would be root there. */
static int check_owner(const struct run_view *v, struct error *e)
{
    struct stat st;

    if (stat(v->dir->path, &st) < 0) {
        return error_set(e, errno, "look at %s", v->dir->path);
    }
    return st.st_uid == geteuid()
               ? 0 : error_text(e, EPERM, "run %s is that of user %lu: only that "
                                "user can be where its workers are", v->dir->id,
                                (unsigned long)st.st_uid);
}

static int check_worker(const struct run_view *v, int64_t rank,
                        struct error *e)
{
    const struct run_status *s = v->status;
    char state[512];

    if (status_run_is_over(s->state) || s->n_workers == 0) {
        run_view_state(v, state, sizeof(state));
        return error_text(e, ERR_LOST, "run %s has no workers now: %s",
                          v->dir->id, state);
    }
    if ((uint64_t)rank >= s->n_workers) {
        return error_text(e, ERR_USAGE, "run %s has no worker %" PRId64
                          ": expected a rank from 0 to %zu", v->dir->id, rank,
                          s->n_workers - 1);
    }
    if (s->workers[rank].node < 0 ||
        (size_t)s->workers[rank].node >= s->n_nodes) {
        return error_text(e, ERR_FORMAT, "the status of run %s does not say "
                          "where worker %" PRId64 " is", v->dir->id, rank);
    }
    return 0;
}

/* Returns only on failure, with an exit status. */
static int go(const struct run_view *v, int64_t rank,
              const struct strlist *argv, struct error *e)
{
    const struct run_status *s = v->status;
    int node = s->workers[rank].node;
    _front_record_ struct front_record was = {0};
    struct shell_way way = {.run_id = v->dir->id, .rank = rank, .argv = argv};
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    if (strcmp(host, s->nodes[node].host) == 0) {
        return shell_enter(v->dir->id, rank, argv, e);
    }
    way.was = front_record_read(v->dir, &was, NULL) == 0 ? &was : NULL;
    way.host = shell_way_host(way.was, s, node);
    way.on_terminal = isatty(0) && isatty(1);
    if (way.on_terminal) {
        fprintf(stderr, "muster: worker %" PRId64 " is on %s\n", rank,
                way.host);
    }
    return shell_go(&way, e);
}

int cmd_shell(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct shell_options set = {0};
    _run_view_ struct run_view v = {0};
    int64_t rank = 0;
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);
    char *const *words = args.words.items;

    if (rc >= 0) {
        return rc;
    }
    if (set.here) {
        rc = parse_rank(words[0], &rank, &e);
        rc = rc < 0 ? EXIT_USAGE
                    : shell_enter(set.here, rank, &args.rest, &e);
        command_fail(&e);
        return rc;
    }
    rc = args.words.n > 1 ? parse_rank(words[1], &rank, &e) : 0;
    rc = rc < 0 ? rc : run_view_load(words[0], &v, &e);
    rc = rc < 0 ? rc : check_owner(&v, &e);
    rc = rc < 0 ? rc : check_worker(&v, rank, &e);
    if (rc < 0) {
        return command_fail(&e);
    }
    rc = go(&v, rank, &args.rest, &e);
    command_fail(&e);
    return rc;
}
