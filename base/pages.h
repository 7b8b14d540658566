/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a mapping, many at a time (Linux 5.14): each that is touched for the first time
 * costs a way into the kernel else. What lies in them stays as it is. -errno where they
 * cannot be had so; then they come one by one, when they are touched, or not at all.
 */
#ifndef MUSTER_BASE_PAGES_H
#define MUSTER_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Of one. */
size_t pages_bytes(void);

/* Whether most of those that bytes [at, at + len) lie in, of private memory, are still to
 * come. False where that cannot be found out. */
bool pages_are_sparse(void *at, size_t len);

/* To be written to: all pages that bytes [at, at + len) lie in get their memory. -EFAULT,
 * and no SIGBUS: there is none. Who maps or unmaps something meanwhile waits. */
int pages_take(void *at, size_t len);

/* Of memory that is about to be written to all over, where it is much; NULL is none. */
void pages_expect(void *at, size_t len);

/* reallocarray(NULL) and calloc() of such memory. */
void *pages_alloc(size_t n, size_t size);
void *pages_calloc(size_t n, size_t size);

/* Of shared memory that is there, and may be written to afterwards: it is mapped. */
int pages_map(void *at, size_t len);

#endif
