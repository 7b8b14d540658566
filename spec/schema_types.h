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
    void (*release)(const struct field *f, void *at);
};

extern const struct type_ops field_types[];

/* Reports "PATH is WHAT; expected ..."; returns false. */
bool schema_mismatch(struct reader *r, const struct field *f,
                     const struct node *n);

/* A scalar that is to be text, with a warning where readers of YAML differ
 * about it; NULL after an error. */
const char *schema_text(struct reader *r, const struct field *f,
                        const struct node *n);

/* Copies into a char * of a struct (`at`), freeing what was there. */
bool schema_keep_string(struct reader *r, const char *s, void *at);

/* Operations of the types that hold several values. */
bool schema_read_list(struct reader *r, const struct field *f, struct node *n,
                      void *at);
json_t *schema_write_list(const struct field *f, const void *at);
void schema_release_list(const struct field *f, void *at);
bool schema_read_pairs(struct reader *r, const struct field *f,
                       struct node *n, void *at);
json_t *schema_write_pairs(const struct field *f, const void *at);
bool schema_read_map(struct reader *r, const struct field *f, struct node *n,
                     void *at);
json_t *schema_write_map(const struct field *f, const void *at);
void schema_release_map(const struct field *f, void *at);
bool schema_read_items(struct reader *r, const struct field *f,
                       struct node *n, void *at);
json_t *schema_write_items(const struct field *f, const void *at);
void schema_release_items(const struct field *f, void *at);
bool schema_read_named(struct reader *r, const struct field *f,
                       struct node *n, void *at);
json_t *schema_write_named(const struct field *f, const void *at);

#endif
