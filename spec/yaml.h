/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML text to trees. Everything that a hostile file can make large is bounded:
 * bytes, documents, nodes as they count after aliases are followed, nesting,
 * keys of one map, anchors, and the work that all of these make. Scalars stay
 * text; what a plain `yes` or `0755` means is decided by the field that it is
 * for.
 */
#ifndef MUSTER_SPEC_YAML_H
#define MUSTER_SPEC_YAML_H

#include "spec/node.h"
#include "spec/report.h"

#include <stddef.h>

#define YAML_MAX_BYTES ((size_t)4 << 20)
#define YAML_MAX_DOCUMENTS 100
#define YAML_MAX_NODES 100000
#define YAML_MAX_DEPTH 64
#define YAML_MAX_KEYS 4096
#define YAML_MAX_ANCHORS 1000
#define YAML_MAX_DIRECTIVES 100
/* Events, and names that are compared for an alias or a merge key: what is not
 * bounded well by the limits above, because it is a product of two of them. */
#define YAML_MAX_WORK 50000000

struct yaml_docs {
    struct node *docs[YAML_MAX_DOCUMENTS];
    size_t n; /* empty documents are not in it */
    size_t work; /* done for all this, at most YAML_MAX_WORK and one step */
};

/* Parses; `file` is for messages and is copied. With `fixed`, every node gets
 * that place. 0, or -ERR_SPEC with the one error in the report. */
int yaml_load(struct arena *a, const char *file, const char *text, size_t len,
              const struct place *fixed, struct yaml_docs *ret,
              struct report *r);

/* One value, as after --set PATH=. NULL with the error in the report. */
struct node *yaml_load_value(struct arena *a, const char *text,
                             const struct place *at, struct report *r);

#endif
