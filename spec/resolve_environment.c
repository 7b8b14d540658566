/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PET_NAME in the environment of muster gives torchrun's option --name a default
 * (so operators of clusters say how large a job is). It counts where neither the
 * job nor a command line says anything. In a worker of muster the same names are
 * what muster tells that worker, and none of a run that it may start.
 *
 * LOG_FORMAT=json is a default of logs.format in the same way. Other programs know
 * that name as well, and other values of it, which mean nothing here.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/resolve.h"
#include "spec/spec.h"

#include <string.h>
#include <strings.h>

static const char *look_up(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

void resolve_environment(const struct context *c, struct node *tree)
{
    static const struct {
        const char *name, *origin, *path;
        const char *only; /* the one value that means something; NULL: all do */
    } variables[] = {
        {"PET_NNODES", "environment PET_NNODES", "nodes", NULL},
        {"PET_NPROC_PER_NODE", "environment PET_NPROC_PER_NODE",
         "procsPerNode", NULL},
        {"PET_MAX_RESTARTS", "environment PET_MAX_RESTARTS", "restart.max",
         NULL},
        {"LOG_FORMAT", "environment LOG_FORMAT", "logs.format", "json"},
    };
    char *const *env = c->request->env;

    if (look_up(env, "MUSTER_RUN_ID")) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        const struct place at = {.file = variables[i].origin};
        const char *value = look_up(env, variables[i].name);
        const struct node *own = node_get_path(tree, variables[i].path);

        if (value && value[0] &&
            (!variables[i].only || strcasecmp(value, variables[i].only) == 0) &&
            (!own || node_is_null(own))) {
            node_set_path(c->arena, tree, variables[i].path,
                          node_scalar(c->arena, &at, value, true));
        }
    }
}
