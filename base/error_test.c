/* SPDX-License-Identifier: Apache-2.0 */
/* How failures are worded. */
#include <config.h>

#include "base/error.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

static void test_words(void)
{
    struct error e = {0};

    is_int(error_set(&e, ENOENT, "open %s", "x"), -ENOENT, "the code is returned");
    is_str(e.text, "open x: No such file or directory", "the system's name is added");
    is_int(error_wrap(&e, "rank %d", 3), -ENOENT, "and kept");
    is_str(e.text, "rank 3: open x: No such file or directory", "behind its context");
    error_set(&e, ERR_FORMAT, "no number");
    is_str(e.text, "no number", "our own codes have no name");
    error_text(&e, EINVAL, "no step");
    is_str(e.text, "no step", "nor has what says all");
    is_int(error_set(NULL, EMFILE, "x"), -EMFILE, "nobody need ask");
}

static void test_limits(void)
{
    struct rlimit files, size, low;
    struct error e = {0};

    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_FSIZE, &size);
    low = files;
    low.rlim_cur = 77;
    setrlimit(RLIMIT_NOFILE, &low);
    error_set(&e, EMFILE, "open x");
    is_str(e.text, "open x: Too many open files (this process may have 77 open: ulimit -n)",
           "the limit of open files is told");
    setrlimit(RLIMIT_NOFILE, &files);
    low = size;
    low.rlim_cur = RLIM_INFINITY;
    if (setrlimit(RLIMIT_FSIZE, &low) == 0) {
        error_set(&e, EFBIG, "write x");
        is_str(e.text, "write x: File too large", "where there is none it is the filesystem's");
    }
    low.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &low);
    error_set(&e, EFBIG, "write x");
    is_str(e.text, "write x: File too large (this process may write files of 1048576 bytes: "
                   "ulimit -f)", "so is that of their size");
    setrlimit(RLIMIT_FSIZE, &size);
}

/* What does not fit is cut, and nothing more. */
static void test_long(void)
{
    char many[2000];
    struct error e = {0};

    memset(many, 'x', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    error_set(&e, EMFILE, "%s", many);
    is_int((int)strlen(e.text), (int)sizeof(e.text) - 1, "as much as there is room for");
    error_wrap(&e, "%s", many);
    is_int((int)strlen(e.text), (int)sizeof(e.text) - 1, "also behind a context");
}

int main(void)
{
    test_words();
    test_limits();
    test_long();
    return tap_done();
}
