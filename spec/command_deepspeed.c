/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed [OPTION...] SCRIPT. As it does, --local_rank=N is put behind the
 * script, and the variables of .deepspeed_env reach the workers. Its own
 * hostfile is not looked for: hosts are muster's.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/command.h"
#include "spec/expand.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum meaning {
    INCLUDE = LAUNCHER_OWN,
    LOCAL_RANK_OFF,
    BIND,
};

enum { MAX_GPUS = 1024 };

#define NOTED LAUNCHER_NOTED
#define REFUSED LAUNCHER_REFUSED
#define OWN_WORK LAUNCHER_NOTED, "muster gathers the processes itself"
#define OWN_SSH LAUNCHER_NOTED, "muster starts the other hosts itself"

static const struct launcher_option options[] = {
    {"hostfile", 1, REFUSED,
     "expected --hostfile of muster run, which takes such files, and nodes"},
    {"H", 1, REFUSED,
     "expected --hostfile of muster run, which takes such files, and nodes"},
    {"include", 1, INCLUDE, NULL},
    {"i", 1, INCLUDE, NULL},
    {"exclude", 1, REFUSED,
     "expected the hosts that are meant, with --hosts of muster run, and "
     "CUDA_VISIBLE_DEVICES for their GPUs"},
    {"e", 1, REFUSED,
     "expected the hosts that are meant, with --hosts of muster run, and "
     "CUDA_VISIBLE_DEVICES for their GPUs"},
    {"num-nodes", 1, LAUNCHER_KEY, "nodes"},
    {"num-gpus", 1, LAUNCHER_KEY, "procsPerNode"},
    {"num-accelerators", 1, LAUNCHER_KEY, "procsPerNode"},
    {"master-port", 1, OWN_WORK},
    {"master-addr", 1, OWN_WORK},
    {"node-rank", 1, OWN_WORK},
    {"launcher", 1, OWN_SSH},
    {"launcher-args", 1, REFUSED,
     "expected what is meant as options of muster run"},
    {"module", 0, LAUNCHER_MODULE, NULL},
    {"no-python", 0, LAUNCHER_NO_PYTHON, NULL},
    {"no-local-rank", 0, LOCAL_RANK_OFF, NULL},
    {"no-ssh", 0, OWN_SSH},
    {"no-ssh-check", 0, OWN_SSH},
    {"force-multi", 0, OWN_SSH},
    {"save-pid", 0, NOTED, "muster status tells the processes of a run"},
    {"enable-each-rank-log", 1, NOTED,
     "muster writes a file for each worker and stream in the run directory"},
    {"autotuning", 1, REFUSED,
     "expected a job that is tuned already: the tuner starts jobs of its own, "
     "with deepspeed itself"},
    {"bind-cores-to-rank", 0, BIND, NULL},
    {"bind-core-list", 1, REFUSED,
     "muster binds workers to nothing yet: expected taskset or numactl in the "
     "command"},
    {"ssh-port", 1, REFUSED,
     "expected Port for these hosts in the configuration of ssh"},
    {"venv-script", 1, REFUSED,
     "expected the environment to be active where muster is started: its "
     "variables reach all hosts"},
    {"log-level", 1, NOTED, "it is that of deepspeed's own messages"},
    {"quiet", 0, NOTED, "it is for deepspeed's own messages"},
    {"q", 0, NOTED, "it is for deepspeed's own messages"},
    {0},
};

bool command_is_deepspeed(struct command *cmd)
{
    static const char *const programs[] = {"deepspeed", "deepspeed.pt", NULL};
    static const char *const modules[] = {"deepspeed.launcher.runner", NULL};

    return command_is_one_of(cmd, programs, modules);
}

/* Of "0,2"; 0 where anything else is in it, or one of them twice. */
static unsigned count_numbers(const char *list)
{
    bool seen[MAX_GPUS] = {false};
    unsigned n = 0;

    for (const char *s = list;; s++) {
        size_t len = strspn(s, "0123456789");
        unsigned long number = strtoul(s, NULL, 10);

        if (len == 0 || len > 4 || number >= MAX_GPUS || seen[number]) {
            return 0;
        }
        seen[number] = true;
        n++;
        s += len;
        if (*s != ',') {
            return *s ? 0 : n;
        }
    }
}

