/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PET_NAME in the environment of muster gives torchrun's option --name a default
 * (so operators of clusters say how large a job is). It counts where neither the
 * job nor a command line says anything. These are for every job; what others say
 * only where the command is torchrun (command_torch.c). In a worker of muster the same names are
 * what muster tells that worker, and none of a run that it may start.
 *
 * LOG_FORMAT=json is a default of logs.format in the same way. Other programs know
 * that name as well, and other values of it, which mean nothing here.
 *
 * KUBERNETES_SERVICE_HOST is in the environment of every container of a pod.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "spec/resolve.h"
#include "spec/spec.h"

#include <string.h>
#include <strings.h>

/* A pod is killed 30 s after it was told to go, unless it says otherwise: workers have to
 * be gone a little before that. */
static void settle_grace(const struct context *c, struct node *tree)
{
    static const char name[] = "KUBERNETES_SERVICE_HOST";
    const struct place at = {.file = "environment KUBERNETES_SERVICE_HOST"};
    const char *value = form_getenv(c, name);
    const struct node *own = node_get_path(tree, "limits.grace");

    if (value && value[0] && (!own || node_is_null(own))) {
        node_set_path(c->arena, tree, "limits.grace",
                      node_scalar(c->arena, &at, "25s", true));
    }
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

    settle_grace(c, tree);
    if (form_getenv(c, "MUSTER_RUN_ID")) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        const struct place at = {.file = variables[i].origin};
        const char *value = form_getenv(c, variables[i].name);
        const struct node *own = node_get_path(tree, variables[i].path);

        if (value && value[0] &&
            (!variables[i].only || strcasecmp(value, variables[i].only) == 0) &&
            (!own || node_is_null(own))) {
            node_set_path(c->arena, tree, variables[i].path,
                          node_scalar(c->arena, &at, value, true));
        }
    }
}
