/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in which a process dies: by SIGSEGV, at a place that the test picks. */
#ifndef MUSTER_TESTS_LIB_TRAP_H
#define MUSTER_TESTS_LIB_TRAP_H

#include <stddef.h>

/* Zeroes, never freed, whose page at byte `at` can not be touched. From then on
 * a SIGSEGV ends this process as such, under a sanitizer too. */
void *trap_alloc(size_t len, size_t at);

#endif
