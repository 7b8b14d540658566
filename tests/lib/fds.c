/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/fds.h"

#include "tests/lib/tap.h"

#include <dirent.h>

int fds_n_open(void)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    int n = 0;

    if (!dir) {
        bail_out("no /proc/self/fd");
    }
    while ((entry = readdir(dir))) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}
