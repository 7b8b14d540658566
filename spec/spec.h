/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the user wrote to one struct job. Layers, each over the one before:
 * built-in defaults, PET_* in the environment, options of a launcher in the
 * command, the runtime, the job, the command line. Every value keeps where it came from.
 *
 * Nothing here prints, starts or connects anything; files are read (the spec,
 * runtimes), none are written. No state is kept between calls; one call per
 * result at a time, any thread.
 */
#ifndef MUSTER_SPEC_SPEC_H
#define MUSTER_SPEC_SPEC_H

#include "base/buf.h"
#include "base/error.h"
#include "spec/job.h"

#include <stdbool.h>
#include <stddef.h>

/* A value from the command line. Options map to paths: --nnodes to "nodes",
 * --nproc-per-node to "procsPerNode", --max-restarts to "restart.max", --name
 * to "name", --runtime to "runtime"; --set PATH=VALUE gives both. */
struct spec_override {
    const char *path;   /* of the short form, e.g. "restart.max", "env.LR" */
    const char *value;  /* as in YAML, e.g. "3", "[a, b]" */
    const char *origin; /* for messages: "--set", "--nnodes" */
};

/* What is to be resolved. Everything is borrowed for the call. Either `path`,
 * `text` or `argv` is set. */
struct spec_request {
    const char *path;   /* of the spec; "-" is stdin */
    const char *text;   /* a spec in memory, zero-terminated, called `name` */
    const char *text_name;
    char *const *argv;  /* a program and its arguments, taken as they are */
    const char *job;    /* which of several in the file; NULL: the only one */
    const struct spec_override *overrides;
    size_t n_overrides;
    char *const *torch_options; /* options of torchrun with their values, which
                                   count as overrides; NULL: none */
    char *const *env;   /* for secrets, hidden values, PET_* and the like, usually
                           `environ` */
    const char *const *runtime_dirs; /* NULL-terminated; NULL: those of the user
                                        and the site */
    bool as_launcher;    /* argv is a launcher whose own defaults count where
                            nothing says anything (muster torchrun) */
    bool accept_runtime; /* a file with only runtimes resolves as a job that
                            adds nothing to the last of them; its command may be
                            missing (muster validate) */
};

enum spec_level {
    SPEC_NOTE,    /* what was done that the user may want to know */
    SPEC_WARNING, /* what probably is not meant */
    SPEC_ERROR,
};

struct spec_message {
    enum spec_level level;
    char *text; /* "file:line:column: ...", or without a place */
};

/* Where one value of the job came from, in the order of muster-job(5). */
struct spec_origin {
    char *path;   /* e.g. "restart.max" */
    char *origin; /* "file:line:column", "runtime NAME (built in)", "default",
                     "--set", "environment PET_NNODES" */
};

struct spec_result {
    struct job *job; /* NULL if there was an error */
    struct spec_message *messages; /* as found; errors are at most 20 */
    size_t n_messages;
    size_t n_errors;
    struct spec_origin *origins;
    size_t n_origins;
    char *hosts; /* that a launcher in the command names, as --hosts takes them
                    ("a:2,b:2"); NULL: none, or no job */
};

/* Resolves. 0 and result->job is set; or -ERR_SPEC (the first error is in `e`,
 * all are in the messages), -errno where the file cannot be read, -ERR_USAGE
 * where the request itself is wrong. The result is filled either way and is
 * released by the caller. */
int spec_resolve(const struct spec_request *request,
                 struct spec_result *ret, struct error *e);

void spec_result_release(struct spec_result *result);

/* Where the value at `path` came from, or NULL. */
const char *spec_origin_of(const struct spec_result *result, const char *path);

/* The runtimes that a job may name, one a line: NAME<TAB>where it is. */
int spec_list_runtimes(const char *const *runtime_dirs, struct buf *to,
                       struct error *e);

/* How many words are the values of a word that is an option of torchrun, as
 * --nproc_per_node; -1 if it is none of its options. */
int spec_torchrun_option(const char *word);

/* What a key of the short form means and accepts, in a phrase. False if there is
 * no such key. */
bool spec_describe_key(const char *path, struct buf *to);

/* All keys of the short form as an scdoc table: key, type, default, meaning. */
void spec_print_table(struct buf *to);

#endif
