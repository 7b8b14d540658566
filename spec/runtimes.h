/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where runtimes are found: in the same file as the job, in directories of the
 * user and of the site, and built in. The kind of a reference says which of the
 * directories comes first.
 */
#ifndef MUSTER_SPEC_RUNTIMES_H
#define MUSTER_SPEC_RUNTIMES_H

#include "spec/form.h"
#include "spec/yaml.h"

/* The runtime of that name in the short form. NULL after an error at `at`. */
struct node *runtimes_load(const struct context *c,
                           const struct yaml_docs *same_file, const char *name,
                           const char *kind, const struct place *at);

/* All names, one a line with where it is. */
void runtimes_list(const struct context *c, struct buf *to);

#endif
