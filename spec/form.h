/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialects: each turns one document into a tree of the short form, which is
 * what layers are merged in. One file a dialect, and what they share.
 */
#ifndef MUSTER_SPEC_FORM_H
#define MUSTER_SPEC_FORM_H

#include "spec/node.h"
#include "spec/report.h"
#include "spec/schema.h"
#include "spec/spec.h"

#include <stdbool.h>

/* What one spec_resolve() works with. */
struct context {
    struct arena *arena;
    struct report *report;
    const struct spec_request *request;
    const char **hosts; /* those that a launcher names, see struct spec_result */
};

/* Of the environment that the request has; NULL: not set. */
const char *form_getenv(const struct context *c, const char *name);

struct form {
    const char *api_version;
    const char *kind;
    bool is_runtime;
    /* The document in the short form; NULL after errors. `name` is in it where
     * the document has one. */
    struct node *(*read)(const struct context *c, struct node *doc);
};

extern const struct form forms[];
extern const size_t n_forms;

struct node *form_job_read(const struct context *c, struct node *doc);
struct node *form_ome_job_read(const struct context *c, struct node *doc);
struct node *form_ome_runtime_read(const struct context *c, struct node *doc);

/* The form of a document; NULL after an error that says what it is instead. With
 * `lenient` a kind of others is no error, only NULL. */
const struct form *form_of(const struct context *c, const struct node *doc,
                           bool lenient);

/* For a document that form_of() does not know: the form that was meant, of
 * another version of the same group or with a kind written almost so, or NULL
 * for what belongs to others (and for what it knows); and what is to be said of
 * that. */
const struct form *form_nearest(const struct node *doc);
const char *form_why_not(const struct node *doc);

/* The name in a document of either style, or NULL. */
const char *form_doc_name(const struct node *doc);

/* --- for the files of dialects --- */

/* A reader that builds `out`. */
struct reader form_reader(const struct context *c, struct node *out);

/* The context that form_reader() put into a reader. */
const struct context *form_context(const struct reader *r);

/* `metadata` of a job, whose labels and annotations are kept, and of a runtime,
 * whose are not. Annotations muster/PATH are settings in both. */
extern const struct field form_job_metadata[];
extern const struct field form_runtime_metadata[];

/* Sets a path of the short form from text, as after --set. */
void form_set_text(const struct context *c, struct node *out, const char *path,
                   const char *text, const struct place *at);

/* `env` as a list of name and value or a map, and `envFrom`, into out's env. */
void form_set_env(const struct context *c, struct node *out, struct node *env);
void form_set_env_from(const struct context *c, struct node *out,
                       struct node *env_from);

/* Search parameters in any style, into out's search.parameters. */
void form_set_parameters(const struct context *c, struct node *out,
                         struct node *parameters);

/* Callbacks for tables: as the functions above; a map laid over what is at
 * f->to; a number of seconds as a time at f->to; the smallest of several
 * budgets at f->to; resources of Kubernetes. */
void form_take_pairs(struct reader *r, const struct field *f, struct node *n);
void form_take_env(struct reader *r, const struct field *f, struct node *n);
void form_take_env_from(struct reader *r, const struct field *f,
                        struct node *n);
void form_take_seconds(struct reader *r, const struct field *f,
                       struct node *n);
void form_take_least(struct reader *r, const struct field *f, struct node *n);
void form_take_resources(struct reader *r, const struct field *f,
                         struct node *n);

#endif
