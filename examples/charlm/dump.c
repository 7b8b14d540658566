/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int dump_write(const char *path, struct shape s, const real *values,
               struct failure *f)
{
    struct tensor tensors[MAX_TENSORS];
    size_t n = weights_list(s, tensors);
    FILE *to = fopen(path, "we");
    int failed;

    if (!to) {
        return failure_errno(f, errno, "open %s", path);
    }
    for (size_t i = 0; i < n; i++) {
        const real *from = values + tensors[i].offset;

        for (size_t j = 0; j < tensors[i].rows * tensors[i].cols; j++) {
            fprintf(to, "%s %zu %.9g\n", tensors[i].name, j, (double)from[j]);
        }
    }
    failed = ferror(to);
    if (fclose(to) != 0 || failed) {
        return failure_errno(f, errno ? errno : EIO, "write %s", path);
    }
    return 0;
}
