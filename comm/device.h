/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs that a program has pointers to, and that only the driver reaches:
 * NVIDIA's, by the driver API (libcuda). It is looked for among what the program has
 * loaded, and never loaded here: without it no pointer can be a GPU's. Structures and
 * numbers are those of cuda.h, which need not be there.
 *
 * Managed and pinned memory is the processor's as well, and counts as that.
 *
 * Any thread, each call by itself. The program's own current context stays current.
 */
#ifndef MUSTER_COMM_DEVICE_H
#define MUSTER_COMM_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct device;

/* Zero-initialised it is ready for use. For one thread at a time. */
struct device_finder {
    struct device *found; /* NULL: no driver */
    unsigned long long n_loaded; /* libraries of the program, when it was looked for */
};
void device_finder_release(struct device_finder *f);

/* The driver that reaches `p`; NULL: the processor does, or `p` is NULL. It lives as
 * long as the finder. */
const struct device *device_of(struct device_finder *f, const void *p);

/* Waits until all that was asked of the GPU that `p` lies on has been done: then its
 * bytes are what the program made them. *last, at first NULL, is what was waited for
 * last: not again for the next tensor there. */
int device_settle(const struct device *d, const void *p, void **last,
                  struct error *e);

/* `len` bytes from the GPU's memory at `from`, or to that at `to`. Returns when they are
 * there. -EREMOTEIO
 * in the driver's words. */
int device_get(const struct device *d, void *to, const void *from, size_t len,
               struct error *e);
int device_put(const struct device *d, void *to, const void *from, size_t len,
               struct error *e);

#endif
