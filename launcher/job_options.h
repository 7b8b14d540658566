/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that say what job is meant: `muster run`, `validate` and `explain`
 * take the same ones, and resolve the same job from them.
 */
#ifndef MUSTER_LAUNCHER_JOB_OPTIONS_H
#define MUSTER_LAUNCHER_JOB_OPTIONS_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/options.h"
#include "spec/spec.h"

#include <stddef.h>

enum { JOB_OPTIONS_MAX = 256 };

struct job_options {
    struct spec_override overrides[JOB_OPTIONS_MAX];
    size_t n_overrides;
    struct strlist owned; /* texts that overrides point to */
    const char *job;      /* which one of the file, or NULL */
};

/* The rows of an option table for a `struct job_options` field. */
#define JOB_OPTIONS(where, field)                                             \
    JOB_OPTION(where, field, "nnodes", "N|MIN:MAX", "number of nodes", 0),    \
    JOB_OPTION(where, field, "nproc-per-node", "N|auto|cpu|gpu",              \
               "processes on each node", 0),                                  \
    JOB_OPTION(where, field, "max-restarts", "N",                             \
               "restarts before the job fails", 0),                           \
    JOB_OPTION(where, field, "hang-timeout", "DURATION|off",                  \
               "a worker without progress for so long is taken as hung", 0),  \
    JOB_OPTION(where, field, "logs", "all|lead|none|RANKS",                   \
               "ranks whose output is shown, e.g. 0,3-5; files have all", 0), \
    JOB_OPTION(where, field, "log-prefix", "rank|host|none|TEMPLATE",         \
               "what stands before lines, e.g. '{host} {rank}: '", 0),        \
    JOB_OPTION(where, field, "log-fold", NULL,                                \
               "show once what several ranks print at about the same time",   \
               0),                                                            \
    JOB_OPTION(where, field, "log-max-size", "SIZE|off",                      \
               "begin a new log file at this size, e.g. 100M", 0),            \
    JOB_OPTION(where, field, "log-keep", "N",                                 \
               "full files that are kept of each log", 0),                    \
    JOB_OPTION(where, field, "interface", "NAME|NETWORK[,...]",               \
               "where nodes reach each other, e.g. ib0 or 10.1.0.0/16", 0),   \
    JOB_OPTION(where, field, "name", "NAME", "name of the job", 0),           \
    JOB_OPTION(where, field, "runtime", "NAME", "runtime to build on", 0),    \
    JOB_OPTION(where, field, "set", "PATH=VALUE",                             \
               "set any value of the spec, e.g. limits.grace=5s; may be "     \
               "repeated", 's'),                                              \
    {"job", "NAME", "which job of a file with several", OPTION_STR,           \
     offsetof(where, field.job), NULL, 'j'}
#define JOB_OPTION(where, field, name, value, help, letter)                   \
    {name, value, help, OPTION_CALL, offsetof(where, field),                  \
     job_options_take, letter}

/* For the table. */
int job_options_take(void *into, const struct option_def *def,
                     const char *value, struct error *e);

/* Resolves what the words of the command line and the options mean: one word is
 * a spec, words behind `--` are a program; not both. As spec_resolve(); without
 * either -ERR_USAGE. The request's own fields, such as accept_runtime, are
 * taken over from `like` (may be NULL). */
int job_options_resolve(const struct job_options *o,
                        const struct option_args *args,
                        const struct spec_request *like,
                        struct spec_result *ret, struct error *e);

void job_options_release(struct job_options *o);

#endif
