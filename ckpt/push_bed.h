/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of a push share: a store that is a directory, with what a real one has beside
 * its bytes, of which any call fails, at which somebody else may do something; and what is to
 * be pushed there, one of muster's and another program's.
 */
#ifndef MUSTER_CKPT_PUSH_BED_H
#define MUSTER_CKPT_PUSH_BED_H

#include "ckpt/store.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum { PUSH_MAX_KEYS = 32, PUSH_MAX_PARTS = 4, PUSH_MAX_CALLS = 256 };

/* The other program's; in it "a.bin" is of two parts, "b.bin" is sent as a whole. */
#define PUSH_OTHER "checkpoint-5"

struct push_object {
    char key[128];
    char digest[64];
    struct s3_part parts[PUSH_MAX_PARTS]; /* of the upload that goes on */
    char *data[PUSH_MAX_PARTS];
    bool has_upload;
};

enum push_call {
    PUSH_NO_CALL, PUSH_LIST, PUSH_HEAD, PUSH_PUT, PUSH_BEGIN, PUSH_PART, PUSH_COMPLETE, PUSH_GET,
};

/* Which call fails, of a key that ends so; of a part, the number. */
struct push_fault {
    enum push_call call;
    const char *end;
    size_t number;
    int rc;
    unsigned n; /* times */
};

struct push_bed {
    struct push_object objects[PUSH_MAX_KEYS];
    int store_dir;
    bool is_plain; /* the store cannot be told to write over nothing */
    struct push_fault fault;
    void (*meanwhile)(struct push_object *o); /* somebody else does so at that moment */
    const char *log_of[PUSH_MAX_CALLS];       /* what was sent, in order */
    size_t n_log;
    uint64_t done, of; /* as it was told last */
    char path[64];
    int from; /* its directory */
    struct store st;
    struct parcel own, others;
    struct store_facts facts;
    char key[PATH_MAX];
};

/* Of the test, which defines it: the store knows no other one. */
extern struct push_bed push_bed;

void push_bed_open(struct push_bed *b);
void push_bed_close(struct push_bed *b);

int push_bed_push(struct push_bed *b, const struct parcel *p, struct error *e);
/* In the next push. */
void push_bed_fail(struct push_bed *b, enum push_call call, const char *end, size_t number,
                   int rc, unsigned n);
/* Of keys that end so. */
unsigned push_bed_n_sent(const struct push_bed *b, const char *end);
bool push_bed_has_seal(const struct push_bed *b, const struct parcel *p);
bool push_bed_is_whole(const struct push_bed *b, const struct parcel *p);

/* The key of a file of PUSH_OTHER's, until it is asked again. */
const char *push_bed_key(struct push_bed *b, const char *file);
struct push_object *push_bed_object(struct push_bed *b, const char *key);
/* Over what is there, or behind it. */
void push_bed_put(struct push_bed *b, const char *key, const void *data, size_t len,
                  bool is_more);
/* What somebody else may do: the upload is ended, or is complete. */
void push_bed_drop_parts(struct push_object *o);
void push_bed_make_object(struct push_object *o);

#endif
