/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of spec_resolve() that have files of their own.
 */
#ifndef MUSTER_SPEC_RESOLVE_H
#define MUSTER_SPEC_RESOLVE_H

#include "spec/form.h"
#include "spec/job.h"
#include "spec/yaml.h"

#include <stdbool.h>

/* One call of spec_resolve(). */
struct resolving {
    struct context c;
    struct arena arena;
    struct report report;
    struct yaml_docs docs;
    const char *file;      /* as messages call it; NULL: an argv */
    struct node *document; /* the chosen one; NULL: an argv */
    const struct form *form;
    const char *hosts;     /* of a launcher in the command; NULL: it names none */
};

/* Sets document and form, or reports why there is none to be chosen. */
void resolve_choose(struct resolving *s);

/* All that runtime, job and command line give, without defaults; NULL after
 * errors. Every part of it may be changed. */
struct node *resolve_layers(struct resolving *s);

/* The tree without two of its keys. */
struct node *resolve_without(struct resolving *s, const struct node *tree,
                             const char *a, const char *b);

/* True for a variable that muster sets for each worker, so that its value is
 * not known here. */
bool resolve_is_owned(const char *name);

/* $(NAME) in env (each sees those before it) and in command and args, as far as
 * env has the name; what is left is a template for where the worker starts. */
void resolve_expand(const struct context *c, struct node *tree);

/* What PET_* and others in the environment say, where the tree says nothing; and what
 * a pod of Kubernetes leaves of the grace time. */
void resolve_environment(const struct context *c, struct node *tree);

/* What no single field can be wrong about. May settle values that depend on
 * others. Errors are placed by the tree that the job was read from. */
void resolve_check(const struct context *c, const struct node *tree,
                   bool is_runtime, struct job *job);

/* The part of it that is about `checkpoint`. */
void resolve_check_checkpoint(const struct context *c, const struct node *tree,
                              const struct job *job);

/* Adds the place of each value of the tree. False without memory. */
bool resolve_origins(const struct node *tree, struct spec_result *to);

#endif
