/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings: lists of them (argv, environments), strict numbers, nearest match.
 */
#ifndef MUSTER_BASE_STR_H
#define MUSTER_BASE_STR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A NULL-terminated list that owns its strings; zero-initialised is empty and
 * `items` is then NULL. Usable as argv once something was added. */
struct strlist {
    char **items;
    size_t n;
    bool failed; /* an allocation failed; later calls do nothing */
};

void strlist_release(struct strlist *l);
void strlist_add(struct strlist *l, const char *s);
void strlist_addf(struct strlist *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes ownership of `s`; NULL counts as a failed allocation. */
void strlist_take(struct strlist *l, char *s);
void strlist_add_all(struct strlist *l, char *const *items);

/* The list as an environment of NAME=VALUE: sets (replacing), reads (NULL when
 * absent; borrowed until the next change), and removes. */
void strlist_setenv(struct strlist *l, const char *name, const char *value);
const char *strlist_getenv(const struct strlist *l, const char *name);
void strlist_unsetenv(struct strlist *l, const char *name);

#define _strlist_ __attribute__((cleanup(strlist_release)))

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Whole decimal numbers only: no sign where unsigned, no blanks, no rest.
 * 0, or -EINVAL / -ERANGE. */
int str_to_u64(const char *s, uint64_t *ret);
int str_to_i64(const char *s, int64_t *ret);
int str_to_f64(const char *s, double *ret);

/* A number in decimal, not terminated: at most STR_U64_BYTES. Returns what is behind it. */
#define STR_U64_BYTES 20
char *str_put_u64(char *to, uint64_t n);

/* The name from a NULL-terminated list that `s` most likely meant (edit distance
 * at most a third of its length, at least 1), or NULL. */
const char *str_nearest(const char *s, const char *const *names);

/* One argument as a shell would need it to be read back as one word; the caller
 * frees it. */
char *str_shell_quote(const char *s);
/* A whole argv so quoted, joined by blanks, for showing it: what would drive a
 * terminal is written as \NNN. Nothing is ever run through a shell. */
char *str_shell_join(char *const *argv);

/* Copies with truncation, always terminated. */
void str_copy(char *to, size_t size, const char *from);

/* A DNS label: [a-z0-9]([-a-z0-9]*[a-z0-9])?, at most 63 bytes. */
bool str_is_label(const char *s);

#endif
