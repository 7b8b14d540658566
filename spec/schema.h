/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of keys. One table per dialect says which keys there are, of what type
 * and range, and where each goes: into a struct (the short form, by offset) or
 * to a path of the short form (all other dialects). The same table words the
 * errors, writes the struct back out, frees it, and makes the manual page.
 */
#ifndef MUSTER_SPEC_SCHEMA_H
#define MUSTER_SPEC_SCHEMA_H

#include "base/buf.h"
#include "spec/node.h"
#include "spec/report.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_ANY,     /* not looked at; for `take`, or to be ignored */
    FIELD_STRING,  /* char * */
    FIELD_LABEL,   /* char *, a DNS label */
    FIELD_BOOL,    /* bool */
    FIELD_COUNT,   /* uint32_t, min..max */
    FIELD_NUMBER,  /* double */
    FIELD_NODES,   /* struct job_nodes */
    FIELD_PROCS,   /* struct job_procs */
    FIELD_SPAN,    /* uint64_t ms, at least min */
    FIELD_BACKOFF, /* two uint64_t ms */
    FIELD_ENUM,    /* enum, by index in `words` */
    FIELD_PREFIX,  /* char *, as in log_prefix.h */
    FIELD_INTERFACE, /* char *, auto or as addr_choice_is_valid() has it */
    FIELD_FLAGS,   /* unsigned, bit i for words[i]; a list */
    FIELD_CODES,   /* uint8_t[32], set of exit codes */
    FIELD_RANKS,   /* char *, as in rank_set.h; also a list */
    FIELD_STREAMS, /* char *, as in stream_set.h; also a list */
    FIELD_CPUS,    /* uint32_t, thousandths */
    FIELD_BYTES,   /* uint64_t, at least min; TAKES_OFF: 0 */
    FIELD_LIST,    /* struct strlist of text */
    FIELD_PAIRS,   /* struct strlist of NAME=VALUE; a map */
    FIELD_MAP,     /* keys of `fields`, in the same struct */
    FIELD_ITEMS,   /* pointer and size_t: list of `fields` */
    FIELD_NAMED,   /* the same as a map; the first member is the name */
};

enum field_flags {
    FIELD_TAKES_AUTO = 1 << 0,  /* SPAN: JOB_AUTO; COUNT: 0 */
    FIELD_TAKES_OFF = 1 << 1,   /* SPAN: 0 */
    FIELD_TAKES_NEVER = 1 << 2, /* SPAN: JOB_NEVER */
    FIELD_REQUIRED = 1 << 3,    /* ITEMS: in each of them; MAP: in it */
};

struct reader;

struct field {
    const char *name; /* NULL ends the table */
    enum field_type type;
    unsigned flags;
    size_t offset;
    uint64_t min;
    uint64_t max;
    const char *const *words;
    const struct field *fields;
    size_t item_size;
    const char *def;   /* as in YAML; NULL: none */
    const char *help;
    const char *later; /* understood, but not acted on yet: what is done */
    const char *unused; /* never acted upon: why */
    const char *to;    /* path in the short form */
    /* Called after the check, instead of `to`. */
    void (*take)(struct reader *r, const struct field *f, struct node *n);
};

/* State of one walk over a tree. */
struct reader {
    struct arena *arena;
    struct report *report;
    struct node *out; /* short form that `to` and `take` build */
    bool notes;       /* note what is not acted upon */
    void *user;
    char path[256];
};

/* The origin of built-in defaults. */
#define PLACE_DEFAULT "default"

/* Checks `map` against `fields` and stores at `base` (NULL: only checks) or in
 * r->out. Errors go to the report; false if there was one. */
bool schema_read(struct reader *r, const struct field *fields,
                 const struct node *map, void *base);

/* One value. */
bool schema_read_field(struct reader *r, const struct field *f,
                       struct node *n, void *base);

/* Adds a name to r->path for the messages to come; returns what gives
 * schema_leave() the path back. */
size_t schema_enter(struct reader *r, const char *name);
void schema_leave(struct reader *r, size_t before);

/* The field at a path of the short form, or NULL. A path below a FIELD_PAIRS
 * gives that. */
const struct field *schema_find(const struct field *fields, const char *path);

/* The defaults as a tree. */
struct node *schema_defaults(struct arena *a, const struct field *fields,
                             struct report *r);

/* The struct as JSON; NULL without memory. */
json_t *schema_write(const struct field *fields, const void *base);

/* Frees what the struct owns, not the struct. */
void schema_release(const struct field *fields, void *base);

/* "a whole number from 1 to 65536": what `f` accepts. */
void schema_describe(const struct field *f, struct buf *to);

/* "number", "span": its type in a few letters, for the manual. */
const char *schema_type_word(const struct field *f);

/* The table of the short form: struct job. */
extern const struct field job_fields[];

#endif
