/* SPDX-License-Identifier: Apache-2.0 */
/* Builds muster-job.5.scd: copies its frame from stdin to stdout, with the keys of
 * the spec, as the parser knows them, in place of the line @KEYS@. */
#include <config.h>

#include "base/buf.h"
#include "spec/spec.h"

#include <stdio.h>
#include <string.h>

int main(void)
{
    _buf_ struct buf keys = {0};
    char line[4096];

    spec_print_table(&keys);
    if (keys.failed) {
        return 1;
    }
    while (fgets(line, sizeof(line), stdin)) {
        fputs(strcmp(line, "@KEYS@\n") == 0 ? buf_str(&keys) : line, stdout);
    }
    return fflush(stdout) || ferror(stdout) || ferror(stdin);
}