/* "localhost:0,2" as the GPUs of the one node. What names hosts is for muster's
 * own command line. */
static void read_include(struct command *cmd, const struct launcher_hit *hit)
{
    struct node *value = hit->values[0];
    const char *colon = strchr(value->text, ':');
    const char *list = colon ? colon + 1 : "";
    unsigned n;

    if (command_is_unexpanded(cmd, hit, value)) {
        return;
    }
    n = count_numbers(list);
    if (n == 0) {
        command_refuse(cmd, hit, "expected localhost:0,1,... for GPUs of one "
                                 "node; several hosts are for --hosts of "
                                 "muster run");
        return;
    }
    command_offer(cmd, hit, "nodes",
                  node_scalar(cmd->c->arena, &value->place, "1", true));
    command_offer(cmd, hit, "procsPerNode",
                  node_scalar(cmd->c->arena, &value->place,
                              arena_printf(cmd->c->arena, "%u", n), true));
    command_set_env(cmd, "CUDA_VISIBLE_DEVICES",
                    node_scalar(cmd->c->arena, &value->place, list, false));
}

static void read_option(struct command *cmd, const struct launcher_hit *hit,
                        void *arg)
{
    bool *no_local_rank = arg;

    switch ((enum meaning)hit->option->meaning) {
    case INCLUDE:
        read_include(cmd, hit);
        break;
    case LOCAL_RANK_OFF:
        *no_local_rank = true;
        break;
    case BIND:
        command_offer(cmd, hit, "binding",
                      node_scalar(cmd->c->arena, &hit->node->place, "core",
                                  true));
        break;
    }
}

/* --- .deepspeed_env --- */

/* A file's variable as a value of the job, in which $ may begin a name. */
static struct node *as_template(struct command *cmd, const struct node *value)
{
    _buf_ struct buf text = {0};
    struct node *n;

    expand_escape(&text, value->text);
    n = node_scalar(cmd->c->arena, &value->place,
                    arena_strdup(cmd->c->arena, buf_str(&text)), false);
    if (n) {
        n->secret = true;
    }
    return n;
}

/* Where the job does not have them. */
static void read_variables(struct command *cmd, const char *path)
{
    struct arena *a = cmd->c->arena;
    const struct place *at = &cmd->argv[0]->place;
    struct node *item = node_map(a, at), *list = node_list(a, at);
    struct node *out = node_map(a, at), *env;

    if (access(path, R_OK) < 0 || !item || !list || !out) {
        return;
    }
    report_note(cmd->c->report, at,
                "the variables of %.200s are taken, as deepspeed does", path);
    node_set(a, item, "file",
             node_scalar(a, at, arena_strdup(a, path), false));
    node_append(a, list, item);
    form_set_env_from(cmd->c, out, list);
    env = node_get(out, "env");
    for (size_t i = 0; env && i < env->n; i++) {
        command_set_env(cmd, env->pairs[i].key,
                        as_template(cmd, env->pairs[i].value));
    }
}

/* In the home directory and where muster was started; the latter counts. */
static void read_own_environment(struct command *cmd)
{
    const char *name = form_getenv(cmd->c, "DS_ENV_FILE");
    const char *home = form_getenv(cmd->c, "HOME");
    char path[PATH_MAX];

    if (!cmd->c->request->env) {
        return;
    }
    name = name && name[0] ? name : ".deepspeed_env";
    read_variables(cmd, name);
    if (home && name[0] != '/' &&
        snprintf(path, sizeof(path), "%s/%s", home, name) <
            (int)sizeof(path)) {
        read_variables(cmd, path);
    }
}

bool command_read_deepspeed(struct command *cmd)
{
    size_t errors = cmd->c->report->n_errors;
    bool no_local_rank = false;
    struct node *rank;

    cmd->is_argparse = true;
    if (!command_read_options(cmd, options, read_option, &no_local_rank) ||
        !command_check_python(cmd)) {
        return false;
    }
    read_own_environment(cmd);
    rank = no_local_rank
               ? NULL
               : node_scalar(cmd->c->arena, &cmd->argv[0]->place,
                             "--local_rank=$(LOCAL_RANK)", false);
    command_start_python(cmd, rank);
    return cmd->c->report->n_errors == errors;
}
