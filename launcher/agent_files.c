/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_files.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/str.h"
#include "comm/agent_find.h"
#include "launcher/agent.h"

#include <inttypes.h>
#include <stdbool.h>
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

/* Its lease, its id, and what is left is its directory: that may have any name. */
void agent_files_tell_run(const struct agent *a)
{
    _buf_ struct buf b = {0};
    struct error e = {0};
    char path[PATH_MAX];
    int rc = path_of(a->dir, a->index, "run", path, &e);

    buf_printf(&b, "%" PRIu64 "\n%s\n%s", a->config.job->heartbeat_timeout_ms, a->run.id,
               a->run.dir);
    rc = rc < 0 ? rc : fs_write_replace(path, buf_str(&b), b.len, &e);
    if (rc < 0) {
        agent_log(a, "%s: should this agent be killed, what it leaves here stays "
                  "until muster gc", e.text);
    }
}

int agent_files_told(const char *dir, unsigned index, char *to, struct error *e)
{
    return path_of(dir, index, "run", to, e);
}

/* `text` ends at its first zero byte. */
static bool parse(char *text, struct agent_run *ret)
{
    char *id = strchr(text, '\n'), *dir = id ? strchr(id + 1, '\n') : NULL;

    if (!dir) {
        return false;
    }
    *id++ = *dir++ = '\0';
    if (str_to_u64(text, &ret->lease_ms) < 0 || strlen(id) >= sizeof(ret->id) ||
        strlen(dir) >= sizeof(ret->dir) || dir[0] != '/' || !id[0] || id[0] == '.' ||
        strchr(id, '/')) {
        return false;
    }
    str_copy(ret->id, sizeof(ret->id), id);
    str_copy(ret->dir, sizeof(ret->dir), dir);
    return true;
}

int agent_files_read(const char *told, struct agent_run *ret, struct error *e)
{
    _free_ char *text = NULL;
    size_t len;
    int rc = fs_read_regular(told, sizeof(*ret), &text, &len, e);

    if (rc < 0) {
        return rc;
    }
    if (strlen(text) != len || !parse(text, ret)) {
        return error_text(e, ERR_FORMAT, "%s names no run", told);
    }
    return 0;
}

/* By a keeper at its end, by muster-watch, which becomes that, or, where the watch was
 * killed, by one that is started now and waits until we are gone. */
static bool is_tidied_up(const struct agent *a)
{
    struct error e = {0};

    if (a->is_kept || getppid() == a->watch) {
        return true;
    }
    if (agent_tidy_after(strrchr(a->dir, '/') + 1, a->index, &e) < 0) {
        agent_log(a, "what was saved here stays in memory: %s", e.text);
        return false;
    }
    return true;
}

/* The lock goes last, while it is held: who waits for it sees that the file is
 * another one by then. The directory itself goes with the last agent of the
 * host, and with it what is in it: the key, where the front end put one here, and
 * what dead processes of this run left. */
void agent_files_remove(const struct agent *a)
{
    if (a->leaves_files && is_tidied_up(a)) {
        return;
    }
    remove_file(a, "log");
    remove_file(a, "run");
    remove_file(a, "lock");
    leftover_remove(a->dir, NULL);
}
