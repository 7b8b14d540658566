/* SPDX-License-Identifier: Apache-2.0 */
/* muster validate: whether a spec means what its author thinks. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "launcher/job_options.h"
#include "launcher/options.h"
#include "spec/spec.h"

#include <stdio.h>
#include <stdlib.h>

struct validate_options {
    struct job_options job;
    bool quiet;
};

static const struct option_def table[] = {
    JOB_OPTIONS(struct validate_options, job),
    {"quiet", NULL, "print errors and warnings only", OPTION_FLAG,
     offsetof(struct validate_options, quiet), NULL, 'q'},
    {0},
};

static const struct options options = {
    .command = "validate",
    .usage = "[OPTION...] SPEC\n[OPTION...] -- PROGRAM [ARG...]",
    .about = "Reads a job spec (- is standard input) without starting anything: "
             "prints every error and warning with file, line and column, then "
             "what the job would be. The exit status is 2 if it cannot run.",
    .table = table,
    .max_args = 1,
    .takes_rest = true,
    .n_values_elsewhere = spec_torchrun_option,
};

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

int cmd_validate(int argc, char **argv)
{
    static const struct spec_request lenient = {.accept_runtime = true};
    _option_args_ struct option_args args = {0};
    struct validate_options set = {0};
    struct spec_result result = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        rc = job_options_resolve(&set.job, &args, &lenient, &result, &e);
        print_messages(&result, set.quiet);
        if (rc == 0 && !set.quiet) {
            print_job(result.job);
        } else if (rc < 0 && !result.n_errors) {
            command_fail(&e);
        }
        rc = rc < 0 ? EXIT_USAGE : EXIT_OK;
    }
    spec_result_release(&result);
    job_options_release(&set.job);
    return rc;
}
