/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/mapped.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

unsigned long long mapped_bytes(void)
{
    _close_ int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t n = read(fd, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return strtoull(text, NULL, 10) * (unsigned long long)sysconf(_SC_PAGESIZE);
}
