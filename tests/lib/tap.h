/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test program in TAP: cases are counted as they run and the plan is printed
 * by tap_done(), whose result main() returns. Every check prints the place and
 * the values on failure. Not thread-safe.
 */
#ifndef MUSTER_TESTS_LIB_TAP_H
#define MUSTER_TESTS_LIB_TAP_H

#include <stdbool.h>
#include <stdint.h>

#define ok(cond, ...) tap_ok(__FILE__, __LINE__, (cond), __VA_ARGS__)
#define is_int(got, want, ...) \
    tap_int(__FILE__, __LINE__, (intmax_t)(got), (intmax_t)(want), __VA_ARGS__)
#define is_str(got, want, ...) \
    tap_str(__FILE__, __LINE__, (got), (want), __VA_ARGS__)
#define like(got, part, ...) \
    tap_like(__FILE__, __LINE__, (got), (part), __VA_ARGS__)

/* Each returns whether the check passed; `name` is a printf format. */
bool tap_ok(const char *file, int line, bool cond, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
bool tap_int(const char *file, int line, intmax_t got, intmax_t want,
             const char *name, ...) __attribute__((format(printf, 5, 6)));
bool tap_str(const char *file, int line, const char *got, const char *want,
             const char *name, ...) __attribute__((format(printf, 5, 6)));
/* Passes if `part` occurs in `got`. */
bool tap_like(const char *file, int line, const char *got, const char *part,
              const char *name, ...) __attribute__((format(printf, 5, 6)));

/* A line of comment in the output. */
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The thread sanitizer finds races, also those that a test is about. */
#ifdef __SANITIZE_THREAD__
enum { TAP_FINDS_RACES = 1 };
#else
enum { TAP_FINDS_RACES = 0 };
#endif

/* One skipped case, with the reason. */
void skip(const char *why, ...) __attribute__((format(printf, 1, 2)));

/* Gives up: nothing after this would mean anything. */
_Noreturn void bail_out(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Bytes of memory that each call of `f`, which prints nothing, leaves allocated. 0 where
 * a sanitizer or valgrind has an allocator of its own: that finds them itself. */
intmax_t tap_leak(void (*f)(void *arg), void *arg);

/* The path of this program, for those that run themselves: /proc/self/exe is
 * another one where valgrind runs it. */
const char *tap_self(void);

/* Whether valgrind runs this program. Its posix_spawn() cannot tell of a program
 * that did not start, and its strstr() is a slow one. */
bool tap_valgrind(void);

/* Prints the plan. Returns 0 if all passed, else 1. */
int tap_done(void);

#endif
