/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the types of fields do: read from a node, write to JSON, free. Private
 * to the schema.
 */
#ifndef MUSTER_SPEC_SCHEMA_TYPES_H
#define MUSTER_SPEC_SCHEMA_TYPES_H

#include "spec/schema.h"

struct type_ops {
    const char *word;
    /* False after reporting an error. `at` may be NULL. */
    bool (*read)(struct reader *r, const struct field *f, struct node *n,
                 void *at);
    /* A new reference; JSON null is left out; NULL: without memory. */
    json_t *(*write)(const struct field *f, const void *at);
    void (*release)(const struct field *f, void *at); /* NULL: owns nothing */
};

extern const struct type_ops *const field_types[];

extern const struct type_ops schema_count, schema_number, schema_nodes,
    schema_procs, schema_span, schema_backoff, schema_cpus, schema_bytes;
extern const struct type_ops schema_flags, schema_codes, schema_ranks,
    schema_prefix, schema_streams, schema_interface;
extern const struct type_ops schema_list, schema_pairs, schema_map,
    schema_items, schema_named;

/* Reports "PATH is WHAT; expected ..."; returns false. */
bool schema_mismatch(struct reader *r, const struct field *f,
                     const struct node *n);

/* Text of a scalar, or NULL after reporting. */
const char *schema_scalar(struct reader *r, const struct field *f,
                          const struct node *n);

/* The same where any text will do, with a warning where readers of YAML differ
 * about it. */
const char *schema_text(struct reader *r, const struct field *f,
                        const struct node *n);

/* Which of f->words it is, in any case; -1: none. */
int schema_word(const struct field *f, const char *s);

json_t *schema_write_string(const struct field *f, const void *at);
void schema_release_string(const struct field *f, void *at);

/* Copies into a char * of a struct (`at`), freeing what was there. */
bool schema_keep_string(struct reader *r, const char *s, void *at);

#endif
