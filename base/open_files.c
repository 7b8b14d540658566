/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/open_files.h"

#include <errno.h>
#include <sys/resource.h>

int open_files_need(unsigned n, struct error *e)
{
    struct rlimit l;

    n = n < OPEN_FILES_MIN ? OPEN_FILES_MIN : n;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= n) {
        return 0;
    }
    if (l.rlim_max < n) {
        return error_text(e, EMFILE, "the limit of open files is %llu (ulimit -Hn): "
                          "muster needs at least %u here, and about 4 more for each "
                          "worker of a node", (unsigned long long)l.rlim_max, n);
    }
    l.rlim_cur = n;
    return setrlimit(RLIMIT_NOFILE, &l) < 0
               ? error_set(e, errno, "raise the limit of open files to %u", n) : 0;
}

void open_files_raise(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}
