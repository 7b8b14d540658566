/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tmpdir.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 3000 };

/* A thread that is left behind has it for good. */
struct looking {
    char path[PATH_MAX]; /* what is there of it: it, or what it would be made in */
    int problem;         /* an errno value, or 0 */
};

/* Parents that are missing are made by mpirun. */
static void look(void *arg)
{
    struct looking *l = arg;
    struct stat st;
    char *slash;

    while (access(l->path, W_OK | X_OK) < 0) {
        slash = strrchr(l->path, '/');
        l->problem = errno;
        if (l->problem != ENOENT || !slash || strcmp(l->path, "/") == 0) {
            return;
        }
        slash[slash == l->path] = '\0';
    }
    l->problem = stat(l->path, &st) == 0 && !S_ISDIR(st.st_mode) ? ENOTDIR : 0;
}

/* Open MPI's order. One that its own settings name comes before these. */
static const char *find(const char **ret_name)
{
    static const char *const own[] = {
        "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base",
        "PRTE_MCA_prte_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base",
    };
    static const char *const names[] = {"TMPDIR", "TEMP", "TMP"};

    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        if (getenv(own[i])) {
            return NULL;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (getenv(names[i])) {
            *ret_name = names[i];
            return getenv(names[i]);
        }
    }
    *ret_name = "TMPDIR is not set, and";
    return "/tmp";
}

int tmpdir_check(struct error *e)
{
    const char *name = "", *path = find(&name);
    struct looking *l;
    int rc = 0;

    if (!path || path[0] != '/' || strlen(path) >= PATH_MAX) {
        return 0; /* mpirun may make something of it */
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(e, ENOMEM, "look at %s", path);
    }
    str_copy(l->path, sizeof(l->path), path);
    if (!thread_call_within(look, l, PATIENCE_MS)) {
        return 0;
    }
    if (l->problem) {
        rc = error_text(e, ERR_USAGE, "%s %s: mpirun cannot have its files there, for %s "
                        "%s (%s); set TMPDIR to a directory that this user can write to",
                        name, path, l->path,
                        l->problem == ENOTDIR ? "is no directory"
                                              : "cannot be written to",
                        strerror(l->problem));
    }
    free(l);
    return rc;
}
