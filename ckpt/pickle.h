/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python pickles, looked at and never run: whether one is whole, from its first
 * instruction to STOP, each with what it needs. Source: the protocol's description in
 * the standard library's pickletools, protocols 0 to 5.
 */
#ifndef MUSTER_CKPT_PICKLE_H
#define MUSTER_CKPT_PICKLE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKLE_STOP '.'

/* 0, and how many bytes it takes: an unpickler could go through it, with the classes that it
 * names. -ERR_FORMAT: cut, or an instruction that there is not, or that cannot do what it
 * does, at a byte that `e` names; -ENOMEM. */
int pickle_check(const void *data, size_t len, size_t *ret_len,
                 struct error *e);

/* One instruction; its argument is in the pickle's bytes. */
struct pickle_op {
    uint8_t op;
    const uint8_t *argument;
    size_t len; /* of the argument, with a length or the ends of lines that it has */
};

/* The one at `*at`, which then is the next one's. 0 or -ERR_FORMAT. */
int pickle_next(const void *data, size_t len, size_t *at,
                struct pickle_op *ret, struct error *e);

/* Of so many bytes, little-endian, as arguments have it. */
uint64_t pickle_number(const uint8_t *at, size_t bytes);
/* Where an instruction keeps a value, or fetches one: a number, or digits to the end of the line.
 * UINT64_MAX: it is none. */
uint64_t pickle_place(const struct pickle_op *op);

/* What an instruction leaves behind, where that is a text, a name (of a class, without
 * its module), a number of 0 or more, or None; anything else has neither. Text protocols (0)
 * say a persistent id as one text. */
struct pickle_value {
    const char *text; /* in the pickle's bytes, without a zero byte behind it */
    size_t len;
    uint64_t number;
    bool is_number;
    bool is_none;
    bool is_class; /* the text is the name of one, and no text to the program */
    bool is_persistent; /* instead: it is another file's, as the tuple before it says */
};

/* Each value in order, those too that were seen before and are only referred to. Ends
 * at STOP. `each` returns less than 0 to end it, which is returned then. 0;
 * -ERR_FORMAT; -ENOMEM; -EFBIG: it refers to more than is kept here. */
int pickle_values(const void *data, size_t len,
                  int (*each)(void *arg, const struct pickle_value *v),
                  void *arg, struct error *e);
bool pickle_is_text(const struct pickle_value *v, const char *text);

#endif
