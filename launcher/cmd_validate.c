/* SPDX-License-Identifier: Apache-2.0 */
/* muster validate: whether a spec means what its author thinks. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "launcher/options.h"
#include "spec/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { MAX_SETS = 256 };

struct validate_options {
    struct strlist sets;
    const char *job;
    bool quiet;
};

static const struct option_def table[] = {
    {"set", "PATH=VALUE", "override one value of the job, as with muster run; "
     "may be repeated", OPTION_LIST, offsetof(struct validate_options, sets),
     NULL, 's'},
    {"job", "NAME", "which of several jobs in the file", OPTION_STR,
     offsetof(struct validate_options, job), NULL, 'j'},
    {"quiet", NULL, "print errors and warnings only", OPTION_FLAG,
     offsetof(struct validate_options, quiet), NULL, 'q'},
    {0},
};

static const struct options options = {
    .command = "validate",
    .usage = "SPEC [--set PATH=VALUE]... [--job NAME]",
    .about = "Reads a job spec (- is standard input) without starting anything: "
             "prints every error and warning with file, line and column, then "
             "what the job would be. The exit status is 2 if it cannot run.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

/* "PATH=VALUE" as an override; the path is cut out in `word`, which is owned by
 * the caller. */
static int split_set(char *word, struct spec_override *to, struct error *e)
{
    char *equals = strchr(word, '=');

    if (!equals || equals == word) {
        return error_text(e, ERR_USAGE, "option --set: expected PATH=VALUE, "
                          "found '%.200s'", word);
    }
    *equals = '\0';
    *to = (struct spec_override){word, equals + 1, "--set"};
    return 0;
}

static void print_messages(const struct spec_result *r, bool quiet)
{
    static const char *const levels[] = {
        [SPEC_NOTE] = "note: ", [SPEC_WARNING] = "warning: ", [SPEC_ERROR] = "",
    };

    for (size_t i = 0; i < r->n_messages; i++) {
        const struct spec_message *m = &r->messages[i];

        if (m->level != SPEC_NOTE || !quiet) {
            fprintf(m->level == SPEC_NOTE ? stdout : stderr, "%s%s\n",
                    levels[m->level], m->text);
        }
    }
}

static void print_nodes(const struct job *job)
{
    if (job->nodes.max > job->nodes.min) {
        printf("%u to %u nodes", job->nodes.min, job->nodes.max);
    } else {
        printf("%u node%s", job->nodes.min, job->nodes.min == 1 ? "" : "s");
    }
}

static void print_procs(const struct job_procs *procs)
{
    static const char *const kinds[] = {
        [JOB_PROCS_AUTO] = "one process for each GPU, else each CPU",
        [JOB_PROCS_CPU] = "one process for each CPU",
        [JOB_PROCS_GPU] = "one process for each GPU",
    };

    if (procs->mode == JOB_PROCS_FIXED) {
        printf("%u process%s", procs->n, procs->n == 1 ? "" : "es");
    } else {
        printf("%s", kinds[procs->mode]);
    }
}

static void print_job(const struct job *job)
{
    _free_ char *command = job->command.n ? str_shell_join(job->command.items)
                                          : NULL;

    printf("ok: job %s, ", job->name ? job->name : "(without a name)");
    print_nodes(job);
    printf(" x ");
    print_procs(&job->procs);
    printf("%s%s\n", command ? ": " : "", command ? command : "");
}

static int validate(const struct validate_options *set, const char *path)
{
    struct spec_override *overrides = calloc(set->sets.n + 1,
                                             sizeof(*overrides));
    struct spec_request request = {
        .path = path, .job = set->job, .overrides = overrides,
        .n_overrides = set->sets.n, .env = environ, .accept_runtime = true,
    };
    struct spec_result result = {0};
    struct error e = {0};
    int rc = overrides ? 0 : error_text(&e, ENOMEM, "out of memory");

    for (size_t i = 0; i < set->sets.n && rc == 0; i++) {
        rc = split_set(set->sets.items[i], &overrides[i], &e);
    }
    if (rc == 0) {
        rc = spec_resolve(&request, &result, &e);
        print_messages(&result, set->quiet);
    }
    if (rc == 0 && !set->quiet) {
        print_job(result.job);
    }
    if (rc < 0 && !result.n_errors) {
        command_fail(&e);
    }
    spec_result_release(&result);
    free(overrides);
    return rc < 0 ? EXIT_USAGE : EXIT_OK;
}

int cmd_validate(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct validate_options set = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        rc = validate(&set, args.words.items[0]);
    }
    strlist_release(&set.sets);
    return rc;
}
