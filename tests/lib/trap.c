/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/trap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *trap_alloc(size_t len, size_t at)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + at / page * page, page, PROT_NONE) < 0) {
        perror("trap_alloc");
        exit(99);
    }
    signal(SIGSEGV, SIG_DFL);
    return p;
}
