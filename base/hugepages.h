/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transparent huge pages, for memory that is about to be filled as a whole. To get a
 * page costs more than to fill it; one huge page takes the place of 512 of 4 KiB, and
 * then it costs less. But where memory lies about in pieces, or is that of a virtual
 * machine that gives what it does not use back to its host in such pages, each may take
 * longer than the small ones. So small ones take the place of the first, and once the huge
 * ones have taken longer than those there are no more.
 *
 * They are asked for one by one, so that nothing else of the process gets any, and nowhere
 * more memory is taken than is filled: of shared memory by MADV_COLLAPSE (Linux 6.1), which
 * makes them of small ones; of private memory by MADV_HUGEPAGE and MADV_POPULATE_WRITE (5.14),
 * as the other one keeps all threads from mapping anything meanwhile. Where the kernel is
 * older, has none left, or the machine's own rule is
 * /sys/kernel/mm/transparent_hugepage/enabled = never, there are none, and nobody is told.
 */
#ifndef MUSTER_BASE_HUGEPAGES_H
#define MUSTER_BASE_HUGEPAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Those of one memory that is filled, by any number of threads. */
struct hugepages {
    size_t bytes;        /* of one; 0: there are none */
    atomic_bool is_over; /* the kernel has no more, or none that come fast */
    atomic_bool has_begun;
    _Atomic uint64_t small_ns; /* the processor's time for as many small pages */
    _Atomic uint64_t n, ns;    /* how many were asked for, and the time for them */
};

/* For memory of `len` bytes, by what the kernel says now. Of little there are none: to find
 * out that they come slowly would take a good part of the time that it takes. */
void hugepages_look(struct hugepages *ret, size_t len);

/* mmap() of the first `len` bytes of a file, MAP_SHARED, at an address where they may lie
 * in huge pages. */
void *hugepages_map(size_t len, int prot, int fd);

/* Private memory of that length for what goes to a file or comes from one past the page
 * cache: a disk takes so many pieces of memory at a time, and a huge page is one. In others
 * where there are no huge ones. NULL: there is none; munmap() frees it. */
char *hugepages_buffer(size_t len);

/* Makes the one at `at`, a multiple of their size, if there is any more (of the first call
 * small ones): all of it mapped, and to be written to. What is there stays as it is, whoever
 * else writes to it meanwhile. */
void hugepages_make(struct hugepages *h, char *at);

/* The same of private memory, of which that one has no page yet. False: nothing was done, as
 * there are no more, or it could not be. */
bool hugepages_take(struct hugepages *h, char *at);

#endif
