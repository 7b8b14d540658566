/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/job_options.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

extern char **environ;

static int add(struct job_options *o, const char *path, const char *value,
               const char *origin, struct error *e)
{
    if (!path || !value) {
        return error_set(e, ENOMEM, "take a value");
    }
    if (o->n_overrides == JOB_OPTIONS_MAX) {
        return error_text(e, ERR_USAGE, "more than %d values",
                          JOB_OPTIONS_MAX);
    }
    o->overrides[o->n_overrides++] =
        (struct spec_override){path, value, origin};
    return 0;
}

/* The text that was added to `owned` last. */
static const char *newest(const struct strlist *owned)
{
    return owned->failed ? NULL : owned->items[owned->n - 1];
}

static int take_set(struct job_options *o, const char *value, struct error *e)
{
    const char *equals = strchr(value, '=');

    if (!equals || equals == value) {
        return error_text(e, ERR_USAGE, "expected PATH=VALUE, found '%.200s'",
                          value);
    }
    strlist_addf(&o->owned, "%.*s", (int)(equals - value), value);
    return add(o, newest(&o->owned), equals + 1, "--set", e);
}

/* torchrun writes MIN:MAX, the spec MIN..MAX. */
static int take_nnodes(struct job_options *o, const char *value,
                       struct error *e)
{
    const char *colon = strchr(value, ':');

    if (!colon) {
        return add(o, "nodes", value, "--nnodes", e);
    }
    strlist_addf(&o->owned, "%.*s..%s", (int)(colon - value), value,
                 colon + 1);
    return add(o, "nodes", newest(&o->owned), "--nnodes", e);
}

int job_options_take(void *into, const struct option_def *def,
                     const char *value, struct error *e)
{
    static const char *const paths[][2] = {
        {"--nproc-per-node", "procsPerNode"},
        {"--max-restarts", "restart.max"},
        {"--hang-timeout", "hang.timeout"},
        {"--name", "name"},
        {"--logs", "logs.show"},
        {"--log-prefix", "logs.prefix"},
        {"--log-fold", "logs.fold"},
        {"--log-max-size", "logs.maxSize"},
        {"--log-keep", "logs.keep"},
        {"--runtime", "runtime"},
        {"--interface", "network.interface"},
        {"--requeue", "slurm.requeue"},
    };
    struct job_options *o = (void *)((char *)into + def->offset);

    if (strcmp(def->name, "set") == 0) {
        return take_set(o, value, e);
    }
    if (strcmp(def->name, "nnodes") == 0) {
        return take_nnodes(o, value, e);
    }
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        if (strcmp(def->name, paths[i][0] + 2) == 0) {
            return add(o, paths[i][1], value ? value : "true", paths[i][0],
                       e);
        }
    }
    return -EINVAL;
}

int job_options_resolve(const struct job_options *o,
                        const struct option_args *args,
                        const struct spec_request *like,
                        struct spec_result *ret, struct error *e)
{
    struct spec_request request = like ? *like : (struct spec_request){0};

    if (args->words.n && args->rest.n) {
        return error_text(e, ERR_USAGE, "expected either a SPEC or -- PROGRAM, "
                          "found both: '%.200s' and -- %.200s (--help tells "
                          "more)", args->words.items[0], args->rest.items[0]);
    }
    if (args->words.n == 0 && args->rest.n == 0) {
        return error_text(e, ERR_USAGE, "expected either a SPEC or -- PROGRAM "
                          "(--help tells more)");
    }
    request.path = args->words.n ? args->words.items[0] : NULL;
    request.argv = args->has_rest ? args->rest.items : NULL;
    request.torch_options = args->others.n ? args->others.items : NULL;
    request.job = o->job;
    request.overrides = o->overrides;
    request.n_overrides = o->n_overrides;
    request.env = environ;
    return spec_resolve(&request, ret, e);
}

void job_options_release(struct job_options *o)
{
    strlist_release(&o->owned);
}
