/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_files.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/str.h"
#include "launcher/agent.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int path_of(const char *dir, unsigned index, const char *kind, char *to,
                   struct error *e)
{
    return fs_path(to, PATH_MAX, e, "%s/agent-%u.%s", dir, index, kind);
}

static void remove_file(const struct agent *a, const char *kind)
{
    char path[PATH_MAX];

    if (path_of(a->dir, a->index, kind, path, NULL) == 0) {
        unlink(path);
    }
}

void agent_files_tell_run(const struct agent *a)
{
    struct error e = {0};
    char path[PATH_MAX];
    int rc = path_of(a->dir, a->index, "run", path, &e);

    rc = rc < 0 ? rc : fs_write_replace(path, a->run.dir, strlen(a->run.dir), &e);
    if (rc < 0) {
        agent_log(a, "%s: should this agent be killed, what it leaves here stays "
                  "until muster gc", e.text);
    }
}

int agent_files_run_path(const char *dir, unsigned index, char *to, struct error *e)
{
    return path_of(dir, index, "run", to, e);
}

int agent_files_run(const char *told, char *to, size_t size, struct error *e)
{
    _free_ char *text = NULL;
    size_t len;
    int rc = fs_read_regular(told, size - 1, &text, &len, e);

    if (rc < 0) {
        return rc;
    }
    if (text[0] != '/' || strlen(text) != len) {
        return error_text(e, ERR_FORMAT, "%s names no directory", told);
    }
    str_copy(to, size, text);
    return 0;
}

/* The lock goes last, while it is held: who waits for it sees that the file is
 * another one by then. The directory itself goes with the last agent of the
 * host, and with it what is in it: the key, where the front end put one here, and
 * what dead processes of this run left. */
void agent_files_remove(const struct agent *a)
{
    if (a->leaves_files && getppid() == a->watch) {
        return;
    }
    remove_file(a, "log");
    remove_file(a, "run");
    remove_file(a, "lock");
    leftover_remove(a->dir, NULL);
}
