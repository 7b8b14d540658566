/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transparent huge pages, for memory that is about to be filled as a whole. To get a
 * page costs more than to fill it; one huge page takes the place of 512 of 4 KiB, and
 * then it costs less.
 *
 * They are asked for one by one (MADV_COLLAPSE, Linux 6.1), so that nothing else of the
 * process gets any, and nowhere more memory is taken than is filled. Where the kernel is
 * older, has none left, or the machine's own rule is
 * /sys/kernel/mm/transparent_hugepage/enabled = never, there are none, and nobody is told.
 */
#ifndef MUSTER_BASE_HUGEPAGES_H
#define MUSTER_BASE_HUGEPAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Of one, as the kernel says now. 0: there are none. */
size_t hugepages_bytes(void);

/* mmap() of the first `len` bytes of a file, MAP_SHARED, at an address where they may lie
 * in huge pages. */
void *hugepages_map(size_t len, int prot, int fd);

/* Makes the page of `huge` bytes at `at`, a multiple of that: all of it mapped, and to be
 * written to. What is there stays as it is, whoever else writes to it meanwhile. False: no,
 * and to ask for the next one is idle. */
bool hugepages_make(char *at, size_t huge);

/* Whether most of the page of `huge` bytes at `at`, of private memory, is still to come: to
 * make it copies what is there. */
bool hugepages_is_sparse(char *at, size_t huge);

#endif
