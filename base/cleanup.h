/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope-bound ownership. A variable marked `_free_`, `_close_` or `_NAME_` owns
 * what it holds and releases it when it goes out of scope; take_ptr() and
 * take_fd() give the ownership away. Initialise at declaration.
 */
#ifndef MUSTER_BASE_CLEANUP_H
#define MUSTER_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
}

static inline void cleanup_fclose(FILE **f)
{
    if (*f) {
        fclose(*f);
    }
}

#define _free_ __attribute__((cleanup(cleanup_free)))
#define _close_ __attribute__((cleanup(cleanup_close)))
#define _fclose_ __attribute__((cleanup(cleanup_fclose)))

/* Makes `cleanup_NAME` for `struct NAME *` from `NAME_destroy`; use it as
 * `_cleanup_(NAME) struct NAME *p = NULL;`. */
#define DEFINE_CLEANUP(name)                                      \
    static inline void cleanup_##name(struct name **p)            \
    {                                                             \
        name##_destroy(*p);                                       \
    }                                                             \
    struct name
#define _cleanup_(name) __attribute__((cleanup(cleanup_##name)))

static inline void *take_ptr_(void *pp)
{
    void *p = *(void **)pp;

    *(void **)pp = NULL;
    return p;
}

/* The pointer, leaving NULL behind. */
#define take_ptr(pp) ((__typeof__(*(pp)))take_ptr_(pp))

/* The descriptor, leaving -1 behind. */
static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Closes, and leaves -1 behind. */
static inline void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
