/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files that others may cut short. Whoever touches a page that such a file has
 * no more, or for which there is no memory, is killed by SIGBUS. What is registered
 * here becomes empty memory at that moment instead, all of it, and says so: whoever
 * reads it goes on, with zeros, and asks mapguard_is_torn() before it believes what it
 * has read. That costs nothing until it happens, and a signal of this kind belongs to
 * the thread and the instruction that caused it.
 */
#ifndef MUSTER_BASE_MAPGUARD_H
#define MUSTER_BASE_MAPGUARD_H

#include <stdbool.h>
#include <stddef.h>

struct mapguard;

/* Handles SIGBUS from now on; one of another address does what it did before. For
 * programs, not for a library. */
void mapguard_install(void);
/* In each other thread that reads such memory: one where that signal is blocked dies of
 * it. */
void mapguard_admit(void);

/* Of a mapping that may be read and written. NULL: no memory. Any thread. */
struct mapguard *mapguard_add(void *at, size_t len);
/* Before it is unmapped. NULL is allowed. */
void mapguard_remove(struct mapguard *g);
bool mapguard_is_torn(const struct mapguard *g);

#endif
